"""Rewrites of a kernel's text, by name. No rewrite has to be right: its result is proved or thrown away."""

from argus.knowledge.rewrites.registry import REWRITES, known, rewrite

__all__ = ["REWRITES", "known", "rewrite"]
