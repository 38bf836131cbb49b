"""Argus: a tile language for GPU kernels whose compiler proves how data moves."""

from argus.frontend.decorator import func
from argus.runtime import JitKernel, kernel

__all__ = ["JitKernel", "func", "kernel"]
