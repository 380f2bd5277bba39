#!/usr/bin/env python3
"""Checks that includes between source folders point only downwards, as docs/architecture.md draws
them. Exit status 1 and one line per violation."""

import re
import subprocess
import sys
from pathlib import Path

# Folder -> folders it may include (besides itself and <tensorsharp/...>).
BELOW: dict[str, set[str]] = {"base": set()}
BELOW["tensor"] = {"base"}
BELOW["codec"] = {"tensor"} | BELOW["tensor"]
BELOW["hadamard"] = {"tensor"} | BELOW["tensor"]
BELOW["kernels"] = {"codec", "hadamard"} | BELOW["codec"]
BELOW["format"] = {"codec"} | BELOW["codec"]
BELOW["text"] = {"base"}
BELOW["backend"] = {"kernels"} | BELOW["kernels"]
BELOW["model"] = {"backend", "format", "text"} | BELOW["backend"] | BELOW["format"]
BELOW["runtime"] = {"model"} | BELOW["model"]
BELOW["eval"] = {"runtime"} | BELOW["runtime"]
BELOW["convert"] = {"model"} | BELOW["model"]
BELOW["quantize"] = {"eval", "convert"} | BELOW["eval"]
BELOW["cli"] = set(BELOW) - {"cli"}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_0-9]+)/', re.MULTILINE)
PUBLIC_QUOTED = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "src", "include"],
        cwd=root, check=True, capture_output=True, text=True,
    ).stdout.split()
    problems: list[str] = []
    for name in listed:
        path = root / name
        if path.suffix not in {".h", ".cc", ".hpp"} or not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        if name.startswith("include/"):
            problems += [f"{name}: a public header includes the private \"{i}\""
                         for i in PUBLIC_QUOTED.findall(text)]
            continue
        folder = name.split("/")[1]
        if folder not in BELOW:
            problems.append(f"{name}: folder src/{folder} has no place in scripts/check_includes.py")
            continue
        for included in INCLUDE.findall(text):
            if included != folder and included in BELOW and included not in BELOW[folder]:
                problems.append(f"{name}: src/{folder} must not include src/{included}")
    for problem in sorted(set(problems)):
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
