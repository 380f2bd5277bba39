"""One program for all processors: on a Nehalem (no AVX) it must run the reference kernels with a
warning, on a Haswell the AVX2 ones, and print the same text everywhere.

Usage: test_emulated_processors.py TENSORSHARP QEMU_X86_64 MODEL
"""

import json
import os
import subprocess
import sys
import unittest

PROGRAM, QEMU, MODEL = sys.argv[1:4]
ARGUMENTS = [
    "run", MODEL, "--raw", "-p", "Once upon a time", "-n", "24", "--greedy", "--json",
    "--threads", "1",
]
EXPECTED = ", there was a little girl named Lily. She loved to play outside"


def run(prefix: list[str], *extra: str) -> tuple[dict, str]:
    environment = {k: v for k, v in os.environ.items() if k != "TENSORSHARP_ISA"}
    done = subprocess.run(
        [*prefix, PROGRAM, *ARGUMENTS, *extra],
        capture_output=True, text=True, timeout=240, env=environment, check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout), done.stderr


class EmulatedProcessors(unittest.TestCase):
    native: dict

    @classmethod
    def setUpClass(cls) -> None:
        cls.native, _ = run([])

    def test_native_text(self) -> None:
        self.assertTrue(self.native["text"].startswith(EXPECTED), self.native["text"])

    def test_forced_reference_gives_the_same_text(self) -> None:
        result, _ = run([], "--isa", "ref")
        self.assertEqual(result["token_ids"], self.native["token_ids"])

    def test_nehalem_runs_the_reference_with_a_warning(self) -> None:
        result, messages = run([QEMU, "-cpu", "Nehalem"])
        self.assertEqual(result["token_ids"], self.native["token_ids"])
        self.assertIn("warning", messages.lower())

    def test_haswell_runs_avx2(self) -> None:
        result, messages = run([QEMU, "-cpu", "Haswell"])
        self.assertEqual(result["token_ids"], self.native["token_ids"])
        self.assertNotIn("scalar", messages.lower())

    def test_nehalem_refuses_to_be_forced_beyond_itself(self) -> None:
        done = subprocess.run(
            [QEMU, "-cpu", "Nehalem", PROGRAM, *ARGUMENTS, "--isa", "avx2"],
            capture_output=True, text=True, timeout=240, check=False,
        )
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("avx2", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
