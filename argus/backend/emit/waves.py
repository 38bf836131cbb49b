"""Emit the waits and scheduling instructions of AMD's waves."""

from __future__ import annotations

from typing_extensions import assert_never

from argus.backend.emit.scope import Writer
from argus.ir.instruction import STEPS
from argus.ir.nodes import BeginTurns, EndTurns, Hint, WaitCounts, WaveBarrier, WaveStep
from argus.ir.waves import behind, operands


def emit_wave_step(stmt: WaveStep, writer: Writer) -> None:
    """Emit a wait, a barrier or a hint of a wave."""
    match stmt:
        case WaitCounts(vm=vm, lgkm=lgkm):
            counts = ", ".join(str(-1 if n is None else n) for n in (vm, lgkm))
            writer.line(f"argus::wait_counts<{counts}>();")
        case WaveBarrier():
            writer.line("argus::wave_barrier();")
        case BeginTurns():
            writer.line(f"argus::wave_barrier_from<{behind(writer.kernel)}>();")
        case EndTurns():
            writer.line(f"argus::wave_barrier_below<{behind(writer.kernel)}>();")
        case Hint():
            row = STEPS[stmt.ROW]
            if row.call:
                writer.line(f"argus::{row.call}<{', '.join(map(str, operands(stmt)[row.name]))}>();")
        case _:
            assert_never(stmt)
