"""An accumulator that is set in the first trip of a loop, and stale where K = 0 (NVIDIA/cutlass#2674)."""

from tests.reject.case import Case
from tests.reject.edits import initialised_in_the_first_trip

CASES = (
    Case("examples/gemm.py", initialised_in_the_first_trip("acc"), "uninitialised-read", "initialisation"),
    Case("examples/gemm_explicit.py", initialised_in_the_first_trip("acc"), "uninitialised-read", "initialisation"),
    Case("examples/linear.py", initialised_in_the_first_trip("acc"), "uninitialised-read", "initialisation", "sm_90a"),
)
