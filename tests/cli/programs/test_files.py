"""inspect, verify, tokenize, plan and convert on good and bad files."""

import hashlib
import json
import os
import pathlib
import struct
import unittest

from harness import MODEL, NATIVE, TESTDATA, TS_CLI, Case, model, run

LOADERS = {"run": ["-p", "x", "-n", "1"], "plan": [], "inspect": [], "verify": [],
           "tokenize": ["x"], "bench": []}


class Inspect(Case):
    def test_json_keys(self):
        result = self.expect_success(run("inspect", MODEL, "--json")).json()
        self.assertEqual(result["architecture"], "llama")
        self.assertEqual(result["parameters"], 260032)
        self.assertEqual(result["bits_per_weight"], 32)
        self.assertEqual(result["file_bytes"], os.path.getsize(MODEL))
        self.assertIsNone(result["hadamard"])
        self.assertEqual(result["tokenizer"]["vocabulary"], 512)
        self.assertEqual(sum(t["bytes"] for t in result["tensors"]), 4 * 260032)
        embedding = next(t for t in result["tensors"] if t["name"] == "token_embd.weight")
        self.assertEqual(embedding["shape"], [64, 512])
        self.assertEqual(embedding["type"], "f32")
        self.assertTrue(all(m["total_bytes"] > 4 * 260032 for m in result["memory"]))
        # Long arrays are abridged unless asked for.
        self.assertEqual(result["metadata"]["tokenizer.ggml.tokens"]["length"], 512)
        full = run("inspect", MODEL, "--json", "--full").json()
        self.assertEqual(len(full["metadata"]["tokenizer.ggml.tokens"]), 512)

    def test_text_and_the_second_program_agree(self):
        outcome = self.expect_success(run("inspect", MODEL))
        self.assertEqual(outcome.stderr, "")
        for word in ("general.architecture", "token_embd.weight", "260,032 parameters",
                     "Rotation: none", "Memory"):
            self.assertIn(word, outcome.text)
        self.assertEqual(run("inspect", MODEL, program=TS_CLI).text, outcome.text)

    def test_rotated_files_are_described(self):
        path = str(TESTDATA / "qwen35" / "folded_ptq1_0.gguf")
        text = self.expect_success(run("inspect", path)).text
        self.assertRegex(text, r"Rotation: block \d+, signs for widths \d+.*; \d+ matrices and the embedding")
        self.assertIn("prism.hadamard.sign_mode", text)
        hadamard = run("inspect", path, "--json").json()["hadamard"]
        self.assertEqual(hadamard["sign_mode"], "explicit")
        # Signs are abridged, too; a digest tells them apart.
        signs = hadamard["sign_values"]
        full = run("inspect", path, "--json", "--full").json()["hadamard"]["sign_values"]
        self.assertEqual(signs["length"], len(full))
        self.assertEqual(signs["first"], full[:64])
        self.assertGreater(len(full), 64)
        self.assertEqual(set(full), {-1, 1})
        self.assertEqual(signs["sha256"],
                         hashlib.sha256(struct.pack(f"<{len(full)}q", *full)).hexdigest())
        shown = self.expect_success(run("inspect", path, "--full")).text
        self.assertIn(", ".join(map(str, full)), shown)

    def test_unknown_tensor_types_are_listed(self):
        file = model()
        file.set(file.tensors["token_embd.weight"]["type"], "I", 199)
        file.set(file.tensors["blk.0.ffn_up.weight"]["type"], "I", 36)
        path = file.write(self.folder / "unknown.gguf")
        result = self.expect_success(run("inspect", path, "--json")).json()
        types = {t["name"]: t["type"] for t in result["tensors"]}
        self.assertEqual(types["token_embd.weight"], "unknown(199)")
        self.assertEqual(len(types), len(file.tensors))
        self.assertIsNone(result["memory"])
        self.assertIn("199", result["memory_problem"])
        self.assertEqual(result["metadata"]["general.architecture"], "llama")
        self.assertIn("unknown(199)", self.expect_success(run("inspect", path)).text)
        # Its data is refused, by name and number, and without talk of damage.
        for command in ("run", "plan", "bench"):
            outcome = run(command, path, *LOADERS[command])
            self.expect_failure(outcome, 4, "token_embd.weight", "199")
            self.assertNotRegex(outcome.stderr, "overflow|magic|corrupt")
        self.expect_failure(run("inspect", path, "--hex", "token_embd.weight"), 4, "199")

    def test_tensors_statistics_and_bytes(self):
        chosen = run("inspect", MODEL, "--tensors", "blk.?.ffn_*", "--json").json()["tensors"]
        self.assertEqual(len(chosen), 5 * 4)
        self.expect_failure(run("inspect", MODEL, "--tensors", "nothing*"), 2, "nothing*")
        rows = self.expect_success(
            run("inspect", MODEL, "--tensors", "blk.0.*", "--stats", "--json")).json()["results"]
        query = next(r for r in rows if r["name"] == "blk.0.attn_q.weight")
        data = pathlib.Path(MODEL).read_bytes()
        place = next(t for t in run("inspect", MODEL, "--json").json()["tensors"]
                     if t["name"] == "blk.0.attn_q.weight")
        values = struct.unpack_from("<4096f", data, place["offset"])
        mean = sum(values) / 4096
        self.assertAlmostEqual(query["mean"], mean, places=9)
        self.assertAlmostEqual(query["rms"], (sum(v * v for v in values) / 4096) ** 0.5, places=7)
        self.assertAlmostEqual(query["max"], max(values), places=7)
        self.assertEqual(sum(query["histogram"].values()), 4096)
        shown = run("inspect", MODEL, "--hex", "blk.0.attn_q.weight", "--blocks", "3",
                    "--json").json()["results"]
        self.assertEqual("".join(r["bytes_hex"] for r in shown),
                         data[place["offset"]:place["offset"] + 12].hex())
        self.expect_failure(run("inspect", MODEL, "--hex", "no.such"), 2, "no.such")

    def changed(self, text: bytes, replacement: bytes) -> str:
        """A copy of the model with the first occurrence of a text replaced by one as long."""
        file = model()
        at = bytes(file.data).index(text)
        file.data[at:at + len(replacement)] = replacement
        return file.write(self.folder / "changed.gguf")

    def test_control_characters_do_not_reach_the_terminal(self):
        outcome = run("inspect", self.changed(b"stories260K", b"\x1b[2Jies\x9b\x07"))
        self.assertNotRegex(outcome.stdout, b"[\x00-\x09\x0b-\x1f\x7f]")
        self.assertIn("\\x1b[2Jies", outcome.text)
        outcome = run("inspect", self.changed(b"blk.0.attn_q.weight", b"\x1b[2J"))
        self.assertEqual(outcome.status, 3)
        self.assertNotIn("\x1b", outcome.stderr)
        outcome = run("inspect", "/no/such/\x1b[2J")
        self.assertNotIn("\x1b", outcome.stderr)

    def test_invalid_utf8_gives_valid_json(self):
        path = self.changed(b"stories260K", b"\xff\xfe\xc3(")
        self.assertIn("\ufffd", run("inspect", path, "--json").json()["name"])
        run("verify", path, "--json").json()
        run("run", path, "-p", "x", "-n", "1", "--json").json()


class Verify(Case):
    def test_a_sound_file(self):
        for level in ("quick", "full"):
            result = self.expect_success(run("verify", MODEL, "--level", level, "--json")).json()
            self.assertTrue(result["ok"])
            self.assertEqual(result["problems"], [])
        self.assertEqual(result["blocks"], 260032)
        self.assertLess(result["forward_difference"], 1e-3)
        self.assertIn("ok", run("verify", MODEL).text)

    def test_damage_is_found_and_placed(self):
        place = next(t for t in run("inspect", MODEL, "--json").json()["tensors"]
                     if t["name"] == "blk.2.ffn_down.weight")
        file = model()
        file.set(place["offset"] + 4 * 1000, "I", 0x7FC00000)
        path = file.write(self.folder / "nan.gguf")
        (problem,) = run("verify", path, "--json").json()["problems"]  # it is small: quick reads it
        self.assertEqual(problem["offset"], place["offset"] + 4000)
        outcome = run("verify", path, "--level", "full", "--json")
        self.assertEqual(outcome.status, 1)
        (problem,) = outcome.json()["problems"]
        self.assertEqual(problem["tensor"], "blk.2.ffn_down.weight")
        self.assertEqual(problem["offset"], place["offset"] + 4000)
        text = run("verify", path, "--level", "full")
        self.assertEqual(text.status, 1)
        self.assertIn("blk.2.ffn_down.weight", text.text)
        # Running it ends with exit status 3 and names the tensor.
        self.expect_failure_after_output(run("run", path, "-p", "x", "-n", "4"), "blk.2.ffn_down")

    def expect_failure_after_output(self, outcome, word):
        self.assertEqual(outcome.status, 3, outcome.stderr)
        self.assertIn(word, outcome.stderr)

    def test_unknown_types_and_missing_tensors(self):
        file = model()
        file.set(file.tensors["blk.1.attn_v.weight"]["type"], "I", 199)
        path = file.write(self.folder / "unknown.gguf")
        outcome = run("verify", path, "--json")
        self.assertEqual(outcome.status, 1)
        problems = outcome.json()["problems"]
        self.assertEqual(problems[0]["tensor"], "blk.1.attn_v.weight")
        self.assertIn("unknown(199)", problems[0]["what"])
        file = model()
        at = bytes(file.data).index(b"blk.3.ffn_norm.weight")
        file.data[at:at + 3] = b"xxx"
        path = file.write(self.folder / "missing.gguf")
        outcome = run("verify", path)
        self.assertEqual(outcome.status, 1)
        self.assertIn("blk.3.ffn_norm.weight", outcome.text)


class Tokenize(Case):
    def test_known_ids_both_ways(self):
        golden = json.loads((TESTDATA / "stories260k/golden.json").read_text())
        for case in golden["cases"]:
            result = self.expect_success(run("tokenize", MODEL, case["prompt"], "--json")).json()
            self.assertEqual(result["ids"], case["prompt_ids"])
            self.assertEqual(len(result["pieces"]), len(result["ids"]))
            self.assertTrue(result["round_trip"])
            ids = ",".join(map(str, case["prompt_ids"][1:]))
            back = self.expect_success(run("tokenize", MODEL, "--decode", ids))
            self.assertEqual(back.text, case["prompt"] + "\n")

    def test_input_from_a_pipe_and_from_files(self):
        expected = run("tokenize", MODEL, "caf\u00e9 \u4f60\u597d", "--json").json()
        text = "caf\u00e9 \u4f60\u597d".encode()
        self.assertEqual(run("tokenize", MODEL, "--json", stdin=text).json(), expected)
        (self.folder / "text").write_bytes(text)
        self.assertEqual(run("tokenize", MODEL, "--json", "-f", self.folder / "text").json(),
                         expected)
        plain = self.expect_success(run("tokenize", MODEL, "Once upon"))
        self.assertEqual(len(plain.text.splitlines()), 3)
        self.assertIn("round trip exact", plain.stderr)

    def test_control_tokens_are_text_unless_asked_for(self):
        self.assertNotIn(2, run("tokenize", MODEL, "a</s>", "--json").json()["ids"])
        self.assertIn(2, run("tokenize", MODEL, "a</s>", "--json", "--special").json()["ids"])
        self.assertEqual(run("tokenize", MODEL, "a", "--json").json()["ids"][0], 1)
        self.assertNotEqual(run("tokenize", MODEL, "a", "--no-bos", "--json").json()["ids"][0], 1)

    def test_bad_ids_and_bytes(self):
        self.expect_failure(run("tokenize", MODEL, "--decode", "1,512"), 2, "512", "511")
        self.expect_failure(run("tokenize", MODEL, "--decode", "1,x"), 2, "1,x")
        self.expect_failure(run("tokenize", MODEL, "--decode", "-1"), 2, "-1")
        # Single bytes of a character, and bytes that are no text at all.
        bytes_of = run("tokenize", MODEL, "\u4f60", "--no-bos", "--json").json()
        for token in bytes_of["ids"]:
            run("tokenize", MODEL, "--decode", str(token), "--json").json()
        run("tokenize", MODEL, "--json", stdin=bytes(range(256))).json()


class Plan(Case):
    def test_json_and_exit_status(self):
        result = self.expect_success(run("plan", MODEL, "--ctx", "64", "--json")).json()
        self.assertTrue(result["fits"])
        self.assertEqual(result["context"], 64)
        self.assertEqual(result["total_bytes"], sum(r["bytes"] for r in result["results"]))
        larger = run("plan", MODEL, "--ctx", "512", "--json").json()
        self.assertGreater(larger["total_bytes"], result["total_bytes"])
        outcome = run("plan", MODEL, "--ctx", "1000000000", "--json")
        self.assertEqual(outcome.status, 5)
        self.assertFalse(outcome.json()["fits"])
        self.assertTrue(outcome.json()["advice"])


class BadInput(Case):
    def test_missing_files_and_folders(self):
        for command, rest in LOADERS.items():
            missing = str(self.folder / "no such file.gguf")
            self.expect_failure(run(command, missing, *rest), 3, missing)
            self.expect_failure(run(command, self.folder, *rest), 3, str(self.folder))

    def test_files_that_are_something_else(self):
        for name, data in {"empty.gguf": b"", "text.gguf": b"hello, I am no model\n" * 100,
                           "random.gguf": bytes((i * 7919) >> 3 & 255 for i in range(100000)),
                           "zeros.gguf": bytes(4096),
                           "page.gguf": b"<!DOCTYPE html><html><body>Not found</body></html>"}.items():
            path = self.folder / name
            path.write_bytes(data)
            for command, rest in LOADERS.items():
                with self.subTest(command=command, name=name):
                    self.expect_failure(run(command, path, *rest), 3, name)

    def test_truncated_files_name_the_tensor(self):
        data = pathlib.Path(MODEL).read_bytes()
        path = self.folder / "cut.gguf"
        for length in (3, 24, 100, 5000, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:length])
            for command in ("run", "inspect", "verify", "tokenize"):
                with self.subTest(command=command, length=length):
                    outcome = run(command, path, *LOADERS[command])
                    self.expect_failure(outcome, 3, "cut.gguf")
        self.assertRegex(outcome.stderr, r"[a-z_.0-9]+\.weight|tensor")

    def test_context_of_a_thousand_million(self):
        self.expect_failure(run("run", MODEL, "-p", "x", "-n", "1", "--ctx", "1000000000"), 5,
                            "context")

    @unittest.skipUnless(NATIVE, "the address space is not the program's own")
    def test_little_address_space(self):
        # Too little even to start: the loader of the system speaks.
        outcome = run("inspect", MODEL, address_space=1 << 20)
        self.assertNotEqual(outcome.status, 0)
        # Enough to start, not enough to work; never a crash.
        results = set()
        for megabytes in (48, 64, 96, 160, 320):
            outcome = run("run", MODEL, "-p", "x", "-n", "1", "--ctx", "8192", "--kv", "f32",
                          address_space=megabytes << 20)
            self.assertIn(outcome.status, (0, 5, 127), f"{megabytes} MB: {outcome.stderr}")
            if outcome.status != 0:
                self.assertTrue(outcome.stderr.strip())
            results.add(outcome.status)

    def test_paths_in_any_script(self):
        folder = self.folder / "\u041c\u043e\u0434\u0435\u043b\u0438 \u6a21\u578b \u00e9 \U0001f642"
        deep = folder / ("d" * 120) / ("e" * 120)
        deep.mkdir(parents=True)
        path = deep / "m\u00f6del.gguf"
        path.write_bytes(pathlib.Path(MODEL).read_bytes())
        self.assertGreater(len(str(path)), 260)
        result = self.expect_success(run("inspect", path, "--json")).json()
        self.assertEqual(result["path"], str(path))
        self.expect_success(run("run", path, "-p", "x", "-n", "1", "--json"))
        self.expect_failure(run("inspect", str(path) + "x"), 3, "m\u00f6del.ggufx")
        odd = os.fsencode(self.folder) + b"/\xff\xfe.gguf"
        pathlib.Path(os.fsdecode(odd)).write_bytes(pathlib.Path(MODEL).read_bytes())
        run("inspect", odd, "--json").json()


class Convert(Case):
    def test_checkpoint_to_gguf_and_back_to_a_run(self):
        out = self.folder / "out.gguf"
        result = self.expect_success(
            run("convert", TESTDATA / "hf/llama", out, "--json")).json()
        self.assertTrue(result["lossless"])
        self.assertEqual(result["output_bytes"], out.stat().st_size)
        self.expect_success(run("verify", out, "--level", "full"))
        self.expect_failure(run("convert", TESTDATA / "hf/llama", out), 2, "out.gguf")
        self.expect_success(run("convert", TESTDATA / "hf/llama", out, "--force"))

    def test_warnings_are_part_of_the_report(self):
        out = self.folder / "plain.gguf"
        rotated = (TESTDATA / "qwen35" / "folded_ptq1_0.gguf").read_bytes()
        path = self.folder / "lost.gguf"
        # The keys under other names: the same bytes without a rotation.
        path.write_bytes(rotated.replace(b"prism.hadamard.", b"prism.hadamart."))
        for command in (["convert", path, out, "--json"], ["inspect", path, "--json"],
                        ["verify", path, "--json"]):
            outcome = self.expect_success(run(*command))
            self.assertIn("without prism.hadamard.* keys", "\n".join(
                n if isinstance(n, str) else n["what"] for n in outcome.json()["notes"]))
            self.assertNotIn("warning", outcome.stderr)
        # One key under another name: refused.
        path.write_bytes(rotated.replace(b"prism.hadamard.version", b"prism.hadamard.versiox"))
        outcome = run("convert", path, self.folder / "x.gguf")
        self.expect_failure(outcome, 3, "lost.gguf", "prism.hadamard.version")
        self.assertFalse((self.folder / "x.gguf").exists())

    def test_loss_is_refused_unless_wanted(self):
        out = self.folder / "small.gguf"
        outcome = run("convert", MODEL, out, "--scheme", "q8_0")
        self.assertEqual(outcome.status, 4, outcome.stderr)
        self.assertEqual(list(self.folder.glob("small*")), [])
        result = self.expect_success(
            run("convert", MODEL, out, "--scheme", "q8_0", "--lossy", "--json")).json()
        self.assertFalse(result["lossless"])
        self.expect_failure(run("convert", MODEL, self.folder / "x.gguf", "--scheme", "q99"), 2, "q99")


if __name__ == "__main__":
    unittest.main()
