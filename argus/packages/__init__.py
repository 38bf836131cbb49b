"""Packages without Python: proved kernels and programs, called from C with the same checks."""

from argus.packages.writer import package

__all__ = ["package"]
