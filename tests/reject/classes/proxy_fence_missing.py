"""Threads write a tile, and the copy engine stores it without a proxy fence between (MoonshotAI/FlashKDA#24)."""

from argus.ir.nodes import ProxyFence
from tests.reject.case import Case
from tests.reject.edits import drop

CASES = (
    Case("examples/gemm_hopper.py", drop(ProxyFence), "missing-proxy-fence", "races", "sm_90a"),
    Case("examples/linear.py", drop(ProxyFence), "missing-proxy-fence", "races", "sm_90a"),
)
