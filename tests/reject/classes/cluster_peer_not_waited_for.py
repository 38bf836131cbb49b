"""A block of a cluster does not wait for its peer, or tells the wrong ones that it is done (NVIDIA/cutlass#3643)."""

from argus.ir.nodes import Barrier, MbarrierWait
from tests.reject.case import Case
from tests.reject.edits import drop, of_ring, within_the_block, without_start

SMALL = {"CLUSTER": 2, "BLOCK_N": 64, "STAGES": 2}
GEMM = "argus/kernels/gemm.py"
HOPPER = "examples/gemm_hopper.py"

CASES = (
    Case(GEMM, within_the_block, "data-race", "races", "sm_90a", constants=SMALL),
    Case(GEMM, without_start(Barrier), "late-initialisation", "initialisation", "sm_90a", constants=SMALL),
    Case(HOPPER, within_the_block, "data-race", "races", "sm_90a", constants={"CLUSTER": 2}),
    Case(HOPPER, drop(MbarrierWait, of_ring("empty")), "data-race", "races", "sm_90a", constants={"CLUSTER": 2}),
)
