#!/usr/bin/env python3
"""Checks objects that were compiled for an instruction set: none may define a weak symbol.

A weak symbol (an inline function or template instantiation with external linkage) compiled with -m
flags may be the copy that the linker keeps for the whole program; a CPU without the instruction set
would then die in code that has nothing to do with the kernels. Such files may define local symbols
and the few strong functions that register their kernels.

usage: check_isa_leaks.py [--nm NM] OBJECT...
Only objects below a folder x86/ or arm/ are checked; it is an error when there are none.
"""

import argparse
import re
import subprocess
import sys

ISA_FOLDER = re.compile(r"[/.](x86|arm)/")
# ts::overlay_<isa>(...) and ts::<isa>::set_<part>(...)
ALLOWED_STRONG = re.compile(r"^ts::(overlay_\w+|\w+::set_\w+)\(ts::KernelTable\*\)$")


def problems(nm, path):
    listing = subprocess.run(
        [nm, "-C", path], check=True, capture_output=True, text=True
    ).stdout
    for line in listing.splitlines():
        match = re.match(r"^[0-9a-fA-F]*\s+(\w)\s+(.*)$", line)
        if not match:
            continue
        kind, name = match.groups()
        if kind in "WVuvw":
            yield f"weak symbol {name}"
        elif kind in "TDBRG" and not ALLOWED_STRONG.match(name):
            yield f"strong symbol {name} (only registration functions may be visible)"
        elif kind == "U" and name.startswith("std::"):
            yield f"calls {name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nm", default="nm")
    parser.add_argument("objects", nargs="+")
    args = parser.parse_args()
    checked = [o for o in args.objects if ISA_FOLDER.search(o)]
    if not checked:
        print("no object of an instruction set among the arguments", file=sys.stderr)
        return 2
    failed = False
    for path in checked:
        for problem in problems(args.nm, path):
            print(f"{path}: {problem}", file=sys.stderr)
            failed = True
    if not failed:
        print(f"{len(checked)} objects define no weak symbols")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
