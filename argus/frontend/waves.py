"""Elaborate AMD's steps of waves: waits for counters, the bare barrier, and hints."""

from __future__ import annotations

from argus.diagnostic import Note
from argus.frontend import arguments
from argus.frontend.context import CallSite, Context, Handler
from argus.frontend.values import Nothing, Value
from argus.ir.instruction import STEPS
from argus.ir.nodes import BeginTurns, EndTurns, Hint, WaitCounts, WaveBarrier, WaveStep
from argus.ir.ordering import HINTS
from argus.ir.waves import off_target, wave_step


def s_waitcnt(call: CallSite) -> Value:
    vm, lgkm = (arguments.integer(call, n, 0) if arguments.given(call, n) else None for n in ("vmcnt", "lgkmcnt"))
    return _emit(call, WaitCounts(vm, lgkm))


def s_barrier(call: CallSite) -> Value:
    return _emit(call, WaveBarrier())


def turn(call: CallSite) -> Value:
    """Evaluate `begin_turns` and `end_turns`."""
    context, ends = call.context, call.name == "end_turns"
    context.require_top_level(f"`al.{call.name}`", call.span)
    before = [s for s in context.body if isinstance(s, BeginTurns | EndTurns)]
    if len(before) != ends:
        what = "no turns have begun" if not before else "waves take turns in one part of a kernel"
        notes = tuple(Note("an earlier call", s.span) for s in before[:1])
        context.fail("bad-turns", what, call.span, "begin them once, and end them once, after that", notes=notes)
    if context.num_warps % 2:
        what = f"waves take turns in halves, and the block has {context.num_warps}"
        context.fail("bad-turns", what, call.span, "write `@argus.kernel(num_warps=8)`, or another even number")
    return _emit(call, EndTurns() if ends else BeginTurns())


def paired(context: Context) -> None:
    """Note an error if turns have begun and do not end."""
    found = [s for s in context.body if isinstance(s, BeginTurns | EndTurns)]
    if len(found) == 1:
        what = "these turns do not end: a half of the waves would wait for the other without end"
        context.error("bad-turns", what, found[0].span, "write `al.end_turns()` after the last barrier of the turns")


def _hint(node: type[Hint]) -> Handler:
    """Return the handler that turns a call into a hint. Its parameters are the operands of the table row, in the row's
    order."""

    def handle(call: CallSite) -> Value:
        return _emit(call, node(*(arguments.integer(call, name, 0) for name, _, _ in STEPS[node.ROW].operands)))

    return handle


def _emit(call: CallSite, stmt: WaveStep) -> Value:
    context, target = call.context, call.context.target
    if next(off_target(stmt, target), None) is not None:
        what = f"`al.{call.name}` is an instruction of AMD's waves, and {target.name} has none"
        help_text = "use `al.barrier()`, and `al.cp_async_wait(pending)` for asynchronous copies"
        context.fail("unknown-instruction", what, call.span, help_text)
    for message, _ in wave_step(stmt):
        context.fail("wrong-arguments", message, call.span, "see the instruction in the language reference")
    context.emit(stmt, call.span)
    return Nothing()


HANDLERS: dict[str, Handler] = {
    "s_waitcnt": s_waitcnt,
    "s_barrier": s_barrier,
    "begin_turns": turn,
    "end_turns": turn,
    **{node.ROW: _hint(node) for node in HINTS},
}
