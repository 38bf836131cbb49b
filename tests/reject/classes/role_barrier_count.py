"""A role's barrier counts other threads than those that come (deepseek-ai/FlashMLA#57).

The barrier of a role is a named barrier for the threads of the role; here half of them come to it.
"""

from tests.reject.case import Case
from tests.reject.edits import half_arrive

CASES = (
    Case("examples/gemm_hopper.py", half_arrive, "divergent-barrier", "convergence", "sm_90a"),
    Case("examples/linear.py", half_arrive, "divergent-barrier", "convergence", "sm_90a"),
)
