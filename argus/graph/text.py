"""Print terms as text of the language, for specifications and for kernels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import isinf, isnan

from argus.graph.terms import Apply, Number, Term, dtype_of, is_float

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "and": "&", "or": "|", "floordiv": "//", "mod": "%",
}  # fmt: skip


def dtype(name: str) -> str:
    """Return the language's name of a dtype."""
    return "al.boolean" if name == "bool" else f"al.{name}"


def literal(value: float | int | bool) -> str:
    """Return a number as text of the language."""
    if isinstance(value, float) and isnan(value):
        return 'float("nan")'
    if isinstance(value, float) and isinf(value):
        return 'float("inf")' if value > 0 else '-float("inf")'
    return repr(value)


def printed(term: Term, leaf: Callable[[Term], str | None]) -> str:
    """Return a term as an expression of the language. `leaf` returns the text of terms that the caller prints itself,
    and None for others."""
    found = leaf(term)
    if found is not None:
        return found
    match term:
        case Number(value=value):
            return f"({literal(value)})" if isinstance(value, (int, float)) and value < 0 else literal(value)
        case Apply(op="cast", args=(Number() as number,), dtype=name):
            return f"{printed(number, leaf)}.to({dtype(name)})"
        case Apply(op="cast", args=(arg,), dtype=name):
            if is_float(name) and is_float(dtype_of(arg)) and name == "float32" and isinstance(arg, Number):
                return printed(arg, leaf)
            return f"{printed(arg, leaf)}.to({dtype(name)})"
        case Apply(op=op, args=(a, b)) if op in _INFIX:
            return f"({printed(a, leaf)} {_INFIX[op]} {printed(b, leaf)})"
        case Apply(op="sortable", args=(a,), dtype=name):
            return f"al.sortable({bare(printed(a, leaf))}, {dtype(name)})"
        case Apply(op="neg", args=(a,)):
            return f"(-{printed(a, leaf)})"
        case Apply(op="not", args=(a,)):
            return f"(~{printed(a, leaf)})"
        case Apply(op=op, args=args):
            return f"al.{op}({', '.join(bare(printed(a, leaf)) for a in args)})"
        case _:
            raise AssertionError(f"{type(term).__name__} is no expression by itself")


def bare(text: str) -> str:
    """Return the text without brackets that enclose all of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if place == len(text) - 1 else text
    return text


class Lines:
    """The indented statements of a kernel's body."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names = count()

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def bind(self, text: str) -> str:
        """Bind an expression to a new name. A name stays as it is."""
        if text.isidentifier():
            return text
        name = f"v{next(self.names)}"
        self.add(f"{name} = {bare(text)}")
        return name
