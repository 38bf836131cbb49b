"""Argus: a tile language for GPU kernels whose compiler proves how data moves."""

from argus.frontend.decorator import func
from argus.runtime import JitKernel, from_text, kernel
from argus.tuning import Autotuner, Config, autotune, do_bench

__all__ = ["Autotuner", "Config", "JitKernel", "autotune", "do_bench", "from_text", "func", "kernel"]
