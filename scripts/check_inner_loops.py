#!/usr/bin/env python3
"""Checks the inner loops of the AVX-512 kernels in their disassembly: their length and the moves of
vectors to and from the stack in them. A register too few, and a loop spills its accumulators and
runs at half the speed with the same results. Stored is, for every innermost loop with a dpbusd, the
number of instructions, of dpbusd and of stack moves. Compared is a function's main loop, that with
the fewest instructions per dpbusd: not TOLERANCE longer than stored and no more stack moves; and the
stack moves of all its loops together. Exit 1 when that fails or functions are missing; 77 (skipped)
when the numbers are another compiler's.

usage: check_inner_loops.py --objdump OBJDUMP --compiler NAME --stored FILE.json [--update] OBJECT...
"""

import argparse
import json
import re
import subprocess
import sys

TOLERANCE = 1.15
SKIPPED = 77
FOLDER = re.compile(r"[/.]x86/avx512_vnni/(\w+)\.cc")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t(.*)$")
JUMP = re.compile(r"^j\w+\s+([0-9a-f]+)\b")
STACK_MOVE = re.compile(r"^vmov\w*\s.*\((%rsp|%rbp)\)")


def functions(objdump, path):
    """(name, [(address, instruction)]) of every function."""
    listing = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", path],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    name, code = None, []
    for line in listing.splitlines():
        if match := FUNCTION.match(line):
            if name:
                yield name, code
            name, code = match[1], []
        elif match := INSTRUCTION.match(line):
            code.append((int(match[1], 16), match[2].strip()))
    if name:
        yield name, code


def loops(code):
    """[instructions, dpbusd, stack moves] of innermost loops with a dpbusd, in order."""
    index = {address: i for i, (address, _) in enumerate(code)}
    spans = []
    for i, (_, text) in enumerate(code):
        match = JUMP.match(text)
        if match and (start := index.get(int(match[1], 16))) is not None and start <= i:
            spans.append((start, i))
    for start, end in spans:
        if any(s >= start and e <= end and (s, e) != (start, end) for s, e in spans):
            continue
        body = [text for _, text in code[start : end + 1]]
        products = sum("dpbusd" in text for text in body)
        if products:
            yield [len(body), products, sum(bool(STACK_MOVE.match(t)) for t in body)]


def per_product(loop):
    return loop[0] / loop[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objdump", default="objdump")
    parser.add_argument("--compiler", required=True, help='such as "GNU 12"')
    parser.add_argument("--stored", required=True)
    parser.add_argument("--update", action="store_true", help="store what is found")
    parser.add_argument("objects", nargs="+")
    args = parser.parse_args()
    found = {}
    for path in args.objects:
        if match := FOLDER.search(path):
            for name, code in functions(args.objdump, path):
                if here := list(loops(code)):
                    found[f"{match[1]} {name}"] = here
    if not found:
        print("no inner loop of an AVX-512 kernel among the arguments", file=sys.stderr)
        return 2
    if args.update:
        with open(args.stored, "w") as file:
            rows = ",\n".join(f"  {json.dumps(n)}: {json.dumps(found[n])}" for n in sorted(found))
            file.write(
                f'{{\n "compiler": {json.dumps(args.compiler)},\n "loops": {{\n{rows}\n }}\n}}\n'
            )
        return 0
    with open(args.stored) as file:
        stored = json.load(file)
    if stored["compiler"] != args.compiler:
        print(f"the stored loops are {stored['compiler']}'s, not {args.compiler}'s")
        return SKIPPED
    problems = []
    for name in sorted(set(found) | set(stored["loops"])):
        have, want = found.get(name), stored["loops"].get(name)
        if not have or not want:
            problems.append(f"{name}: {'not found' if not have else 'not stored'}; see --update")
            continue
        main, main_before = (min(side, key=per_product) for side in (have, want))
        allowed = per_product(main_before) * TOLERANCE
        if per_product(main) > allowed:
            problems.append(
                f"{name}: {per_product(main):.2f} instructions per dpbusd, allowed {allowed:.2f}"
            )
        for what, moves, before in (
            ("its main loop", main[2], main_before[2]),
            ("all its loops", sum(x[2] for x in have), sum(x[2] for x in want)),
        ):
            if moves > before:
                problems.append(f"{name}: {moves} stack moves in {what}, stored are {before}")
    for problem in problems:
        print(problem)
    if not problems:
        print(f"inner loops of {len(found)} functions are as short as stored")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
