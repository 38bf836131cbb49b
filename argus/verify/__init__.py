"""Proofs of data movement: tags, bounds, initialisation, races, convergence, coverage, machine rules."""

from argus.verify.report import Report, Timing
from argus.verify.verify import DEFAULT_LIMIT_S, verify

__all__ = ["DEFAULT_LIMIT_S", "Report", "Timing", "verify"]
