"""A grid that is divided down: no block has the last rows (OpenNLPLab/lightning-attention#28)."""

from tests.reject.case import Case, Text

CASES = (
    Case("examples/vector_add.py", Text("al.cdiv(N, BLOCK)", "N // BLOCK"), "output-not-covered", "coverage"),
    Case("examples/gemm.py", Text("al.cdiv(M, BLOCK_M)", "M // BLOCK_M"), "output-not-covered", "coverage"),
    Case("examples/embedding.py", Text("al.cdiv(T, BLOCK_T)", "T // BLOCK_T"), "output-not-covered", "coverage"),
    Case("argus/kernels/softmax.py", Text("al.cdiv(M, ROWS)", "M // ROWS"), "output-not-covered", "coverage",
         kernel="softmax_rows"),
)  # fmt: skip
