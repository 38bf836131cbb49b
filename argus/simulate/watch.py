"""Execute prints and assertions on the device in the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from argus.ir.nodes import DeviceAssert, Watch
from argus.ir.types import DType
from argus.ir.watch import line
from argus.simulate import checked
from argus.simulate.machine import Block
from argus.simulate.outcome import Stopped
from argus.simulate.step import Frame


def watch(block: Block, stmt: Watch, frame: Frame) -> None:
    """Read the tile, and print its elements or check that they are true.

    A run that does not collect prints, such as a replay, continues after a failed assertion, because proofs do not use
    its condition.
    """
    step = block.step(stmt, frame, stmt.layout)
    on = step.on & step.domain.primary
    place = checked.locate(block, stmt.src.obj, stmt.src.index, step, on)
    values = checked.read(block, place, step)
    if block.run.printed is None:
        return
    shown = on & ~values if isinstance(stmt, DeviceAssert) else on
    for at in np.flatnonzero(shown):
        element = tuple(int(c.reshape(-1)[at]) for c in step.domain.coords)
        value = value_text(values[at], block.run.kernel.object(stmt.src.obj).dtype)
        program = tuple(map(str, frame.program.index))
        text = line(stmt, block.run.kernel.name, program, tuple(map(str, element)), value)
        if isinstance(stmt, DeviceAssert):
            thread = int(step.thread[at])
            block.report(step, "device_assert", "device-assert", text, thread, logical=element, count=int(shown.sum()))
            raise Stopped
        block.run.printed.append(text)


def value_text(value: Any, dtype: DType) -> str:
    """Return a value as the device prints it."""
    return f"{float(value):g}" if dtype.is_float else str(int(value))
