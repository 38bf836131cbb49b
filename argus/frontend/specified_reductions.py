"""Reductions, scans, places and softmax of specifications, which run over the parameter of a lambda."""

from __future__ import annotations

from typing import Protocol

from argus.frontend import tiles
from argus.frontend.context import Context
from argus.frontend.expressions import evaluate
from argus.frontend.sorting import LARGEST, LEAST, key, place_of, value_of
from argus.frontend.specified_elements import constant, dtype_of, leaf, literal
from argus.frontend.surface import Call, Expression, Lambda, Slice
from argus.frontend.tagging import is_call
from argus.frontend.values import Constant
from argus.ir.expr import REDUCTIONS, Const, Coord, Expr, op
from argus.ir.nodes import SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.spec_terms import rounds_in, unrounded
from argus.ir.types import boolean, int32, int64
from argus.source import Span


class Bound(Protocol):
    """Evaluates the body of a lambda. Its parameter becomes `Coord(axes)`."""

    def __call__(
        self, context: Context, body: Lambda, axes: int, stated: Expression | None = None
    ) -> tuple[Expr, SpecTerm]:
        """Return the extent over which the parameter runs, `stated` or that of what it indexes, and the body's term."""


_REDUCE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "logsumexp": "logaddexp"}
_EXTREMA = {"argmax": "maximum", "argmin": "minimum"}

_CUMULATIVE = {"cumsum": "add", "cumprod": "mul"}
"""Scans that a specification may name, with the operator that combines their elements."""


def reduction(
    context: Context, node: Call, body: Lambda, stated: Expression | None, axes: int, bound: Bound
) -> SpecTerm:
    """Evaluate `al.sum(lambda k: ...)` over the dimension that `k` indexes, or `al.sum(lambda k: ..., E)` over E."""
    name = next((n for n in (*_REDUCE, *_EXTREMA) if is_call(context, node, n)), None)
    if name in _EXTREMA and len(body.params) == 1:
        return _place(context, node, body, stated, _EXTREMA[name], axes, bound)
    if name is None or len(body.params) != 1:
        context.fail(
            "bad-tag",
            "here a lambda of one parameter is what `al.sum`, `al.prod`, `al.max`, `al.min`, `al.argmax`, `al.argmin`, "
            "`al.logsumexp` run over",
            node.span,
            "write `al.sum(lambda k: a[m, k] * b[n, k])`",
        )
    extent, term = bound(context, body, axes, stated)
    if name in ("sum", "prod"):
        _insist_on_numbers(context, term, node.span)
    return SpecReduce(_REDUCE[name], axes, extent, term, dtype_of(term))


def _place(
    context: Context, node: Call, body: Lambda, stated: Expression | None, extremum: str, axes: int, bound: Bound
) -> SpecTerm:
    """Evaluate `al.argmax(lambda k: x[m, k])`: the least k for which x[m, k] equals the maximum, or is NaN."""
    extent, each = bound(context, body, axes, stated)
    _, inner = bound(context, body, axes + 1, stated)
    if not unrounded(each) or rounds_in(each):
        text = "this is the place of an extremum of computed numbers, and rounding would decide between them"
        context.fail("bad-tag", text, node.span, "compare a tensor's elements: `al.argmax(lambda k: x[m, k])`")
    best = SpecReduce(extremum, axes + 1, extent, inner, dtype_of(inner))
    found: SpecTerm = SpecOp("eq", (each, best), boolean)
    if dtype_of(each).is_float:
        found = SpecOp("or", (found, SpecOp("ne", (each, each), boolean)), boolean)
    place = SpecOp("where", (found, Coord(axes), Const(2**31 - 1)), int32)
    return SpecReduce("minimum", axes, extent, place, int32)


def ranked(
    context: Context, node: Call, which: Expression | Slice, at: Expression | Slice, axes: int, bound: Bound
) -> SpecTerm:
    """Evaluate `al.topk(lambda n: x[m, n], K)[0][r]`, the r-th of the K greatest elements, or `[1][r]`, its place.

    The r-th greatest key is the greatest one below the previous one (`argus.frontend.sorting`).
    """
    body, count = node.args
    assert isinstance(body, Lambda)
    k, result = constant(context, count), constant(context, which)
    place = None if isinstance(at, Slice) else leaf(context, at, axes)
    written = "write `al.topk(lambda n: x[m, n], K)[0][r]` for an element, and `[1][r]` for its place"
    if k is None or k < 1 or result not in (0, 1) or place is None or not place.dtype.is_int or len(body.params) != 1:
        context.fail("bad-tag", "this is no element of the result of `al.topk`", node.span, written)
    assert not isinstance(place, (SpecOp, SpecReduce, SpecSoftmax))
    largest = all(constant(context, keyword.value) is not False for keyword in node.keywords)
    if any(keyword.name != "largest" for keyword in node.keywords):
        context.fail(
            "wrong-arguments", "in a specification `al.topk` takes a lambda, K and `largest`", node.span, written
        )
    dtype = bound(context, body, axes)[1].dtype

    def greatest(rank: int, depth: int) -> SpecTerm:
        extent, term = bound(context, body, depth)
        if not unrounded(term) or rounds_in(term) or isinstance(term, (SpecOp, SpecReduce, SpecSoftmax)):
            text = "these are the greatest of computed numbers, and rounding would decide between them"
            context.fail("bad-tag", text, node.span, "order a tensor's elements: `al.topk(lambda n: x[m, n], K)`")
        each: SpecTerm = key(term, Coord(depth), largest)
        below = LARGEST if rank == 0 else greatest(rank - 1, depth + 1)
        chosen = SpecOp("where", (SpecOp("lt", (each, below), boolean), each, LEAST), int64)
        return SpecReduce("maximum", depth, extent, chosen, int64)

    found = greatest(0, axes)
    for rank in range(1, k):
        found = SpecOp("where", (op("eq", place, Const(rank)), greatest(rank, axes), found), int64)
    return place_of(found) if result == 1 else value_of(found, dtype, largest)


def _insist_on_numbers(context: Context, term: SpecTerm, span: Span) -> None:
    if dtype_of(term).modular:
        text = "this is a sum of many uint32, modulo 2^32, which no proof follows"
        context.fail("type-mismatch", text, span, "convert the terms: `.to(al.int64)`, in the kernel as well")


def scan_of(context: Context, call: Call) -> str | None:
    """Return the reduction operator of a call of `al.cumsum` or `al.cumprod`, or None for other calls."""
    return next((op for name, op in _CUMULATIVE.items() if is_call(context, call, name)), None)


def cumulative(context: Context, node: Call, body: Lambda, at: Expression | Slice, axes: int, bound: Bound) -> SpecTerm:
    """Evaluate `al.cumsum(lambda k: ...)[j]` as the reduction over all k up to j, or from j on with `reverse=True`."""
    operator, reverse = scan_of(context, node), False
    for keyword in node.keywords:
        value = evaluate(context, keyword.value)
        if keyword.name != "reverse" or not isinstance(value, Constant) or not isinstance(value.value, bool):
            text = "in a specification a scan takes a lambda of one parameter, and `reverse=True`"
            context.fail("wrong-arguments", text, keyword.span, "write `al.cumsum(lambda k: x[i, k])[j]`")
        reverse = value.value
    place = None if isinstance(at, Slice) else leaf(context, at, axes)
    if place is None or isinstance(place, (SpecOp, SpecReduce, SpecSoftmax)) or not place.dtype.is_int:
        context.fail("bad-tag", "a scan is indexed by one integer", at.span, "write `al.cumsum(...)[j]`")
    assert operator is not None
    extent, term = bound(context, body, axes)
    _insist_on_numbers(context, term, node.span)
    counted = op("ge" if reverse else "le", Coord(axes), place)
    nothing = literal(Const(REDUCTIONS[operator](dtype_of(term))), dtype_of(term))
    if isinstance(term, (SpecOp, SpecReduce, SpecSoftmax)) or isinstance(nothing, (SpecOp, SpecReduce, SpecSoftmax)):
        chosen: SpecTerm = SpecOp("where", (counted, term, nothing), dtype_of(term))
    else:
        chosen = tiles.make("where", (counted, term, nothing))
    return SpecReduce(operator, axes, extent, chosen, dtype_of(term))


def softmax(context: Context, node: Call, score: Lambda, at: Expression | Slice, axes: int, bound: Bound) -> SpecTerm:
    """Evaluate `al.softmax(lambda k: ...)[n]` over the dimension that `k` indexes."""
    if not is_call(context, node, "softmax") or len(score.params) != 1:
        context.fail(
            "bad-tag",
            "here a lambda of one parameter is what `al.softmax` runs over",
            node.span,
            "write `al.softmax(lambda k: x[i, k])[j]`",
        )
    place = None if isinstance(at, Slice) else leaf(context, at, axes)
    if place is None or isinstance(place, (SpecOp, SpecReduce, SpecSoftmax)) or not place.dtype.is_int:
        context.fail("bad-tag", "a softmax is indexed by one integer", at.span, "write `al.softmax(...)[j]`")
    extent, term = bound(context, score, axes)
    return SpecSoftmax(axes, extent, place, term, dtype_of(term))
