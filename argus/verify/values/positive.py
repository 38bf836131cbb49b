"""Facts that preconditions state of launch-time scalars and sizes: which are positive, and their bounds."""

from __future__ import annotations

from argus.ir.expr import Const, Expr, Op, Param
from argus.ir.interval import Interval
from argus.ir.nodes import Assume, Requires, Scalar
from argus.ir.types import MAX_EXTENT
from argus.verify.model.formulas import Tuple, equal
from argus.verify.model.isl import Set
from argus.verify.model.relations import Model


def positive_scalars(model: Model) -> frozenset[str]:
    """Return the sizes and scalars that preconditions or assumptions make positive."""
    conditions = (each.cond for each in model.kernel.preconditions if isinstance(each, (Requires, Assume)))
    stated = (name for condition in conditions for name in _above_zero(condition))
    return frozenset(stated).union(name for name in model.kernel.sizes if _never_zero(model, name))


def bounds_of(model: Model, name: str) -> Interval | None:
    """Return the least and the greatest value of a size or an integer scalar; None for floats."""
    if name not in model.kernel.sizes:
        dtype = next((p.dtype for p in model.kernel.params if isinstance(p, Scalar) and p.name == name), None)
        return None if dtype is None or dtype.is_float else dtype.integers
    known = model.points(Tuple(("n",)), equal("n", model.translator.integer(Param(name), ())))
    greatest = known.intersect_params(model.context.sizes).dim_max_val(0)
    return 0, min(greatest.to_python(), MAX_EXTENT) if greatest.is_int() else MAX_EXTENT


def _never_zero(model: Model, size: str) -> bool:
    known: Set = model.context.sizes
    zero = model.facts(f"{model.translator.integer(Param(size), ())} <= 0")
    return bool(known.intersect(zero).is_empty())


def _above_zero(condition: Expr) -> list[str]:
    match condition:
        case Op(op="and", args=(a, b)):
            return _above_zero(a) + _above_zero(b)
        case Op(op="gt", args=(Param(name=name), Const(value=value))) if value >= 0:
            return [name]
        case Op(op="lt", args=(Const(value=value), Param(name=name))) if value >= 0:
            return [name]
        case Op(op="ge", args=(Param(name=name), Const(value=value))) if value > 0:
            return [name]
        case Op(op="le", args=(Const(value=value), Param(name=name))) if value > 0:
            return [name]
        case _:
            return []
