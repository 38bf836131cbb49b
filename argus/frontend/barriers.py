"""Named barriers and mbarriers as values, their operations, and the ordering of asynchronous products."""

from __future__ import annotations

from argus.frontend import arguments, tiles
from argus.frontend.context import CallSite, Context, Handler
from argus.frontend.values import Constant, MbarrierArray, MbarrierSlot, NamedBarrier, Nothing, Tile, Value, describe
from argus.ir.expr import Expr
from argus.ir.instruction import BARRIERS, INSTRUCTIONS
from argus.ir.nodes import (
    BarrierArrive,
    BarrierSync,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    MmaCommit,
    MmaFence,
    MmaWait,
    ProxyFence,
    Signal,
    Stmt,
)
from argus.ir.types import int32
from argus.source import Span

METHODS = {NamedBarrier: ("sync", "arrive"), MbarrierSlot: ("expect", "arrive", "wait")}
"""The methods of each kind of barrier."""
_FORMS = {"expect": "expect(bytes)", "wait": "wait(parity)"}


def named_barrier(call: CallSite) -> Value:
    """Return a named barrier for some of the roles. Its hardware number is assigned when all roles are known."""
    context, threads = call.context, arguments.integer(call, "threads", 1)
    context.require_top_level("a named barrier", call.span)
    require_roles(context, call.span)
    unit = BARRIERS["bar.sync"].unit
    if threads % unit:
        what = f"a named barrier counts whole warps, and {threads} threads are none"
        help = f"add up the threads of all roles that come to it: a multiple of {unit}"
        context.fail("bad-barrier", what, call.spans["threads"], help)
    context.named_barriers.append(context.at(call.span))
    return NamedBarrier(len(context.named_barriers) - 1, threads)


def require_roles(context: Context, span: Span) -> None:
    """Fail unless warps of the target may run programs of their own, which takes barriers for some of them."""
    if context.target.has(BARRIERS["bar.sync"]):
        return
    help = "compile for sm_90a or cpu, or leave the roles to `producer_warps`"
    if context.target.vendor == "amd":  # all waves of a block share its one barrier
        help = "let halves of the waves take turns: `al.begin_turns()`, `al.end_turns()`; or compile for sm_90a or cpu"
    context.fail("bad-role", f"{context.target.name} has no roles: its warps all run one program", span, help)


def mbarrier(call: CallSite) -> Value:
    """Declare an array of mbarriers, which is initialised before the roles start."""
    context = call.context
    context.require_top_level("an mbarrier", call.span)
    _require_engine(call)
    count, arrivals = arguments.integer(call, "count", 1), arguments.integer(call, "arrivals", 1)
    name = context.unique(call.wanted.name if call.wanted is not None else "mbarrier")
    context.mbarriers.append(Mbarrier(name, count, arrivals, None, context.at(call.span)))
    return MbarrierArray(name, count)


def slot(context: Context, array: MbarrierArray, items: list[Value], span: Span) -> Value:
    """Return the mbarrier `array[index]`."""
    if len(items) != 1 or not isinstance(items[0], Constant | Tile):
        context.fail("bad-index", "one of several mbarriers is named by its number", span, "write `full[k % stages]`")
    index = _scalar(context, items[0], "the number of an mbarrier", span)
    if isinstance(items[0], Constant) and items[0].value not in range(array.count):
        what = f"there is no mbarrier {items[0].value} of {array.count}"
        context.fail("bad-index", what, span, "count from 0")
    return MbarrierSlot(array.name, index)


def come_to(context: Context, barrier: NamedBarrier | MbarrierSlot, name: str, given: list[Value], span: Span) -> Value:
    """Emit a call of a barrier's method, such as `barrier.sync()` or `slot.wait(parity)`."""
    form = _FORMS.get(name, f"{name}()")
    if len(given) != (name in _FORMS):
        number = "one argument" if name in _FORMS else "no argument"
        context.fail("wrong-arguments", f"`.{name}` takes {number}", span, f"write `x.{form}`")
    if not context.in_role:
        what = f"{describe(barrier)} orders roles, and this is none"
        context.fail("bad-barrier", what, span, "come to it in a role; `al.barrier()` joins the whole block")
    context.emit(_step(context, barrier, name, given, span), span)
    return Nothing()


def _step(context: Context, barrier: NamedBarrier | MbarrierSlot, name: str, given: list[Value], span: Span) -> Stmt:
    match barrier, name:
        case NamedBarrier(index=index, threads=threads), "sync":
            return BarrierSync(index, threads)  # The index serves as the barrier's number until all roles are known.
        case NamedBarrier(index=index, threads=threads), _:
            return BarrierArrive(index, threads)
        case MbarrierSlot(array=array, index=at), "arrive":
            return MbarrierArrive(array, at)
        case MbarrierSlot(array=array, index=at), "wait":
            return MbarrierWait(array, at, _scalar(context, given[0], "a parity", span))
        case MbarrierSlot(array=array, index=at), _:
            count = given[0].value if isinstance(given[0], Constant) else None
            if not isinstance(count, int) or count < 1:
                context.fail("not-constant", "the bytes of a phase are a constant", span, "add up those of its copies")
            return MbarrierExpect(array, at, count)


def _scalar(context: Context, value: Value, what: str, span: Span) -> Expr:
    tile = tiles.as_tile(context, value, span, int32)
    if tile.shape or tile.dtype is not int32:
        context.fail("type-mismatch", f"{what} is an int32, and this is {describe(tile)}", span, "use a loop's counter")
    return tile.expr


def signal(call: CallSite) -> Signal | None:
    """Return the mbarrier that a bulk copy signals when its bytes have arrived, or None if there is none."""
    value = call.args["signal"]
    if value == Constant(None):
        return None
    if not isinstance(value, MbarrierSlot):
        what = f"a bulk copy signals an mbarrier, and this is {describe(value)}"
        call.context.fail("bad-barrier", what, call.spans["signal"], "write `signal=full[stage]`")
    return Signal(value.array, value.index)


def fence(call: CallSite) -> Value:
    """Emit `mma_fence`, `mma_commit`, `mma_wait` or `proxy_fence`. They order products and copies, and are allowed in
    roles."""
    steps: dict[str, Stmt] = {"mma_fence": MmaFence(), "mma_commit": MmaCommit(), "proxy_fence": ProxyFence()}
    made = steps.get(call.name) or MmaWait(arguments.integer(call, "pending", 0))
    _require_engine(call)
    if not call.context.in_role:
        what = f"`al.{call.name}` orders what a role does asynchronously, and this is none"
        call.context.fail("bad-role", what, call.span, "write it in an `al.role`")
    call.context.emit(made, call.span)
    return Nothing()


def _require_engine(call: CallSite) -> None:
    """Check that the target has a copy engine, and with it mbarriers and asynchronous products."""
    context = call.context
    if not set(INSTRUCTIONS["tma.load"].architectures) & set(context.target.architectures):
        what = f"`al.{call.name}` is about bulk copies and asynchronous products, and {context.target.name} has none"
        help = "compile for sm_90a; named barriers order roles that move data themselves"
        if context.target.vendor == "amd":
            help = "compile for sm_90a; `al.s_waitcnt(vmcnt=...)` waits for loads to LDS"
        context.fail("unknown-instruction", what, call.span, help)


HANDLERS: dict[str, Handler] = {
    "named_barrier": named_barrier,
    "mbarrier": mbarrier,
    "mma_fence": fence,
    "mma_commit": fence,
    "mma_wait": fence,
    "proxy_fence": fence,
}
