"""Runs the programs and keeps what they said."""

import dataclasses
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

TENSORSHARP = os.environ["TS_PROGRAM"]
TS_CLI = os.environ["TS_CLI_PROGRAM"]
TESTDATA = pathlib.Path(os.environ["TS_TESTDATA"])
MODEL = str(TESTDATA / "stories260k.gguf")
# Words that start a foreign program (a cross build under emulation).
EMULATOR = [word for word in os.environ.get("TS_EMULATOR", "").split("|") if word]
# Sanitizers and emulators reserve address space of their own and handle faults themselves.
NATIVE = not EMULATOR and not os.environ.get("TS_SANITIZER")


@dataclasses.dataclass
class Outcome:
    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8")

    def json(self) -> dict:
        """stdout as one line that is one JSON object, in valid UTF-8."""
        lines = self.stdout.decode("utf-8").splitlines()
        assert len(lines) == 1, f"{len(lines)} lines on stdout: {self.stdout[:500]!r}"
        value = json.loads(lines[0], parse_constant=lambda name: 1 / 0)
        assert isinstance(value, dict)
        return value


def command(program: str, *arguments) -> list:
    return [*EMULATOR, program, *(os.fspath(a) if isinstance(a, os.PathLike) else a
                                  for a in arguments)]


def run(*arguments, program: str = TENSORSHARP, stdin: bytes = b"", env: dict | None = None,
        address_space: int | None = None, timeout: float = 120) -> Outcome:
    environment = {k: v for k, v in os.environ.items() if k != "TENSORSHARP_ISA"}
    environment.update(env or {})
    limit = None
    if address_space is not None:
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    done = subprocess.run(command(program, *arguments), input=stdin, capture_output=True,
                          env=environment, timeout=timeout, preexec_fn=limit, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


def start(*arguments, program: str = TENSORSHARP, **popen) -> subprocess.Popen:
    return subprocess.Popen(command(program, *arguments), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen)


class Case(unittest.TestCase):
    """A test with a folder of its own; the user's caches and history live there too."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tensorsharp-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
            os.environ[variable] = str(self.folder / variable.lower())

    def expect_failure(self, outcome: Outcome, status: int, *words: str) -> None:
        """One error of at most three lines with these words on stderr; nothing on stdout."""
        self.assertEqual(outcome.status, status, outcome.stderr)
        self.assertEqual(outcome.stdout, b"")
        position = outcome.stderr.find("error: ")
        self.assertGreaterEqual(position, 0, outcome.stderr)
        message = outcome.stderr[position:].rstrip("\n")
        self.assertLessEqual(len(message.split("\n")), 3, message)
        for word in words:
            self.assertIn(word, message)

    def expect_success(self, outcome: Outcome) -> Outcome:
        self.assertEqual(outcome.status, 0, outcome.stderr)
        return outcome


def interrupt_after_output(process: subprocess.Popen, n_bytes: int) -> tuple:
    """Sends SIGINT once `n_bytes` of stdout came; returns (status, stdout, stderr)."""
    head = process.stdout.read(n_bytes)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    return process.returncode, head + rest, errors.decode("utf-8", "replace")


def interrupt_after_line(process: subprocess.Popen, beginning: bytes) -> tuple:
    """Sends SIGINT once a line of stderr begins so; returns (status, stdout)."""
    line = b""
    while not line.startswith(beginning):
        line = process.stderr.readline()
        assert line, f"ended without a line {beginning!r}"
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=60)
    return process.returncode, stdout


def read_npy(path):
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    (length,) = struct.unpack_from("<H", data, 8)
    header = eval(data[10:10 + length].decode(), {"__builtins__": {}})
    assert header["descr"] == "<f4" and not header["fortran_order"] and (10 + length) % 64 == 0
    rows, columns = header["shape"]
    values = struct.unpack_from(f"<{rows * columns}f", data, 10 + length)
    return [values[i * columns:(i + 1) * columns] for i in range(rows)]


# --- GGUF files --------------------------------------------------------------------------------

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}


class Gguf:
    """Places of fields in a GGUF file, for changing single bytes of it."""

    def __init__(self, data: bytes):
        self.data = bytearray(data)
        self.position = 8
        n_tensors, n_pairs = self._take("QQ")
        self.keys, self.tensors = {}, {}
        for _ in range(n_pairs):
            key = self._string()
            (kind,) = self._take("I")
            self.keys[key] = self.position
            self._skip_value(kind)
        for _ in range(n_tensors):
            name = self._string()
            (n_dims,) = self._take("I")
            dims = self.position
            self._take("Q" * n_dims)
            kind = self.position
            self._take("I")
            offset = self.position
            self._take("Q")
            self.tensors[name] = {"dims": dims, "type": kind, "offset": offset}

    def _take(self, fields: str) -> tuple:
        values = struct.unpack_from("<" + fields, self.data, self.position)
        self.position += struct.calcsize("<" + fields)
        return values

    def _string(self) -> str:
        (length,) = self._take("Q")
        self.position += length
        return bytes(self.data[self.position - length:self.position]).decode("utf-8", "replace")

    def _skip_value(self, kind: int) -> None:
        if kind == 8:
            self._string()
        elif kind == 9:
            element, count = self._take("IQ")
            for _ in range(count):
                self._skip_value(element)
        else:
            self._take(_SCALARS[kind])

    def set(self, position: int, field: str, value) -> "Gguf":
        struct.pack_into("<" + field, self.data, position, value)
        return self

    def write(self, path) -> str:
        pathlib.Path(path).write_bytes(bytes(self.data))
        return str(path)


def model() -> Gguf:
    return Gguf(pathlib.Path(MODEL).read_bytes())
