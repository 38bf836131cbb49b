"""Elaborate the explicit style: shared tiles, groups of asynchronous copies, and layouts."""

from __future__ import annotations

from argus.frontend import arguments, tiles, views
from argus.frontend.context import CallSite, Handler
from argus.frontend.products import mma_row, warp_grid
from argus.frontend.values import Constant, Nothing, Value, describe, shape_text
from argus.ir.instruction import INSTRUCTIONS
from argus.ir.instruction.tiled import tiled_mma as spread
from argus.ir.nodes import CommitGroup, WaitGroup
from argus.ir.types import MAX_EXTENT
from argus.layout import (
    AnyLayout,
    FragmentLayout,
    Layout,
    LayoutError,
    Swizzle,
    SwizzledLayout,
    extremes,
    parse,
    parse_fragment,
    row_major,
)
from argus.layout import blocked as spread_blocked


def shared(call: CallSite) -> Value:
    shape, dtype = arguments.shape(call), arguments.dtype(call, "dtype")
    name = call.wanted.name if call.wanted is not None else "shared"
    layout = _memory_layout(call, shape)
    return views.whole_view(call.context.new_shared(name, shape, dtype, layout, call.span))


def _memory_layout(call: CallSite, shape: tuple[int, ...]) -> AnyLayout:
    """Return the layout of a shared tile. Each element has its own offset, and the smallest offset is 0."""
    layout = _given_layout(call, shape)
    try:
        low, high = extremes(layout)
    except LayoutError as error:
        call.context.fail("bad-layout", str(error), call.spans["layout"], "use smaller strides, offsets and shifts")
    if low < 0 or high >= MAX_EXTENT:
        what = f"before the tile, {low}" if low < 0 else f"beyond any shared memory, {high}"
        call.context.fail(
            "bad-layout", f"this layout puts an element {what}", call.spans["layout"], "use offsets from 0 on"
        )
    return layout


def _given_layout(call: CallSite, shape: tuple[int, ...]) -> AnyLayout:
    value = call.args["layout"]
    match value:
        case Constant(value=None):
            return row_major(shape)
        case Constant(value=Swizzle() as swizzle):
            return SwizzledLayout(swizzle, 0, row_major(shape))
        case Constant(value=Layout() | SwizzledLayout() as layout):
            sizes = tuple(mode.size() for mode in layout)
            if sizes != shape:
                call.context.fail(
                    "bad-layout",
                    f"this layout is of shape {shape_text(sizes)}, and the tile of {shape_text(shape)}",
                    call.spans["layout"],
                    "give both the same shape, one mode of the layout a dimension",
                )
            return layout
        case _:
            call.context.fail(
                "bad-layout",
                f"`layout` is a memory layout, and this is {describe(value)}",
                call.spans["layout"],
                'use `al.layout("(64,64):(64,1)")` or `al.swizzle(bits, base, shift)`',
            )


def cp_async_commit(call: CallSite) -> Value:
    return _group_step(call, CommitGroup())


def cp_async_wait(call: CallSite) -> Value:
    return _group_step(call, WaitGroup(arguments.integer(call, "pending", 0)))


def _group_step(call: CallSite, stmt: CommitGroup | WaitGroup) -> Value:
    """Emit a step on groups of copies. On a target without `cp.async` emit nothing: its groups are always empty."""
    if call.context.target.has(INSTRUCTIONS["cp.async"]):
        call.context.emit(stmt, call.span)
    return Nothing()


def _bad_layout(call: CallSite, error: LayoutError) -> Value:
    call.context.fail("bad-layout", str(error), call.span, "see the layout notation in the language reference")


def tiled_mma(call: CallSite) -> Value:
    row = mma_row(call, arguments.text(call, "instruction"))
    shape = arguments.integers(call, "shape")
    if len(shape) != 3:
        call.context.fail(
            "bad-shape", "`shape` of `al.tiled_mma` is (M, N, K)", call.spans["shape"], "give three numbers"
        )
    tiles.check_shape(call.context, shape, call.spans["shape"])
    try:
        return Constant(spread(row, (shape[0], shape[1], shape[2]), warp_grid(call)))
    except LayoutError as error:
        return _bad_layout(call, error)


def blocked(call: CallSite) -> Value:
    shape = arguments.shape(call)
    order = arguments.integers(call, "order") if arguments.given(call, "order") else None
    threads = call.context.num_warps * call.context.target.warp_size
    try:
        return Constant(spread_blocked(shape, threads, order, arguments.integer(call, "vector", 1)))
    except LayoutError as error:
        return _bad_layout(call, error)


def notation(call: CallSite) -> Value:
    """Evaluate `fragment_layout` and `layout`."""
    text = arguments.text(call, "text")
    try:
        found: FragmentLayout | AnyLayout = parse_fragment(text) if call.name == "fragment_layout" else parse(text)
    except LayoutError as error:
        return _bad_layout(call, error)
    return Constant(found)


def swizzle(call: CallSite) -> Value:
    numbers = [arguments.integer(call, n) for n in ("bits", "base", "shift")]
    try:
        return Constant(Swizzle(*numbers))
    except LayoutError as error:
        return _bad_layout(call, error)


HANDLERS: dict[str, Handler] = {
    "shared": shared,
    "cp_async_commit": cp_async_commit,
    "cp_async_wait": cp_async_wait,
    "tiled_mma": tiled_mma,
    "blocked": blocked,
    "fragment_layout": notation,
    "layout": notation,
    "swizzle": swizzle,
}
