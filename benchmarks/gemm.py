"""c = a @ b.T in bfloat16, ours beside cuBLAS in one run.

Both take turns, batch by batch. A batch runs over several sets of operands, together larger than twice the
L2 cache, behind a device-side pause that lets the host get ahead; CUDA events bracket it. The error is the
largest difference from the float64 product of fresh random operands, in units of that product's root mean
square, and is taken on an output filled with NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.table import Cell, Results

Shape = tuple[int, int, int]

SHAPES: tuple[Shape, ...] = (
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4096, 14336, 4096),
    (64, 4096, 4096),
    (1000, 3000, 776),
    (4100, 4094, 4088),
    (1023, 1025, 1021),
)
"""(M, N, K); the last ones divide by no tile, and the very last allows no vector access."""

_PAUSE_CYCLES = 2_000_000
_LEAST_LAUNCHES = 10


def read_shapes(file: Path | None) -> Sequence[Shape]:
    """The shapes in a file, one "M N K" a line, or `SHAPES` without a file."""
    if file is None:
        return SHAPES
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [(int(m), int(n), int(k)) for m, n, k in lines]


def constants_of(text: str) -> dict[str, int]:
    """`"BLOCK_M=128,STAGES=4"` as keyword arguments."""
    pairs = (part.split("=") for part in text.split(",") if part)
    return {name.strip(): int(value) for name, value in pairs}


def run(shapes: Sequence[Shape], constants: Sequence[str], batches: int) -> Results:
    """One row a shape and set of constants. Needs a GPU."""
    import torch

    from examples.gemm import gemm

    if not torch.cuda.is_available():
        raise SystemExit("benchmarks gemm: needs an NVIDIA GPU")
    rows: list[dict[str, Cell]] = []
    for shape in shapes:
        for text in constants:
            chosen = constants_of(text)

            def ours(a: Any, b: Any, c: Any, chosen: dict[str, int] = chosen) -> None:
                gemm(a, b, c, **chosen)

            def cublas(a: Any, b: Any, c: Any) -> None:
                torch.mm(a, b.t(), out=c)

            rows.append(_row(torch, shape, text or "defaults", ours, cublas, batches))
    return Results(
        "bfloat16 matrix products, c[M, N] = a[M, K] b[N, K]",
        rows,
        (
            f"median of {batches} batches, in turns; operands rotate through more than twice the L2 cache",
            "error: largest difference from the float64 product, over that product's root mean square",
        ),
    )


def _row(
    torch: Any, shape: Shape, text: str, ours: Callable[..., None], cublas: Callable[..., None], batches: int
) -> dict[str, Cell]:
    m, n, k = shape
    sets = _operands(torch, shape)
    for call in (ours, cublas):
        for operands in sets:
            call(*operands)
    torch.cuda.synchronize()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(batches):
        for call, seconds in zip((ours, cublas), times, strict=True):
            seconds.append(_batch(torch, call, sets))
    mine, theirs = median(times[0]), median(times[1])
    return {
        "M": m,
        "N": n,
        "K": k,
        "constants": text,
        "argus us": 1e6 * mine,
        "cuBLAS us": 1e6 * theirs,
        "argus TFLOP/s": 2e-12 * m * n * k / mine,
        "cuBLAS TFLOP/s": 2e-12 * m * n * k / theirs,
        "speed / cuBLAS": theirs / mine,
        "argus error": _error(torch, shape, ours),
        "cuBLAS error": _error(torch, shape, cublas),
    }


def _operands(torch: Any, shape: Shape) -> list[tuple[Any, Any, Any]]:
    m, n, k = shape
    one = 2 * (m * k + n * k + m * n)
    count = max(2, -(-2 * torch.cuda.get_device_properties(0).L2_cache_size // one) + 1)

    def tensor(rows: int, columns: int) -> Any:
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)

    return [(tensor(m, k), tensor(n, k), tensor(m, n)) for _ in range(count)]


def _batch(torch: Any, call: Callable[..., None], sets: Sequence[tuple[Any, Any, Any]]) -> float:
    """Seconds of one product, from a run over all sets of operands."""
    rounds = -(-_LEAST_LAUNCHES // len(sets))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_PAUSE_CYCLES)
    start.record()
    for _ in range(rounds):
        for operands in sets:
            call(*operands)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / (rounds * len(sets))


def _error(torch: Any, shape: Shape, call: Callable[..., None]) -> float:
    """The largest error of one product of fresh operands, relative; NaN if an element was not written."""
    m, n, k = shape
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    call(a, b, c)
    exact = a.double() @ b.double().t()
    return float((c.double() - exact).abs().max() / exact.square().mean().sqrt())
