"""The conversation of `run` on a (pseudo) terminal."""

import json
import os
import pathlib
import pty
import select
import signal
import time
import unittest

from harness import EMULATOR, MODEL, TENSORSHARP, Case, command


class Terminal:
    """The program on a terminal of its own: what it shows is collected, lines can be typed."""

    def __init__(self, *arguments, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "vt100", "LC_ALL": "C.UTF-8", **(env or {})})
            words = command(TENSORSHARP, *arguments)
            os.execvp(words[0], words)
        self.seen = b""

    def wait_for(self, word: bytes, timeout: float = 30) -> bytes:
        """Everything up to and including `word`, which is then consumed."""
        end = time.monotonic() + timeout
        while word not in self.seen:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"{word!r} did not come; seen: {self.seen[-800:]!r}")
            try:
                more = os.read(self.fd, 65536)
            except OSError:
                more = b""
            if not more:
                raise AssertionError(f"ended before {word!r}; seen: {self.seen[-800:]!r}")
            self.seen += more
        head, _, self.seen = self.seen.partition(word)
        return head + word

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def finish(self, timeout: float = 30) -> int:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"did not end; seen: {self.seen[-800:]!r}")


@unittest.skipIf(EMULATOR, "terminals under emulation are not the program's concern")
class Chat(Case):
    def open(self, *arguments) -> Terminal:
        terminal = Terminal("run", MODEL, "--greedy", *arguments)
        terminal.wait_for(b"> ")
        return terminal

    def test_a_conversation_with_its_commands(self):
        chat = self.open("-n", "8")
        chat.type("/help\n")
        chat.wait_for(b"/save FILE")
        chat.wait_for(b"> ")
        chat.type("Once upon a time\n")
        chat.wait_for(b"there was")
        chat.wait_for(b"> ")
        chat.type("/stats\n")
        chat.wait_for(b"tokens/s")
        chat.wait_for(b"> ")
        chat.type("/set temp 0.25\n")
        chat.wait_for(b"> ")
        chat.type("/set\n")
        chat.wait_for(b"temp 0.25")
        chat.wait_for(b"> ")
        for wrong in ("/frobnicate", "/set temp warm", "/set colour red", "/load /none/such"):
            chat.type(wrong + "\n")
            chat.wait_for(b"error:")
            chat.wait_for(b"> ")
        chat.type("/quit\n")
        self.assertEqual(chat.finish(), 0)

    def test_save_and_load(self):
        path = self.folder / "chat.json"
        chat = self.open("-n", "4")
        chat.type("Once upon\n")
        chat.wait_for(b"\n")
        chat.wait_for(b"> ")
        chat.type(f"/save {path}\n")
        chat.wait_for(b"saved 2 messages")
        chat.wait_for(b"> ")
        chat.type(f"/save {path}\n")  # its own file may be replaced
        chat.wait_for(b"saved 2 messages")
        chat.wait_for(b"> ")
        chat.type("\x04")  # Ctrl-D
        self.assertEqual(chat.finish(), 0)
        saved = json.loads(path.read_text())
        self.assertEqual([m["role"] for m in saved["messages"]], ["user", "assistant"])
        self.assertEqual(saved["messages"][0]["content"], "Once upon")

        chat = self.open("-n", "4")
        chat.type(f"/save {path}\n")  # another chat's file is not
        chat.wait_for(b"error:")
        chat.wait_for(b"> ")
        chat.type(f"/load {path}\n")
        chat.wait_for(b"loaded 2 messages")
        chat.wait_for(b"> ")
        chat.type("/quit\n")
        self.assertEqual(chat.finish(), 0)

    def test_interrupt_stops_the_answer_and_the_chat_goes_on(self):
        chat = self.open("--ignore-eos", "--ctx", "400000", "--kv", "q8")
        chat.type("Once upon a time\n")
        chat.wait_for(b"there was")
        chat.type("\x03")
        chat.wait_for(b"> ")
        chat.type("/stats\n")
        chat.wait_for(b"context:")
        chat.wait_for(b"> ")
        chat.type("\x03")
        chat.wait_for(b"Ctrl-C again")
        chat.wait_for(b"> ")
        chat.type("\x03")
        self.assertEqual(chat.finish(), 130)

    def test_control_keys_typed_ahead_are_not_lost(self):
        for _ in range(5):
            chat = self.open("-n", "2")
            chat.type("Once upon a time\n\x04")  # while the answer is written
            self.assertEqual(chat.finish(), 0)
            chat = self.open("-n", "2")
            chat.type("\x03")  # as soon as the prompt is seen
            chat.wait_for(b"Ctrl-C again")
            chat.type("\x03")
            self.assertEqual(chat.finish(), 130)

    def test_an_interrupt_clears_a_line_and_termination_ends_the_program(self):
        chat = self.open("-n", "2")
        chat.type("\x03")
        chat.wait_for(b"Ctrl-C again")
        chat.wait_for(b"> ")
        chat.type("half a line")
        chat.wait_for(b"half a line")
        chat.type("\x03")  # throws the line away, no more
        chat.wait_for(b"> ")
        chat.type("/set n 3\n")
        chat.wait_for(b"> ")
        os.kill(chat.pid, signal.SIGTERM)
        self.assertEqual(chat.finish(), 130)

    def test_settings_out_of_range_change_nothing(self):
        chat = self.open("-n", "2")
        for wrong in ("temp -1", "top_p 5", "repeat_penalty 0", "samplers top_k,top_k",
                      "top_k -3", "system be brief"):
            chat.type(f"/set {wrong}\n")
            chat.wait_for(b"error:")
            chat.wait_for(b"> ")
        chat.type("Once\n")
        chat.wait_for(b"> ")
        chat.type("/quit\n")
        self.assertEqual(chat.finish(), 0)

    def test_what_a_model_says_cannot_steer_the_terminal(self):
        hostile = self.folder / "hostile.gguf"
        hostile.write_bytes(pathlib.Path(MODEL).read_bytes().replace(
            b"\xe2\x96\x81upon", b"\x1b]0;xx\x07"))
        terminal = Terminal("run", str(hostile), "-p", "Once", "--raw", "--greedy", "-n", "3")
        self.assertEqual(terminal.finish(), 0)
        self.assertIn(rb"\x1b]0;xx\x07", terminal.seen)
        self.assertNotIn(b"\x1b]", terminal.seen)

    def test_history_is_kept_between_runs(self):
        chat = self.open("-n", "2")
        chat.type("/set n 3\n")
        chat.wait_for(b"> ")
        chat.type("/quit\n")
        self.assertEqual(chat.finish(), 0)
        history = pathlib.Path(os.environ["XDG_STATE_HOME"]) / "tensorsharp" / "chat_history"
        self.assertTrue(history.exists())
        self.assertEqual(history.stat().st_mode & 0o077, 0)
        chat = self.open("-n", "2")
        chat.type("\x1b[A\x1b[A")  # up, up: the line before /quit
        chat.wait_for(b"/set n 3")
        chat.type("\n")
        chat.type("\x04")
        self.assertEqual(chat.finish(), 0)

    def test_wide_characters(self):
        chat = self.open("-n", "2")
        chat.type("caf\u00e9 \u4f60\u597d \U0001f642\n")
        chat.wait_for(b"> ")
        path = self.folder / "chat.json"
        chat.type(f"/save {path}\n")
        chat.wait_for(b"saved")
        chat.wait_for(b"> ")
        chat.type("/quit\n")
        self.assertEqual(chat.finish(), 0)
        self.assertEqual(json.loads(path.read_text())["messages"][0]["content"],
                         "caf\u00e9 \u4f60\u597d \U0001f642")


if __name__ == "__main__":
    unittest.main()
