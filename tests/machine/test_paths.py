"""Waits before barriers, on every path of machine code."""

from __future__ import annotations

import re

import numpy as np
import pytest

from argus.backend.hip import toolchain
from tests.conftest import require
from tests.machine.gfx942.code import Code, Descriptor, Instruction, load
from tests.machine.gfx942.paths import unwaited_barriers

LOOP = """
ds_write_b32 v1, v2
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v3, v4
ds_bpermute_b32 v5, v6, v7
s_waitcnt lgkmcnt(0)
ds_write_b32 v8, v3
s_waitcnt lgkmcnt(0)
s_cbranch_scc1 65529
s_endpgm
"""
"""The branch goes back to the barrier."""


def code(text: str) -> Code:
    lines = [line.partition(" ") for line in text.strip().splitlines()]
    listed = tuple(
        Instruction(4 * n, name, operands, (int(operands) if name.startswith("s_cbranch") else 0,))
        for n, (name, _, operands) in enumerate(lines)
    )
    kernel = Descriptor(0, 0, 0, 0, (), (False, False, False))
    return Code(np.zeros(4 * len(listed), np.uint8), {"k": kernel}, listed)


def test_a_wait_is_missed_on_the_way_back_alone() -> None:
    assert unwaited_barriers(code(LOOP)) == []
    for kept in ("lgkmcnt(1)", "vmcnt(0)"):
        other = re.sub(r"lgkmcnt\(0\)(?=\ns_cbranch)", kept, LOOP)
        assert [i.address for i in unwaited_barriers(code(other))] == [8]
    assert [i.address for i in unwaited_barriers(code(LOOP.replace("s_waitcnt lgkmcnt(0)", "s_nop 0", 1)))] == [8]


DRAINED = """
ARGUS_KERNEL(k, 256)(const float* ARGUS_RESTRICT x, float* ARGUS_RESTRICT y, int n, const int* ARGUS_RESTRICT m) {
    ARGUS_SHARED(smem, 2048);
    auto* t = (__attribute__((address_space(3))) float*)smem;
    const int i = argus::thread_id();
    t[i] = x[i];
    asm volatile("" ::: "memory");
    const int w = *m;
    float s = 0;
    for (int k = 0; k < n * (w > 0); ++k) {
        argus::barrier();
        s += t[(k % 2) * 256 + (i ^ (64 * w))];
        t[((k + 1) % 2) * 256 + i] = x[i + 256 * k];
    }
    y[i] = s;
}
"""
"""The scalar that decides on the loop is waited for, and with it what was written before."""


@pytest.mark.nightly
@pytest.mark.parametrize("barrier", ["argus::barrier();", "argus::wave_barrier();"])
def test_the_compiler_leaves_no_wait_out(barrier: str) -> None:
    """A barrier waits for LDS where clang 19 takes its fence for met. One without a fence waits for nothing."""
    require(toolchain.find_compiler(), "clang 17 or newer")
    require(toolchain.find_disassembler(), "llvm-objdump")
    built = load(toolchain.compile(DRAINED.replace("argus::barrier();", barrier), "gfx942")[0])
    assert bool(unwaited_barriers(built)) == (barrier == "argus::wave_barrier();")
