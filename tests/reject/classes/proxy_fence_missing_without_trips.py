"""The proxy fence stands where only a loop that runs gets: without trips it is missing (MoonshotAI/FlashKDA#24)."""

from argus.ir.expr import Const, Param, op
from argus.ir.nodes import ProxyFence
from tests.reject.case import Case
from tests.reject.edits import only_if

_TRIPS = op("gt", Param("K"), Const(0))

CASES = (
    Case("examples/gemm_hopper.py", only_if(ProxyFence, _TRIPS), "missing-proxy-fence", "races", "sm_90a"),
    Case("examples/linear.py", only_if(ProxyFence, _TRIPS), "missing-proxy-fence", "races", "sm_90a"),
)
