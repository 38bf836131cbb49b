"""The frontend translates text to tile IR: parse (syntax), check (names, types, shapes, constants)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argus.frontend.options import Options
from argus.source import SourceFile

if TYPE_CHECKING:
    from argus.frontend.surface import Module
    from argus.ir.nodes import Kernel

__all__ = ["Options", "check", "functions", "parse"]

# The parser is imported at its first use, because a process that finds its kernels in the cache does not need it.


def parse(source: SourceFile, only: str = "") -> Module:
    """Return the surface tree of a file, or of the part that function `only` needs. Raises `SourceError`."""
    from argus.frontend import parser

    return parser.parse(source, only)


def functions(source: SourceFile) -> tuple[tuple[str, str], ...]:
    """Return the name and kind ("kernel" or "func") of a file's functions, without reading their bodies."""
    from argus.frontend import parser

    return parser.functions(source)


def check(module: Module, kernel_name: str, options: Options) -> Kernel:
    """Return the tile IR of one kernel. `options` and the defaults fix its constexpr parameters.

    Raises `SourceError` with every error in names, types, shapes and constants.
    """
    from argus.frontend import checker

    return checker.check(module, kernel_name, options)
