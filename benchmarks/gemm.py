"""c = a @ b.T in bfloat16: our kernels beside cuBLAS, in one run.

All take turns, batch by batch. A batch runs over several sets of operands, together larger than twice the
L2 cache, behind a device-side pause that lets the host get ahead; CUDA events bracket it. The error is the
largest difference from the float64 product of fresh random operands, in units of that product's root mean
square, and is taken on an output filled with NaN. Of large outputs `SAMPLED_ROWS` rows are compared, one at a
random place of each of as many equal bands; that every element was written is looked at everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from statistics import geometric_mean, median
from typing import Any

from argus.diagnostic import ArgusError
from benchmarks.table import Cell, Results

Shape = tuple[int, int, int]

SHAPES: tuple[Shape, ...] = (
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16384, 16384, 16384),
    (4096, 28672, 8192),
    (4096, 8192, 28672),
    (8192, 8192, 1024),
    (1000, 3000, 5000),
    (16, 8192, 8192),
    (64, 8192, 8192),
    (128, 28672, 8192),
)
"""(M, N, K): squares; the products of a 70B-parameter model; one that divides by no tile; few rows."""

KERNELS = ("gemm", "gemm_hopper")
"""What is measured unless the caller says otherwise: `examples.<name>`, with its constants' defaults."""

CUBLAS = "cuBLAS"
SAMPLED_ROWS = 256

_PAUSE_CYCLES = 2_000_000
_LEAST_LAUNCHES = 10
_LARGE = 2**34  # multiply-adds; below, the float64 product takes no time that matters

Product = Callable[[Any, Any, Any], None]
"""`product(a, b, c)` queues c = a @ b.T."""


@dataclass(frozen=True)
class Config:
    """A kernel of the examples with constants, `num_warps` among them."""

    kernel: str
    constants: Mapping[str, int]

    def __str__(self) -> str:
        return ":".join(filter(None, (self.kernel, ",".join(f"{k}={v}" for k, v in self.constants.items()))))


def shapes_of(text: str) -> tuple[Shape, ...]:
    """`"4096x4096x4096,16x8192x8192"` as (M, N, K). ValueError for what is none."""
    found = []
    for part in text.split(","):
        m, n, k = (int(extent) for extent in part.split("x"))
        found.append((m, n, k))
    return tuple(found)


def config_of(text: str) -> Config:
    """`"gemm:BLOCK_M=128,num_warps=8"`, or `"gemm"` for its defaults. ValueError for what is none."""
    name, _, rest = text.partition(":")
    pairs = (part.split("=") for part in rest.split(",") if part)
    return Config(name.strip(), {constant.strip(): int(value) for constant, value in pairs})


def run(shapes: Sequence[Shape], configs: Sequence[Config], batches: int) -> Results:
    """One row a shape and configuration, and the geometric means. Needs a GPU."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("benchmarks gemm: needs an NVIDIA GPU")
    products = {str(config): _product(config) for config in configs}

    def cublas(a: Any, b: Any, c: Any) -> None:
        torch.mm(a, b.t(), out=c)

    def measure(shape: Shape) -> tuple[list[dict[str, Cell]], list[str]]:
        return rows_of(torch, "cuda", shape, products | {CUBLAS: cublas}, batches, _batch)

    rows, notes = [], []
    for shape in shapes:
        try:
            more, problems = measure(shape)
        except RuntimeError as error:  # PyTorch's: out of memory for the operands, or an earlier kernel has failed
            more, problems = [], [f"{shape}: {error}"]
        rows += more
        notes += problems
        for line in (*(f"{shape} {row['kernel']}: {row['speed / cuBLAS']} of cuBLAS" for row in more), *problems):
            print(line, file=sys.stderr, flush=True)  # a long run shows what it does
        torch.cuda.empty_cache()  # the next shape's operands have other sizes
    return Results(
        "bfloat16 matrix products, c[M, N] = a[M, K] b[N, K]",
        rows,
        (
            f"median of {batches} batches, in turns; operands rotate through more than twice the L2 cache",
            "error: largest difference from the float64 product, over that product's root mean square",
            f"of products of more than 2**34 multiply-adds, {SAMPLED_ROWS} rows all over the output are compared",
            *notes,
        ),
        means(rows),
    )


def _product(config: Config) -> Product:
    try:
        kernel = getattr(import_module(f"examples.{config.kernel}"), config.kernel)
    except (ModuleNotFoundError, AttributeError):
        raise SystemExit(f"benchmarks gemm: the examples have no kernel `{config.kernel}`") from None

    def product(a: Any, b: Any, c: Any) -> None:
        kernel(a, b, c, **config.constants)

    return product


def means(rows: Sequence[Mapping[str, Cell]]) -> dict[str, Cell]:
    """The geometric mean over all shapes of each kernel's speed, relative to cuBLAS."""
    found: dict[str, list[float]] = {}
    for row in rows:
        speed = row["speed / cuBLAS"]
        if isinstance(speed, float):
            found.setdefault(str(row["kernel"]), []).append(speed)
    return {f"{name}, {len(s)} shapes, geometric mean / cuBLAS": geometric_mean(s) for name, s in found.items()}


def rows_of(
    torch: Any,
    device: str,
    shape: Shape,
    products: Mapping[str, Product],
    batches: int,
    batch: Callable[[Any, Product, Sequence[tuple[Any, Any, Any]]], float],
) -> tuple[list[dict[str, Cell]], list[str]]:
    """A row for each of `products` but cuBLAS, and the reason of each that cannot be run, whose figures are None.

    `batch(torch, product, sets)` gives the seconds that one product takes.
    """
    errors, problems, sets = {}, {}, _operands(torch, device, shape)
    for name, product in products.items():
        try:
            errors[name] = _error(torch, device, shape, product)
            for operands in sets:
                product(*operands)
        except (ArgusError, torch.OutOfMemoryError) as error:
            problems[name] = str(error).strip()
    times: dict[str, list[float]] = {name: [] for name in products if name not in problems}
    for _ in range(batches):
        for name, seconds in times.items():
            seconds.append(batch(torch, products[name], sets))
    medians = {name: median(seconds) for name, seconds in times.items()}
    rows = [_row(shape, name, medians, errors) for name in products if name != CUBLAS]
    return rows, [f"{name} at {shape}: {reason}" for name, reason in problems.items()]


def _row(shape: Shape, name: str, seconds: Mapping[str, float], errors: Mapping[str, float]) -> dict[str, Cell]:
    m, n, k = shape
    mine, theirs = seconds.get(name), seconds.get(CUBLAS)

    def rate(time: float | None) -> float | None:
        return None if time is None else 2e-12 * m * n * k / time

    return {
        "M": m,
        "N": n,
        "K": k,
        "kernel": name,
        "us": None if mine is None else 1e6 * mine,
        "cuBLAS us": None if theirs is None else 1e6 * theirs,
        "TFLOP/s": rate(mine),
        "cuBLAS TFLOP/s": rate(theirs),
        "speed / cuBLAS": None if mine is None or theirs is None else theirs / mine,
        "error": errors.get(name),
        "cuBLAS error": errors.get(CUBLAS),
    }


def _operands(torch: Any, device: str, shape: Shape) -> list[tuple[Any, Any, Any]]:
    m, n, k = shape
    one = 2 * (m * k + n * k + m * n)
    cache = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 0
    count = max(2, -(-2 * cache // one) + 1)

    def tensor(rows: int, columns: int) -> Any:
        return torch.randn(rows, columns, device=device, dtype=torch.bfloat16)

    return [(tensor(m, k), tensor(n, k), tensor(m, n)) for _ in range(count)]


def _batch(torch: Any, product: Product, sets: Sequence[tuple[Any, Any, Any]]) -> float:
    """Seconds of one product, from a run over all sets of operands."""
    rounds = -(-_LEAST_LAUNCHES // len(sets))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_PAUSE_CYCLES)
    start.record()
    for _ in range(rounds):
        for operands in sets:
            product(*operands)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / (rounds * len(sets))


def _error(torch: Any, device: str, shape: Shape, product: Product) -> float:
    """The largest error of one product of fresh operands, relative; NaN if an element was not written."""
    m, n, k = shape
    a = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    b = torch.randn(n, k, device=device, dtype=torch.bfloat16)
    c = torch.full((m, n), float("nan"), device=device, dtype=torch.bfloat16)
    product(a, b, c)
    if bool(c.isnan().any()):
        return float("nan")
    rows = sampled(torch, shape).to(device)
    exact = a[rows].double() @ b.double().t()
    return float((c[rows].double() - exact).abs().max() / exact.square().mean().sqrt())


def sampled(torch: Any, shape: Shape) -> Any:
    """The rows to compare: all, or one at a random place of each of `SAMPLED_ROWS` bands of a large product."""
    m, n, k = shape
    if m <= SAMPLED_ROWS or m * n * k <= _LARGE:
        return torch.arange(m)
    edges = torch.arange(SAMPLED_ROWS + 1) * m // SAMPLED_ROWS
    return edges[:-1] + (torch.rand(SAMPLED_ROWS) * (edges[1:] - edges[:-1])).long()
