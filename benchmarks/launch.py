"""Host time of one launch: from the call to its return, the work on the device left aside.

Vector addition of three tensors, with one warm build, in turns with Triton's and PyTorch's; on sm_90 also a small
matrix product with tensor maps, on tensors that stay, that alternate, and that are too many for their maps to be
kept; and functions of `argus.kernels` on small tensors, beside PyTorch's, which make their results as well.
Measurements are batches of launches with a synchronisation between batches, outside of the time, so that the device's
queue never fills up; the figure is the median batch divided by its launches.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.table import Cell, Results

_BATCHES = 50


def run(size: int, calls: int) -> Results:
    """Rows "what", "median us", "least us". Without a GPU only what needs none."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    synchronize = torch.cuda.synchronize if device == "cuda" else _nothing
    candidates = _candidates(torch, size, device)
    for call in candidates.values():  # builds, and prepares
        for _ in range(10):
            call()
    synchronize()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(_BATCHES):
        for name, call in candidates.items():
            times[name].append(_batch(call, calls))
            synchronize()
    rows: list[dict[str, Cell]] = [
        {"what": name, "median us": 1e6 * median(t), "least us": 1e6 * min(t)} for name, t in times.items()
    ]
    return Results(
        f"Host time of one launch, {size} elements on {device}",
        rows,
        (f"{_BATCHES} batches of {calls} launches each, in turns", "empty grid: all of the host's work but the driver"),
    )


def _batch(call: Callable[[], object], calls: int) -> float:
    start = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - start) / calls


def _candidates(torch: Any, size: int, device: str) -> dict[str, Callable[[], object]]:
    from examples.vector_add import vector_add

    x, y = torch.rand(size, device=device), torch.rand(size, device=device)
    out = torch.empty_like(x)
    none = [torch.empty(0, device=device) for _ in range(3)]
    grid = (-(-size // 1024),)
    found: dict[str, Callable[[], object]] = {
        "argus, empty grid": lambda: vector_add(*none),
        "torch.add(..., out=), no elements": lambda: torch.add(none[0], none[1], out=none[2]),
    }
    if device == "cpu":  # the host would run the kernel itself within the call
        return found
    found["argus, kernel(...)"] = lambda: vector_add(x, y, out)
    found["argus, kernel[grid](..., BLOCK=1024)"] = lambda: vector_add[grid](x, y, out, BLOCK=1024)
    if torch.cuda.get_device_capability() == (9, 0):
        found |= _products(torch)
    found["torch.add(..., out=)"] = lambda: torch.add(x, y, out=out)
    if (launch := _triton(grid)) is not None:
        found["triton, kernel[grid](..., BLOCK=1024)"] = lambda: launch(x, y, out, size)
    return found | _functions(torch)


def _functions(torch: Any) -> dict[str, Callable[[], object]]:
    """Calls that check their arguments and make their results."""
    from torch.nn import functional as F

    from argus import kernels

    def some(*shape: int) -> Any:
        return torch.zeros(shape, device="cuda", dtype=torch.bfloat16)

    a, b, rows, weight, tall = some(128, 64), some(64, 256), some(64, 1024), some(1024), some(16384, 64)
    heads, keys, values = (some(1, 8, 256, 128) for _ in range(3))
    more, bias, target = some(64, 1024), some(1024), torch.zeros(64, device="cuda", dtype=torch.int64)
    return {
        "argus, matmul(a, b)": lambda: kernels.matmul(a, b),
        "torch.matmul(a, b)": lambda: torch.matmul(a, b),
        "argus, rmsnorm(x, weight)": lambda: kernels.rmsnorm(rows, weight),
        "torch rms_norm(x, ..., weight)": lambda: F.rms_norm(rows, weight.shape, weight),
        "argus, layernorm(x, weight, bias)": lambda: kernels.layernorm(rows, weight, bias),
        "torch layer_norm(x, ..., weight, bias)": lambda: F.layer_norm(rows, weight.shape, weight, bias),
        "argus, add_layernorm(x, residual, weight, bias)": lambda: kernels.add_layernorm(rows, more, weight, bias),
        "torch x + residual, layer_norm": lambda: F.layer_norm(rows + more, weight.shape, weight, bias),
        "argus, softmax(x)": lambda: kernels.softmax(rows),
        "torch.softmax(x, -1)": lambda: torch.softmax(rows, -1),
        "argus, silu_mul(gate, up)": lambda: kernels.silu_mul(rows, more),
        "torch silu(gate) * up": lambda: F.silu(rows) * more,
        "argus, cross_entropy(logits, target)": lambda: kernels.cross_entropy(rows, target),
        "torch cross_entropy(logits, target, reduction='none')": lambda: F.cross_entropy(
            rows, target, reduction="none"
        ),
        "argus, quantize(x)": lambda: kernels.quantize(rows),
        "torch amax, division, float8_e4m3fn": lambda: _quantized(torch, rows),
        "argus, transpose(x)": lambda: kernels.transpose(rows),
        "torch x.t().contiguous()": lambda: rows.t().contiguous(),
        "argus, reduce(x, 'sum', -1)": lambda: kernels.reduce(rows, "sum", -1),
        "torch.sum(x, -1)": lambda: torch.sum(rows, -1),
        "argus, reduce(x, 'sum', 0), in parts": lambda: kernels.reduce(tall, "sum", 0),
        "torch.sum(x, 0)": lambda: torch.sum(tall, 0),
        "argus, attention(q, k, v)": lambda: kernels.attention(heads, keys, values),
        "torch scaled_dot_product_attention(q, k, v)": lambda: F.scaled_dot_product_attention(heads, keys, values),
    }


def _quantized(torch: Any, x: Any) -> tuple[Any, Any]:
    """Compute the same as `quantize` with PyTorch's own operators."""
    scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / 448
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def _products(torch: Any) -> dict[str, Callable[[], object]]:
    """Calls of the kernel with tensor maps, on one block."""
    from examples.gemm_hopper import gemm_hopper

    def calls(count: int) -> Callable[[], object]:
        shapes = ((128, 64), (256, 64), (128, 256))
        sets = [tuple(torch.zeros(s, device="cuda", dtype=torch.bfloat16) for s in shapes) for _ in range(count)]
        turns = cycle(sets)
        return lambda: gemm_hopper(*next(turns))

    return {
        "argus, gemm_hopper(a, b, c), the same tensors": calls(1),
        "argus, gemm_hopper(a, b, c), 2 sets of tensors": calls(2),
        "argus, gemm_hopper(a, b, c), 50 sets of tensors": calls(50),
    }


def _triton(grid: tuple[int, ...]) -> Callable[..., object] | None:
    """Return the addition in Triton, or None where Triton is not installed."""
    try:
        from benchmarks.triton_kernels import vector_add
    except ImportError:
        return None
    return lambda x, y, out, n: vector_add[grid](x, y, out, n, BLOCK=1024)


def _nothing() -> None:
    """There is no device to wait for."""
