"""Statements of AMD's waves: their text, and how many loads a copy is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from argus.ir.instruction import STEPS as TABLE
from argus.ir.nodes import Kernel, Stmt, WaitCounts, WaveBarrier, WaveStep
from argus.ir.ordering import SchedBarrier, SchedGroup, WavePriority
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.visit import walk
from argus.ir.waves import counted, in_lane_order, loads_to_lds, operands
from argus.ir.wellformed import check_explicit
from tests.verify.waves import ring

STEPS: tuple[WaveStep, ...] = (
    WaitCounts(0), WaitCounts(63, 15), WaitCounts(None, 0), WaveBarrier(), WavePriority(3), SchedGroup(0x7FF, 4, 2),
    SchedBarrier(0),
)  # fmt: skip


def with_steps(*steps: Stmt) -> Kernel:
    kernel = ring()
    return replace(kernel, body=(*kernel.body, *steps))


def test_reads_back_what_it_prints() -> None:
    kernel = with_steps(*STEPS)
    assert parse_kernel(print_kernel(kernel)) == kernel
    assert check_explicit(kernel) == ()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (WaitCounts(), "a wait names a counter"),
        (WaitCounts(64), "vmcnt of s_waitcnt is 0 to 63"),
        (WaitCounts(-1), "vmcnt of s_waitcnt is 0 to 63"),
        (WaitCounts(None, 16), "lgkmcnt of s_waitcnt is 0 to 15"),
        (WavePriority(4), "priority of s_setprio is 0 to 3"),
        (SchedGroup(0, 1), "mask of sched_group_barrier is 1 to 2047"),
        (SchedGroup(0x800, 1), "mask of sched_group_barrier is 1 to 2047"),
        (SchedBarrier(0x800), "mask of sched_barrier is 0 to 2047"),
        (SchedGroup(8, 0), "size of sched_group_barrier is 1 to"),
    ],
)
def test_operands_in_range(wrong: Stmt, message: str) -> None:
    (found,) = check_explicit(with_steps(wrong))
    assert message in found.message


def test_every_step_is_a_row_with_its_law_and_document() -> None:
    rows = {name for step in STEPS for name in operands(step)}
    assert rows == set(TABLE)
    laws = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
    assert all(row.document and f"`{row.name}`" in laws and row.law.value in laws for row in TABLE.values())


def test_a_copy_is_as_many_loads_as_a_lane_makes() -> None:
    copies = [s for s in walk(ring().body) if counted(s)]
    assert [loads_to_lds(s) for s in copies] == [2, 2, 2]
    assert sum(map(loads_to_lds, walk(ring().body))) == 6


def test_lanes_of_each_wave_fill_one_run() -> None:
    """Waves and loads may be anywhere; lanes may not."""
    lanes = np.arange(128)
    first = (lanes // 64 * 1000 + lanes % 64 * 4)[None, :, None] + np.array([0, 512])
    assert in_lane_order(first, 64).tolist() == [[[True, True], [True, True]]]
    assert in_lane_order(first[:, ::-1], 64).sum() == 0
    first[0, 70, 1] += 4
    assert in_lane_order(first, 64).tolist() == [[[True, True], [True, False]]]
