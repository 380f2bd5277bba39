"""Commands, options, help, exit statuses of wrong usage, completion."""

import subprocess
import unittest

from harness import MODEL, TENSORSHARP, TS_CLI, Case, command, run, start

COMMANDS = ["run", "plan", "inspect", "verify", "eval perplexity", "eval kl", "eval choice",
            "eval gsm8k", "eval logits", "bench",
            "convert", "tokenize", "completion"]


class Usage(Case):
    def test_version_and_help_go_to_stdout(self):
        for program, name in ((TENSORSHARP, "tensorsharp"), (TS_CLI, "ts-cli")):
            outcome = self.expect_success(run("--version", program=program))
            self.assertRegex(outcome.text, rf"^{name} \d+\.\d+\.\d+\n$")
            self.assertEqual(outcome.stderr, "")
            outcome = self.expect_success(run("--help", program=program))
            self.assertIn("Commands:", outcome.text)
            self.assertEqual(outcome.stderr, "")

    def test_every_command_has_help_with_examples(self):
        listed = run("--help").text
        for name in COMMANDS:
            self.assertIn(f"\n  {name} ", listed)
            outcome = self.expect_success(run(*name.split(), "--help"))
            self.assertIn("Usage: tensorsharp " + name, outcome.text)
            self.assertIn("Examples:\n  ", outcome.text)
            self.assertEqual(run("help", *name.split()).text, outcome.text)

    def test_no_command_shows_help_and_fails(self):
        outcome = run()
        self.assertEqual(outcome.status, 2)
        self.assertEqual(outcome.stdout, b"")
        self.assertIn("Commands:", outcome.stderr)

    def test_unknown_commands_list_the_known_ones(self):
        for words in (["serve"], ["distill", "a", "b"], ["eval"], ["eval", "taste", MODEL], ["--json"]):
            self.expect_failure(run(*words), 2, "run", "inspect", "eval perplexity")

    def test_unknown_options_and_missing_arguments(self):
        self.expect_failure(run("run", MODEL, "--frobnicate"), 2, "--frobnicate")
        self.expect_failure(run("run"), 2, "MODEL")
        self.expect_failure(run("inspect", MODEL, "another"), 2, "another")
        self.expect_failure(run("run", MODEL, "--ctx"), 2, "--ctx: a value is missing")
        self.expect_failure(run("run", MODEL, "-p"), 2, "--prompt: a value is missing")
        self.expect_failure(run("inspect", MODEL, "first", "second"), 2,
                            "'first' and 1 more are not understood")
        self.expect_failure(run("eval", "perplexity", MODEL), 2, "--data")
        self.expect_failure(run("eval", "logits", MODEL, "--tokens", "1"), 2, "--out")

    def test_absurd_values_are_wrong_usage(self):
        for option, values in {
            "--ctx": ["0", "-5", "1e9", "nan", "", "99999999999999999999", "12 ", "0x10"],
            "--temp": ["nan", "inf", "-1", "1e400", "warm"],
            "--top-k": ["-1", "2.5", "99999999999"],
            "--top-p": ["1.01", "-0.1", "nan"],
            "--min-p": ["2"],
            "--repeat-penalty": ["0", "-1", "nan"],
            "--presence-penalty": ["1e9"],
            "--threads": ["0", "-1", "1000000", "two"],
            "--cores": ["a", "3-1", "", "0-99999999", "-1"],
            "--seed": ["-2", "x", "18446744073709551616"],
            "--logprobs": ["-1", "x"],
            "--tokens": ["-2", "1.5"],
            "--kv": ["f64", "F16"],
            "--huge-pages": ["maybe"],
            "--samplers": ["magic", "top_k,,temp"],
            "--think": ["yes"],
            "--isa": ["sse9", "AVX2", ""],
        }.items():
            for value in values:
                with self.subTest(option=option, value=value):
                    self.expect_failure(run("run", MODEL, "-p", "x", "-n", "1", option, value), 2,
                                        option.lstrip("-"))

    def test_contradictions(self):
        self.expect_failure(run("run", MODEL, "-p", "a", "-f", "b"), 2, "not both")
        self.expect_failure(run("run", MODEL, "-p", "a", "--greedy", "--temp", "0.5"), 2, "not both")
        self.expect_success(run("run", MODEL, "-p", "a", "-n", "1", "--greedy", "--temp", "0"))
        self.expect_failure(run("run", MODEL, "--raw", "--system", "s", "-p", "x"), 2, "--raw")
        self.expect_failure(run("run", MODEL, "--think", "on", "-p", "x"), 2, "think")
        self.expect_failure(run("eval", "perplexity", MODEL, "--data", "x", "--stride", "2",
                                "--documents", "y"), 2, "not both")
        self.expect_failure(run("tokenize", MODEL, "a", "-f", "b"), 2, "not both")

    def test_limits_of_a_type_are_not_shown_as_limits(self):
        outcome = run("run", MODEL, "-p", "x", "--tokens", "99999999999999999999")
        self.expect_failure(outcome, 2, "--tokens", "too large")
        self.assertNotIn("9223372036854775807", outcome.stderr)

    def test_an_empty_prompt_is_none(self):
        self.expect_failure(run("run", MODEL, "-p", "", "-n", "1"), 2, "--prompt", "empty")
        self.expect_failure(run("run", MODEL, "-n", "1"), 3, "standard input", "empty")
        self.expect_success(run("run", MODEL, "--raw", "-p", "", "-n", "1"))

    def test_a_checkpoint_folder_is_for_the_converter(self):
        (self.folder / "config.json").write_text("{}")
        self.expect_failure(run("run", self.folder, "-p", "x"), 4, "tensorsharp convert")

    def test_help_names_the_context_a_command_takes(self):
        for name, words in (("run", "8192"), ("eval perplexity", "512, the window"),
                            ("eval kl", "512, the window"), ("eval logits", "as many as")):
            text = " ".join(run(*name.split(), "--help").text.split())
            self.assertIn(f"(default: {words}" if "8192" not in words else words, text)
        for line in run("eval", "--help").text.splitlines():
            self.assertLessEqual(len(line), 80)

    def test_isa_switch_has_an_effect(self):
        for env, options in (({"TENSORSHARP_ISA": "ref"}, []), ({}, ["--isa", "ref"]),
                             ({"TENSORSHARP_ISA": "no-such-set"}, ["--isa", "ref"])):
            outcome = self.expect_success(run("run", MODEL, "-p", "x", "-n", "1", "--json", *options,
                                              env=env))
            self.assertEqual(outcome.json()["isa"], "ref")
        self.expect_failure(run("run", MODEL, "-p", "x", "-n", "1",
                                env={"TENSORSHARP_ISA": "no-such-set"}), 2, "no-such-set", "avx2")

    def test_info_shows_the_effect_of_the_isa_switch(self):
        plain = self.expect_success(run("info", "--isa", "ref", "--json", program=TS_CLI)).json()
        self.assertEqual(plain["isa"], "ref")
        self.assertEqual({k["isa"] for k in plain["kernels"]} - {None}, {"ref"})
        self.assertIn("ptq1_0", {k["codec"] for k in plain["kernels"]})
        text = self.expect_success(run("info", program=TS_CLI))
        for word in ("CPU", "kernels", "bandwidth", "huge pages", "governor"):
            self.assertIn(word, text.text)
        self.expect_failure(run("info", "--isa", "mmx", program=TS_CLI), 2, "--isa")

    def test_completion_scripts(self):
        bash = self.expect_success(run("completion", "bash"))
        script = self.folder / "completion.bash"
        script.write_bytes(bash.stdout)
        subprocess.run(["bash", "-n", script], check=True)
        asked = (f"source {script}; COMP_WORDS=(tensorsharp run --is); COMP_CWORD=2; _tensorsharp; "
                 "echo ${COMPREPLY[@]}; COMP_WORDS=(tensorsharp eval ''); COMP_CWORD=2; "
                 "_tensorsharp; echo ${COMPREPLY[@]}; COMP_WORDS=(tensorsharp run m --kv ''); "
                 "COMP_CWORD=4; _tensorsharp; echo ${COMPREPLY[@]}")
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.splitlines(),
                         ["--isa", "perplexity kl choice gsm8k logits", "f32 f16 q8"])
        self.assertTrue(run("completion", "zsh").text.startswith("#compdef tensorsharp"))
        self.assertIn("complete -c tensorsharp", run("completion", "fish").text)
        self.expect_failure(run("completion", "tcsh"), 2, "bash")

    def test_closed_pipe_ends_quietly(self):
        process = start("inspect", MODEL, "--full")
        process.stdout.close()
        errors = process.stderr.read().decode()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=60), 141)
        self.assertEqual(errors, "")

    def test_full_disk_is_reported(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command(TENSORSHARP, "inspect", MODEL), stdout=full,
                                  stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 5)
        self.assertIn(b"standard output", done.stderr)


if __name__ == "__main__":
    unittest.main()
