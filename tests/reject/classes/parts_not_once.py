"""Parts of a sum that do not make it up: they overlap, leave terms out, or are added twice or not at all."""

from argus.ir.types import float32
from tests.reject.case import Case, Text

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "STAGES": 2, "PRODUCERS": 0}
PART = {**TILE, "DEPTH": 96, "C": "Z M N", "OUT": float32}
SUM = {"PARTS": 3, "EACH": 2, "DEPTH": 96, "ROWS": 8, "COLUMNS": 64}
GEMM = "argus/kernels/gemm.py"

CASES = (
    Case(GEMM, Text("al.minimum(first + DEPTH, K)", "al.minimum(first + DEPTH + 32, K)"), "tag-mismatch", "tags",
         constants=PART),
    Case(GEMM, Text("first = z * DEPTH", "first = z * DEPTH + 32"), "tag-mismatch", "tags", constants=PART),
    Case(GEMM, Text("al.minimum(first + DEPTH, K)", "first + DEPTH - 32"), "tag-mismatch", "tags", constants=PART),
    Case(GEMM, Text("static_range(0, PARTS, EACH)", "static_range(0, PARTS - 1, EACH)"), "tag-mismatch", "tags",
         kernel="combine", constants=SUM),
    Case(GEMM, Text("static_range(0, PARTS, EACH)", "static_range(0, PARTS, EACH - 1)"), "tag-mismatch", "tags",
         kernel="combine", constants=SUM),
    Case(GEMM, Text("parts[s : s + EACH", "parts[s // 2 : s // 2 + EACH"), "tag-mismatch", "tags", kernel="combine",
         constants=SUM),
    Case(GEMM, Text("K <= PARTS * DEPTH)", "K <= PARTS * DEPTH + DEPTH)"), "tag-mismatch", "tags", kernel="combine",
         constants=SUM),
    Case(GEMM, Text("al.once(s * DEPTH, ", "al.once(s * DEPTH - s, "), "tag-mismatch", "tags", kernel="combine",
         constants=SUM),
    Case("tests/reject/kernels/reduced.py", Text("part * DEPTH", "part * (DEPTH - BLOCK_K)"), "spec-mismatch", "tags",
         "sm_90a"),
    Case("examples/stream_k_atomic.py", Text("worker * SHARE", "worker * (SHARE - 1)"), "spec-mismatch", "tags"),
    Case("examples/stream_k_atomic.py", Text(" | (step == last - 1)", ""), "spec-mismatch", "tags"),
)  # fmt: skip
