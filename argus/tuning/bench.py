"""Time calls: on a GPU with the device's events, on the CPU with the host's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

_CACHE_BYTES = 256 * 2**20  # bytes written between calls: more than any L2 cache holds


def do_bench(call: Callable[[], object], warmup: float = 25.0, rep: float = 100.0, *, device: str = "cuda") -> float:
    """Return the milliseconds of one `call`, the median over about `rep` ms after `warmup` ms. A GPU needs PyTorch.

    On a GPU the L2 cache is overwritten before every call, so that the call reads its operands from memory. On device
    "cpu" the host's clock is used.
    """
    if device == "cpu":
        return _on_the_host(call, warmup, rep)
    import torch

    call()
    torch.cuda.synchronize()
    cache = torch.empty(_CACHE_BYTES, dtype=torch.int8, device=device)
    estimate = _events(torch, call, cache, 3)
    each = max(median(estimate), 1e-3)
    _events(torch, call, cache, max(1, int(warmup / each)))
    return median(_events(torch, call, cache, max(5, min(1000, int(rep / each)))))


def _events(torch: object, call: Callable[[], object], cache: object, count: int) -> list[float]:
    """Return the milliseconds of each of `count` calls."""
    cuda = torch.cuda  # type: ignore[attr-defined]
    pairs = [tuple(cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(count)]
    for start, end in pairs:
        cache.zero_()  # type: ignore[attr-defined]
        start.record()
        call()
        end.record()
    cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]


def _on_the_host(call: Callable[[], object], warmup: float, rep: float) -> float:
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - begin) * 1e3 < warmup + rep:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return median(times)
