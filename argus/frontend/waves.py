"""Elaborate AMD's steps of waves: waits for counters, the bare barrier, and hints."""

from __future__ import annotations

from argus.frontend import arguments
from argus.frontend.context import CallSite, Handler
from argus.frontend.values import Nothing, Value
from argus.ir.instruction import STEPS
from argus.ir.nodes import Hint, WaitCounts, WaveBarrier, WaveStep
from argus.ir.ordering import HINTS
from argus.ir.waves import off_target, wave_step


def s_waitcnt(call: CallSite) -> Value:
    vm, lgkm = (arguments.integer(call, n, 0) if arguments.given(call, n) else None for n in ("vmcnt", "lgkmcnt"))
    return _emit(call, WaitCounts(vm, lgkm))


def s_barrier(call: CallSite) -> Value:
    return _emit(call, WaveBarrier())


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
    **{node.ROW: _hint(node) for node in HINTS},
}
