"""A tile is written with its swizzle and read without (tile-ai/tilelang#2714)."""

from tests.reject.case import Case
from tests.reject.edits import read_without_swizzle, swizzle

CASES = (
    Case("examples/transpose.py", read_without_swizzle("tile"), "spec-mismatch", "tags"),
    Case("examples/gemm_explicit.py", read_without_swizzle("sa"), "tag-mismatch", "tags"),
    Case("examples/linear.py", swizzle("xt", 0), "ill-formed-ir", "refused", "sm_90a"),
)
