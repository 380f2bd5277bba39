"""Tests of tools/llama2c_to_gguf.py: the stored model can be made again, bad input is refused."""

from __future__ import annotations

import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DATA = ROOT / "testdata" / "stories260k"
CHECKPOINT = DATA / "stories260K.bin"
TOKENIZER = DATA / "tok512.bin"


class Llama2c(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.output = self.folder / "out.gguf"

    def convert(
        self, checkpoint: pathlib.Path = CHECKPOINT, tokenizer: pathlib.Path = TOKENIZER, *more: str
    ) -> subprocess.CompletedProcess[str]:
        script = ROOT / "tools" / "llama2c_to_gguf.py"
        command = [sys.executable, script, checkpoint, tokenizer, self.output, *more]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def changed(self, data: bytes) -> pathlib.Path:
        path = self.folder / "changed.bin"
        path.write_bytes(data)
        return path

    def assert_refused(
        self, run: subprocess.CompletedProcess[str], status: int, *words: str
    ) -> None:
        self.assertEqual(run.returncode, status, run.stderr)
        self.assertEqual(run.stdout, "")
        self.assertNotIn("Traceback", run.stderr)
        for word in words:
            self.assertIn(word, run.stderr)

    def test_makes_the_stored_model_again(self) -> None:
        run = self.convert()
        self.assertEqual(run.returncode, 0, run.stderr)
        stored = (ROOT / "testdata" / "stories260k.gguf").read_bytes()
        self.assertTrue(self.output.read_bytes() == stored)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["out.gguf"])

    def test_overwrites_only_when_told(self) -> None:
        self.output.write_bytes(b"precious")
        self.assert_refused(self.convert(), 2, "out.gguf", "--force")
        self.assertEqual(self.output.read_bytes(), b"precious")
        self.assertEqual(self.convert(CHECKPOINT, TOKENIZER, "--force").returncode, 0)
        self.assertEqual(self.output.read_bytes()[:4], b"GGUF")

    def test_refuses_a_damaged_checkpoint(self) -> None:
        good = CHECKPOINT.read_bytes()
        nan = struct.pack("<f", float("nan"))
        cases = {
            "28 bytes": good[:20],
            "asks for": good[:-4],
            "n_layers is -1": good[:8] + struct.pack("<i", -1) + good[12:],
            "heads": good[:12] + struct.pack("<i", 7) + good[16:],
            "token_embd.weight": good[:28] + nan + good[32:],
        }
        for words, data in cases.items():
            with self.subTest(words):
                self.assert_refused(self.convert(self.changed(data)), 3, "changed.bin", words)
                self.assertFalse(self.output.exists())

    def test_refuses_a_damaged_tokenizer(self) -> None:
        good = TOKENIZER.read_bytes()
        cases = {
            "ends inside token": good[:-13],
            "past the end": good[:-1],
            "expected": good.replace(b"<0x41>", b"<0x42>"),
            "tokens": good + struct.pack("<fi", -1.0, 1) + b"x",
        }
        for words, data in cases.items():
            with self.subTest(words):
                self.assert_refused(self.convert(CHECKPOINT, self.changed(data)), 3, words)
                self.assertFalse(self.output.exists())

    def test_names_a_missing_file_and_an_unwritable_folder(self) -> None:
        self.assert_refused(self.convert(self.folder / "gone.bin"), 3, "gone.bin")
        self.output = self.folder / "no" / "such" / "out.gguf"
        self.assert_refused(self.convert(), 5, "out.gguf")


if __name__ == "__main__":
    unittest.main()
