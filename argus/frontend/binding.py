"""Bind names: decide which values get registers, which registers are updated in place, and what a run-time block may
change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.diagnostic import Note
from argus.frontend import tiles
from argus.frontend.context import Binding, Context, Gone, Rejected
from argus.frontend.surface import Target
from argus.frontend.values import (
    Builtin,
    Constant,
    Helper,
    MbarrierArray,
    MbarrierSlot,
    NamedBarrier,
    Poison,
    Tile,
    TupleValue,
    Value,
    View,
    describe,
)
from argus.ir.expr import Const, Coord, Elem, Expr, Param, coords, elements, substitute_coords, walk
from argus.ir.nodes import Access, Accumulate, Copy, Map, Mma, Stmt
from argus.source import Span


def bind(context: Context, target: Target, value: Value, span: Span) -> None:
    """Carry out `target = value` after the value's statements were emitted."""
    names, name = context.frame.names, target.id
    check_name(context, target, value)
    old = names.get(name)
    outer = old is not None and old.depth < context.depth
    if isinstance(value, Poison) or (old is not None and isinstance(old.value, Poison) and outer):
        names[name] = Binding(Poison(), context.depth if old is None else old.depth, target.span)
        return
    if old is not None and isinstance(old.value, Tile):
        if _update(context, target, old, old.value, value, span, outer):
            return
    elif outer and old is not None and old.value != value:
        context.fail(
            "loop-carried-type",
            f"`{name}` is {describe(old.value)}, and cannot become {describe(value)} in this block",
            span,
            "a run-time block changes tiles and scalars only; use another name here",
            notes=(Note(f"`{name}` was bound here", old.span),),
        )
    if outer and old is not None:
        return
    names[name] = Binding(settle(context, value, name, span), context.depth, target.span)
    context.frame.gone.pop(name, None)


def check_name(context: Context, target: Target, value: Value) -> None:
    """Reject a new meaning for names that have a fixed one: sizes, and the language's own module."""
    if target.id in context.frame.sizes:
        same = isinstance(value, Tile) and isinstance(value.expr, Param) and value.expr.name == target.id
        if not same:
            context.fail(
                "shadowed-size",
                f"`{target.id}` is the symbolic size of a tensor, and cannot mean anything else",
                target.span,
                "choose another name",
            )
    path = dict(context.module.aliases).get(target.id)
    if path in ("argus", "argus.language"):
        context.fail("shadowed-size", f"`{target.id}` is the module `{path}`", target.span, "choose another name")
    if not isinstance(value, (Constant, Tile, View, TupleValue, NamedBarrier, MbarrierArray, MbarrierSlot, Poison)):
        what = "is" if isinstance(value, (Builtin, Helper)) else "gives"
        context.fail(
            "not-assignable",
            f"`{target.id}` cannot be bound to {describe(value)}",
            target.span,
            "call it where it is used" if what == "is" else "tiles, views, scalars, constants and barriers have names",
        )


def _update(context: Context, target: Target, old: Binding, held: Tile, value: Value, span: Span, outer: bool) -> bool:
    """Rebind a name that holds a tile. Return True if the name keeps its fragment, which then holds `value`."""
    fragment = None if old.borrowed else held.fragment
    if fragment is None:
        if outer and value != held:
            context.fail(
                "loop-carried-type",
                f"`{target.id}` cannot change in this block",
                span,
                "use another name here",
                notes=(Note(f"`{target.id}` was bound here", old.span),),
            )
        return False
    numeric = isinstance(value, Constant) and tiles.default_dtype(value.value) is not None
    new = tiles.as_tile(context, value, span, held.dtype) if numeric and outer else value
    if isinstance(new, Tile) and new.fragment == fragment:
        return True
    same = isinstance(new, Tile) and (new.shape, new.dtype) == (held.shape, held.dtype)
    if isinstance(new, Tile) and same and (outer or not new.fresh):
        write(context, fragment, new, span)
        return True
    if outer:
        context.fail(
            "loop-carried-type",
            f"`{target.id}` is {describe(held)} before this block, and {describe(value)} in it",
            span,
            "keep shape and dtype, or use another name",
            notes=(Note(f"`{target.id}` was bound here", old.span),),
        )
    return False


def settle(context: Context, value: Value, name: str, span: Span) -> Value:
    """Return the value in the form in which a name keeps it. The form reads no register that a later statement may
    change."""
    match value:
        case Tile() if value.fresh:
            return replace(value, fresh=False)
        case Tile() if tiles.needs_registers(value):
            return replace(tiles.materialise(context, value, name, span), fresh=False)
        case View(index=index) if any(True for e in index for _ in elements(e)):
            return replace(value, index=tuple(_settle_index(context, e, value, name, span) for e in index))
        case TupleValue(items=items):
            return TupleValue(tuple(settle(context, item, f"{name}_{i}", span) for i, item in enumerate(items)))
        case _:
            return value


def _settle_index(context: Context, index: Expr, view: View, name: str, span: Span) -> Expr:
    """Keep an index that reads registers in a fragment of its own, and return an index that reads that fragment."""
    if not any(True for _ in elements(index)):
        return index
    used = sorted({e.axis for e in walk(index) if isinstance(e, Coord)})
    extents = [view.shape[axis] for axis in used]
    shape = tuple(n for n in extents if isinstance(n, int))
    if len(shape) != len(extents):
        context.fail(
            "bad-index", "this view has no constant shape, so it cannot keep its index", span, "use it directly"
        )
    packed = substitute_coords(index, _positions(used, len(view.shape)))
    kept = tiles.materialise(context, Tile(shape, index.dtype, packed), f"{name}_index", span)
    return substitute_coords(kept.expr, tuple(Coord(axis) for axis in used))


def _positions(used: list[int], rank: int) -> tuple[Expr, ...]:
    """Return an expression for each axis: `Coord` of its position in `used`, or 0 if `used` does not contain the axis.
    """
    return tuple(Coord(used.index(axis)) if axis in used else Const(0) for axis in range(rank))


def copied(context: Context, value: Tile, name: str, span: Span) -> Tile:
    """Return a new fragment for the name. It holds `value`, in the layout of the fragment that `value` reads."""
    layout = context.fragments[value.fragment].layout if value.fragment is not None else None
    return replace(tiles.materialise(context, value, name, span, layout), fresh=False)


def own(context: Context, target: Target) -> Tile:
    """Return the fragment that `target` holds, or a copy of it if the fragment belongs to the caller."""
    binding = context.frame.names[target.id]
    assert isinstance(binding.value, Tile)
    if binding.borrowed:
        binding = replace(binding, value=copied(context, binding.value, target.id, target.span), borrowed=False)
        context.frame.names[target.id] = binding
    assert isinstance(binding.value, Tile)
    return binding.value


def write(context: Context, fragment: str, value: Tile, span: Span) -> None:
    """Carry out `fragment = value` in place."""
    if value.fresh and value.fragment is not None and _retarget(context, value.fragment, fragment):
        return
    identity = coords(len(value.shape))
    crossed = any(e.obj == fragment and e.index != identity for e in elements(value.expr))
    if crossed:
        value = tiles.materialise(context, value, fragment, span)
    context.emit(Map(Access(fragment, identity), value.expr, value.shape), span)


def _retarget(context: Context, source: str, fragment: str) -> bool:
    """Let the statements just emitted write `fragment` directly instead of the temporary `source`, if the result is the
    same."""
    if context.fragments[source].layout is not None:
        return False
    count = 0
    while count < len(context.body) and _writes_only(context.body[-1 - count], source, fragment):
        count += 1
    made = context.body[len(context.body) - count :]
    if not made or isinstance(made[0], (Accumulate, Mma)):
        return False
    for index in range(len(context.body) - count, len(context.body)):
        stmt = context.body[index]
        assert isinstance(stmt, (Copy, Map, Accumulate))
        context.body[index] = replace(stmt, dst=Access(fragment, stmt.dst.index))
    del context.fragments[source]
    context.taken.discard(source)
    return True


def _writes_only(stmt: Stmt, source: str, fragment: str) -> bool:
    """Return True if a statement writes `source` and reads neither `source` nor `fragment`."""
    if not isinstance(stmt, (Copy, Map, Accumulate)) or stmt.dst.obj != source:
        return False
    exprs = [*stmt.dst.index]
    exprs += [stmt.value] if isinstance(stmt, (Map, Accumulate)) else [*stmt.src.index]
    exprs += [stmt.mask] if isinstance(stmt, (Copy, Accumulate)) and stmt.mask is not None else []
    if isinstance(stmt, Copy) and stmt.src.obj in (source, fragment):
        return False
    return not any(isinstance(e, Elem) and e.obj in (source, fragment) for x in exprs for e in walk(x))


# ---------------------------------------------------------------------------- run-time blocks


@dataclass(frozen=True, slots=True)
class Outside:
    """The names around a run-time block. The names in `hidden` are bound by the block itself, which does not see the
    outer values."""

    names: dict[str, Binding]
    hidden: frozenset[str]

    def enter(self, context: Context) -> None:
        """Make the names visible in the block, except for the hidden ones."""
        context.frame.names = {n: b for n, b in self.names.items() if n not in self.hidden}


def carry(context: Context, targets: tuple[Target, ...], live: frozenset[str]) -> Outside:
    """Return the names around a run-time block that binds `targets`, after each target has a fragment that the block
    can write.

    A name is carried into the block if the block reads it before binding it, or if it is read after the block (`live`).
    A carried tile or number gets registers that the block can change. Any other name belongs to the block, and its
    outer value is hidden.
    """
    kept = dict(context.frame.names)
    hidden: set[str] = set()
    for target in targets:
        old = kept.get(target.id)
        if old is None or target.id in context.frame.sizes:
            continue
        if target.id not in live:
            hidden.add(target.id)
            continue
        value = old.value
        if isinstance(value, Constant) and tiles.default_dtype(value.value) is not None:
            value = tiles.as_tile(context, value, old.span)
        if isinstance(value, Tile) and (value.fragment is None or old.borrowed):
            kept[target.id] = replace(old, value=copied(context, value, target.id, old.span), borrowed=False)
    return Outside(kept, frozenset(hidden))


def leave(context: Context, outside: Outside, reason: str) -> None:
    """Leave a run-time block: names that the block introduced disappear, and outer names have their old meaning."""
    frame = context.frame
    for name, binding in frame.names.items():
        if name not in outside.names:
            frame.gone[name] = Gone(reason, binding.span)
    after: dict[str, Binding] = {}
    for name, binding in outside.names.items():
        now = binding if name in outside.hidden else frame.names.get(name)
        if now is not None:
            after[name] = now if isinstance(now.value, Poison) else binding
    frame.names = after


def merge(
    context: Context,
    branches: tuple[dict[str, Binding], dict[str, Binding]],
    bodies: tuple[list[Stmt], list[Stmt]],
    span: Span,
) -> None:
    """Make a name usable after an `if` if both branches introduced it with one type."""
    for name, first in branches[0].items():
        second = branches[1].get(name)
        if second is None or name in context.frame.names:
            continue
        merged = _merge_two(context, name, first.value, second.value, bodies, span)
        if merged is not None:
            context.frame.names[name] = Binding(merged, context.depth, first.span)
            context.frame.gone.pop(name, None)


def _merge_two(
    context: Context, name: str, first: Value, second: Value, bodies: tuple[list[Stmt], list[Stmt]], span: Span
) -> Value | None:
    if first == second and not (isinstance(first, Tile) and first.fragment is not None):
        return first
    try:
        left, right = (tiles.as_tile(context, v, span) if _numeric(v) else v for v in (first, second))
    except Rejected:
        return None
    if not isinstance(left, Tile) or not isinstance(right, Tile):
        return None
    if (left.shape, left.dtype) != (right.shape, right.dtype):
        return None
    result = replace(context.new_fragment(name, left.shape, left.dtype, span), fresh=False)
    assert result.fragment is not None
    access = Access(result.fragment, coords(len(left.shape)))
    for body, tile in zip(bodies, (left, right), strict=True):
        body.append(Map(access, tile.expr, tile.shape, span=context.at(span)))
    return result


def _numeric(value: Value) -> bool:
    return isinstance(value, Constant) and tiles.default_dtype(value.value) is not None
