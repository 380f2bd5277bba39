"""eval perplexity and eval logits against reference figures."""

import hashlib
import json
import math
import os
import pathlib
import unittest

from harness import MODEL, TESTDATA, Case, interrupt_after_line, read_npy, run, start

STORIES = TESTDATA / "stories260k/tinystories_40.txt"
GOLDEN = json.loads((TESTDATA / "stories260k/golden.json").read_text())


def perplexity(*options):
    return run("eval", "perplexity", MODEL, *options, timeout=280)


def nll(row, target):
    largest = max(row)
    return math.log(sum(math.exp(v - largest) for v in row)) - (row[target] - largest)


class Perplexity(Case):
    def test_documents_have_the_reference_figure(self):
        result = self.expect_success(perplexity(
            "--data", STORIES, "--documents", "<|endoftext|>", "--limit", "40", "--ctx", "512",
            "--exact", "--kv", "f32", "--json")).json()
        expected = GOLDEN["nll"]
        self.assertEqual(result["n_tokens"], expected["tokens"])
        self.assertAlmostEqual(result["perplexity"], expected["ppl"], delta=1e-4)
        self.assertAlmostEqual(result["mean_nll"] * result["n_tokens"], expected["sum_nll_nats"],
                               delta=0.5)
        self.assertEqual(result["n_chunks"], 40)
        self.assertEqual(result["mode"], "documents")

    def test_chunks_agree_with_logits_scored_by_hand(self):
        context, chunks = 64, 3
        result = self.expect_success(perplexity("--data", STORIES, "--ctx", str(context), "--chunks",
                                                str(chunks), "--json")).json()
        text = STORIES.read_bytes()
        text = text[:-1] if text.endswith(b"\n") else text
        ids = run("tokenize", MODEL, "--json", stdin=text).json()["ids"]
        self.assertEqual(result["data_tokens"], len(ids))
        nlls = []
        for c in range(chunks):
            window = [1] + ids[c * context + 1:(c + 1) * context]
            out = self.folder / f"{c}.npy"
            self.expect_success(run("eval", "logits", MODEL, "--tokens", ",".join(map(str, window)),
                                    "--all", "--out", out))
            rows = read_npy(out)
            for j in range(context // 2, context - 1):
                nlls.append(nll(rows[j], window[j + 1]))
        mean = sum(nlls) / len(nlls)
        self.assertEqual(result["n_tokens"], len(nlls))
        self.assertAlmostEqual(result["perplexity"], math.exp(mean), delta=1e-4 * math.exp(mean))
        variance = sum((v - mean) ** 2 for v in nlls) / len(nlls)
        self.assertAlmostEqual(result["std_error"],
                               math.sqrt(variance / (len(nlls) - 1)) * math.exp(mean), delta=1e-4)

    def test_what_was_measured_is_reported(self):
        result = self.expect_success(perplexity("--data", STORIES, "--ctx", "128", "--chunks", "2",
                                                "--json")).json()
        data = STORIES.read_bytes()
        self.assertEqual(result["data_sha256"], hashlib.sha256(data).hexdigest())
        self.assertEqual(result["data_bytes"], len(data))
        self.assertEqual((result["context"], result["n_chunks"], result["mode"]), (128, 2, "chunks"))
        self.assertEqual(result["bos"], 1)
        self.assertIn("replaces", result["bos_rule"])
        self.assertIn("f32", result["kernels"])
        self.assertAlmostEqual(
            result["bits_per_byte"],
            result["mean_nll"] * result["n_tokens"] / math.log(2) / result["scored_bytes"], places=9)
        low, high = result["confidence_interval_95"]
        # Symmetric in the mean negative log-likelihood.
        half = 1.96 * result["std_error"] / result["perplexity"]
        self.assertAlmostEqual(low, result["perplexity"] * math.exp(-half), places=6)
        self.assertAlmostEqual(high, result["perplexity"] * math.exp(half), places=6)
        text = self.expect_success(perplexity("--data", STORIES, "--ctx", "128", "--chunks", "2"))
        for word in ("perplexity", "bits per byte", result["data_sha256"], "window 128", "kernels"):
            self.assertIn(word, text.text)

    def test_sliding_windows_agree_with_logits_scored_by_hand(self):
        short = self.folder / "short.txt"
        short.write_text(STORIES.read_text()[:300])
        context, stride = 48, 20
        result = self.expect_success(perplexity("--data", short, "--ctx", str(context), "--stride",
                                                str(stride), "--json")).json()
        self.assertEqual((result["mode"], result["stride"]), ("sliding", stride))
        ids = run("tokenize", MODEL, "--no-bos", "--json", "-f", short).json()["ids"]
        nlls, scored, begin = [], 0, 0
        while scored < len(ids):
            window = [1] + ids[begin:begin + context - 1]
            out = self.folder / f"{begin}.npy"
            self.expect_success(run("eval", "logits", MODEL, "--tokens", ",".join(map(str, window)),
                                    "--all", "--out", out))
            rows = read_npy(out)
            nlls += [nll(rows[j], window[j + 1]) for j in range(scored - begin, len(window) - 1)]
            scored = begin + len(window) - 1
            begin += stride
        self.assertEqual(result["n_tokens"], len(ids))
        self.assertEqual(len(nlls), len(ids))
        expected = math.exp(sum(nlls) / len(nlls))
        self.assertAlmostEqual(result["perplexity"], expected, delta=1e-4 * expected)
        self.expect_failure(perplexity("--data", short, "--ctx", "64", "--stride", "64"), 2, "stride")

    def test_expected_sha(self):
        sha = hashlib.sha256(STORIES.read_bytes()).hexdigest()
        options = ("--data", STORIES, "--ctx", "64", "--chunks", "1")
        self.expect_success(perplexity(*options, "--expect-sha", sha))
        self.expect_success(perplexity(*options, "--expect-sha", sha[:8].upper()))
        self.expect_failure(perplexity(*options, "--expect-sha", "0" * 64), 3, sha)
        self.expect_failure(perplexity(*options, "--expect-sha", "xyz"), 2, "expect-sha")

    def test_interrupted_and_resumed_equals_one_run(self):
        options = ["eval", "perplexity", MODEL, "--data", str(STORIES), "--ctx", "128", "--isa",
                   "ref", "--threads", "1"]
        whole = run(*options, "--json", timeout=280).json()
        state = self.folder / "state.json"
        process = start(*options, "-v", "--resume", str(state), "--json")
        status, stdout = interrupt_after_line(process, b"[5]")
        self.assertEqual(status, 130)
        partial = json.loads(stdout)
        self.assertFalse(partial["complete"])
        self.assertGreaterEqual(partial["n_chunks"], 5)
        self.assertLess(partial["n_chunks"], whole["n_chunks"])
        resumed = self.expect_success(run(*options, "--resume", state, "--json", timeout=280))
        self.assertIn(f"after {partial['n_chunks']} windows", resumed.stderr)
        self.assertEqual(resumed.json()["perplexity"], whole["perplexity"])
        self.assertEqual(resumed.json()["std_error"], whole["std_error"])
        # The state of one run is not taken for another's.
        self.expect_failure(run(*options, "--resume", state, "--kv", "q8"), 2, "kv")
        state.write_text("{}")
        self.expect_failure(run(*options, "--resume", state), 3, "state.json")

    def test_bad_data(self):
        short = self.folder / "short.txt"
        short.write_text("too short")
        self.expect_failure(perplexity("--data", short), 2, "1024")
        self.expect_failure(perplexity("--data", self.folder / "none"), 3, "none")
        self.expect_failure(perplexity("--data", self.folder), 3, str(self.folder))
        self.expect_failure(perplexity("--data", STORIES, "--limit", "2"), 2, "--documents")
        blank = self.folder / "blank.txt"
        blank.write_text(" \n \n")
        self.expect_failure(perplexity("--data", blank, "--documents", "\\n"), 2, "document")


class Logits(Case):
    def test_reference_logits(self):
        for n, case in enumerate(GOLDEN["cases"]):
            out = self.folder / f"{n}.npy"
            ids = ",".join(map(str, case["prompt_ids"]))
            result = self.expect_success(run("eval", "logits", MODEL, "--tokens", ids, "--exact",
                                             "--kv", "f32", "--out", out, "--json")).json()
            self.assertEqual(result["shape"], [1, 512])
            (row,) = read_npy(out)
            expected = case["logits_at_last_prompt_token"]
            self.assertLess(max(abs(a - b) for a, b in zip(row, expected, strict=True)), 1e-3)

    def test_all_positions_end_with_the_last(self):
        tokens = "1,403,407,261,378"
        last, every = self.folder / "last.npy", self.folder / "all.npy"
        self.expect_success(run("eval", "logits", MODEL, "--tokens", tokens, "--out", last))
        (self.folder / "ids.txt").write_text(tokens)
        self.expect_success(run("eval", "logits", MODEL, "--tokens", f"@{self.folder}/ids.txt",
                                "--all", "--out", every))
        rows = read_npy(every)
        self.assertEqual(len(rows), 5)
        self.assertEqual(rows[-1], read_npy(last)[0])

    def test_refusals_leave_no_file(self):
        out = self.folder / "x.npy"
        for tokens in ("", "1,x", "512", "-1"):
            self.expect_failure(run("eval", "logits", MODEL, "--tokens", tokens, "--out", out), 2)
        self.assertEqual([p for p in os.listdir(self.folder) if "npy" in p], [])
        out.write_bytes(b"mine")
        self.expect_failure(run("eval", "logits", MODEL, "--tokens", "1", "--out", out), 2, "x.npy")
        self.assertEqual(out.read_bytes(), b"mine")
        self.expect_success(run("eval", "logits", MODEL, "--tokens", "1", "--out", out, "--force"))
        own = self.folder / "own.gguf"
        own.write_bytes(pathlib.Path(MODEL).read_bytes())
        outcome = run("eval", "logits", own, "--tokens", "1", "--out", own, "--force")
        self.expect_failure(outcome, 2, "being read")
        self.assertEqual(own.read_bytes(), pathlib.Path(MODEL).read_bytes())


if __name__ == "__main__":
    unittest.main()
