"""From text to tile IR: parse (syntax), check (names, types, shapes, constants)."""

from argus.frontend.check import check
from argus.frontend.options import Options
from argus.frontend.parse import parse

__all__ = ["Options", "check", "parse"]
