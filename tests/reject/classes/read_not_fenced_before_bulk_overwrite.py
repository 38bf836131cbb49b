"""A buffer is given back to the copy engine without a fence after threads have read it (deepseek-ai/DeepEP#621)."""

from argus.ir.nodes import MbarrierArrive, ProxyFence
from tests.reject.case import Case
from tests.reject.edits import drop_next_to

_ROW_SUMS, _DOUBLE = (f"tests/reject/kernels/{name}.ir" for name in ("row_sums", "double"))
_MISSING = drop_next_to(ProxyFence, MbarrierArrive)

CASES = (
    Case(_ROW_SUMS, _MISSING, "missing-proxy-fence", "races", "sm_90a"),
    Case(_DOUBLE, _MISSING, "missing-proxy-fence", "races", "sm_90a"),
)
