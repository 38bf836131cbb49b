"""Compilers that make themselves ready while the compiler of kernels is loaded: so this imports next to nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from argus.backend.cuda import toolchain as cuda
from argus.ir.target import TARGETS


def standby(target: str) -> AbstractContextManager[cuda.Compiler | None]:
    """A compiler for one build for `target`, ended with the block; None where a start takes no time."""
    return cuda.standby(target) if target in TARGETS and TARGETS[target].vendor == "nvidia" else nullcontext()
