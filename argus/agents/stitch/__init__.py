"""Whole programs: a PyTorch model becomes proved kernels, whose slowest are tuned one after the other."""

from argus.agents.stitch.loop import Limits, Stitch, prepare, stitch
from argus.agents.stitch.tuned import Choice, stitched

__all__ = ["Choice", "Limits", "Stitch", "prepare", "stitch", "stitched"]
