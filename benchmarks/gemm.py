"""Matrix products: argus.kernels.matmul beside the vendor's library, in one run; kernels of the examples on request.

Times are taken as `benchmarks.measure` says. The error is the largest difference from the float64 product of fresh
random operands, in units of that product's root mean square, and is taken on an output filled with NaN. Of large
outputs `SAMPLED_ROWS` rows are compared, one at a random place of each of as many equal bands; that every element was
written is looked at everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from argus.diagnostic import ArgusError
from benchmarks import measure
from benchmarks.measure import Batch, Row
from benchmarks.table import Results

Shape = tuple[int, int, int]

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn", "tf32": "float32"}
"""Names of PyTorch's dtypes; products of fp8 have a scale each and a result in bf16."""

LAYOUTS = ("nt", "nn", "tn", "tt")
"""Whether a and b are stored by columns ("t" for a, "n" for b: c = a b, as in BLAS) or by rows of the depth."""


@dataclass(frozen=True)
class Case:
    """c[m, n] = a[m, k] b[n, k]; in layout "nt" both operands have k as their contiguous dimension."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "nt"

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}:{self.dtype}:{self.layout}"


_SQUARES = ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192))
_MODEL = ((4096, 28672, 8192), (4096, 8192, 28672), (8192, 8192, 1024), (1000, 3000, 5000))
_FEW_ROWS = ((16, 8192, 8192), (64, 8192, 8192), (128, 28672, 8192))

QUICK: tuple[Case, ...] = (
    *(Case(*shape) for shape in (*_SQUARES, *_MODEL, *_FEW_ROWS)),
    Case(8192, 8192, 8192, layout="nn"),
    Case(8192, 8192, 8192, "fp8"),
    Case(8192, 8192, 8192, "tf32"),
)
CASES: tuple[Case, ...] = (
    *(Case(*shape) for shape in (*_SQUARES, (16384, 16384, 16384), *_MODEL, *_FEW_ROWS)),
    *(Case(*shape) for shape in ((1, 8192, 8192), (8, 8192, 28672), (32, 28672, 8192), (256, 8192, 8192))),
    *(Case(*shape) for shape in ((1024, 1024, 1024), (3001, 1537, 4099), (777, 8192, 520))),
    *(Case(4096, 4096, 4096, layout=layout) for layout in LAYOUTS[1:]),
    Case(8192, 8192, 8192, layout="nn"),
    Case(16, 8192, 8192, layout="nn"),
    Case(4096, 4096, 4096, "fp16"),
    *(Case(*shape, "fp8") for shape in ((4096, 4096, 4096), (8192, 8192, 8192), (16, 8192, 8192))),
    *(Case(*shape, "tf32") for shape in ((4096, 4096, 4096), (8192, 8192, 8192))),
)
"""Squares; the products of a 70B-parameter model; few rows; shapes that divide by no tile; layouts and dtypes."""

LIBRARY = "library"
"""The vendor's: cuBLAS by torch.mm, for fp8 cuBLASLt by torch._scaled_mm."""
MATMUL = "matmul"
SAMPLED_ROWS = 256

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


def cases_of(text: str) -> tuple[Case, ...]:
    """`"4096x4096x4096,16x8192x8192:fp8:nt"` as cases. ValueError for what is none."""
    found = []
    for part in text.split(","):
        sizes, *rest = part.split(":")
        m, n, k = (int(extent) for extent in sizes.split("x"))
        case = Case(m, n, k, *rest) if len(rest) <= 2 else None
        if case is None or case.dtype not in DTYPES or case.layout not in LAYOUTS:
            raise ValueError(f"{part} is no product")
        found.append(case)
    return tuple(found)


def config_of(text: str) -> Config:
    """`"gemm:BLOCK_M=128,num_warps=8"`, or `"gemm"` for its defaults. ValueError for what is none."""
    name, _, rest = text.partition(":")
    pairs = (part.split("=") for part in rest.split(",") if part)
    return Config(name.strip(), {constant.strip(): int(value) for constant, value in pairs})


def run(cases: Sequence[Case], configs: Sequence[Config], batches: int) -> Results:
    """One row a case and kernel, and the geometric means. Needs a GPU."""
    import torch

    measure.needs_gpu("gemm")
    torch.set_float32_matmul_precision("high")  # tf32

    def rows_for(case: Case) -> tuple[list[Row], list[str]]:
        return rows_of(torch, "cuda", case, products(torch, "cuda", case, configs), batches, measure.batch)

    def told(row: Row) -> str:
        return f"{row['kernel']}: {row['speed / library']} of the library"

    rows, notes = measure.through(cases, rows_for, told)
    return Results(
        "matrix products, c[M, N] = a[M, K] b[N, K]",
        rows,
        (
            measure.manner(batches),
            "library: cuBLAS (torch.mm), of fp8 cuBLASLt (torch._scaled_mm, fast accumulation, a scale a tensor)",
            "GB/s: bytes of both operands and the result, each counted once",
            "error: largest difference from the float64 product, over that product's root mean square",
            f"of products of more than 2**34 multiply-adds, {SAMPLED_ROWS} rows all over the output are compared",
            *notes,
        ),
        measure.means(rows, "speed / library", "kernel"),
    )


def products(torch: Any, device: str, case: Case, configs: Sequence[Config]) -> dict[str, Product]:
    """Return the products that are measured for a case, the library's last."""
    from argus.kernels import matmul

    one = torch.ones(1, device=device)
    scales = {"scale_a": one, "scale_b": one} if case.dtype == "fp8" else {}

    def ours(a: Any, b: Any, c: Any) -> None:
        matmul(a, b.t(), out=c, **scales)

    def library(a: Any, b: Any, c: Any) -> None:
        if case.dtype == "fp8":
            torch._scaled_mm(a, b.t(), one, one, out_dtype=c.dtype, use_fast_accum=True, out=c)
        else:
            torch.mm(a, b.t(), out=c)

    found: dict[str, Product] = {MATMUL: ours}
    if case.dtype == "bf16" and case.layout == "nt":
        found |= {str(config): _product(config) for config in configs}
    return found | {LIBRARY: library}


def _product(config: Config) -> Product:
    try:
        kernel = getattr(import_module(f"examples.{config.kernel}"), config.kernel)
    except (ModuleNotFoundError, AttributeError):
        raise SystemExit(f"benchmarks gemm: the examples have no kernel `{config.kernel}`") from None

    def product(a: Any, b: Any, c: Any) -> None:
        kernel(a, b, c, **config.constants)

    return product


def rows_of(
    torch: Any, device: str, case: Case, products: Mapping[str, Product], batches: int, batch: Batch
) -> tuple[list[Row], list[str]]:
    """A row for each of `products` but the library, and the reason of each that cannot be run, whose figures are None.

    `batch(product, sets)` gives the seconds that one product takes.
    """
    sets = measure.rotating(lambda: (*_pair(torch, device, case), _result(torch, device, case)), device)
    errors, problems = {}, {}
    for name, product in products.items():
        try:
            errors[name] = _error(torch, device, case, product)
            for operands in sets:
                product(*operands)
        except (ArgusError, torch.OutOfMemoryError) as error:
            problems[name] = str(error).strip()
    runs = {name: partial(batch, product, sets) for name, product in products.items() if name not in problems}
    medians = measure.in_turns(runs, batches)
    rows = [_row(case, name, medians, errors) for name in products if name != LIBRARY]
    return rows, [f"{name} at {case}: {reason}" for name, reason in problems.items()]


def _row(case: Case, name: str, seconds: Mapping[str, float], errors: Mapping[str, float]) -> Row:
    m, n, k = case.m, case.n, case.k
    mine, theirs = seconds.get(name), seconds.get(LIBRARY)

    def rate(time: float | None) -> float | None:
        return None if time is None else 2e-12 * m * n * k / time

    return {
        "M": m,
        "N": n,
        "K": k,
        "dtype": case.dtype,
        "layout": case.layout,
        "kernel": name,
        "us": None if mine is None else 1e6 * mine,
        "library us": None if theirs is None else 1e6 * theirs,
        "TFLOP/s": rate(mine),
        "library TFLOP/s": rate(theirs),
        "GB/s": None if mine is None else 1e-9 * _bytes(case) / mine,
        "speed / library": None if mine is None or theirs is None else theirs / mine,
        "error": errors.get(name),
        "library error": errors.get(LIBRARY),
    }


def _bytes(case: Case) -> int:
    unit, out = {"fp8": (1, 2), "tf32": (4, 4)}.get(case.dtype, (2, 2))
    return unit * (case.m + case.n) * case.k + out * case.m * case.n


def _matrix(torch: Any, device: str, case: Case, rows: int, by_columns: bool) -> Any:
    """Random numbers `[rows, k]`."""
    shape = (case.k, rows) if by_columns else (rows, case.k)
    wide = "float32" if case.dtype == "tf32" else "bfloat16"
    made = torch.randn(shape, device=device, dtype=getattr(torch, wide)).to(getattr(torch, DTYPES[case.dtype]))
    return made.t() if by_columns else made


def _pair(torch: Any, device: str, case: Case) -> tuple[Any, Any]:
    a = _matrix(torch, device, case, case.m, case.layout[0] == "t")
    return a, _matrix(torch, device, case, case.n, case.layout[1] == "n")


def _result(torch: Any, device: str, case: Case) -> Any:
    name = "bfloat16" if case.dtype == "fp8" else DTYPES[case.dtype]
    return torch.full((case.m, case.n), float("nan"), device=device, dtype=getattr(torch, name))


def _error(torch: Any, device: str, case: Case, product: Product) -> float:
    """The largest error of one product of fresh operands, relative; NaN if an element was not written."""
    (a, b), c = _pair(torch, device, case), _result(torch, device, case)
    product(a, b, c)
    if bool(c.isnan().any()):
        return float("nan")
    rows = sampled(torch, (case.m, case.n, case.k)).to(device)
    exact = a.float()[rows].double() @ b.float().double().t()
    return measure.relative_error(c[rows], exact)


def sampled(torch: Any, shape: Shape) -> Any:
    """The rows to compare: all, or one at a random place of each of `SAMPLED_ROWS` bands of a large product."""
    m, n, k = shape
    if m <= SAMPLED_ROWS or m * n * k <= _LARGE:
        return torch.arange(m)
    edges = torch.arange(SAMPLED_ROWS + 1) * m // SAMPLED_ROWS
    return edges[:-1] + (torch.rand(SAMPLED_ROWS) * (edges[1:] - edges[:-1])).long()
