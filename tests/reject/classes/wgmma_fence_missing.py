"""Registers that an asynchronous product reads or writes, not fenced after other accesses (tile-ai/tilelang#2634)."""

from argus.ir.nodes import MmaFence
from tests.reject.case import Case
from tests.reject.edits import drop

CASES = (
    Case("examples/gemm_hopper.py", drop(MmaFence), "missing-mma-fence", "races", "sm_90a"),
    Case("examples/linear.py", drop(MmaFence), "missing-mma-fence", "races", "sm_90a"),
)
