"""Measure ik_llama.cpp (PyPI package ik-llama-cpp-python) on commands from standard input.

One command per line, `prefill N` or `decode N`; the answer is one line with the seconds it took.
"""

from __future__ import annotations

import sys
import time

from ik_llama_cpp import _ctypes_api as api
from ik_llama_cpp._internals import make_batch_range


def main() -> int:
    """Load the model, then answer commands until the input ends."""
    path, n_threads, repack = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "repack"
    api.llama_backend_init()
    model_params = api.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model_params.repack_tensors = repack
    model_params.use_mmap = not repack
    model = api.llama_model_load_from_file(path.encode(), model_params)
    params = api.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 2048, 2048, 512
    params.n_threads = params.n_threads_batch = n_threads
    params.flash_attn = True
    context = api.llama_init_from_model(model, params) if model else None
    if not context:
        print(f"cannot load {path}", file=sys.stderr)
        return 1

    def step(tokens: list[int], start: int) -> None:
        batch = make_batch_range(tokens, pos_start=start)
        if api.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        api.llama_get_logits_ith(context, -1)
        api.llama_batch_free(batch)

    print("ready", flush=True)
    for line in sys.stdin:
        test, count = line.split()
        n = int(count)
        api.llama_kv_cache_clear(context)
        if test == "prefill":
            begin = time.perf_counter()
            step([1 + i % 1000 for i in range(n)], 0)
        else:
            step([1, 2, 3, 4], 0)
            begin = time.perf_counter()
            for i in range(n):
                step([5 + i], 4 + i)
        print(time.perf_counter() - begin, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
