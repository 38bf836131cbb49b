"""Tables of what is measured as a whole: classes of rows with their means, and the rows that the README shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

from benchmarks import plot

Row = Mapping[str, Any]
Results = Mapping[str, Sequence[Row]]
"""The rows of each area's results."""

Classes = Mapping[str, Callable[[int, Row], bool]]

_VECTOR = 8  # elements of 16 bits that the copy engine asks of rows
_FEW_ROWS = 128
_LARGE = 8  # squares, and products of a large model, of which the table's head consists


@dataclass(frozen=True)
class Area:
    """The figure of its rows that is a ratio to a peer, and its classes of rows: names, and which row is in them; and
    another figure of which the mean is told."""

    ratio: str
    classes: Classes
    also: str = ""


def _whole(row: Row) -> bool:
    """Return True if the rows of both operands are whole vectors."""
    stored = (row["K" if row["layout"][0] == "n" else "M"], row["K" if row["layout"][1] == "t" else "N"])
    return all(extent % _VECTOR == 0 for extent in stored)


def _odd(row: Row) -> bool:
    """Return True if a row is not a whole number of 16-byte vectors."""
    return bool(row["columns"] % (4 if row["dtype"] == "float32" else _VECTOR))


def _half(row: Row) -> bool:
    return row["dtype"] in ("bf16", "fp16")


PRODUCTS: Classes = {
    "bf16 and fp16, more than 128 rows, of whole vectors": (lambda i, r: _half(r) and _whole(r) and r["M"] > _FEW_ROWS),
    "bf16 and fp16, up to 128 rows": lambda i, r: _half(r) and _whole(r) and r["M"] <= _FEW_ROWS,
    "bf16 and fp16, rows of odd lengths": lambda i, r: _half(r) and not _whole(r),
    "fp8": lambda i, r: bool(r["dtype"] == "fp8"),
    "tf32": lambda i, r: bool(r["dtype"] == "tf32"),
    "all": lambda i, r: True,
}
ATTENTION: Classes = {
    "head size 128": lambda i, r: bool(r["D"] == 128),
    "head size 128, causal": lambda i, r: bool(r["D"] == 128 and r["mask"] == "causal"),
    "head size 64": lambda i, r: bool(r["D"] == 64),
    "all": lambda i, r: True,
}
MEMORY: Classes = {
    "rows of whole vectors of 16 bytes": lambda i, r: not _odd(r),
    "rows of odd lengths": lambda i, r: _odd(r),
    "all": lambda i, r: True,
}
_RATIO = {area.name: area.ratio for area in plot.AREAS}
AREAS = {
    "gemm": Area(_RATIO["gemm"], {"bf16, large: the first eight": lambda i, r: i < _LARGE, **PRODUCTS}),
    "gemm_drawn": Area(_RATIO["gemm"], PRODUCTS),
    **dict.fromkeys(("attention", "attention_drawn"), Area(_RATIO["attention"], ATTENTION)),
    **dict.fromkeys(("memory", "memory_drawn"), Area(_RATIO["memory"], MEMORY, "of copy")),
}


def means(area: Area, rows: Sequence[Row]) -> list[Row]:
    """A row for each class that has any."""
    measured = [(i, row) for i, row in enumerate(rows) if row[area.ratio] is not None]
    found = {name: [row for i, row in measured if holds(i, row)] for name, holds in area.classes.items()}
    return [{"class": name, **_means(area, of)} for name, of in found.items() if of]


def _means(area: Area, rows: Sequence[Row]) -> Row:
    figures = [row[area.ratio] for row in rows]
    also = {area.also: geometric_mean(row[area.also] for row in rows)} if area.also else {}
    return {
        "cases": len(rows), **also, "mean": geometric_mean(figures), "median": median(figures), "worst": min(figures),
        "behind": sum(figure < 1 for figure in figures),
    }  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """A row of the README: what it is called, where it stands, and what else is told of it."""

    what: str
    beside: str
    area: str
    of: Mapping[str, Any]
    told: Callable[[Row], str]


def _product(m: int, n: int, k: int, dtype: str = "bf16", bound: bool = False) -> Shown:
    size = f"{m}³" if m == n == k else f"{m} × {n} × {k}"
    told = (lambda r: f"{r['GB/s'] / 1000:.1f} TB/s") if bound else (lambda r: f"{r['TFLOP/s']:.0f} TFLOP/s")
    library = "cuBLASLt" if dtype == "fp8" else "cuBLAS"
    of = {"M": m, "N": n, "K": k, "dtype": dtype, "layout": "nt"}
    return Shown(f"`matmul`, {dtype}, {size}", library, "gemm", of, told)


def _attention(size: int, rows: int, heads: int, mask: str) -> Shown:
    of = {"dtype": "bfloat16", "D": size, "M": rows, "N": rows, "H of k": heads, "mask": mask}
    what = f"`attention`, head size {size}, {rows} rows, {mask}"
    return Shown(what, "cuDNN", "attention", of, lambda r: f"{r['TFLOP/s']:.0f} TFLOP/s")


def _memory(kernel: str, rows: int, columns: int) -> Shown:
    of = {"kernel": kernel, "dtype": "bfloat16", "rows": rows, "columns": columns}
    return Shown(
        f"`{kernel}`, {rows} × {columns}", "the better of PyTorch and torch.compile", "memory", of,
        lambda r: f"{r['TB/s']:.1f} TB/s, {r['of copy']:.2f} of a copy",
    )  # fmt: skip


SHOWN = (
    _product(8192, 8192, 8192), _product(4096, 4096, 4096), _product(64, 8192, 8192, bound=True),
    _product(1000, 3000, 5000), _product(3001, 1537, 4099), _product(8192, 8192, 8192, "fp8"),
    *(_attention(128, rows, 32, mask) for rows in (4096, 16384) for mask in ("full", "causal")),
    *(_attention(64, 16384, 32, mask) for mask in ("full", "causal")),
    _memory("softmax", 16384, 4096), _memory("rmsnorm", 65536, 1024),
    _memory("cross_entropy", 16384, 32000),
)  # fmt: skip
"""Some of each area, among them its worst."""


def shown(results: Results) -> Iterable[Row]:
    """The rows of the README."""
    for one in SHOWN:
        (row,) = (row for row in results[one.area] if all(row[name] == value for name, value in one.of.items()))
        yield {"kernel": one.what, "beside": one.beside, "speed": f"{row[_RATIO[one.area]]:.2f} × ({one.told(row)})"}
