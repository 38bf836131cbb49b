"""Loads of AMD's waves straight into LDS: the behaviour of the hardware, and the rules that explicit IR keeps.

The lanes of a load to LDS do not give the target's address: lane l of a wave writes four bytes at M0 + 4 * l, whatever
it read. The cells of each instruction are therefore one run of 256 bytes (64 lanes), in the order of lanes. Such loads
of one wave complete in the order of issue, and the wave counts the incomplete ones (CDNA3 ISA, data dependency
resolution: vmcnt; memory loads to LDS: M0). Other vector memory instructions that the compiler makes share the counter.
They make a wait longer, never shorter, because an incomplete load keeps every younger load to LDS from completing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_never

from argus.ir.descriptor import describe
from argus.ir.instruction import INSTRUCTIONS, STEPS, CopyRow, Order
from argus.ir.nodes import BeginTurns, Copy, EndTurns, Hint, Kernel, Stmt, WaitCounts, WaveBarrier, WaveStep
from argus.ir.statement import Problem
from argus.ir.target import Target

LARGEST_VM = STEPS["s_waitcnt vmcnt"].operands[0][2]
"""Largest number of loads that a wait can leave open."""


def counted(stmt: Stmt) -> bool:
    """Return True if a wait for vmcnt completes the statement's accesses."""
    return isinstance(stmt, Copy) and stmt.instr in INSTRUCTIONS and INSTRUCTIONS[stmt.instr].order is Order.VMCNT


def loads_to_lds(stmt: Stmt) -> int:
    """Return the number of instructions that each wave issues for an explicit copy that vmcnt completes, or 0 for other
    copies."""
    if not counted(stmt):
        return 0
    assert isinstance(stmt, Copy) and stmt.layout is not None
    return stmt.layout.num_values // stmt.vector


def in_lane_order(addresses: NDArray[np.int64], warp_size: int) -> NDArray[np.bool_]:
    """Return, for each program u, warp w and instruction i, True if the warp's lanes write one run of 4 bytes each, in
    the order of the lanes.

    `addresses[u, t, i]` is the byte address of thread t; the result is indexed `[u, w, i]`.
    """
    lanes = addresses.reshape(addresses.shape[0], -1, warp_size, addresses.shape[-1])
    wanted = lanes[:, :, :1] + 4 * np.arange(warp_size)[:, None]
    return np.asarray((lanes == wanted).all(axis=2))


def load_to_lds(stmt: Copy, row: CopyRow) -> Iterator[Problem]:
    """Check that every thread issues every instruction, and that masked elements are filled with zeros. Otherwise waves
    would count differently."""
    assert stmt.layout is not None
    if not stmt.layout.primary().all():
        yield f"{row.name} needs a layout without replicas: every lane of every wave takes part", stmt.span
    if stmt.mask is not None and (stmt.other is None or stmt.other.value != 0):
        yield f"{row.name} writes in every lane: masked elements need `other` 0", stmt.span


def turns(kernel: Kernel) -> tuple[int, int] | None:
    """Return the places in the kernel's body between which halves of the waves take turns, or None if they do not."""
    begins = [at for at, s in enumerate(kernel.body) if isinstance(s, BeginTurns)]
    ends = [at for at, s in enumerate(kernel.body) if isinstance(s, EndTurns)]
    return (begins[0], ends[0]) if len(begins) == len(ends) == 1 and begins[0] < ends[0] else None


def behind(kernel: Kernel) -> int:
    """Return the first thread of the half that is behind where waves take turns."""
    return kernel.num_threads // 2


def operands(stmt: WaveStep) -> dict[str, tuple[int, ...]]:
    """Return the operands of a step, by the names of the instruction rows that make up the step."""
    match stmt:
        case WaitCounts(vm=vm, lgkm=lgkm):
            named = {"s_waitcnt vmcnt": vm, "s_waitcnt lgkmcnt": lgkm}
            return {name: (n,) for name, n in named.items() if n is not None}
        case WaveBarrier() | BeginTurns() | EndTurns():
            return {"s_barrier": ()}
        case Hint(ROW=name):
            return {name: tuple(getattr(stmt, field) for field in describe(type(stmt)).fields)}
        case _:
            assert_never(stmt)


def wave_step(stmt: WaveStep) -> Iterator[Problem]:
    """Check that the operands are in the instruction's range."""
    found = operands(stmt)
    if not found:
        yield "a wait names a counter", stmt.span
    for name, values in found.items():
        for (operand, least, most), value in zip(STEPS[name].operands, values, strict=True):
            if not least <= value <= most:
                yield f"{operand} of {name.split()[0]} is {least} to {most}, not {value}", stmt.span


def off_target(stmt: WaveStep, target: Target) -> Iterator[Problem]:
    """Check that the target has the instruction."""
    for name in operands(stmt):
        if not set(STEPS[name].architectures) & set(target.architectures):
            yield f"{target.name} has no {name.split()[0]}", stmt.span
