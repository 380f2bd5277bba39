"""eval kl, eval choice and eval gsm8k against figures worked out from the model's logits."""

import hashlib
import json
import math
import statistics
import struct
import unittest

from harness import MODEL, TESTDATA, Case, interrupt_after_line, model, read_npy, run, start

STORIES = TESTDATA / "stories260k/tinystories_40.txt"
BOS = 1

# Questions of ours, in the form of ARC.
QUESTIONS = [
    {"query": "Question: What did the little girl see in the park?",
     "choices": ["a big dog", "7 of the", "She was very happy and said"], "gold": 0},
    {"query": "Question: Who was sad?", "choices": ["the", "the boy was sad.", "Tom"], "gold": 1},
    {"query": "Question: Where is the toy?", "choices": ["In the box.", "Yes"], "gold": 0},
]


def log_softmax(row):
    largest = max(row)
    total = math.log(sum(math.exp(v - largest) for v in row)) + largest
    return [v - total for v in row]


class WithLogits(Case):
    def logits(self, ids, *options):
        out = self.folder / "rows.npy"
        self.expect_success(run("eval", "logits", MODEL, "--tokens", ",".join(map(str, ids)), "--all",
                                "--out", out, "--force", *options))
        return [log_softmax(row) for row in read_npy(out)]

    def tokens(self, text):
        return run("tokenize", MODEL, "--no-bos", "--json", stdin=text.encode()).json()["ids"]


class Divergence(WithLogits):
    def kl(self, *options, base=MODEL, **more):
        return run("eval", "kl", MODEL, "--base", base, *options, "--json", timeout=280, **more)

    def test_a_model_agrees_with_itself_exactly(self):
        result = self.expect_success(self.kl("--data", STORIES, "--ctx", "64", "--chunks",
                                             "4")).json()
        self.assertEqual(result["kl_mean"], 0)
        self.assertEqual(result["kl_max"], 0)
        self.assertEqual(result["top1_agreement"], 1)
        self.assertEqual(result["ln_perplexity_ratio"], 0)
        self.assertEqual(result["p_change_rms"], 0)
        self.assertEqual(result["n_tokens"], 4 * 31)
        plain = run("eval", "perplexity", MODEL, "--data", STORIES, "--ctx", "64", "--chunks", "4",
                    "--json").json()
        self.assertAlmostEqual(result["perplexity"], plain["perplexity"], places=9)
        self.assertEqual(result["data_sha256"], hashlib.sha256(STORIES.read_bytes()).hexdigest())

    def test_figures_are_those_of_the_definition(self):
        context, chunks = 48, 2
        result = self.expect_success(self.kl("--data", STORIES, "--ctx", str(context), "--chunks",
                                             str(chunks), "--kv", "q8", "--base-kv", "f32")).json()
        text = STORIES.read_text().removesuffix("\n")
        ids = [BOS] + self.tokens(text)
        divergences, same, changes, differences = [], 0, [], []
        for c in range(chunks):
            window = [BOS] + ids[c * context + 1:(c + 1) * context]
            base = self.logits(window, "--kv", "f32")
            other = self.logits(window, "--kv", "q8")
            for j in range(context // 2, context - 1):
                p, q, target = base[j], other[j], window[j + 1]
                divergences.append(sum(math.exp(a) * (a - b) for a, b in zip(p, q, strict=True)))
                same += p.index(max(p)) == q.index(max(q))
                changes.append(math.exp(q[target]) - math.exp(p[target]))
                differences.append(p[target] - q[target])
        n = len(divergences)
        self.assertEqual(result["n_tokens"], n)
        mean = sum(divergences) / n
        self.assertGreater(mean, 1e-6)
        self.assertAlmostEqual(result["kl_mean"], mean, delta=1e-6)
        self.assertAlmostEqual(result["kl_max"], max(divergences), delta=1e-6)
        self.assertAlmostEqual(result["kl_median"], statistics.median(divergences), delta=1e-6)
        self.assertAlmostEqual(result["top1_agreement"], same / n, places=9)
        self.assertAlmostEqual(result["p_change_mean"], sum(changes) / n, delta=1e-6)
        self.assertAlmostEqual(result["p_change_rms"],
                               math.sqrt(sum(d * d for d in changes) / n), delta=1e-6)
        ratio = sum(differences) / n
        self.assertAlmostEqual(result["ln_perplexity_ratio"], ratio, delta=1e-6)
        variance = sum((d - ratio) ** 2 for d in differences) / n
        self.assertAlmostEqual(result["ln_perplexity_ratio_std_error"],
                               math.sqrt(variance / (n - 1)), delta=1e-6)
        variance = sum((d - mean) ** 2 for d in divergences) / n
        self.assertAlmostEqual(result["kl_std_error"], math.sqrt(variance / (n - 1)), delta=1e-7)

    def test_a_stored_base_has_the_documented_layout_and_gives_the_same(self):
        context, chunks, vocab = 32, 3, 512
        base = self.folder / "base.kld"
        stored = self.expect_success(run("eval", "kl", MODEL, "--data", STORIES, "--ctx",
                                         str(context), "--chunks", str(chunks), "--save-base", base,
                                         "--json")).json()
        data = base.read_bytes()
        self.assertEqual(stored["output_bytes"], len(data))
        self.assertEqual(data[:8], b"_logits_")
        self.assertEqual(struct.unpack_from("<Iii", data, 8), (context, vocab, chunks))
        tokens = list(struct.unpack_from(f"<{context * chunks}i", data, 20))
        text = STORIES.read_text().removesuffix("\n")
        self.assertEqual(tokens, ([BOS] + self.tokens(text))[:context * chunks])
        row_bytes = 2 * (vocab + 4)
        rows = 20 + 4 * context * chunks
        scored = context - 1 - context // 2
        self.assertEqual(len(data), rows + chunks * scored * row_bytes)
        window = [BOS] + tokens[context + 1:2 * context]
        expected = self.logits(window)[context // 2]
        at = rows + scored * row_bytes
        scale, least = struct.unpack_from("<ff", data, at)
        codes = struct.unpack_from(f"<{vocab}H", data, at + 8)
        floor = max(expected) - 16
        for code, value in zip(codes, expected, strict=True):
            self.assertAlmostEqual(least + scale * code, max(value, floor), delta=2e-4)

        options = ("--kv", "q8")
        there = self.expect_success(self.kl(*options, base=base)).json()
        direct = self.expect_success(self.kl("--data", STORIES, "--ctx", str(context), "--chunks",
                                             str(chunks), "--base-kv", "f16", *options)).json()
        self.assertEqual(there["n_tokens"], direct["n_tokens"])
        self.assertAlmostEqual(there["kl_mean"], direct["kl_mean"], delta=5e-4)
        self.assertEqual(there["base_kind"], "file")
        self.expect_success(self.kl("--data", STORIES, "--chunks", "1", base=base))
        # Saving while comparing gives the same file.
        again = self.folder / "again.kld"
        self.expect_success(self.kl("--data", STORIES, "--ctx", str(context), "--chunks",
                                    str(chunks), "--save-base", again))
        self.assertEqual(again.read_bytes(), data)

        other = self.folder / "other.txt"
        other.write_text("A different text. " * 100)
        self.expect_failure(self.kl("--data", other, base=base), 2, "another text")
        self.expect_failure(self.kl("--ctx", "64", base=base), 2, "--ctx 64", "32")
        self.expect_failure(self.kl("--expect-sha", "0" * 8, base=base), 2, "--data")
        base.write_bytes(data[:-1])
        self.expect_failure(self.kl(base=base), 3, "base.kld", "cut off")
        base.write_bytes(data[:rows] + b"\xff" * 8 + data[rows + 8:])
        self.expect_failure(self.kl(base=base), 3, "base.kld", "window 0")

    def test_other_vocabularies_are_refused(self):
        changed = model()
        at = changed.data.find("▁little".encode())
        changed.data[at:at + 9] = "▁titans".encode()
        path = changed.write(self.folder / "changed.gguf")
        self.expect_failure(self.kl("--data", STORIES, "--ctx", "64", base=path), 2,
                            "changed.gguf", "vocabular", "titan")

    def test_interrupted_and_resumed_equals_one_run(self):
        options = ["eval", "kl", MODEL, "--base", MODEL, "--data", str(STORIES), "--ctx", "128",
                   "--isa", "ref", "--threads", "1", "--kv", "q8", "--base-kv", "f32", "--chunks",
                   "20"]
        whole = run(*options, "--json", timeout=280).json()
        state = self.folder / "state.json"
        process = start(*options, "-v", "--resume", str(state), "--json")
        status, stdout = interrupt_after_line(process, b"[3]")
        self.assertEqual(status, 130)
        partial = json.loads(stdout)
        self.assertFalse(partial["complete"])
        self.assertLess(partial["n_chunks"], 20)
        resumed = self.expect_success(run(*options, "--resume", state, "--json", timeout=280)).json()
        for key in ("kl_mean", "kl_std_error", "kl_p99", "top1_agreement", "p_change_rms",
                    "ln_perplexity_ratio_std_error", "n_tokens"):
            self.assertEqual(resumed[key], whole[key], key)
        self.expect_failure(run(*options, "--base-exact", "--resume", state), 2, "base_exact")

    def test_wrong_usage(self):
        self.expect_failure(run("eval", "kl", MODEL, "--data", STORIES), 2, "--base", "--save-base")
        self.expect_failure(run("eval", "kl", MODEL, "--base", MODEL), 2, "--data")
        self.expect_failure(self.kl("--data", STORIES, base=self.folder / "none"), 3, "none")
        self.expect_failure(self.kl("--data", STORIES, "--save-base", "x", "--resume", "y"), 2,
                            "--resume")


class Choice(WithLogits):
    def setUp(self):
        super().setUp()
        self.task = self.folder / "questions.jsonl"
        self.task.write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS))

    def choice(self, *options, task=None):
        return run("eval", "choice", MODEL, "--task", task or self.task, *options, "--json")

    def reference(self, question):
        """Log-likelihoods of the choices, from the logits of whole sequences."""
        context = question["query"] + "\nAnswer:"
        before = self.tokens(context)
        scores = []
        for text in question["choices"]:
            continuation = self.tokens(context + " " + text)[len(before):]
            rows = self.logits([BOS] + before + continuation)
            scores.append(sum(rows[len(before) + i][t] for i, t in enumerate(continuation)))
        return scores

    def test_scores_are_those_of_the_logits(self):
        details = self.folder / "items.jsonl"
        result = self.expect_success(self.choice("--details", details)).json()
        lines = [json.loads(line) for line in details.read_text().splitlines()]
        right = right_norm = 0
        for question, line in zip(QUESTIONS, lines, strict=True):
            expected = self.reference(question)
            for a, b in zip(line["log_likelihoods"], expected, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-4)
            per_byte = [s / len(c.encode()) for s, c in zip(expected, question["choices"],
                                                            strict=True)]
            right += expected.index(max(expected)) == question["gold"]
            right_norm += per_byte.index(max(per_byte)) == question["gold"]
        self.assertEqual(result["n_items"], 3)
        self.assertAlmostEqual(result["accuracy"], right / 3)
        self.assertAlmostEqual(result["accuracy_norm"], right_norm / 3)
        self.assertAlmostEqual(result["std_error"], math.sqrt(right / 3 * (1 - right / 3) / 2))
        self.assertEqual(result["task"], "arc")
        self.assertEqual(result["data_sha256"],
                         hashlib.sha256(self.task.read_bytes()).hexdigest())
        low, high = result["confidence_interval_95"]
        self.assertLess(low, result["accuracy"])
        self.assertGreater(high, result["accuracy"])

    def test_mmlu_by_subject(self):
        header = "question,A,B,C,D,answer\n"
        for subject, n in (("maths", 2), ("law", 3)):
            rows = "".join(f'"What, {i}?",a,b,c,d,{i % 4}\n' for i in range(n))
            (self.folder / f"{subject}_test.csv").write_text(header + rows)
            (self.folder / f"{subject}_dev.csv").write_text(header + 'Which?,a,b,c,d,B\n' * 5)
        self.task.unlink()
        result = self.expect_success(self.choice("--by-subject", task=self.folder)).json()
        self.assertEqual((result["task"], result["shots"], result["n_items"]), ("mmlu", 5, 5))
        self.assertEqual([(r["subject"], r["n_items"]) for r in result["results"]],
                         [("law", 3), ("maths", 2)])
        mean = sum(r["accuracy"] for r in result["results"]) / 2
        self.assertAlmostEqual(result["accuracy_mean_of_subjects"], mean)
        listing = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n"
                          for p in sorted(self.folder.glob("*_test.csv")))
        self.assertEqual(result["data_sha256"], hashlib.sha256(listing.encode()).hexdigest())
        text = self.expect_success(run("eval", "choice", MODEL, "--task", self.folder,
                                       "--by-subject"))
        for word in ("law", "maths", "accuracy", "guessing", "25.00 %", result["data_sha256"]):
            self.assertIn(word, text.text)
        (self.folder / "law_dev.csv").unlink()
        self.expect_failure(self.choice(task=self.folder), 2, "law_dev.csv", "--shots 0")
        self.expect_success(self.choice("--shots", "0", "--limit", "2", task=self.folder))

    def test_interrupted_and_resumed_equals_one_run(self):
        self.task.write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS * 40))
        options = ["eval", "choice", MODEL, "--task", str(self.task), "--isa", "ref", "--threads",
                   "1"]
        whole = run(*options, "--json", timeout=280).json()
        state = self.folder / "state.json"
        process = start(*options, "-v", "--resume", str(state), "--json")
        status, stdout = interrupt_after_line(process, b"[5]")
        self.assertEqual(status, 130)
        partial = json.loads(stdout)
        self.assertFalse(partial["complete"])
        self.assertLess(partial["n_items"], 120)
        details = self.folder / "d.jsonl"
        resumed = self.expect_success(run(*options, "--resume", state, "--details", details,
                                          "--json")).json()
        self.assertEqual(resumed["n_items"], 120)
        self.assertEqual(resumed["accuracy"], whole["accuracy"])
        self.assertEqual(resumed["accuracy_norm"], whole["accuracy_norm"])
        self.assertEqual(len(details.read_text().splitlines()), 120)
        self.expect_failure(run(*options, "--limit", "3", "--resume", state), 2, "120")
        self.task.write_text(json.dumps(QUESTIONS[0]) + "\n")
        self.expect_failure(run(*options, "--resume", state), 2, "data_sha256")

    def test_bad_tasks(self):
        self.expect_failure(self.choice(task=self.folder / "none.jsonl"), 3, "none.jsonl")
        self.expect_failure(self.choice("--examples", "x", "--shots", "0"), 2, "--examples")
        self.expect_failure(self.choice("--expect-sha", "0" * 8), 3, "SHA-256")
        for text, status, words in (
                (b"", 3, ["empty"]), (b"\xff\xfe", 3, ["UTF-8"]), (b"{}\n", 4, ["fields"]),
                (json.dumps({**QUESTIONS[0], "gold": 9}).encode(), 3, ["line 1", "gold", "0 to 2"]),
                (b"question,A,B,C,D,answer\nq,1,2,3,4\n", 3, ["line 2"])):
            self.task.write_bytes(text)
            self.expect_failure(self.choice(), status, "questions.jsonl", *words)


class WordProblems(Case):
    def setUp(self):
        super().setUp()
        self.task = self.folder / "problems.jsonl"
        self.task.write_text("".join(
            json.dumps({"question": f"Tim has {i} toys and gets {i}. How many has he?",
                        "answer": f"{i}+{i}=<<{i}+{i}={2 * i}>>{2 * i}.\n#### {2 * i}"}) + "\n"
            for i in range(1, 7)))

    def solve(self, *options):
        return run("eval", "gsm8k", MODEL, "--task", self.task, *options, "--json")

    def test_solutions_are_what_the_model_writes(self):
        details = self.folder / "d.jsonl"
        result = self.expect_success(self.solve("--shots", "2", "--max-tokens", "24", "--details",
                                                details)).json()
        self.assertEqual((result["n_items"], result["shots"]), (4, 2))
        lines = [json.loads(line) for line in details.read_text().splitlines()]
        self.assertEqual([line["expected"] for line in lines], ["2", "4", "6", "8"])
        self.assertEqual(result["n_right"], sum(line["right"] for line in lines))
        self.assertEqual(result["n_cut_off"], sum(line["cut_off"] for line in lines))
        self.assertAlmostEqual(result["accuracy"], result["n_right"] / 4)
        problems = [json.loads(line) for line in self.task.read_text().splitlines()]
        prompt = "".join(f"Question: {p['question']}\nAnswer: {p['answer'].split('=<<')[0]}="
                         f"{p['answer'].split('>>')[1]}\n\n" for p in problems[-2:])
        prompt += f"Question: {problems[0]['question']}\nAnswer:"
        file = self.folder / "prompt.txt"
        file.write_text(prompt)
        expected = run("run", MODEL, "--raw", "-f", file, "-n", "24", "--greedy", "--stop",
                       "Question:", "--json").json()
        self.assertEqual(lines[0]["solution"], expected["text"])

    def test_resume_and_refusals(self):
        state = self.folder / "state.json"
        options = ("--max-tokens", "8", "--resume", state)
        part = self.expect_success(self.solve(*options, "--limit", "2")).json()
        self.assertEqual(part["n_items"], 2)
        outcome = self.expect_success(self.solve(*options))
        self.assertIn("after 2 problems", outcome.stderr)
        self.assertEqual(outcome.json()["n_items"], 6)
        self.assertEqual(outcome.json()["accuracy"], self.solve("--max-tokens", "8").json()["accuracy"])
        self.expect_failure(self.solve("--max-tokens", "9", "--resume", state), 2, "max_tokens")
        self.expect_failure(self.solve("--shots", "6"), 2, "--examples")
        self.expect_failure(self.solve("--chat"), 2, "template")
        self.expect_failure(self.solve("--examples", self.task), 2, "--shots")
        self.task.write_text('{"question":"q","answer":"none"}\n')
        self.expect_failure(self.solve(), 3, "line 1", "####")


if __name__ == "__main__":
    unittest.main()
