"""run: one answer, its JSON, its options, interrupts."""

import json
import math
import signal
import subprocess
import unittest

from harness import MODEL, NATIVE, TESTDATA, Case, interrupt_after_output, run, start

KEYS = {"text": str, "token_ids": list, "stop_reason": str, "prompt_tokens": int,
        "generated_tokens": int, "prompt_seconds": float, "generate_seconds": float,
        "first_token_seconds": float, "prompt_tokens_per_second": float,
        "generated_tokens_per_second": float, "peak_rss_bytes": int, "seed": int}


class Run(Case):
    def generate(self, *options, prompt="Once upon a time"):
        outcome = run("run", MODEL, "-p", prompt, "--json", *options)
        return self.expect_success(outcome).json()

    def test_greedy_text_is_the_reference(self):
        golden = json.loads((TESTDATA / "stories260k/golden.json").read_text())
        for case in golden["cases"]:
            expected = case["greedy_ids_total_64"]
            n = len(expected) - len(case["prompt_ids"])
            result = self.generate("--raw", "--greedy", "-n", str(n), "--exact", "--kv", "f32",
                                   prompt=case["prompt"])
            self.assertEqual(result["token_ids"], expected[len(case["prompt_ids"]):])
            self.assertEqual(result["prompt_tokens"], len(case["prompt_ids"]))

    def test_json_has_the_contracted_keys(self):
        result = self.generate("-n", "12", "--warmup")
        for key, kind in KEYS.items():
            self.assertIsInstance(result[key], kind, key)
        self.assertEqual(result["generated_tokens"], len(result["token_ids"]))
        self.assertEqual(result["stop_reason"], "length")
        self.assertGreater(result["peak_rss_bytes"], 1 << 20)
        self.assertGreater(result["first_token_seconds"], 0)

    def test_text_goes_to_stdout_and_the_rest_to_stderr(self):
        outcome = self.expect_success(
            run("run", MODEL, "--raw", "-p", "Once upon a time", "--greedy", "-n", "20"))
        text = self.generate("--raw", "--greedy", "-n", "20")["text"]
        self.assertEqual(outcome.text, text + "\n")
        for word in ("threads", "isa", "tokens/s", "first token", "peak memory", "seed"):
            self.assertIn(word, outcome.stderr)
        quiet = run("run", MODEL, "--raw", "-p", "Once upon a time", "--greedy", "-n", "20", "-q")
        self.assertEqual((quiet.text, quiet.stderr), (outcome.text, ""))
        self.assertNotIn("\x1b", outcome.text + outcome.stderr)

    def test_prompt_from_standard_input_and_file(self):
        expected = self.generate("--raw", "--greedy", "-n", "5")["token_ids"]
        piped = run("run", MODEL, "--raw", "--greedy", "-n", "5", "--json",
                    stdin=b"Once upon a time").json()
        path = self.folder / "prompt.txt"
        path.write_text("Once upon a time")
        filed = run("run", MODEL, "--raw", "--greedy", "-n", "5", "--json", "-f", path).json()
        self.assertEqual([piped["token_ids"], filed["token_ids"]], [expected, expected])
        self.expect_failure(run("run", MODEL, "-f", self.folder / "none"), 3, "none")

    def test_seeds(self):
        texts = {self.generate("--temp", "1.5", "-n", "24")["text"] for _ in range(5)}
        self.assertGreater(len(texts), 1)
        one = self.generate("--temp", "1.5", "-n", "24", "--seed", "7")
        two = self.generate("--temp", "1.5", "-n", "24", "--seed", "7", "--threads", "1")
        self.assertEqual((one["token_ids"], one["seed"]), (two["token_ids"], 7))
        # The reported seed of a random run gives that run again, however large.
        random = self.generate("--temp", "1.5", "-n", "24", "--seed", "-1")
        again = self.generate("--temp", "1.5", "-n", "24", "--seed", str(random["seed"]))
        self.assertEqual(random["token_ids"], again["token_ids"])

    def test_every_penalty_acts(self):
        prompt = "big " * 8
        base = self.generate("--raw", "--greedy", "-n", "16", prompt=prompt)["token_ids"]
        for option, value in (("--presence-penalty", "50"), ("--repeat-penalty", "3"),
                              ("--frequency-penalty", "2")):
            changed = self.generate("--raw", "--greedy", "-n", "16", option, value, prompt=prompt)
            self.assertNotEqual(changed["token_ids"], base, option)

    def test_samplers_in_any_order(self):
        for order in ("", "temperature", "min_p,temp", "typical,top_p", "top_k,penalties",
                      "temperature,min_p,top_p,typical,top_k,penalties"):
            one = self.generate("--samplers", order, "--seed", "3", "-n", "8", "--min-p", "0.05")
            two = self.generate("--samplers", order, "--seed", "3", "-n", "8", "--min-p", "0.05")
            self.assertEqual(one["token_ids"], two["token_ids"], order)

    def test_stop_texts(self):
        whole = self.generate("--raw", "--greedy", "-n", "60")["text"]
        word = whole.split()[6]
        cut = self.generate("--raw", "--greedy", "-n", "60", "--stop", "nowhere", "--stop", word)
        self.assertEqual(cut["text"], whole[:whole.index(word)])
        self.assertEqual(cut["stop_reason"], "stop_string")

    def test_log_probabilities(self):
        result = self.generate("--raw", "--greedy", "-n", "6", "--logprobs", "4")
        self.assertEqual(len(result["tokens"]), 6)
        for token in result["tokens"]:
            self.assertEqual(token["id"], token["top"][0]["id"])
            self.assertEqual(token["logprob"], token["top"][0]["logprob"])
            self.assertEqual(sorted((t["logprob"] for t in token["top"]), reverse=True),
                             [t["logprob"] for t in token["top"]])
            self.assertLess(sum(math.exp(t["logprob"]) for t in token["top"]), 1.0001)
            # The same token has the same text in both places, its leading space included.
            self.assertEqual(token["piece"], token["top"][0]["piece"])
        self.assertTrue(any(t["piece"].startswith(" ") for t in result["tokens"]))
        shown = run("run", MODEL, "--raw", "-p", "Once", "--greedy", "-n", "3", "--logprobs", "2")
        self.assertIn("logprob", shown.text)

    def test_limits_of_the_context(self):
        result = self.generate("--raw", "--ctx", "64", "--ignore-eos")
        self.assertEqual(result["stop_reason"], "context_full")
        self.assertEqual(result["prompt_tokens"] + result["generated_tokens"], 64)
        outcome = run("run", MODEL, "--raw", "--ctx", "64", "-p", "word " * 200, "--json")
        self.assertEqual(outcome.status, 5)
        self.assertEqual(outcome.stdout, b"")
        self.assertEqual(self.generate("-n", "0")["generated_tokens"], 0)

    def test_threads_and_cores_do_not_change_the_text(self):
        expected = self.generate("--raw", "--greedy", "-n", "40")["token_ids"]
        for options in (["--threads", "1"], ["--threads", "2"], ["--threads", "3"],
                        ["--cores", "0"], ["--isa", "ref"], ["--huge-pages", "off"]):
            result = self.generate("--raw", "--greedy", "-n", "40", *options)
            self.assertEqual(result["token_ids"], expected, options)
        outcome = run("run", MODEL, "-p", "x", "-n", "1", "--cores", "8000")
        self.assertEqual(outcome.status, 2, outcome.stderr)

    def test_sessions_go_on_where_they_ended(self):
        first, second = self.folder / "first.session", self.folder / "second.session"
        whole = self.generate("--raw", "--greedy", "-n", "30")
        begun = self.generate("--raw", "--greedy", "-n", "10", "--save-session", str(first))
        self.assertEqual(begun["token_ids"], whole["token_ids"][:10])
        # A file is not replaced, unless it is the session's own or --force says so.
        outcome = run("run", MODEL, "-p", "x", "--save-session", first)
        self.expect_failure(outcome, 2, "--force")
        self.generate("-n", "1", "--save-session", str(second))
        self.generate("-n", "1", "--save-session", str(second), "--force")
        longer = self.generate("--raw", "--greedy", "-n", "2", "--load-session", str(first),
                               "--save-session", str(first), prompt=" and")
        # All but the last token, which was said but not computed; it is part of the prompt.
        self.assertEqual(longer["cached_tokens"], begun["prompt_tokens"] + 9)
        self.assertGreater(longer["prompt_tokens"], begun["prompt_tokens"] + 10)
        self.assertGreater(longer["prompt_tokens"], longer["cached_tokens"])
        outcome = run("run", MODEL, "-p", "x", "--system", "y", "--load-session", first)
        self.expect_failure(outcome, 2, "--load-session")
        for broken in (self.folder / "none.session", self.folder, "/dev/null", MODEL):
            self.expect_failure(run("run", MODEL, "-p", "x", "--load-session", broken), 3,
                                str(broken))

    def test_one_begin_token(self):
        plain = run("tokenize", MODEL, "Once", "--json").json()["ids"]
        result = self.generate("--raw", "-n", "1", prompt="<s>Once")
        self.assertEqual(result["prompt_tokens"], len(plain))

    def test_profile(self):
        path = self.folder / "profile.json"
        self.generate("-n", "4", "--profile", str(path))
        events = json.loads(path.read_text())
        events = events["traceEvents"] if isinstance(events, dict) else events
        self.assertGreater(len(events), 10)
        self.assertTrue(any("linear" in e.get("name", "") for e in events))
        self.expect_failure_status(run("run", MODEL, "-p", "x", "--profile", path), 2)

    def expect_failure_status(self, outcome, status):
        self.assertEqual(outcome.status, status, outcome.stderr)

    def test_interrupt_keeps_what_was_said(self):
        process = start("run", MODEL, "--raw", "-p", "Once upon a time", "--ignore-eos",
                        "--ctx", "400000", "--kv", "q8", "--threads", "1")
        status, stdout, stderr = interrupt_after_output(process, 40)
        self.assertEqual(status, 130, stderr)
        self.assertGreater(len(stdout), 40)
        stdout.decode("utf-8")
        self.assertIn("cancelled", stderr)
        self.assertIn("tokens/s", stderr)

    def test_reader_that_leaves_ends_the_run(self):
        process = start("run", MODEL, "--raw", "-p", "Once upon a time", "--ignore-eos",
                        "--ctx", "400000", "--kv", "q8", "--quiet")
        process.stdout.read(10)
        process.stdout.close()
        self.assertEqual(process.wait(timeout=60), 141)
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()

    @unittest.skipUnless(NATIVE, "faults are not the program's own to handle")
    def test_last_words_after_a_fault(self):
        for fault, status, word in ((signal.SIGSEGV, -signal.SIGSEGV, "TENSORSHARP_ISA"),
                                    (signal.SIGILL, -signal.SIGILL, "--isa ref"),
                                    (signal.SIGBUS, 3, "memory-mapped file")):
            process = start("run", MODEL, "--raw", "-p", "Once upon a time", "--ignore-eos",
                            "--ctx", "400000", "--kv", "q8")
            process.stdout.read(10)
            process.send_signal(fault)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, status)
            self.assertIn(word, errors.decode())

    def test_plain_kernels_are_announced(self):
        outcome = run("run", MODEL, "-p", "x", "-n", "1", "--isa", "ref")
        self.assertIn("warning: plain code", outcome.stderr)

    def test_termination_request(self):
        process = start("run", MODEL, "--raw", "-p", "Once upon a time", "--ignore-eos",
                        "--ctx", "400000", "--kv", "q8", "--json")
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            pass
        process.send_signal(signal.SIGTERM)
        stdout, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(json.loads(stdout)["stop_reason"], "cancelled")


if __name__ == "__main__":
    unittest.main()
