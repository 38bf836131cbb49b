"""Proved programs with built kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from argus.backend.launch.signature import Signature
from argus.ir.expr import Param
from argus.ir.expr import walk as parts_of
from argus.programs.ir import If, Program, walk
from argus.runtime.executable import Executable


@dataclass(frozen=True)
class Ready:
    """A proved program with its built kernels, in the order of its uses."""

    program: Program
    signature: Signature
    kernels: tuple[Executable, ...]

    @cached_property
    def deciding(self) -> frozenset[str]:
        """The scalars that decide what is launched: all except floats that are only passed to kernels."""
        passed = {s.name for s in self.program.scalars if s.dtype.is_float}
        exprs = [c.expr for c in self.signature.conditions]
        exprs += [s.cond for s in walk(self.program.body) if isinstance(s, If)]
        used = {e.name for expr in exprs for e in parts_of(expr) if isinstance(e, Param)}
        return frozenset(s.name for s in self.program.scalars if s.name not in passed or s.name in used)
