"""Bytes are announced and nobody arrives, or a buffer is never given back: for ever after (tile-ai/tilelang#2566)."""

from argus.ir.nodes import MbarrierArrive
from tests.reject.case import Case
from tests.reject.edits import arrivals, drop

CASES = (
    Case("examples/gemm_hopper.py", arrivals("full", 1), "arrival-count", "progress", "sm_90a"),
    Case("examples/linear.py", drop(MbarrierArrive), "arrival-count", "progress", "sm_90a"),
)
