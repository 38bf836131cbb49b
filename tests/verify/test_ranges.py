"""Scans are proved against sums, products and extrema up to each element; wrong ones are not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from argus.compile import elaborate, lower, verify
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.expr import Const, Expr, Op, rewrite
from argus.ir.nodes import Kernel, Map, Stmt
from argus.ir.visit import map_exprs, rewrite_body, walk
from argus.source import SourceFile

HEAD = """
import argus
import argus.language as al

@argus.func
def larger(a, b):
    return al.maximum(a, b)

@argus.func
def either(a, b, c, d):
    return a + c, al.maximum(b, d)

@argus.kernel(num_warps=2)
def k(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 256):
    al.spec(y, lambda i, j: {spec})
"""
ROW = """
    al.requires(N <= BLOCK)
    row = al.grid(M)
    t = al.load(x[row, 0:BLOCK], boundary_check=(0,), other={other})
    {scan}
    al.store(y[row, 0:BLOCK], s, boundary_check=(0,))
"""
CHUNKS = """
    row = al.grid(M)
    carry = {other}
    for c in range(0, N, BLOCK):
        t = al.load(x[row, c : c + BLOCK], boundary_check=(0,), other={other})
        {scan}
        al.store(y[row, c : c + BLOCK], s {sign} carry, boundary_check=(0,))
        carry = carry {sign} {total}
"""
COLUMNS = """
    al.requires(M <= 64)
    c = al.grid(al.cdiv(N, 8)) * 8
    t = al.load(x[0:64, c : c + 8], boundary_check=(0, 1), other={other})
    {scan}
    al.store(y[0:64, c : c + 8], s, boundary_check=(0, 1))
"""
SUM = "al.sum(lambda k: al.where(k <= j, x[i, k], 0.0))"


def explicit(body: str, spec: str, **values: str) -> Kernel:
    values = {"other": "0.0", "sign": "+", "total": "al.sum(t, 0)", "scan": "s = al.cumsum(t, 0)"} | values
    text = HEAD.format(spec=spec) + body.format(**values)
    return lower(elaborate(SourceFile("k.py", text), "k", Options(target="sm_80")), "sm_80")


def verdict(body: str, spec: str, **values: str) -> Verdict:
    return verify(explicit(body, spec, **values)).verdict


RIGHT = {
    "a row": (ROW, SUM, {}),
    "named": (ROW, "al.cumsum(lambda k: x[i, k])[j]", {}),
    "in reverse": (ROW, "al.cumsum(lambda k: x[i, k], reverse=True)[j]", {"scan": "s = al.cumsum(t, 0, reverse=True)"}),
    "chunks": (CHUNKS, SUM, {}),
    "columns": (COLUMNS, "al.cumsum(lambda k: x[k, j])[i]", {}),
    "of products of elements": (
        ROW, "al.cumsum(lambda k: x[i, k] * x[i, k])[j]", {"scan": "s = al.cumsum(t * t, 0)"}),
    "a product": (ROW, "al.cumprod(lambda k: x[i, k])[j]", {"other": "1.0", "scan": "s = al.cumprod(t, 0)"}),
    "a product in chunks": (CHUNKS, "al.cumprod(lambda k: x[i, k])[j]",
                            {"other": "1.0", "sign": "*", "scan": "s = al.cumprod(t, 0)", "total": "al.prod(t, 0)"}),
    "a maximum": (ROW, "al.max(lambda k: al.where(k <= j, x[i, k], -float('inf')))",
                  {"other": "-float('inf')", "scan": "s = al.associative_scan(t, 0, larger)"}),
    "one of several": (ROW, SUM, {"scan": "s, m = al.associative_scan((t, t), 0, either)"}),
    "two scans of one tile": (
        ROW, f"2.0 * ({SUM})", {"scan": "r = al.cumsum(t, 0)\n    s = r + al.cumsum(t, 0)"}),
}  # fmt: skip
WRONG = {
    "the element itself is missing": (ROW, SUM.replace("<=", "<"), {}),
    "the other direction": (ROW, SUM.replace("<=", ">="), {}),
    "a total": (ROW, "al.sum(lambda k: x[i, k])", {}),
    "another row": (ROW, SUM.replace("x[i, k]", "x[0, k]"), {}),
    "no carry": (CHUNKS, SUM, {"total": "0.0"}),
    "no product is carried": (
        CHUNKS,
        "al.cumprod(lambda k: x[i, k])[j]",
        {"other": "1.0", "sign": "*", "scan": "s = al.cumprod(t, 0)", "total": "1.0"},
    ),
    "carried twice": (CHUNKS, SUM, {"total": "2.0 * al.sum(t, 0)"}),
    "padding that counts": (ROW, SUM, {"other": "1.0", "scan": "s = al.cumsum(t, 0, reverse=True)"}),
    "columns for rows": (COLUMNS, SUM, {}),
    "a product for a sum": (ROW, SUM, {"other": "1.0", "scan": "s = al.cumprod(t, 0)"}),
}


@pytest.mark.parametrize("case", RIGHT)
def test_proved(case: str) -> None:
    body, spec, values = RIGHT[case]
    report = verify(explicit(body, spec, **values))
    assert report.verdict is Verdict.PROVED, [d.message for d in report.diagnostics]


@pytest.mark.parametrize("case", WRONG)
def test_refuted(case: str) -> None:
    body, spec, values = WRONG[case]
    assert verdict(body, spec, **values) is Verdict.REFUTED


# ---------------------------------------------------------------------------- edits of what a scan became


def at_distance(expr: Expr) -> Expr | None:
    """Lanes read a nearer element."""
    match expr:
        case Op(op="sub", args=(first, Const(value=4))):
            return replace(expr, args=(first, Const(2)))
        case _:
            return None


def near(expr: Expr) -> Expr | None:
    """One more lane takes part."""
    match expr:
        case Op(op="ge", args=(first, Const(value=8))):
            return replace(expr, args=(first, Const(7)))
        case _:
            return None


def last(expr: Expr) -> Expr | None:
    """The total of four elements is taken for that of three."""
    match expr:
        case Op(op="add", args=(first, Const(value=3))):
            return replace(expr, args=(first, Const(2)))
        case _:
            return None


def edited(kernel: Kernel, obj: str, change: Callable[[Expr], Expr | None]) -> Kernel:
    def one(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Map) or not re.fullmatch(obj, stmt.dst.obj):
            return None
        return (replace(map_exprs(stmt, change), dst=stmt.dst),)

    result = replace(kernel, body=rewrite_body(kernel.body, one))
    assert result.body != kernel.body
    return result


@pytest.mark.parametrize(("obj", "change"), [(r"s_earlier\d*", at_distance), (r"s_scan\d*", near), ("s_totals", last)])
def test_a_wrong_step_is_refuted(obj: str, change: Callable[[Expr], Expr | None]) -> None:
    kernel = explicit(ROW, SUM, other="0.0")
    assert verify(kernel).verdict is Verdict.PROVED
    assert verify(edited(kernel, obj, change)).verdict is Verdict.REFUTED


def test_a_dropped_step_is_refuted() -> None:
    kernel = explicit(ROW, SUM)
    step = next(s for s in walk(kernel.body) if isinstance(s, Map) and s.dst.obj == "s_scan2")

    def without(expr: Expr) -> Expr | None:
        return expr.args[1] if isinstance(expr, Op) and expr.op == "add" and expr.dtype.is_float else None

    weaker = replace(step, value=rewrite(step.value, without))
    body = rewrite_body(kernel.body, lambda s: (weaker,) if s == step else None)
    assert verify(replace(kernel, body=body)).verdict is Verdict.REFUTED
