"""The steps from the text of a program to its IR, with chosen alignments and planned memory, and to its verdict."""

from __future__ import annotations

from argus.frontend import Options
from argus.programs.elaborate import elaborate
from argus.programs.ir import Program
from argus.programs.plan import planned
from argus.programs.settle import settled
from argus.source import SourceFile


def lower(source: SourceFile, name: str, options: Options) -> Program:
    """Return program `name` of a file in the form that is proved, with everything written out. Raises `SourceError`."""
    return planned(settled(elaborate(source, name, options)))
