"""The mask of the tail is computed, and not used where the result is stored (Dao-AILab/flash-attention#2790)."""

from tests.reject.case import Case, Text

CASES = (
    Case("examples/vector_add.py", Text("total, mask=mask)", "total)"), "out-of-bounds", "bounds"),
    Case("examples/softmax.py", Text("total, mask=mask)", "total)"), "out-of-bounds", "bounds"),
    Case("argus/kernels/rmsnorm.py", Text("mask=live, instruction=keep", "instruction=keep"), "out-of-bounds", "bounds",
         kernel="rmsnorm_rows"),
)  # fmt: skip
