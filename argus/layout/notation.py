"""Reading layouts from CuTe notation: `((2,4),8):((1,16),2)` and `Sw<3,4,3> o 0 o (8,64):(64,1)`."""

from __future__ import annotations

import re
from typing import NoReturn

from argus.layout.core import Layout, column_major
from argus.layout.inttuple import IntTuple, LayoutError
from argus.layout.swizzle import Swizzle, SwizzledLayout

_TOKEN = re.compile(r"\s*(?:(?P<int>-?\d+)|(?P<word>[A-Za-z]+)|(?P<mark>\S))")


MAX_LENGTH = 4096
"""Most characters of a notation."""

MAX_DIGITS = 18
"""Most digits of an integer in a notation, its sign included."""

MAX_DEPTH = 32
"""Deepest nesting of a notation's parentheses."""

MAX_SIZE = 2**24
"""Most elements of a layout, and most registers of a register tile, that a notation describes."""


class Scanner:
    """Tokens of one line of notation, with errors that point at the offending column."""

    __slots__ = ("_here", "_next", "_text", "_what")

    def __init__(self, text: str, what: str) -> None:
        if len(text) > MAX_LENGTH:
            raise LayoutError(f"this {what} has {len(text)} characters: a notation has at most {MAX_LENGTH}")
        self._text = text
        self._what = what
        self._here = 0
        self._next = 0
        self._settle()

    def _settle(self) -> None:
        match = _TOKEN.match(self._text, self._here)
        self._here = match.start(match.lastgroup or 0) if match else len(self._text)
        self._next = match.end() if match else len(self._text)

    @property
    def token(self) -> str:
        """The token at the cursor; empty at the end."""
        return self._text[self._here : self._next]

    def fail(self, expected: str) -> NoReturn:
        """Raise `LayoutError` that shows the text with a caret under the cursor."""
        found = f"`{self.token}`" if self.token else "the end"
        raise LayoutError(
            f"cannot read {self._what} at position {self._here}: expected {expected}, found {found}\n"
            f"  {self._text}\n  {' ' * self._here}^"
        )

    def take(self) -> str:
        """Return the token at the cursor and advance the cursor."""
        token = self.token
        self._here = self._next
        self._settle()
        return token

    def accept(self, *tokens: str) -> bool:
        """Move past the token if it is one of `tokens`."""
        if self.token in tokens and self.token:
            self.take()
            return True
        return False

    def expect(self, *tokens: str) -> None:
        """Take one of the tokens, or fail."""
        if not self.accept(*tokens):
            self.fail(" or ".join(f"`{token}`" for token in tokens))

    def integer(self) -> int:
        """Take an integer, or fail."""
        if not re.fullmatch(r"-?\d+", self.token):
            self.fail("an integer")
        if len(self.token) > MAX_DIGITS:
            self.fail(f"an integer of at most {MAX_DIGITS} digits")
        return int(self.take())

    def end(self) -> None:
        """Fail unless the text ends here."""
        if self.token:
            self.fail("the end of the text")


def parse(text: str) -> Layout | SwizzledLayout:
    """Read a layout. `parse(str(L)) == L` for every layout and swizzled layout of the sizes that `notation` names.

        layout  := inttuple [":" inttuple]                     (no stride: compact column-major)
        swizzled:= ("Sw" | "Swizzle" | "S") "<" B "," M "," S ">" ["o" offset] "o" layout

    Raises `LayoutError` with the position and a caret.
    """
    if not isinstance(text, str):
        raise LayoutError(f"cannot read a layout from {type(text).__name__}: pass a string")
    read = _read(Scanner(text, "layout"))
    if read.size() > MAX_SIZE:
        raise LayoutError(f"layout {read} has {read.size()} elements: a notation describes at most {MAX_SIZE}")
    return read


def _read(scan: Scanner) -> Layout | SwizzledLayout:
    if not scan.accept("Sw", "Swizzle", "S"):
        result: Layout | SwizzledLayout = _layout(scan)
        scan.end()
        return result
    scan.expect("<")
    bits = scan.integer()
    scan.expect(",")
    base = scan.integer()
    scan.expect(",")
    shift = scan.integer()
    scan.expect(">")
    swizzle = Swizzle(bits, base, shift)
    scan.expect("o")
    offset, inner = _offset_and_layout(scan)
    scan.end()
    return SwizzledLayout(swizzle, offset, inner)


def _offset_and_layout(scan: Scanner) -> tuple[int, Layout]:
    first = _int_tuple(scan)
    if scan.accept("o"):
        if isinstance(first, tuple):
            scan.fail("an integer offset before `o`")
        return first, _layout(scan)
    return 0, _with_stride(scan, first)


def _layout(scan: Scanner) -> Layout:
    return _with_stride(scan, _int_tuple(scan))


def _with_stride(scan: Scanner, shape: IntTuple) -> Layout:
    if not scan.accept(":"):
        if scan.token:
            scan.fail("`:`")
        return column_major(shape)
    return Layout(shape, _int_tuple(scan))


def _int_tuple(scan: Scanner, depth: int = 0) -> IntTuple:
    if not scan.accept("("):
        return scan.integer()
    if depth == MAX_DEPTH:
        scan.fail(f"at most {MAX_DEPTH} nested parentheses")
    items: list[IntTuple] = []
    while not scan.accept(")"):
        items.append(_int_tuple(scan, depth + 1))
        if not scan.accept(","):
            scan.expect(")")
            break
    return tuple(items)
