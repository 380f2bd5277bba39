"""`quantize`, `convert --unrotate` and `verify --against` as a user meets them."""

import os
import pathlib
import unittest

from harness import MODEL, TESTDATA, Case, run

TEXT = str(TESTDATA / "stories260k" / "tinystories_40.txt")
FOLDED = str(TESTDATA / "qwen35" / "tiny_trained.pq2_0.gguf")
KEYS = {"bits_per_weight", "linear_bits_per_weight", "output_bytes", "seconds", "peak_rss_bytes",
        "perplexity_ratio", "kl_mean", "top1_agreement"}


class Quantize(Case):
    def test_a_plan_announces_the_size(self):
        out = str(self.folder / "out.gguf")
        plan = run("quantize", MODEL, "--dry-run", "--scheme", "q2_0", "--seed", "1", "--json")
        self.assertEqual(plan.status, 0, plan.stderr)
        done = run("quantize", MODEL, out, "--scheme", "q2_0", "--seed", "1", "--json")
        self.assertEqual(done.status, 0, done.stderr)
        self.assertLessEqual(KEYS, done.json().keys())
        self.assertEqual(plan.json()["output_bytes"], os.path.getsize(out))
        self.assertEqual(sum(t["bytes"] for t in plan.json()["account"]), os.path.getsize(out))
        self.assertGreater(done.json()["perplexity_ratio"], 1)
        answer = run("run", out, "-p", "Once", "-n", "4", "--greedy", "--json")
        self.assertEqual(answer.json()["generated_tokens"], 4, answer.stderr)

    def test_calibrated_with_planes_and_report(self):
        out, page = str(self.folder / "out.gguf"), str(self.folder / "out.html")
        done = run("quantize", MODEL, out, "--scheme", "q2_0", "--planes", "2", "--calib", TEXT,
                   "--calib-tokens", "2048", "--seed", "1", "--report", page, "--json")
        self.assertEqual(done.status, 0, done.stderr)
        self.assertLess(done.json()["perplexity_ratio"], 2)
        self.assertTrue(os.path.exists(str(self.folder / "out.residuals.gguf")))
        self.assertIn("<svg", pathlib.Path(page).read_text(encoding="utf-8"))
        both = run("eval", "perplexity", out, "--data", TEXT, "--ctx", "256", "--json")
        first = run("eval", "perplexity", out, "--data", TEXT, "--ctx", "256", "--no-residual",
                    "--json")
        self.assertLess(both.json()["perplexity"], first.json()["perplexity"], first.stderr)

    def test_tuning_lowers_the_divergence_of_other_text(self):
        out = str(self.folder / "out.gguf")
        done = run("quantize", MODEL, out, "--scheme", "q2_0", "--method", "tuned", "--calib", TEXT,
                   "--calib-tokens", "4096", "--tune-steps", "8", "--tune-rate", "0.03", "--seed",
                   "1", "--json")
        self.assertEqual(done.status, 0, done.stderr)
        report = done.json()
        self.assertEqual(report["method"], "tuned")
        self.assertLess(report["tune_kl_after"], 0.9 * report["tune_kl_before"])
        # The file holds what was tuned: measured on it, int8 activations and all.
        self.assertLess(report["kl_mean"], report["tune_kl_before"])
        self.assertEqual(run("verify", out, "--level", "full").status, 0)

    def test_sizes_quality_and_texts_are_spoken_of_clearly(self):
        out = self.folder / "out.gguf"
        done = run("quantize", MODEL, str(out), "--planes", "2", "--seed", "1")
        self.assertEqual(done.status, 0, done.stderr)
        text = done.stdout.decode()
        self.assertEqual(text.count("Quality"), 1, text)
        self.assertIn("together with the further planes", text.splitlines()[-1])
        self.assertIn("tokens only", done.stderr)
        self.assertNotIn("unchecked", text + done.stderr)
        self.assertNotIn("context of", done.stderr)
        plan = run("quantize", MODEL, "--dry-run", "--group", "64", "--json")
        self.assertEqual(plan.json()["scheme"], "q2_0")
        plan = run("quantize", MODEL, "--dry-run")
        self.assertNotIn("whole number", plan.stdout.decode())
        self.assertIn("whole number", plan.stderr)
        compared = run("verify", str(out), "--against", MODEL)
        self.assertIn("tensors compared", compared.stdout.decode().splitlines()[-1])

        (self.folder / "empty.txt").write_text("", encoding="utf-8")
        for text in (self.folder, self.folder / "empty.txt", TEXT + ":x"):
            refused = run("quantize", MODEL, str(self.folder / "x.gguf"), "--calib", str(text))
            self.assertEqual(refused.status, 2, refused.stderr)
            self.assertIn("calibration", refused.stderr)
        self.assertEqual(run("quantize", MODEL, str(self.folder / "x.txt")).status, 2)

    def test_a_useless_result_is_refused(self):
        out = str(self.folder / "out.gguf")
        arguments = ["quantize", MODEL, out, "--scheme", "q2_0", "--holdout", TEXT, "--seed", "1",
                     "--method", "topk", "--threshold", "0.02"]
        refused = run(*arguments)
        self.assertEqual(refused.status, 1)
        self.assertIn("--calib", refused.stderr)
        self.assertEqual(list(self.folder.glob("*.gguf")), [])
        self.assertEqual(run(*arguments, "--accept-quality").status, 0)
        self.assertTrue(os.path.exists(out))

    def test_wrong_usage(self):
        out = str(self.folder / "out.gguf")
        for arguments in (["--method", "best"], ["--method", "gptq"], ["--planes", "4"],
                          ["--rotate", "100"], ["--policy", "none"], ["--scheme", "f16",
                          "--planes", "2"], ["--plane-fit", "tied"], ["--method", "tuned"], ["--tune-steps", "3"], ["--search", "scale"], ["--group", "32"], ["--group", "64", "--scheme", "tq1_0"],
                          ["--search", "rotation", "--rotate", "none"], ["--search", "threshold"], ["--resume"],
                          ["--damping", "0.5"], ["--report", "x.txt"], ["--sparsity", "5:8"],
                          ["--scheme", "pq2_0", "--rotate", "128"]):
            with self.subTest(arguments):
                refused = run("quantize", MODEL, out, *arguments)
                self.assertEqual(refused.status, 2, refused.stderr)
                self.assertFalse(os.path.exists(out))

    def test_back_to_an_ordinary_file(self):
        out = str(self.folder / "ordinary.gguf")
        done = run("convert", FOLDED, out, "--unrotate", "--scheme", "f16", "--json")
        self.assertEqual(done.status, 0, done.stderr)
        self.assertIsNone(run("inspect", out, "--json").json()["hadamard"])
        compared = run("verify", out, "--against", FOLDED, "--json")
        self.assertEqual(compared.status, 0, compared.stderr)
        for tensor in compared.json()["tensors"]:
            self.assertLess(tensor["relative_error"], 1e-3, tensor)
            self.assertGreater(tensor["min_row_cosine"], 0.999, tensor)
        before = run("run", FOLDED, "-p", "Once upon a time", "-n", "24", "--greedy", "--exact",
                     "--json")
        after = run("run", out, "-p", "Once upon a time", "-n", "24", "--greedy", "--exact", "--json")
        self.assertEqual(after.json()["token_ids"], before.json()["token_ids"])
        self.assertEqual(run("convert", out, str(self.folder / "x.gguf"), "--unrotate", "--scheme",
                             "f16").status, 2)
        self.assertEqual(run("quantize", FOLDED, str(self.folder / "y.gguf")).status, 4)


if __name__ == "__main__":
    unittest.main()
