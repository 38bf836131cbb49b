"""Policies become explicit choreography: tile IR in, explicit IR out. `argus.passes.lower` lists them in order."""

from argus.passes.lower import PASSES, lower
from argus.passes.report import LoweringError

__all__ = ["PASSES", "LoweringError", "lower"]
