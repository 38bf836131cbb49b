"""A buffer is written again while other threads still read what it held (NVIDIA/cutlass#3597)."""

from tests.reject.case import Case
from tests.reject.edits import barrier_after_copies, placed_over

CASES = (
    Case("examples/gemm_explicit.py", barrier_after_copies, "data-race", "races"),
    Case("examples/gemm.py", barrier_after_copies, "data-race", "races"),
    Case("examples/softmax.py", placed_over("total_scratch", "max_scratch"), "data-race", "races"),
)
