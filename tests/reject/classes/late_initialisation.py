"""A role uses an mbarrier whose initialisation it need not see (NVIDIA/cutlass#3598)."""

from argus.ir.nodes import Barrier, MbarrierFence, MbarrierInit
from tests.reject.case import Case
from tests.reject.edits import started_by, without_start

HOW = ("late-initialisation", "initialisation", "sm_90a")

CASES = (
    Case("examples/gemm_hopper.py", started_by("producer"), *HOW),
    Case("examples/linear.py", without_start(Barrier), *HOW),
    Case("tests/reject/kernels/double.ir", without_start(MbarrierFence), *HOW),
    Case("tests/reject/kernels/row_sums.ir", without_start(MbarrierInit), *HOW),
)
