"""A named barrier counts other threads than those that come to it (deepseek-ai/FlashMLA#57)."""

from tests.reject.case import Case
from tests.reject.edits import other_count

CASES = (
    Case("examples/gemm_pingpong.py", other_count("compute1", -128), "arrival-count", "progress", "sm_90a"),
    Case("tests/reject/kernels/relay.ir", other_count("load", -32), "arrival-count", "progress", "sm_90a"),
    Case("tests/reject/kernels/swap.ir", other_count("right", -128), "arrival-count", "progress", "sm_90a"),
)
