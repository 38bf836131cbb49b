"""A wait for the wrong parity of an mbarrier: it passes a phase too early, or never (tile-ai/tilelang#3087)."""

from argus.ir.expr import LoopVar
from tests.reject.case import Case
from tests.reject.edits import other_parity, parity_of_every_trip

CASES = (
    Case("examples/gemm_hopper.py", other_parity("empty"), "barrier-protocol", "progress", "sm_90a"),
    Case("examples/linear.py", parity_of_every_trip("full", LoopVar("turn")), "wrong-parity", "progress", "sm_90a"),
    Case("examples/linear.py", other_parity("full"), "data-race", "races", "sm_90a"),
)
