"""Specialise warps: a pipelined loop with `producer_warps` becomes two roles, on targets that have bulk copies."""

from argus.passes.specialise.split import specialise

__all__ = ["specialise"]
