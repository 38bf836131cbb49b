"""Source files and spans: places in the author's text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

_LINE_END = re.compile(r"\r\n|\r|\n")
"""Line endings in Python. Form feeds and other separators, at which `str.splitlines` also splits, do not end a line."""


@lru_cache(maxsize=64)
def _lines(text: str) -> tuple[str, ...]:
    return tuple(_LINE_END.split(text))


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A helper or constant that another text defines as `name`."""

    file: SourceFile
    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """A Python constant: int, float, bool, str, None, dtype or a tuple of these. `text` tells 1, 1.0 and True apart."""

    value: object
    text: str

    @classmethod
    def of(cls, value: object) -> Value:
        """Return the usable value whose constant is `value`."""
        return cls(value, repr(value))


@dataclass(frozen=True, slots=True)
class Unusable:
    """An object that a kernel cannot use, with its description for messages and the remedy."""

    code: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Outer:
    """The meaning of a name from outside a text. `name` is written as in the text: `norm`, or `helpers.norm`.

    `closest`: a function around the kernel binds the name, and this binding hides the file's own meaning.
    """

    name: str
    meaning: Elsewhere | Value | Unusable
    closest: bool = False


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A kernel's text. `first_line` is the line number of `text`'s first line in the file on disk.

    `around` holds the meanings of names that the text takes from elsewhere: from files that it imports, or from the
    Python program around it. It is None until `argus.frontend.linking` has looked for them.
    """

    path: str
    text: str
    first_line: int = 1
    around: tuple[Outer, ...] | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the text and of all text that it takes from elsewhere, without paths."""
        return _digest(self)

    @property
    def lines(self) -> tuple[str, ...]:
        """The text's lines, without line endings."""
        return _lines(self.text)

    def line(self, number: int) -> str:
        """Return the text of line `number` (counted from the file's first line), or "" outside of the text."""
        lines = self.lines
        index = number - self.first_line
        return lines[index] if 0 <= index < len(lines) else ""


@lru_cache(maxsize=256)
def _digest(file: SourceFile) -> str:
    parts = [file.text]
    for outer in file.around or ():
        match outer.meaning:
            case Elsewhere(file=other, name=name):
                parts += [outer.name, str(outer.closest), "file", name, other.digest]
            case Value(text=text):
                parts += [outer.name, str(outer.closest), "value", text]
            case Unusable(code=code, message=message):
                parts += [outer.name, str(outer.closest), code, message]
    return sha256("\0".join(f"{len(part)}\0{part}" for part in parts).encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open region of a source file. Lines and columns count from 1; `end_column` is exclusive.

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
        """True if the place is in a text; False for code that the compiler made."""
        return self.file is not None

    def __str__(self) -> str:
        if self.file is None:
            return "<generated>"
        return f"{self.file.path}:{self.line}:{self.column}"


NO_SPAN = Span()


def span_field() -> Span:
    """Return a dataclass field for a place in the source. It is unknown by default and ignored by comparisons."""
    return field(default=NO_SPAN, compare=False, repr=False)
