"""Elaborate the program position, preconditions and loops."""

from __future__ import annotations

from dataclasses import replace

from argus.frontend import arguments, tiles
from argus.frontend.calls import make_range
from argus.frontend.context import CallSite, Handler
from argus.frontend.values import Constant, Contents, Nothing, Tile, TupleValue, Value, View, describe
from argus.ir.cluster import clusters
from argus.ir.expr import Const, Expr, Op, Param, ProgramId, Thread, op, walk
from argus.ir.instruction.limits import MAX_CLUSTER
from argus.ir.nodes import Arranged, Assume, InRange, Invariant, Requires
from argus.ir.types import HARDWARE_AXES, MAX_GRID_AXES, int32
from argus.source import Span

# ---------------------------------------------------------------------------- position


def grid(call: CallSite) -> Value:
    """Declare the grid. Its extents are expressions in sizes and scalars."""
    context = call.context
    context.require_top_level("the grid", call.span)
    if context.grid is not None:
        context.fail("bad-grid", "the grid is declared twice", call.span, "declare it once, at the top of the kernel")
    names = [n for n in (f"e{axis}" for axis in range(MAX_GRID_AXES)) if arguments.given(call, n)]
    extents = tuple(_launch_scalar(call, n, "an extent of the grid", "bad-grid") for n in names)
    context.cluster = _cluster(call)
    # Additional programs fill up the last cluster. Nothing distinguishes them from the others.
    extents = (_in_clusters(extents[0], context.cluster), *extents[1:])
    context.persistent = arguments.flag(call, "persistent")
    context.grid, context.group = extents, _group(call, len(names))
    context.flat = len(names) > HARDWARE_AXES
    context.schedule = _schedule(call)
    ids = tuple(Tile((), int32, ProgramId(axis)) for axis in range(len(names)))
    return ids[0] if len(ids) == 1 else TupleValue(ids)


def _schedule(call: CallSite) -> str:
    """Return the schedule by which the computing warps share programs."""
    schedule = arguments.text(call, "schedule")
    if schedule not in ("cooperative", "pingpong", "rows", "turns"):
        help = 'use "cooperative", "pingpong", "rows" or "turns"'
        call.context.fail("bad-grid", f"there is no schedule {schedule!r}", call.spans["schedule"], help)
    if schedule == "pingpong" and not call.context.persistent:
        text = "groups of warps take turns on the programs of a block, and this one has one program"
        call.context.fail("bad-grid", text, call.spans["schedule"], "add persistent=True")
    return schedule


def _group(call: CallSite, axes: int) -> int:
    """Return the number of grid rows that are walked together."""
    group = arguments.integer(call, "group", 1)
    if group > 1 and axes not in ((2, 3) if call.context.persistent else (2,)):
        call.context.fail(
            "bad-grid",
            f"`group` walks rows of a grid of two axes, and this grid has {axes}",
            call.spans["group"],
            "declare two axes, or three of a persistent grid, or leave `group` out",
        )
    if group >= 2**31:
        call.context.fail(
            "bad-grid", f"`group` is an int32, and {group} is not", call.spans["group"], "8 is a good start"
        )
    return group


def _cluster(call: CallSite) -> int:
    """Return the number of programs along the first axis that share their loads."""
    cluster = arguments.integer(call, "cluster", 1)
    if not 1 <= cluster <= MAX_CLUSTER:
        call.context.fail(
            "bad-grid",
            f"a cluster has 1 to {MAX_CLUSTER} blocks, and this one {cluster}",
            call.spans["cluster"],
            "2 is a good start",
        )
    return cluster


def _in_clusters(extent: Expr, cluster: int) -> Expr:
    """Return `extent` rounded up to a multiple of `cluster`."""
    if clusters(extent, cluster) is not None:
        return extent
    return op("mul", op("floordiv", op("add", extent, Const(cluster - 1)), Const(cluster)), Const(cluster))


def _launch_scalar(call: CallSite, name: str, what: str, code: str) -> Expr:
    """Evaluate an argument as an int32 expression that is known at launch."""
    found = arguments.tile(call, name, int32)
    if found.shape or found.dtype is not int32:
        call.context.fail(code, f"{what} is an int32, and this is {describe(found)}", call.spans[name], "use sizes")
    _check_launch(call, found.expr, call.spans[name], what, code)
    if any(isinstance(e, Op) and e.dtype.is_float for e in walk(found.expr)):
        text = f"{what} is computed in floats, which the host rounds otherwise than the device"
        call.context.fail(code, text, call.spans[name], "compute it before the call, and pass the integer")
    return found.expr


def _check_launch(call: CallSite, expr: Expr, span: Span, what: str, code: str) -> None:
    if not all(isinstance(e, (Const, Param, Op)) for e in walk(expr)):
        call.context.fail(
            code,
            f"{what} depends on what is not known at launch",
            span,
            "use sizes, strides, scalar arguments and constants only",
        )


def program_id(call: CallSite) -> Value:
    return Tile((), int32, ProgramId(_axis(call)))


def num_programs(call: CallSite) -> Value:
    axis, declared = _axis(call), call.context.grid
    if declared is None or axis >= len(declared):
        call.context.fail(
            "bad-grid",
            f"axis {axis} of the grid is not declared before this",
            call.span,
            "declare it with `al.grid(...)` at the top of the kernel",
        )
    extent = declared[axis]
    return Constant(int(extent.value)) if isinstance(extent, Const) else Tile((), int32, extent)


def _axis(call: CallSite) -> int:
    axis, axes = arguments.integer(call, "axis", 0), max(HARDWARE_AXES, len(call.context.grid or ()))
    if axis >= axes:
        text = f"the grid has no axis {axis}: its axes are 0 to {axes - 1}"
        help = f"use one of them, or declare up to {MAX_GRID_AXES} axes before: `n, c, y, x = al.grid(N, C, H, W)`"
        call.context.fail("bad-grid", text, call.spans["axis"], help)
    return axis


def thread_id(_call: CallSite) -> Value:
    return Tile((), int32, Thread())


def block_constant(call: CallSite) -> Value:
    context = call.context
    warp = context.target.warp_size
    return Constant(
        {"num_warps": context.num_warps, "warp_size": warp, "num_threads": context.num_warps * warp}[call.name]
    )


# ---------------------------------------------------------------------------- preconditions


def requires(call: CallSite) -> Value:
    context, value, where = call.context, call.args["condition"], call.spans["condition"]
    context.require_top_level("a precondition", call.span)
    if isinstance(value, Contents):
        context.preconditions.append(replace(value.fact, span=context.at(call.span)))
        return Nothing()
    if isinstance(value, Constant):
        if value.value is not True:
            context.fail("bad-requires", "this precondition never holds", where, "change the constants, or remove it")
        return Nothing()
    condition = arguments.tile(call, "condition")
    if condition.shape:
        context.fail(
            "bad-requires", f"a precondition is one condition, not {describe(condition)}", where, "use scalars"
        )
    tiles.require_bool(context, condition, where, "a precondition")
    _check_launch(call, condition.expr, where, "a precondition", "bad-requires")
    context.preconditions.append(Requires(condition.expr, context.at(call.span)))
    return Nothing()


def in_range(call: CallSite) -> Value:
    name = _index_tensor(call)
    lo, hi = (_launch_scalar(call, n, "a limit", "bad-requires") for n in ("lo", "hi"))
    return Contents(InRange(name, lo, hi))


def _index_tensor(call: CallSite, rank: int | None = None) -> str:
    """Return the name of the integer tensor that a fact is about. The tensor must have `rank` dimensions if `rank` is
    given."""
    view = arguments.tensor_view(call, "tensor")
    if not view.whole or not view.obj.dtype.is_int:
        call.context.fail(
            "bad-requires",
            f"`al.{call.name}` is about a whole integer tensor, and this is {describe(view)}",
            call.spans["tensor"],
            "name the index tensor",
        )
    if len(view.shape) != (rank or max(1, len(view.shape))):
        text = f"`al.{call.name}` is about a tensor of {rank or 'at least one'} dimension, and this is {describe(view)}"
        call.context.fail("bad-requires", text, call.spans["tensor"], "give each row to the kernel as its own tensor")
    return view.obj.name


def arranged(call: CallSite) -> Value:
    """Evaluate the facts `sorted` and `distinct`, for any number of dimensions, and `permutation`."""
    return Contents(Arranged(_index_tensor(call, 1 if call.name == "permutation" else None), call.name))


def offsets(call: CallSite) -> Value:
    name, total = _index_tensor(call, 1), _launch_scalar(call, "total", "the total", "bad-requires")
    most = _launch_scalar(call, "longest", "a limit", "bad-requires") if arguments.given(call, "longest") else None
    return Contents(Arranged(name, "offsets", total, most))


def assume(call: CallSite) -> Value:
    context, where = call.context, call.spans["condition"]
    context.require_top_level("an assumption", call.span)
    reason = arguments.text(call, "reason")
    if not reason.strip():
        context.fail("bad-requires", "an assumption says why it holds", call.spans["reason"], "write the reason")
    if not reason.isprintable():
        what = "the reason of an assumption is one line of printable characters, because reports and sources quote it"
        context.fail("bad-requires", what, call.spans["reason"], "leave out line breaks and control characters")
    value = call.args["condition"]
    if isinstance(value, Constant) and value.value is True:
        return Nothing()
    condition = arguments.tile(call, "condition")
    if condition.shape:
        context.fail("bad-requires", f"an assumption is one condition, not {describe(condition)}", where, "use scalars")
    tiles.require_bool(context, condition, where, "an assumption")
    _check_launch(call, condition.expr, where, "an assumption", "bad-requires")
    context.preconditions.append(Assume(condition.expr, reason, context.at(call.span)))
    return Nothing()


def invariant(call: CallSite) -> Value:
    """Record the promise that rows of an output do not depend on some sizes."""
    context = call.context
    context.require_top_level("`al.invariant`", call.span)
    view = arguments.tensor_view(call, "tensor")
    if not view.whole:
        text = f"`al.invariant` is about a whole output, and this is {describe(view)}"
        context.fail("bad-invariant", text, call.spans["tensor"], "name the output tensor")
    sizes = tuple(_batch_size(call, view, n) for n in ("size", "size1", "size2", "size3") if arguments.given(call, n))
    context.invariants.append(Invariant(view.obj.name, sizes, context.at(call.span)))
    return Nothing()


def _batch_size(call: CallSite, view: View, name: str) -> str:
    """Return the name of a size, which must be an extent of the tensor or an integer argument of the kernel."""
    value = call.args[name]
    if isinstance(value, Tile) and isinstance(value.expr, Param):
        given = call.context.frame.names.get(value.expr.name)
        argument = given is not None and value.expr.dtype.is_int and given.value == value
        if value.expr in view.obj.shape or argument:
            return value.expr.name
    shown = ", ".join(f"`{extent.name}`" for extent in view.obj.shape if isinstance(extent, Param))
    help = f"the sizes of `{view.obj.name}` are {shown}" if shown else "its extents are constants: no batch varies"
    help += "; an integer argument that the host chooses by the batch may be named, too"
    text = f"rows of `{view.obj.name}` are along axes whose extents are sizes of it, and this is {describe(value)}"
    call.context.fail("bad-invariant", text, call.spans[name], help)


# ---------------------------------------------------------------------------- loops


def loop_range(call: CallSite) -> Value:
    if call.name == "pipelined" and call.context.in_role:
        what = "a pipelined loop makes roles of its own, and stands in none"
        call.context.fail("bad-role", what, call.span, "write `range(...)`, and order its copies yourself")
    stages = arguments.integer(call, "stages", 1) if call.name == "pipelined" else 1
    producers = arguments.integer(call, "producer_warps", 0) if call.name == "pipelined" else 0
    kind = "pipelined" if call.name == "pipelined" else "static"
    values = [call.args["start"], call.args["stop"]]
    if arguments.given(call, "stop"):
        values.append(call.args["step"])
    elif call.args["step"] != Constant(1):
        values = [Constant(0), call.args["start"], call.args["step"]]
    return make_range(call.context, kind, values, call.span, stages, producers)


# ---------------------------------------------------------------------------- explicit style


HANDLERS: dict[str, Handler] = {
    "grid": grid,
    "program_id": program_id,
    "num_programs": num_programs,
    "thread_id": thread_id,
    "num_threads": block_constant,
    "num_warps": block_constant,
    "warp_size": block_constant,
    "requires": requires,
    "in_range": in_range,
    "sorted": arranged,
    "distinct": arranged,
    "permutation": arranged,
    "offsets": offsets,
    "assume": assume,
    "invariant": invariant,
    "static_range": loop_range,
    "pipelined": loop_range,
}
