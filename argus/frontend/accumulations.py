"""Assignments that accumulate: `x += y`, `x = x + y`, `x = al.maximum(x, y)` on a register tile."""

from __future__ import annotations

from argus.frontend import binding, tiles
from argus.frontend.binding import bind
from argus.frontend.context import Context
from argus.frontend.expressions import evaluate
from argus.frontend.surface import Binary, Call, Expression, Name, Target, names
from argus.frontend.tagging import is_call
from argus.frontend.values import Builtin, Tile
from argus.ir.expr import coords
from argus.ir.nodes import Access, Accumulate
from argus.source import Span


def fragment_of(context: Context, target: Target) -> str | None:
    held = context.frame.names.get(target.id)
    return held.value.fragment if held is not None and isinstance(held.value, Tile) else None


def accumulation(context: Context, target: Target, value: Expression) -> tuple[str, Expression] | None:
    """Return (operator, operand) if `target = value` accumulates into the fragment that `target` holds, else None."""
    if fragment_of(context, target) is None:
        return None
    match value:
        case Binary(op="+", left=Name(id=name), right=operand) if name == target.id:
            op = "add"
        case Binary(op="+", left=operand, right=Name(id=name)) if name == target.id:
            op = "add"
        case Binary(op="*", left=Name(id=name), right=Call() as operand) if name == target.id:
            # Other factors rescale the accumulated value, which is no reduction.
            if not is_call(context, operand, "prod"):
                return None
            op = "mul"
        case Call(function=function, args=(first, second), keywords=()) if target.id in names(value):
            callee = evaluate(context, function) if target.id not in names(function) else None
            if callee not in (Builtin("maximum"), Builtin("minimum")):
                return None
            assert isinstance(callee, Builtin)
            op = callee.name
            own = [isinstance(e, Name) and e.id == target.id for e in (first, second)]
            if True not in own:
                return None
            operand = second if own[0] else first
        case _:
            return None
    return None if target.id in names(operand) else (op, operand)


def accumulate(context: Context, target: Target, op: str, operand: Expression, span: Span) -> None:
    """Elaborate `target = target op operand`: an accumulation if the type stays the same, else an ordinary binding."""
    held = context.frame.names[target.id].value
    assert isinstance(held, Tile) and held.fragment is not None
    value = evaluate(context, operand)
    result = tiles.elementwise(context, op, (held, value), (target.span, operand.span), span)
    binding.check_name(context, target, result)
    contribution = tiles.as_tile(context, value, operand.span, held.dtype)
    other = result.shape != held.shape or result.dtype is not held.dtype or (op == "add" and held.dtype.modular)
    if other or tiles.reads(contribution.expr, held.fragment):
        bind(context, target, result, span)
        return
    expr = tiles.stretch(contribution.expr, contribution.shape, held.shape)
    fragment = binding.own(context, target).fragment
    assert fragment is not None
    context.emit(Accumulate(Access(fragment, coords(len(held.shape))), expr, op, held.shape), span)
