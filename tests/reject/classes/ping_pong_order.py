"""Two groups of warps take turns, and one of them does not wait for its own (facebookexperimental/triton#2058)."""

from tests.reject.case import Case
from tests.reject.edits import other_barrier, without_turns

CASES = (
    Case("examples/gemm_pingpong.py", without_turns("compute"), "phase-overrun", "progress", "sm_90a"),
    Case("examples/gemm_pingpong.py", other_barrier("compute1", 5, 4), "arrival-count", "progress", "sm_90a"),
    Case("tests/reject/kernels/relay.ir", other_barrier("compute", 3, 4), "barrier-protocol", "progress", "sm_90a"),
    Case("tests/reject/kernels/swap.ir", without_turns("left"), "uninitialised-read", "initialisation", "sm_90a"),
)
