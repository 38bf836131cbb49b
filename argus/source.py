"""Source files and spans: where in the author's text something stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

_LINE_END = re.compile(r"\r\n|\r|\n")
"""What ends a line in Python: not the form feeds and separators of which `str.splitlines` makes lines, too."""


@lru_cache(maxsize=64)
def _lines(text: str) -> tuple[str, ...]:
    return tuple(_LINE_END.split(text))


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A kernel's text. `first_line` is the line number of `text`'s first line in the file on disk."""

    path: str
    text: str
    first_line: int = 1

    @property
    def lines(self) -> tuple[str, ...]:
        """The text's lines, without what ends them."""
        return _lines(self.text)

    def line(self, number: int) -> str:
        """The text of line `number` (as counted in the file), or "" outside of it."""
        lines = self.lines
        index = number - self.first_line
        return lines[index] if 0 <= index < len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open region of a source file. Lines count from 1, columns from 1; `end_column` is exclusive.

    `call` is the span of the call through which an inlined `@argus.func` body was reached.
    """

    file: SourceFile | None = field(default=None, repr=False)
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    call: Span | None = None

    @property
    def known(self) -> bool:
        """False for what no author wrote."""
        return self.file is not None

    def __str__(self) -> str:
        if self.file is None:
            return "<generated>"
        return f"{self.file.path}:{self.line}:{self.column}"


NO_SPAN = Span()


def span_field() -> Span:
    """A dataclass field for where something stands: unknown unless given, and no part of what is equal."""
    return field(default=NO_SPAN, compare=False, repr=False)
