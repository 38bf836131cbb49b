"""A tile whose swizzle is not the one that the matrix instruction or the copy engine expects (tile-ai/tilelang#224)."""

from tests.reject.case import Case, Text
from tests.reject.edits import swizzle

_SA = "sa = al.shared((2, BLOCK_M, BLOCK_K), al.bfloat16, layout=al.swizzle({}))"

CASES = (
    Case("examples/gemm_hopper.py", swizzle("at", 2), "ill-formed-ir", "refused", "sm_90a"),
    Case("examples/linear.py", swizzle("wt", 1), "ill-formed-ir", "refused", "sm_90a"),
    Case(
        "examples/gemm_explicit.py", Text(_SA.format("2, 3, 3"), _SA.format("2, 2, 3")), "instruction-layout", "refused"
    ),
)
