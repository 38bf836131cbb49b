"""A barrier that only some of the threads reach (tile-ai/tilelang#1026)."""

from tests.reject.case import Case, Text

CASES = (
    Case(
        "examples/transpose.py",
        Text("    al.barrier()\n", "    if al.thread_id() < 64:\n        al.barrier()\n"),
        "divergent-barrier",
        "convergence",
    ),
    Case(
        "examples/gemm_explicit.py",
        Text("        al.barrier()\n", "        if al.thread_id() < 64:\n            al.barrier()\n"),
        "divergent-barrier",
        "convergence",
    ),
)
