#!/usr/bin/env python3
"""Runs the program kernel_counts under callgrind and compares the instructions of every kernel,
per 32 weights (or elements), with stored ones. Exit 1 when one needs more than TOLERANCE above the
stored number, is missing, or is not stored; 77 (skipped) when the numbers are another compiler's.

usage: check_kernel_counts.py --valgrind VALGRIND --compiler NAME --stored FILE.json [--update] PROGRAM
"""

import argparse
import glob
import json
import re
import subprocess
import sys
import tempfile

TOLERANCE = 1.10
SKIPPED = 77


def measure(valgrind, program):
    """{case: instructions per 32 elements}"""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [
                valgrind,
                "--tool=callgrind",
                f"--callgrind-out-file={folder}/counts",
                program,
            ],
            capture_output=True,
            text=True,
        )
        if run.returncode != 0:
            sys.exit(f"{program} under {valgrind} failed:\n{run.stderr}")
        elements = dict(line.rsplit(": ", 1) for line in run.stdout.splitlines())
        counts = {}
        for path in glob.glob(f"{folder}/counts.*"):
            with open(path) as file:
                text = file.read()
            name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.M)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.M)
            if name and total:
                counts[name[1]] = round(int(total[1]) * 32 / int(elements[name[1]]), 3)
    missing = set(elements) - set(counts)
    if missing:
        sys.exit(f"callgrind did not count: {', '.join(sorted(missing))}")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--valgrind", required=True)
    parser.add_argument("--compiler", required=True, help='such as "GNU 12"')
    parser.add_argument("--stored", required=True)
    parser.add_argument("--update", action="store_true", help="store what is measured")
    parser.add_argument("program")
    args = parser.parse_args()
    if not args.update:
        with open(args.stored) as file:
            stored = json.load(file)
        if stored["compiler"] != args.compiler:
            print(f"the stored counts are {stored['compiler']}'s, not {args.compiler}'s")
            return SKIPPED
    counts = measure(args.valgrind, args.program)
    if args.update:
        with open(args.stored, "w") as file:
            json.dump(
                {
                    "compiler": args.compiler,
                    "instructions_per_32": dict(sorted(counts.items())),
                },
                file,
                indent=1,
            )
            file.write("\n")
        return 0
    expected = stored["instructions_per_32"]
    # A CPU without AVX2 runs no more than the reference.
    isas = {name.split()[0] for name in counts}
    failed = False
    for name in sorted(set(counts) | {n for n in expected if n.split()[0] in isas}):
        have, want = counts.get(name), expected.get(name)
        if have is None or want is None:
            print(f"{name}: {'not measured' if have is None else 'not stored; see --update'}")
            failed = True
        elif have > want * TOLERANCE:
            print(f"{name}: {have} instructions per 32 elements, stored are {want}")
            failed = True
    better = [n for n in counts if n in expected and counts[n] * TOLERANCE < expected[n]]
    for name in sorted(better):
        print(f"{name}: {counts[name]}, better than the stored {expected[name]}; see --update")
    if not failed:
        print(f"{len(counts)} kernels need no more instructions than stored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
