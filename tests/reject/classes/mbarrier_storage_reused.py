"""A tile is put where live mbarriers are (facebookexperimental/triton#462)."""

from tests.reject.case import Case
from tests.reject.edits import over_mbarriers

CASES = (
    Case("examples/gemm_hopper.py", over_mbarriers("c_tile_panels"), "ill-formed-ir", "refused", "sm_90a"),
    Case("examples/linear.py", over_mbarriers("out_tile_panels"), "ill-formed-ir", "refused", "sm_90a"),
)
