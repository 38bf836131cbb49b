"""An offset that leaves 32 bits for large tensors (fla-org/flash-linear-attention#1080).

Argus computes addresses in 64 bits, from the coordinates: what can overflow is the author's own arithmetic.
"""

from tests.reject.case import Case, Text

CASES = (
    Case(
        "examples/vector_add.py",
        Text("offs.to(al.int64) * 4 < N.to(al.int64) * 4", "offs * 4 < N * 4"),
        "int32-overflow",
        "bounds",
        also=(Text("offs < N", "offs.to(al.int64) * 4 < N.to(al.int64) * 4"),),
    ),
    Case(
        "argus/kernels/softmax.py",
        Text("al.grid(al.cdiv(M, ROWS)) * ROWS", "al.grid(al.cdiv(M * ROWS, ROWS * ROWS)) * ROWS"),
        "int32-overflow",
        "bounds",
        kernel="softmax_rows",
    ),
)
