"""Logical lines of a Python file: enough tokenising to find, in any text, the functions that Argus reads.

The grammar defines the language. This module only finds where statements begin and end, so that the rest of a file can
be skipped, and so that an error can be assigned to one statement while the others are still read. The only failure is a
text with too many words.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

from argus.diagnostic import Diagnostic, Note, SourceError
from argus.source import SourceFile, Span

MAX_BRACKETS = 50
"""Deepest nesting of brackets in a statement."""

MAX_WORDS = 1_200_000
"""Largest number of tokens in a file."""

MAX_TOKENS = 4000
"""Largest number of tokens in one statement."""

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\f]+|\\[ \t\f]*\n)
  | (?P<newline>\n)
  | (?P<comment>\#[^\n]*)
  | (?P<string>[A-Za-z]{0,2}(?:\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''
        |\"(?!\"\")(?:[^\"\\\n]|\\.)*\"|'(?!'')(?:[^'\\\n]|\\.)*'))
  | (?P<open_string>[A-Za-z]{0,2}(?:\"\"\"(?:.*)|'''(?:.*)|[\"'][^\n]*))
  | (?P<name>[^\W\d]\w*)
  | (?P<number>(?:\d|\.\d)(?:[eE][+-]\d|[\w.])*)
  | (?P<op>\*\*=|//=|<<=|>>=|\.\.\.|:=|->|==|!=|<=|>=|\*\*|//|<<|>>|[-+*/%&|^]=|[-+*/%&|^~<>=.,:;@()\[\]{}])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_STRINGS = ("string", "open_string")
_OVER_LINES = ("newline", "space", *_STRINGS)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_LOOKALIKES = {
    "\u2212": "-", "\u2013": "-", "\u2014": "-", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/",
    "\u2264": "<=", "\u2265": ">=", "\u2260": "!=", "!": "not",
    "\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'",
}  # fmt: skip
"""Characters from word processors, mathematics and other languages, each with Python's spelling."""
_PREFIX = re.compile(r"[A-Za-z]*")
_PREFIXES = {"", "r", "b", "u", "f", "rb", "br", "fr", "rf"}
_RESTART = re.compile(r"(?:def|class|import|from|async)\b|@\w")


class Token(NamedTuple):
    """A word of the text. Lines and columns are those of the file; `kind` is a group of the scanner's pattern."""

    kind: str
    text: str
    line: int
    column: int
    end_line: int
    end_column: int

    def span(self, source: SourceFile) -> Span:
        """Return the span of the token."""
        return Span(source, self.line, self.column, self.end_line, self.end_column)


@dataclass(frozen=True, slots=True)
class Line:
    """The header of a compound statement, or a simple statement. `indent` counts columns; `broken` says what is wrong
    with the line."""

    tokens: tuple[Token, ...]
    indent: int
    broken: Diagnostic | None = None

    @property
    def first(self) -> Token:
        return self.tokens[0]

    @property
    def last(self) -> Token:
        return self.tokens[-1]

    @property
    def opens_block(self) -> bool:
        """True if an indented block must follow this line."""
        return self.last.text == ":"

    def span(self, source: SourceFile) -> Span:
        """Return the span from the first token to the last."""
        return Span(source, self.first.line, self.first.column, self.last.end_line, self.last.end_column)


def scan(source: SourceFile) -> tuple[Line, ...]:
    r"""Return all logical lines of a file, in order. Only `\n` separates lines."""
    return _Scanner(source).lines()


class _Scanner:
    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.found: list[Line] = []
        self.tokens: list[Token] = []
        self.brackets: list[Token] = []
        self.broken: Diagnostic | None = None

    def lines(self) -> tuple[Line, ...]:
        text = self.source.text
        line, start, at = self.source.first_line, 0, 0
        words = 0
        while at < len(text):
            if words > MAX_WORDS:
                raise SourceError(self._too_many_words(line))
            match = _TOKEN.match(text, at)
            assert match is not None and match.lastgroup is not None  # The group `other` matches any character.
            kind, value, column = match.lastgroup, match.group(), at - start + 1
            at = match.end()
            end_line = line + value.count("\n") if kind in _OVER_LINES else line
            end_start = match.start() + value.rindex("\n") + 1 if end_line > line else start
            if kind == "newline":
                if not self.brackets or _RESTART.match(text, at):
                    self._finish()
            elif kind not in ("space", "comment"):
                if kind in _STRINGS:
                    kind, at, value = _split_prefix(kind, value, match.start(), at)
                words += 1
                self._take(Token(kind, value, line, column, end_line, at - end_start + 1))
            line, start = end_line, end_start
        self._finish()
        return tuple(self.found)

    def _too_many_words(self, line: int) -> Diagnostic:
        message = f"`{self.source.path}` has more than {MAX_WORDS} words"
        span = Span(self.source, line, 1, line, 2)
        return Diagnostic("unreadable-file", message, span, property="input", help="split the file")

    def _take(self, token: Token) -> None:
        self.tokens.append(token)
        if token.kind == "open_string":
            self._break("unterminated-string", "this string is never closed", token, "close it with the same quotes")
        elif token.text in _CLOSING and token.kind == "op":
            self.brackets.append(token)
            if len(self.brackets) > MAX_BRACKETS:
                self._break(
                    "nesting-too-deep",
                    f"brackets are nested more than {MAX_BRACKETS} deep",
                    token,
                    "bind parts of the expression to names",
                )
        elif token.kind == "op" and token.text in (")", "]", "}"):
            self._close(token)
        elif token.kind == "other":
            name = unicodedata.name(token.text, "")
            message = f"the character {token.text!r}{f' ({name})' * bool(name)} has no meaning here"
            meant = _LOOKALIKES.get(token.text, unicodedata.normalize("NFKC", token.text))
            remedy = f"write `{meant}`" if meant.isascii() and meant not in ("", token.text) else "remove it"
            self._break("syntax-error", message, token, remedy)

    def _close(self, token: Token) -> None:
        if not self.brackets:
            self._break("unmatched-bracket", f"nothing opened this `{token.text}`", token, "remove it")
            return
        opening = self.brackets.pop()
        if _CLOSING[opening.text] != token.text:
            note = Note(f"`{opening.text}` was opened here", opening.span(self.source))
            message = f"`{token.text}` does not close `{opening.text}`"
            self._break("unmatched-bracket", message, token, f"write `{_CLOSING[opening.text]}`", (note,))

    def _break(self, code: str, message: str, token: Token, remedy: str, notes: tuple[Note, ...] = ()) -> None:
        if self.broken is None:
            self.broken = Diagnostic(code, message, token.span(self.source), help=remedy, notes=notes)

    def _finish(self) -> None:
        if self.brackets:
            opening = self.brackets[-1]
            message, remedy = f"`{opening.text}` is never closed", f"close it with `{_CLOSING[opening.text]}`"
            self._break("unmatched-bracket", message, opening, remedy)
        if len(self.tokens) > MAX_TOKENS:
            self._break(
                "nesting-too-deep",
                f"this statement has more than {MAX_TOKENS} words",
                self.tokens[0],
                "split it into several statements",
            )
        if self.tokens:
            self.found.append(Line(tuple(self.tokens), self.tokens[0].column - 1, self.broken))
        self.tokens, self.brackets, self.broken = [], [], None


def _split_prefix(kind: str, value: str, start: int, end: int) -> tuple[str, int, str]:
    """Return the kind, end and value of a string token. Letters before the quote that are no string prefix become a
    name."""
    letters = _PREFIX.match(value)
    prefix = letters.group() if letters else ""
    if prefix.lower() in _PREFIXES:
        return kind, end, value
    return "name", start + len(prefix), prefix
