"""Measure llama.cpp (PyPI package xllamacpp) on commands from standard input.

One command per line, `prefill N` or `decode N`; the answer is one line with the seconds it took,
as the engine itself reports them.
"""

from __future__ import annotations

import json
import sys

import xllamacpp


def main() -> int:
    """Load the model, then answer commands until the input ends."""
    path, n_threads = sys.argv[1], int(sys.argv[2])
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_parallel = 2048, 2048, 512, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = n_threads
    params.n_gpu_layers = 0
    params.warmup = True
    params.cache_prompt = False
    params.verbosity = -1
    params.enable_chat_template = False
    server = xllamacpp.Server(params)

    def complete(n_prompt: int, n_generated: int) -> dict:
        request = {
            "prompt": [1 + i % 1000 for i in range(n_prompt)],
            "n_predict": n_generated,
            "cache_prompt": False,
            "ignore_eos": True,
            "temperature": 0.0,
        }
        answer = server.handle_completions(request)
        if isinstance(answer, str):
            answer = json.loads(answer)
        if isinstance(answer, list):
            answer = answer[0]
        return answer["timings"]

    print("ready", flush=True)
    for line in sys.stdin:
        test, count = line.split()
        n = int(count)
        if test == "prefill":
            timings = complete(n, 1)
            print(timings["prompt_ms"] / 1000 * n / timings["prompt_n"], flush=True)
        else:
            timings = complete(4, n)
            print(timings["predicted_ms"] / 1000 * n / timings["predicted_n"], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
