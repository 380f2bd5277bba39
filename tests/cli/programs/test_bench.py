"""bench: keys, consistency, memory bandwidth, the machine's facts."""

import json
import os
import pathlib
import signal
import time
import unittest

from harness import MODEL, NATIVE, TS_CLI, Case, run, start


def writes_into(pid: int, folder: pathlib.Path) -> bool:
    """Whether a process has a file of this folder open, named or not yet."""
    try:
        return any(os.readlink(fd).startswith(str(folder.resolve()))
                   for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


class Bench(Case):
    def test_json_keys(self):
        result = self.expect_success(run("bench", MODEL, "-p", "64", "-n", "16", "-r", "3", "--json",
                                         "--threads", "1")).json()
        for key in ("model", "scheme", "isa", "load_seconds", "peak_rss_bytes"):
            self.assertIn(key, result)
        self.assertEqual([r["test"] for r in result["results"]], ["prefill", "decode"])
        for row in result["results"]:
            self.assertLessEqual(row["tokens_per_second_min"], row["tokens_per_second"])
            self.assertLessEqual(row["tokens_per_second"], row["tokens_per_second_max"])
            self.assertEqual((row["batch"], row["threads"]), (1, 1))
            # All matrices but the embedding's copy: one read per token.
            self.assertGreater(row["weight_bytes_per_token"], 900_000)
            # A model that fits in the caches says nothing about memory, one of floats nothing about
            # 8-bit products.
            self.assertIsNone(row["bandwidth_share"])
            self.assertIsNone(row["int8_peak_share_all"])
        self.assertEqual([r["n_tokens"] for r in result["results"]], [64, 16])

    def test_parts_and_contradictions(self):
        only = self.expect_success(run("bench", MODEL, "-p", "0", "-n", "8", "-r", "1", "--json"))
        self.assertEqual([r["test"] for r in only.json()["results"]], ["decode"])
        self.expect_failure(run("bench"), 2, "MODEL")
        self.expect_failure(run("bench", MODEL, "--membw"), 2, "both")
        self.expect_failure(run("bench", MODEL, "-p", "0", "-n", "0"), 2, "nothing")
        self.expect_failure(run("bench", MODEL, "-r", "0"), 2, "repetitions")
        text = self.expect_success(run("bench", MODEL, "-p", "8", "-n", "8", "-r", "2"))
        for word in ("prefill", "decode", "tokens/s", "peak memory"):
            self.assertIn(word, text.text)


    def isa(self) -> str:
        return self.expect_success(run("info", "--no-bandwidth", "--json", program=TS_CLI)).json()[
            "isa"]

    def test_batches_take_turns(self):
        rows = self.expect_success(run("bench", MODEL, "-p", "0", "-n", "16", "-r", "2", "--batch",
                                       "1,4,3", "--json", "--threads", "1")).json()["results"]
        self.assertEqual([(r["batch"], r["n_tokens"]) for r in rows], [(1, 16), (4, 16), (3, 18)])
        self.assertEqual(rows[0]["pass_cost"], 1)
        for row in rows[1:]:
            self.assertGreater(row["pass_cost"], 0.5)
            self.assertEqual(row["weight_bytes_per_token"],
                             rows[0]["weight_bytes_per_token"] // row["batch"])
        for wrong in ("0", "65", "1,x", ""):
            self.expect_failure(run("bench", MODEL, "--batch", wrong), 2, "--batch")

    def test_share_of_the_8_bit_peak(self):
        if self.isa() not in ("avx2", "avx_vnni", "avx512_vnni"):
            self.skipTest("no loop to compare with")
        row = self.expect_success(run("bench", "--synthetic", "llama-1.5b", "--layers", "1",
                                      "--scheme", "pq2_0", "-p", "64", "-n", "0", "-r", "1",
                                      "--threads", "1", "--json")).json()["results"][0]
        self.assertGreater(row["int8_peak_operations_per_second"], 1e9)
        self.assertGreater(row["int8_peak_share_matmul"], row["int8_peak_share_all"])
        self.assertGreater(row["int8_peak_share_all"], 0.01)
        self.assertLess(row["int8_peak_share_matmul"], 1.5)

    @unittest.skipUnless(NATIVE, "would take minutes")
    def test_kernels(self):
        rows = self.expect_success(run("bench", "--kernels", "--type", "ptq1_0", "--isa", self.isa(),
                                       "--threads", "1", "--json")).json()["results"]
        keys = {"codec", "isa", "op", "layout", "m", "n", "k", "threads", "bytes_per_second"}
        for row in rows:
            self.assertLessEqual(keys, set(row))
        products = [r for r in rows if r["codec"] == "ptq1_0"]
        self.assertIn("mapped", {r["layout"] for r in products})
        single = [r for r in products if r["op"] == "gemv"]
        self.assertTrue(all(r["m"] == 1 and r["bytes_per_second"] > 0 for r in single))
        self.assertEqual([r["n"] for r in rows if r["op"] == "fwht"],
                         [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192])
        self.assertLessEqual({"fft", "dct", "dense product"}, {r["op"] for r in rows})
        self.expect_failure(run("bench", "--kernels", "--type", "i8"), 2, "--type")
        self.expect_failure(run("bench", "--kernels", MODEL), 2, "both")
        self.expect_failure(run("bench", "--kernels", "-n", "3"), 2, "--kernels")
        self.expect_failure(run("bench", MODEL, "--type", "q8_0"), 2, "--kernels")

    def test_an_interrupt_keeps_whole_repetitions(self):
        process = start("bench", MODEL, "-p", "512", "-n", "0", "-r", "1000", "--json")
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        result = json.loads(out)
        self.assertFalse(result["complete"])
        self.assertGreater(result["results"][0]["repetitions"], 0)


class Synthetic(Case):
    """A model of random weights, in memory and as a file."""
    # Both kinds of layers, rotated weights and embedding, grouped heads.
    SHAPE = ("--synthetic", "qwen35-tiny", "--scheme", "pq2_0")

    def test_in_memory(self):
        result = self.expect_success(run("bench", *self.SHAPE, "-p", "64", "-n", "8", "-r", "1",
                                         "--threads", "1", "--json"))
        json = result.json()
        self.assertEqual([r["test"] for r in json["results"]], ["prefill", "decode"])
        self.assertGreater(json["results"][1]["tokens_per_second"], 0)
        self.assertEqual((json["scheme"], json["synthetic"]["seed"]), ("pq2_0", 1))
        self.assertEqual(json["parameters"], json["synthetic"]["parameters"])
        self.assertGreater(json["synthetic"]["make_seconds"], 0)
        self.assertIn("memory: needs", result.stderr)

    @unittest.skipUnless(NATIVE, "measures memory")
    def test_weights_are_there_once(self):
        json = self.expect_success(run("bench", "--synthetic", "smollm2-135m", "--layers", "1",
                                       "--scheme", "f32", "-p", "0", "-n", "2", "-r", "1",
                                       "--json")).json()
        self.assertGreater(json["synthetic"]["tensor_bytes"], 120e6)
        self.assertLess(json["peak_rss_bytes"], json["synthetic"]["tensor_bytes"] + 100e6)

    def test_written_file(self):
        path = self.folder / "model.gguf"
        write = ("bench", *self.SHAPE, "--write", path, "-p", "0", "-n", "0")
        first = self.expect_success(run(*write, "--json")).json()
        self.assertEqual(first["output_bytes"], path.stat().st_size)
        self.assertGreater(first["output_bytes"], first["tensor_bytes"])
        self.expect_failure(run(*write), 2, "--force", str(path))
        text = self.expect_success(run(*write, "--force")).text
        self.assertIn(f"{first['tensor_bytes']} tensor data", text)
        shown = self.expect_success(run("inspect", path, "--json")).json()
        self.assertEqual(len(shown["tensors"]), first["tensors"])
        self.assertEqual(sum(t["bytes"] for t in shown["tensors"]), first["tensor_bytes"])
        self.assertEqual(shown["parameters"], first["parameters"])
        self.assertTrue(self.expect_success(run("verify", path, "--level", "full",
                                                "--json")).json()["ok"])
        said = self.expect_success(run("run", path, "-p", "hello there", "-n", "4", "--greedy",
                                       "--ctx", "256", "--json")).json()
        self.assertEqual(said["generated_tokens"], 4)
        # Measured from the file, with the file written anew.
        measured = self.expect_success(run("bench", *self.SHAPE, "--write", path, "--force", "-p",
                                           "0", "-n", "2", "-r", "1", "--json")).json()
        self.assertEqual(measured["synthetic"]["output"], str(path))
        self.assertEqual([r["test"] for r in measured["results"]], ["decode"])
        self.assertEqual(sorted(p.name for p in self.folder.glob("*.gguf*")), ["model.gguf"])

    def test_an_interrupt_leaves_no_half_a_file(self):
        process = start("bench", "--synthetic", "qwen3-1.7b", "--write", self.folder / "m.gguf",
                        "-p", "0", "-n", "0")
        while process.poll() is None and not writes_into(process.pid, self.folder):
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (130, b""), err)
        self.assertEqual(list(self.folder.glob("m.gguf*")), [])

    def test_forms_and_families(self):
        for shape, scheme in (("qwen35-tiny", "ptq1_0"), ("qwen35-tiny", "q2_0"),
                              ("qwen35-tiny", "q8_0"), ("smollm2-135m", "q2_0")):
            with self.subTest(shape=shape, scheme=scheme):
                result = self.expect_success(run(
                    "bench", "--synthetic", shape, "--scheme", scheme, "--layers", "4", "-p", "70",
                    "-n", "2", "-r", "1", "--seed", "5", "--json"))
                self.assertEqual(result.json()["scheme"], scheme)
                self.assertEqual(result.json()["synthetic"]["seed"], 5)

    def test_what_cannot_be_made(self):
        self.expect_failure(run("bench", "--synthetic", "bonsai"), 2, "bonsai", "qwen35-tiny")
        self.expect_failure(run("bench", "--synthetic", "qwen35-tiny", "--scheme", "q9_9"), 2,
                            "q9_9")
        self.expect_failure(run("bench", "--synthetic", "smollm2-135m", "--scheme", "ptq1_0"), 2,
                            "576", "q2_0")
        self.expect_failure(run("bench", "--synthetic", "qwen35-tiny", "--layers", "9"), 2,
                            "1 to 4")
        self.expect_failure(run("bench", MODEL, "--scheme", "q2_0"), 2, "--scheme", "--synthetic")
        self.expect_failure(run("bench", MODEL, "--write", "x.gguf"), 2, "--write", "--synthetic")
        self.expect_failure(run("bench", "--synthetic", "qwen35-tiny", "--force"), 2, "--write")
        self.expect_failure(run("bench", MODEL, "--synthetic", "qwen35-tiny"), 2, "both")
        self.expect_failure(run("bench", "--synthetic", "qwen35-tiny", "-p", "0", "-n", "0"), 2,
                            "nothing")
        self.expect_failure(run("bench", *self.SHAPE, "--write", self.folder / "no" / "m.gguf",
                                "-p", "0", "-n", "0"), 3, "no")

    @unittest.skipUnless(NATIVE, "limits address space")
    def test_what_does_not_fit_takes_no_memory(self):
        started = time.monotonic()
        self.expect_failure(run("bench", "--synthetic", "qwen3-8b", "--scheme", "q8_0",
                                address_space=2 << 30), 5, "qwen3-8b")
        self.assertLess(time.monotonic() - started, 60)


class Machine(Case):
    def test_a_kept_bandwidth_is_used(self):
        brief = self.expect_success(run("info", "--json", "--threads", "1", program=TS_CLI)).json()
        self.assertTrue(brief["read_bandwidth_measured_now"])
        self.assertGreater(brief["read_bandwidth_bytes_per_second"], 1e8)
        folder = pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "tensorsharp"
        folder.mkdir(parents=True)
        kept = {"cpu": brief["cpu"], "read_bytes_per_second": {"1": 5e9}}
        (folder / "bandwidth.json").write_text(json.dumps(kept))
        later = run("info", "--json", "--threads", "1", program=TS_CLI).json()
        self.assertFalse(later["read_bandwidth_measured_now"])
        self.assertEqual(later["read_bandwidth_bytes_per_second"], 5e9)
        (folder / "bandwidth.json").write_text("not JSON")
        self.assertTrue(run("info", "--json", "--threads", "1",
                            program=TS_CLI).json()["read_bandwidth_measured_now"])
        without = run("info", "--json", "--no-bandwidth", program=TS_CLI).json()
        self.assertIsNone(without["read_bandwidth_bytes_per_second"])

    def test_facts(self):
        facts = self.expect_success(run("info", "--json", "--no-bandwidth", program=TS_CLI)).json()
        self.assertIn(facts["isa"], facts["available_isas"])
        self.assertIn("ref", facts["available_isas"])
        self.assertGreaterEqual(facts["threads"], 1)
        self.assertLessEqual(facts["threads"], len(os.sched_getaffinity(0)))
        self.assertTrue(facts["threads_reason"])
        self.assertGreater(facts["memory_available_bytes"], 1 << 20)
        one = run("info", "--json", "--no-bandwidth", program=TS_CLI,
                  env={"TENSORSHARP_ISA": "ref"})
        self.assertEqual(one.json()["isa"], "ref")
        self.assertIn("plain code", one.stderr)


if __name__ == "__main__":
    unittest.main()
