"""Elaborate moves of tiles: load, store, copy, stage, atomics."""

from __future__ import annotations

from dataclasses import replace

from argus.diagnostic import Note
from argus.frontend import arguments, barriers, tiles, views
from argus.frontend.context import CallSite, Handler
from argus.frontend.values import Nothing, Tile, Value, View, describe, shape_text
from argus.ir.expr import Coord, Elem, coords, substitute_coords
from argus.ir.instruction import INSTRUCTIONS, Mechanism
from argus.ir.nodes import Access, Accumulate, BulkCopy, Share, Shared, Stage, Tensor, ThreadCopy
from argus.ir.types import bfloat16, float16, float32, int32, int64


def load(call: CallSite) -> Value:
    """Emit a copy into a new fragment and return the fragment."""
    context, view = call.context, arguments.view(call, "view")
    extents = views.known_extents(context, view, call.spans["view"])
    mask = arguments.mask(call, view, extents, call.spans["view"])
    other = arguments.filling(call, view.obj.dtype, mask is not None, 0)
    layout = arguments.fragment_layout(call, extents)
    space = "shared" if isinstance(view.obj, Shared) else "global"
    instruction = _instruction(call, space, "fragment")
    name = call.wanted.name if call.wanted is not None else f"{view.obj.name}_tile"
    result = context.new_fragment(name, extents, view.obj.dtype, call.span, layout)
    assert result.fragment is not None
    dst = Access(result.fragment, coords(len(extents)))
    context.emit(ThreadCopy(dst, view.access, extents, mask, other, layout, instruction), call.span)
    return result


def store(call: CallSite) -> Value:
    """Emit a copy from a fragment."""
    context, view = call.context, arguments.view(call, "view")
    extents = views.known_extents(context, view, call.spans["view"])
    mask = arguments.mask(call, view, extents, call.spans["view"])
    value = _stored(call, view, extents)
    instruction = _instruction(call, "fragment", "shared" if isinstance(view.obj, Shared) else "global")
    if isinstance(value.expr, Elem) and _is_permutation(value):
        # For `al.store(view, al.trans(x))`, iterate over the elements of x and transpose the addresses instead.
        order = tuple(c.axis for c in value.expr.index if isinstance(c, Coord))
        inverse = tuple(Coord(order.index(d)) for d in range(len(order)))
        index = tuple(substitute_coords(e, inverse) for e in view.index)
        guard = None if mask is None else substitute_coords(mask, inverse)
        shape = tuple(extents[d] for d in order)
        src, dst = Access(value.expr.obj, coords(len(shape))), replace(view.access, index=index)
        context.emit(ThreadCopy(dst, src, shape, guard, instr=instruction), call.span)
        return Nothing()
    fragment = tiles.materialise(context, value, f"{view.obj.name}_tile", call.span).fragment
    assert fragment is not None
    source = Access(fragment, coords(len(extents)))
    context.emit(ThreadCopy(view.access, source, extents, mask, instr=instruction), call.span)
    return Nothing()


def _stored(call: CallSite, view: View, extents: tuple[int, ...]) -> Tile:
    """Evaluate the value of a store, converted to the view's dtype and shape."""
    context, where = call.context, call.spans["value"]
    value = arguments.tile(call, "value", view.obj.dtype)
    if value.dtype is not view.obj.dtype:
        context.fail(
            "type-mismatch",
            f"`{view.obj.name}` holds {view.obj.dtype}, and this tile is {value.dtype}",
            where,
            f"convert it: `.to(al.{view.obj.dtype})`",
        )
    notes = (Note(f"the view has shape {shape_text(extents)}", call.spans["view"]),)
    both = tiles.broadcast_shapes(context, [value.shape, extents], where, notes)
    if both != extents:
        context.fail(
            "shape-mismatch",
            f"the tile has shape {shape_text(value.shape)}, and the view {shape_text(extents)}",
            where,
            "store to a view of the tile's shape",
            notes=notes,
        )
    return tiles.broadcast(value, extents)


def _is_permutation(tile: Tile) -> bool:
    """Return True if the tile is a fragment, possibly with its dimensions permuted."""
    index = tile.expr.index if isinstance(tile.expr, Elem) else ()
    axes = [e.axis for e in index if isinstance(e, Coord)]
    return len(index) == len(tile.shape) and sorted(axes) == list(range(len(tile.shape)))


def copy(call: CallSite) -> Value:
    """Emit a copy from memory to memory."""
    context = call.context
    dst, src = arguments.view(call, "dst"), arguments.view(call, "src")
    to = views.known_extents(context, dst, call.spans["dst"])
    extents = views.known_extents(context, src, call.spans["src"])
    _check_same(call, dst, src, to, extents)
    spaces = ["shared" if isinstance(v.obj, Shared) else "global" for v in (src, dst)]
    instruction = _instruction(call, spaces[0], spaces[1])
    # A copy to shared memory is checked where it reads; a copy to global memory, where it writes.
    checked = dst if isinstance(dst.obj, Tensor) else src
    mask = arguments.mask(call, checked, extents, call.spans["src"])
    told = barriers.signal(call)
    other = arguments.filling(call, src.obj.dtype, mask is not None, None if told is None else 0)
    if other is not None and isinstance(dst.obj, Tensor):
        context.fail(
            "wrong-arguments",
            "`other` fills shared tiles; a tensor's elements are left alone where masked out",
            call.spans["other"],
            "leave `other` out",
        )
    layout = arguments.fragment_layout(call, extents)
    moved = (dst.access, src.access, extents, mask, other)
    if instruction is not None and INSTRUCTIONS[instruction].mechanism is Mechanism.BULK:
        if layout is not None:
            what = f"{instruction} is issued by one thread, for the whole box"
            context.fail("wrong-arguments", what, call.spans["layout"], "leave `layout` out")
        context.emit(BulkCopy(*moved, instruction, told), call.span)
    else:
        if told is not None:
            what = "only a bulk copy signals an mbarrier, and this is none"
            context.fail("wrong-arguments", what, call.spans["signal"], 'name one: `instruction="tma.load"`')
        context.emit(ThreadCopy(*moved, layout, instruction), call.span)
    return Nothing()


def _check_same(call: CallSite, dst: View, src: View, to: tuple[int, ...], extents: tuple[int, ...]) -> None:
    if to != extents:
        call.context.fail(
            "shape-mismatch",
            f"the destination has shape {shape_text(to)}, and the source {shape_text(extents)}",
            call.span,
            "give both the same shape",
        )
    if dst.obj.dtype is not src.obj.dtype:
        call.context.fail(
            "type-mismatch",
            f"`{dst.obj.name}` holds {dst.obj.dtype}, and `{src.obj.name}` {src.obj.dtype}",
            call.span,
            "a copy does not convert: load, convert with `.to(...)`, and store",
        )


def _instruction(call: CallSite, src: str, dst: str) -> str | None:
    """Return the row of the named copy instruction, which must fit the target and move data from `src` to `dst`."""
    if not arguments.given(call, "instruction"):
        return None
    context, name, where = call.context, arguments.text(call, "instruction"), call.spans["instruction"]
    rows = {r.name: r for r in INSTRUCTIONS.values() if context.target.has(r)}
    fitting = ", ".join(f'"{r.name}"' for r in rows.values() if (r.src, r.dst) == (src, dst)) or "none"
    if name not in rows:
        reason = f"is not an instruction of {context.target.name}" if name in INSTRUCTIONS else "is not an instruction"
        context.fail("unknown-instruction", f'"{name}" {reason}', where, f"from {src} to {dst} there are: {fitting}")
    row = rows[name]
    if (row.src, row.dst) != (src, dst):
        context.fail(
            "unknown-instruction",
            f'"{name}" copies from {row.src} to {row.dst}, and this goes from {src} to {dst}',
            where,
            f"from {src} to {dst} there are: {fitting}",
        )
    return name


def stage(call: CallSite) -> Value:
    """Emit the policy that fills a shared tile from a view of a tensor, or from registers."""
    context, given = call.context, call.args["view"]
    if isinstance(given, Tile) and given.shape:
        return _share(call, given)
    view = arguments.tensor_view(call, "view")
    extents = views.known_extents(context, view, call.spans["view"])
    mask = arguments.mask(call, view, extents, call.spans["view"])
    other = arguments.filling(call, view.obj.dtype, mask is not None, 0)
    name = call.wanted.name if call.wanted is not None else f"{view.obj.name}_stage"
    made = context.new_shared(name, extents, view.obj.dtype, None, call.span)
    once = arguments.flag(call, "once")
    context.emit(Stage(made.name, view.access, extents, mask, other, once), call.span)
    return views.whole_view(made)


def _share(call: CallSite, given: Tile) -> Value:
    """Return a new shared tile filled from registers. Such a fill has no mask."""
    context = call.context
    for name in ("boundary_check", "mask", "other", "once"):
        if call.spans[name] != call.span:
            what = f"`{name}` is about a place in memory, and this stages {describe(given)}"
            context.fail("wrong-arguments", what, call.spans[name], f"leave `{name}` out")
    name = call.wanted.name if call.wanted is not None else "stage"
    held = tiles.in_registers(context, given, f"{name}_tile", call.span).fragment
    assert held is not None
    made = context.new_shared(name, given.shape, given.dtype, None, call.span)
    context.emit(Share(made.name, Access(held, coords(len(given.shape))), given.shape), call.span)
    return views.whole_view(made)


# ---------------------------------------------------------------------------- atomics

_COMPARED = (float16, bfloat16, int32, int64)
_ORDERED = (
    "use a tensor of int32 or int64: `al.sortable(x, al.int32)` has the order of float32 numbers; "
    "the copy engine of sm_90a also takes float16 and bfloat16"
)
_ATOMIC = {"atomic_add": "add", "atomic_max": "maximum", "atomic_min": "minimum"}


def atomic(call: CallSite) -> Value:
    """Emit a read-modify-write of every element of a view of a tensor."""
    context, view = call.context, arguments.tensor_view(call, "view")
    extents = views.known_extents(context, view, call.spans["view"])
    allowed = (float32, float16, bfloat16, int32, int64) if call.name == "atomic_add" else _COMPARED
    if view.obj.dtype not in allowed:
        context.fail(
            "type-mismatch",
            f"`al.{call.name}` does not work on {view.obj.dtype}",
            call.spans["view"],
            _ORDERED if call.name != "atomic_add" else f"use a tensor of {' or '.join(map(str, allowed))}",
        )
    mask = arguments.mask(call, view, extents, call.spans["view"])
    value = _stored(call, view, extents)
    context.emit(Accumulate(view.access, value.expr, _ATOMIC[call.name], extents, mask), call.span)
    return Nothing()


HANDLERS: dict[str, Handler] = {
    "load": load,
    "store": store,
    "copy": copy,
    "stage": stage,
    "atomic_add": atomic,
    "atomic_max": atomic,
    "atomic_min": atomic,
}
