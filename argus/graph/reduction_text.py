"""The texts of reductions, in terms of what an emitter can do with a tile: reduce, scan, find an extremum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from argus.graph import capture
from argus.graph.terms import is_float
from argus.graph.text import Lines, literal

IDENTITY = {"sum": "0.0", "prod": "1.0", "max": '-float("inf")', "min": 'float("inf")'}
INTEGERS = {"max": "-2147483648", "min": "2147483647"}
"""The identity elements of extrema of int32."""
ONTO = {"sum": "{a} + {b}", "prod": "{a} * {b}", "max": "al.maximum({a}, {b})", "min": "al.minimum({a}, {b})"}


def identity(op: str, kind: str) -> str:
    return IDENTITY[op] if is_float(kind) else INTEGERS[op]


class Reducer(Protocol):
    """An emitter of a tile's reductions, as the rows of the table use it."""

    block: dict[Any, str]
    """Values of the block, by what identifies them."""
    out: Lines

    def reduce(self, key: Any, op: str, body: Callable[[], str], kind: str = "float32") -> str: ...
    def extremum(self, node: Any, least: bool) -> str: ...
    def scan(self, op: str, body: Callable[[], str]) -> str: ...
    def real(self, node: Any, place: int = 0) -> str: ...
    def count(self) -> str: ...


Reduction = Callable[..., tuple[str, ...]]
"""`reduction(emitter, node, dry=False)` returns the texts of the results. With `dry`, it emits only the values of the
block, and returns no texts."""


def _simple(op: str, mean: bool = False) -> Reduction:
    def reduction(e: Reducer, node: Any, dry: bool = False) -> tuple[str, ...]:
        total = e.reduce((node, op), op, lambda: e.real(node))
        return ("",) if dry else (f"{total} / ({e.count()})" if mean else total,)

    return reduction


def _place(least: bool) -> Reduction:
    def reduction(e: Reducer, node: Any, dry: bool = False) -> tuple[str, ...]:
        found = e.extremum(node, least)
        return ("",) if dry else (found,)

    return reduction


def _scan(op: str) -> Reduction:
    def reduction(e: Reducer, node: Any, dry: bool = False) -> tuple[str, ...]:
        return ("",) if dry else (e.scan(op, lambda: e.real(node)),)

    return reduction


def _moments(e: Reducer, node: Any, correction: float) -> tuple[str, str]:
    total = e.reduce((node, "sum"), "sum", lambda: e.real(node))
    if (node, "mean") not in e.block:
        e.block[(node, "mean")] = e.out.bind(f"{total} / ({e.count()})")
    mean = e.block[(node, "mean")]

    def squares() -> str:
        centred = e.out.bind(f"{e.real(node)} - {mean}")
        return f"{centred} * {centred}"

    squared = e.reduce((node, "squares"), "sum", squares)
    count = f"({e.count()} - {literal(float(correction))})" if correction else f"({e.count()})"
    count = f"al.maximum({count}, 0.0)" if correction > 1 else count  # as PyTorch does
    if (node, "variance") not in e.block:
        e.block[(node, "variance")] = e.out.bind(f"{squared} / {count}")
    return e.block[(node, "variance")], mean


def _variance(e: Reducer, node: Any, dry: bool = False) -> tuple[str, ...]:
    correction = capture.given(node)[2]
    found = _moments(e, node, 1 if correction is None else correction)
    return ("",) if dry else found


def _norm(e: Reducer, node: Any, dry: bool = False) -> tuple[str, ...]:
    order = capture.given(node)[1]

    def body() -> str:
        x = e.out.bind(e.real(node))
        return f"{x} * {x}" if order == 2 else f"al.abs({x})"

    total = e.reduce((node, "norm"), "max" if order == float("inf") else "sum", body)
    if dry:
        return ("",)
    return (f"al.sqrt({total})" if order == 2 else total,)


def _layer_norm(e: Reducer, node: Any, dry: bool = False) -> tuple[str, ...]:
    _, _, weight, bias, eps = capture.given(node)
    variance, mean = _moments(e, node, 0)
    if (node, "inverse") not in e.block:
        e.block[(node, "inverse")] = e.out.bind(f"al.rsqrt({variance} + {literal(eps)})")
    inverse = e.block[(node, "inverse")]
    if dry:
        return ("",)
    text = f"({e.real(node)} - {mean}) * {inverse}"
    place = 1
    if weight is not None:
        text = f"{text} * {e.real(node, place)}"
        place += 1
    if bias is not None:
        text = f"{text} + {e.real(node, place)}"
    return text, mean, inverse


def _softmax(e: Reducer, node: Any, dry: bool = False) -> tuple[str, ...]:
    top = e.reduce((node, "max"), "max", lambda: e.real(node))
    total = e.reduce((node, "total"), "sum", lambda: f"al.exp({e.real(node)} - {top})")
    return ("",) if dry else (f"al.exp({e.real(node)} - {top}) / {total}",)


def _log_softmax(e: Reducer, node: Any, dry: bool = False) -> tuple[str, ...]:
    top = e.reduce((node, "max"), "max", lambda: e.real(node))
    total = e.reduce((node, "total"), "sum", lambda: f"al.exp({e.real(node)} - {top})")
    if (node, "log") not in e.block:
        e.block[(node, "log")] = e.out.bind(f"al.log({total})")
    return ("",) if dry else (f"{e.real(node)} - {top} - {e.block[(node, 'log')]}",)


def _softmax_backward(e: Reducer, node: Any, dry: bool = False) -> tuple[str, ...]:
    total = e.reduce((node, "total"), "sum", lambda: f"{e.real(node, 0)} * {e.real(node, 1)}")
    return ("",) if dry else (f"{e.real(node, 1)} * ({e.real(node, 0)} - {total})",)


def _log_softmax_backward(e: Reducer, node: Any, dry: bool = False) -> tuple[str, ...]:
    total = e.reduce((node, "total"), "sum", lambda: e.real(node, 0))
    return ("",) if dry else (f"{e.real(node, 0)} - al.exp({e.real(node, 1)}) * {total}",)


REDUCTIONS: dict[str, Reduction] = {
    **{f"sum.{kind}": _simple("sum") for kind in ("default", "dim_IntList")},
    **{f"mean.{kind}": _simple("sum", True) for kind in ("default", "dim")},
    **{f"{name}.default": _simple("max") for name in ("amax", "max")},
    **{f"{name}.default": _simple("min") for name in ("amin", "min")},
    **{f"prod.{kind}": _simple("prod") for kind in ("default", "dim_int")},
    "argmax.default": _place(False),
    "argmin.default": _place(True),
    "cumsum.default": _scan("sum"),
    "cumprod.default": _scan("prod"),
    "cumsum_backwards.default": _scan("sum"),
    **{f"{name}.correction": _variance for name in ("var", "var_mean")},
    "linalg_vector_norm.default": _norm,
    "native_layer_norm.default": _layer_norm,
    "_softmax.default": _softmax,
    "_log_softmax.default": _log_softmax,
    "_softmax_backward_data.default": _softmax_backward,
    "_log_softmax_backward_data.default": _log_softmax_backward,
}
"""The text of each reduction of the operator table."""
