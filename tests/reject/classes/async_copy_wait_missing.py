"""What cp.async copies is read before anything waits for it (NVIDIA/Fuser#3438)."""

from argus.ir.nodes import WaitGroup
from tests.reject.case import Case, Text
from tests.reject.edits import drop

CASES = (
    Case("examples/gemm_explicit.py", Text("        al.cp_async_wait(0)\n", ""), "data-race", "races"),
    Case("examples/gemm.py", drop(WaitGroup), "data-race", "races"),
    Case("examples/split_k.py", drop(WaitGroup), "data-race", "races"),
)
