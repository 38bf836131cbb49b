"""Proofs about data movement: tags, bounds, initialisation, races, convergence, coverage, machine rules."""

from argus.verify.report import Report, Timing
from argus.verify.verify import verify

__all__ = ["Report", "Timing", "verify"]
