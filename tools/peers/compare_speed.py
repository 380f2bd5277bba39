#!/usr/bin/env python3
"""Compare the speed of TensorSharp and of other engines on one machine, in turns.

    python3 tools/peers/compare_speed.py --tensorsharp build/release/bin/tensorsharp \\
        --ours model_pq2_0.gguf --ik model_iq2_bn.gguf --llama model_tq2_0.gguf --threads 2

The other engines come from PyPI (`pip install ik-llama-cpp-python xllamacpp`) and stay loaded in a
process of their own, which sleeps while others are measured. Rounds alternate between engines, so
that whatever else the machine does meets all of them; medians over the rounds and ratios of
neighbouring measurements are printed. Options may be repeated for several files of one engine.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


class Worker:
    """Another engine in a process of its own."""

    def __init__(self, script: str, *args: str) -> None:
        command = [sys.executable, str(HERE / script), *args]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._expect("ready")

    def _expect(self, what: str) -> str:
        # Engines may print notes of their own on standard output.
        for line in self.process.stdout:
            line = line.strip()
            if what == "ready" and line == "ready":
                return line
            if what == "seconds":
                try:
                    return str(float(line))
                except ValueError:
                    continue
        raise SystemExit(f"{' '.join(self.process.args)}: ended without an answer")

    def seconds(self, test: str, n: int) -> float:
        """Return the seconds of one test."""
        self.process.stdin.write(f"{test} {n}\n")
        self.process.stdin.flush()
        return float(self._expect("seconds"))


class Ours:
    """TensorSharp: `bench` with one repetition."""

    def __init__(self, program: str, model: str, threads: str, options: list[str]) -> None:
        self.command = [program, "bench", model, "-r", "1", "--threads", threads, "--json", "-q"]
        self.command += options

    def seconds(self, test: str, n: int) -> float:
        """Return the seconds of one test."""
        sizes = ["-p", str(n), "-n", "0"] if test == "prefill" else ["-p", "0", "-n", str(n)]
        out = subprocess.run(self.command + sizes, check=True, capture_output=True, text=True)
        (result,) = json.loads(out.stdout)["results"]
        return n / result["tokens_per_second"]


def main() -> int:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensorsharp", required=True)
    parser.add_argument("--ours", action="append", default=[])
    parser.add_argument("--ik", action="append", default=[])
    parser.add_argument("--ik-repacked", action="append", default=[])
    parser.add_argument("--llama", action="append", default=[])
    parser.add_argument("--threads", default="2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=32)
    parser.add_argument("--json", type=pathlib.Path)
    args, options = parser.parse_known_args()

    engines: dict[str, Ours | Worker] = {}
    for model in args.ours:
        name = f"tensorsharp {pathlib.Path(model).name}"
        engines[name] = Ours(args.tensorsharp, model, args.threads, options)
    for model in args.ik:
        engines[f"ik_llama.cpp {pathlib.Path(model).name}"] = Worker(
            "ik_worker.py", model, args.threads, "mapped"
        )
    for model in args.ik_repacked:
        engines[f"ik_llama.cpp repacked {pathlib.Path(model).name}"] = Worker(
            "ik_worker.py", model, args.threads, "repack"
        )
    for model in args.llama:
        engines[f"llama.cpp {pathlib.Path(model).name}"] = Worker(
            "llama_worker.py", model, args.threads
        )

    results: dict[str, dict[str, list[float]]] = {}
    for test, n in (("prefill", args.prefill), ("decode", args.decode)):
        for _ in range(args.rounds):
            for name, engine in engines.items():
                rate = n / engine.seconds(test, n)
                results.setdefault(test, {}).setdefault(name, []).append(rate)
    first = next(iter(engines))
    for test, rates in results.items():
        print(f"{test}: tokens/s, median (lowest-highest); {first} is this many times as fast")
        for name, values in rates.items():
            ratio = statistics.median(a / b for a, b in zip(rates[first], values, strict=True))
            print(
                f"  {name:50} {statistics.median(values):8.1f} "
                f"({min(values):.1f}-{max(values):.1f})  {ratio:.2f}"
            )
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
