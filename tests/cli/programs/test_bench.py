"""bench: keys, consistency, memory bandwidth, the machine's facts."""

import os
import json
import pathlib
import unittest

from harness import MODEL, TS_CLI, Case, run


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
            # A model that fits in the caches says nothing about memory.
            self.assertIsNone(row["bandwidth_share"])
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
