"""Halves of a block's waves take turns, and one overwrites what the other still reads (triton-lang/triton#11696)."""

from argus.ir.nodes import WaitCounts
from tests.reject.case import Case, Text
from tests.reject.edits import drop

_FILE = "examples/gemm_turns.py"
_WAIT, _BARRIER = "        al.s_waitcnt(lgkmcnt=0)\n", "        al.s_barrier()\n"
_LAST = "        al.sched_barrier()\n        al.s_barrier()\n    al.end_turns()\n"

CASES = (
    Case(_FILE, Text(_WAIT + _BARRIER, _BARRIER), "data-race", "races", "gfx942"),
    Case(_FILE, Text(_WAIT + _BARRIER, _BARRIER + _WAIT), "data-race", "races", "gfx942"),
    Case("tests/reject/kernels/rows_in_turns.ir", drop(WaitCounts), "data-race", "races", "gfx942"),
    Case(_FILE, Text(_LAST, "        al.sched_barrier()\n    al.end_turns()\n"), "data-race", "races", "gfx942"),
)
