"""Mutants by random changes of a kernel's text: tokens, arguments and lines, whatever they mean.

The changes know nothing of kernels, nor of what a repair may try: a token becomes another one of its kind, an argument
goes or trades places, a line goes, comes twice or trades places. What states the task is left alone.
"""

from __future__ import annotations

import io
import keyword
import random
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from argus.agents.text_scope import computing
from argus.knowledge.draft import Draft, every, expressions

_OPS = ("+", "-", "*", "/", "//", "%"), ("<", "<=", ">", ">=", "==", "!="), ("&", "|"), ("+=", "-=", "*=", "=")
_FUNCTIONS = ("load", "store", "stage", "sum", "max", "min", "exp", "exp2", "log", "sqrt", "rsqrt", "maximum",
              "minimum", "zeros", "full", "cdiv", "trans", "where", "arange", "abs", "tanh", "sigmoid")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """A changed text, and which of the changes made it."""

    operator: str
    line: int
    text: str


def changes(text: str, name: str, seed: int) -> Iterator[Change]:
    """Yield different random changes of kernel `name`, without end."""
    chance = random.Random(seed)
    draft = Draft.of(text, name)
    lines = sorted({n for s in computing(draft) for n in range(s.span.line, s.span.end_line + 1)})
    seen = {text}
    while True:
        operator = chance.choice(tuple(OPERATORS))
        line = chance.choice(lines)
        new = OPERATORS[operator](draft, line, lines, chance)
        if new is not None and new not in seen:
            seen.add(new)
            yield Change(operator, line, new)


def _tokens(draft: Draft, line: int) -> list[tokenize.TokenInfo]:
    """Return the tokens of a line that can be read by itself, as far as it can."""
    text = draft.text.splitlines(keepends=True)[line - 1]
    found: list[tokenize.TokenInfo] = []
    with suppress(tokenize.TokenError, IndentationError):
        found.extend(tokenize.generate_tokens(io.StringIO(text.lstrip()).readline))
    return found


def _with(draft: Draft, line: int, token: tokenize.TokenInfo, new: str) -> str:
    text = draft.text.splitlines(keepends=True)[line - 1]
    start = draft.starts[line - 1] + len(text) - len(text.lstrip())
    return draft.text[: start + token.start[1]] + new + draft.text[start + token.end[1] :]


def _name(draft: Draft, line: int, lines: list[int], chance: random.Random) -> str | None:
    """A name becomes another name of the kernel."""
    tokens = [t for t in _tokens(draft, line) if t.type == tokenize.NAME and not keyword.iskeyword(t.string)]
    names = sorted({t.string for n in lines for t in _tokens(draft, n)
                    if t.type == tokenize.NAME and not keyword.iskeyword(t.string)})  # fmt: skip
    return _with(draft, line, chance.choice(tokens), chance.choice(names)) if tokens else None


def _number(draft: Draft, line: int, lines: list[int], chance: random.Random) -> str | None:
    """A number becomes another one: of the kernel, one more, one less, twice or half as much."""
    tokens = [t for t in _tokens(draft, line) if t.type == tokenize.NUMBER]
    if not tokens:
        return None
    token = chance.choice(tokens)
    value = float(token.string) if "." in token.string else int(token.string)
    others = [t.string for n in lines for t in _tokens(draft, n) if t.type == tokenize.NUMBER]
    near = [str(value + 1), str(value - 1), str(value * 2), str(value // 2)]
    return _with(draft, line, token, chance.choice([*others, *near]))


def _operator(draft: Draft, line: int, lines: list[int], chance: random.Random) -> str | None:
    """An operator becomes another one that takes as many operands."""
    families = {o: f for f in _OPS for o in f}
    tokens = [t for t in _tokens(draft, line) if t.type == tokenize.OP and t.string in families]
    if not tokens:
        return None
    token = chance.choice(tokens)
    return _with(draft, line, token, chance.choice(families[token.string]))


def _function(draft: Draft, line: int, lines: list[int], chance: random.Random) -> str | None:
    """A function of the language becomes another one."""
    tokens = [t for t in _tokens(draft, line) if t.string in _FUNCTIONS]
    return _with(draft, line, chance.choice(tokens), chance.choice(_FUNCTIONS)) if tokens else None


def _argument(draft: Draft, line: int, lines: list[int], chance: random.Random) -> str | None:
    """An argument of a call goes."""
    calls = [c for c in draft.calls(*_FUNCTIONS, "mma", "pipelined", "range", "grid") if c.span.line == line]
    found = [a for c in calls for a in (*c.args, *c.keywords)]
    if not found:
        return None
    start, end = draft.place(chance.choice(found).span)
    before = draft.text[:start].rstrip()
    start = len(before) - 1 if before.endswith(",") else start
    return draft.text[:start] + draft.text[end:]


def _exchanged(draft: Draft, line: int, lines: list[int], chance: random.Random) -> str | None:
    """Two expressions of a line trade places."""
    found = [e for s in computing(draft) if s.span.line == line for x in expressions(s) for e in every(x)]
    places = sorted(draft.place(e.span) for e in found)
    pairs = [(a, b) for a in places for b in places if a[1] <= b[0]]
    if not pairs:
        return None
    a, b = chance.choice(pairs)
    text = draft.text
    return text[: a[0]] + text[b[0] : b[1]] + text[a[1] : b[0]] + text[a[0] : a[1]] + text[b[1] :]


def _from_elsewhere(draft: Draft, line: int, lines: list[int], chance: random.Random) -> str | None:
    """An expression becomes one of another line."""
    here = [e for s in computing(draft) if s.span.line == line for x in expressions(s) for e in every(x)]
    there = [e for s in computing(draft) if s.span.line != line for x in expressions(s) for e in every(x)]
    if not here or not there:
        return None
    start, end = draft.place(chance.choice(here).span)
    return draft.text[:start] + draft.read(chance.choice(there)) + draft.text[end:]


def _line(draft: Draft, line: int, lines: list[int], chance: random.Random) -> str | None:
    """A line goes, comes twice, or trades places with the next one."""
    text = draft.text.splitlines(keepends=True)
    kind = chance.choice(("gone", "twice", "exchanged"))
    here, following = text[line - 1], text[line] if line < len(text) else ""
    new = {"gone": [], "twice": [here, here], "exchanged": [following, here]}[kind]
    return "".join([*text[: line - 1], *new, *text[line + (kind == "exchanged") :]])


OPERATORS = {
    "a name": _name, "a number": _number, "an operator": _operator, "a function": _function, "an argument": _argument,
    "two expressions": _exchanged, "an expression": _from_elsewhere, "a line": _line,
}  # fmt: skip
"""What a change is of."""
