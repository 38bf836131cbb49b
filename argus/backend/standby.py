"""Compilers that start up while Argus's own compiler is loaded. For this reason the module imports very little."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from argus.backend.cuda import toolchain as cuda
from argus.ir.target import TARGETS


def standby(target: str) -> AbstractContextManager[cuda.Compiler | None]:
    """Return a compiler for one build for `target`, ended with the `with` block; None if compilers start at once."""
    return cuda.standby(target) if target in TARGETS and TARGETS[target].vendor == "nvidia" else nullcontext()
