"""Argus: a tile language for GPU kernels whose compiler proves how data moves."""

from argus.frontend.decorator import func, kernel

__all__ = ["func", "kernel"]
