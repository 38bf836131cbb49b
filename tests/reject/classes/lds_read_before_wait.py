"""LDS is read before the wait for the loads that fill it (triton-lang/triton#11765)."""

from argus.ir.nodes import WaitCounts
from tests.reject.case import Case, Text
from tests.reject.edits import bare_barriers, drop

_WAIT, _BARRIER = "        al.s_waitcnt(vmcnt=8, lgkmcnt=0)\n", "        al.s_barrier()\n"

CASES = (
    Case("examples/gemm_waves.py", Text(_WAIT, ""), "data-race", "races", "gfx942"),
    Case("examples/gemm_waves.py", Text(_WAIT + _BARRIER, _BARRIER + _WAIT), "data-race", "races", "gfx942"),
    Case("examples/gemm_waves.py", Text("vmcnt=8, lgkmcnt=0", "vmcnt=8"), "data-race", "races", "gfx942"),
    Case("examples/gemm.py", drop(WaitCounts), "data-race", "races", "gfx942"),
    Case("examples/gemm.py", bare_barriers, "data-race", "races", "gfx942"),
    Case("examples/split_k.py", drop(WaitCounts), "data-race", "races", "gfx942"),
)
