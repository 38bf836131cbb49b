"""Rewrites of a kernel's text, by name. None of them has to be right: what comes out is proved, or is thrown away."""

from argus.knowledge.rewrites.registry import REWRITES, rewrite

__all__ = ["REWRITES", "rewrite"]
