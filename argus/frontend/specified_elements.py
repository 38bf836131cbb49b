"""Elements of specifications: terms that are a tensor's element, a scalar, a size or a constant."""

from __future__ import annotations

from argus.frontend import tiles
from argus.frontend.context import Context
from argus.frontend.expressions import evaluate
from argus.frontend.surface import Expression, Slice
from argus.frontend.values import Constant, Specified, View, describe
from argus.ir.expr import Const
from argus.ir.nodes import SpecTerm
from argus.ir.spec_terms import renumbered
from argus.ir.types import DType, boolean, int64


def leaf(context: Context, node: Expression, axes: int) -> SpecTerm:
    """Evaluate a term that is one element, or a number; fail for anything else."""
    value = evaluate(context, node)
    if isinstance(value, Specified):  # A name may be used under more lambdas than those in which it was bound.
        return renumbered(value.term, {axis: axis for axis in range(axes)})
    if isinstance(value, View):
        context.fail(
            "bad-tag", f"{describe(value)} is not one element", node.span, "index every dimension by an integer"
        )
    wide = isinstance(value, Constant) and type(value.value) is int and not -(2**31) <= value.value < 2**31
    tile = tiles.as_tile(context, value, node.span, int64 if wide else None)
    if tile.shape:
        context.fail(
            "bad-tag", f"{describe(tile)} is not one element", node.span, "index every dimension by an integer"
        )
    return tile.expr


def dtype_of(term: SpecTerm) -> DType:
    return term.dtype


def literal(term: SpecTerm, dtype: DType) -> SpecTerm:
    if isinstance(term, Const) and term.dtype is not boolean:
        return Const(float(term.value) if dtype.is_float else term.value, dtype)
    return term


def constant(context: Context, node: Expression | Slice) -> int | None:
    """Return the value of a constant integer or truth value, or None for anything else."""
    value = None if isinstance(node, Slice) else evaluate(context, node)
    return value.value if isinstance(value, Constant) and isinstance(value.value, int) else None
