"""Generated kernels: their emitted text on the host against the simulator.

The long run is `python -m tests.verify.differential --emitted`.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from argus.backend.cpu.toolchain import find_compiler
from argus.backend.emit import emit
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from tests import computations, strategies
from tests.backend.emitted import disagreements, drawn, trials, with_extremes

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Kernel, list[dict[str, int]]]:
    kernel = draw(strategies.kernels())
    return kernel, draw(st.lists(strategies.sizes(kernel), min_size=1, max_size=2))


def test_generated_kernels() -> None:
    count, found = disagreements(drawn(cases(), 6, 4711))
    assert not found
    assert count > 6


def test_generated_computations() -> None:
    runs = drawn(computations.cases(), 6, 4711)
    count, found = disagreements([*runs, *(with_extremes(run, number) for number, run in enumerate(runs))])
    assert not found
    assert count > 12


ROWS = parse_kernel("""
kernel rows
target sm_80
warps 1 of 32
size M
size N
tensor x: float32[M, N] strides [x.row:int64, 1:int64] align 4
tensor out: float32[M, N] strides [out.row:int64, 1:int64] align 4
grid [M]
fragment r: float32 32 layout [32 | t 32@0 | v]
body {
  copy r[c0] <- x[program_id(0), c0] shape 32 if c0 < N else 0.0 layout [32 | t 32@0 | v] via ld.global
  map r[c0] = r[c0] * 2.0 shape 32 layout [32 | t 32@0 | v] scope thread
  copy out[program_id(0), c0] <- r[c0] shape 32 if c0 < N layout [32 | t 32@0 | v] via st.global
}
""")


CHANGES: dict[str, tuple[str, str, str]] = {
    "right": ("", "", ""),
    "value": ("* 2.0f", "* 3.0f", r"out\[0, 0\] is .* and \d+ of 51 elements differ"),
    "written": ("_if<1>(t0 < N", "_if<1>(t0 <= N", "ends its process|bytes that no element of out"),
    "read": ("_or<1>(t0 < N", "_or<1>(t0 <= N", "ends its process"),
    "barrier": ("argus::begin();", "if (argus::thread_id()) argus::barrier();", "for ever"),
}
"""Texts that are changed, and what is said of them."""


def changed(kernel: Kernel) -> str:
    name = kernel.name.partition("_")[0]
    before, after, _ = CHANGES[name]
    text = emit(kernel)
    assert before in text
    return text.replace(before, after)


def test_a_wrong_text_shows() -> None:
    runs = [run for name in CHANGES for run in trials(replace(ROWS, name=name), [{"M": 3, "N": 17}])]
    count, found = disagreements(runs, changed)
    assert count == 4 * len(CHANGES)
    assert {trial.kernel.name for trial, _ in found} == set(CHANGES) - {"right"}
    for trial, text in found:
        assert re.search(CHANGES[trial.kernel.name][2], text), text
