"""Fewer mbarriers than loads in flight: two loads of different stages count on one (NVIDIA/Fuser#5862)."""

from tests.reject.case import Case
from tests.reject.edits import fewer_mbarriers

CASES = (
    Case("examples/gemm_hopper.py", fewer_mbarriers, "barrier-protocol", "progress", "sm_90a"),
    Case("examples/linear.py", fewer_mbarriers, "barrier-protocol", "progress", "sm_90a"),
)
