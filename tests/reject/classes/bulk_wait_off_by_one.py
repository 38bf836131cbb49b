"""A wait for bulk stores leaves one too many: its source is overwritten while it is read (deepseek-ai/DeepEP#657)."""

from argus.ir.nodes import BulkWait
from tests.reject.case import Case
from tests.reject.edits import one_more_pending

CASES = (
    Case("examples/gemm_hopper.py", one_more_pending(BulkWait), "data-race", "races", "sm_90a"),
    Case("tests/reject/kernels/double.ir", one_more_pending(BulkWait), "data-race", "races", "sm_90a"),
    Case("tests/reject/kernels/reduced.py", one_more_pending(BulkWait), "data-race", "races", "sm_90a",
         constants={"STAGES": 9, "BLOCK_N": 128}),
)  # fmt: skip
