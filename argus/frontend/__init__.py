"""From text to tile IR: parse (syntax), check (names, types, shapes, constants)."""

from argus.frontend.options import Options
from argus.frontend.parse import parse

__all__ = ["Options", "parse"]
