"""A kernel's text under edit: its surface tree, and replacements for parts of the text.

All edits of one rewrite refer to the same text and are carried out together, so comments and line breaks around them
stay as the author wrote them. The parser of the language reads the text; none of it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from argus.diagnostic import Diagnostic, SourceError
from argus.frontend import parse
from argus.frontend.surface import (
    Assign,
    Attribute,
    Call,
    Expression,
    ForStmt,
    Function,
    IfStmt,
    Keyword,
    Literal,
    Name,
    Statement,
    Target,
    parts,
)
from argus.source import SourceFile, Span

PATH = "kernel.py"


class OverlapError(Exception):
    """Two edits of one rewrite change the same text. The rewrite does not apply."""


@dataclass(slots=True)
class Draft:
    """The text of a file, one kernel in it, and the requested edits: (start, end, new text)."""

    text: str
    function: Function
    language: str
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    starts: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str, name: str) -> Draft:
        """Read kernel `name` of a text. Raises `SourceError`, also if the text has no such kernel."""
        module = parse(SourceFile(PATH, text), name)
        function = module.function(name)
        if function is None:
            help = f"its kernels are {', '.join(module.kernels) or 'none'}"
            raise SourceError(Diagnostic("unknown-kernel", f"there is no kernel `{name}`", property="input", help=help))
        language = next((alias for alias, path in module.aliases if path == "argus.language"), "al")
        lines = text.splitlines(keepends=True)
        return cls(text, function, language, [], tuple(accumulate(map(len, lines), initial=0)))

    # ------------------------------------------------------------------ reading

    def read(self, node: Expression | Statement) -> str:
        """Return the text of a node."""
        start, end = self.place(node.span)
        return self.text[start:end]

    def place(self, span: Span) -> tuple[int, int]:
        """Return the offsets at which a span begins and ends in the text."""
        return self.starts[span.line - 1] + span.column - 1, self.starts[span.end_line - 1] + span.end_column - 1

    def calls(self, *names: str, within: tuple[Statement, ...] | None = None) -> list[Call]:
        """Return the calls of these functions of the language, in the order of the text."""
        found = [c for s in statements(self.function.body if within is None else within) for e in expressions(s)
                 for c in every(e) if isinstance(c, Call)]  # fmt: skip
        return [c for c in found if self.called(c) in names]

    def called(self, expr: Expression) -> str:
        """Return the name of the language function that an expression calls, or "range"; "" for anything else."""
        if not isinstance(expr, Call):
            return ""
        match expr.function:
            case Attribute(value=Name(id=module), name=name) if module == self.language:
                return name
            case Name(id="range"):
                return "range"
            case _:
                return ""

    def loops(self) -> list[ForStmt]:
        """Return the loops that the kernel runs, an outer loop before those inside it."""
        return [s for s in statements(self.function.body)
                if isinstance(s, ForStmt) and self.called(s.iterable) in ("range", "pipelined")]  # fmt: skip

    def constants(self) -> dict[str, int | float | str | bool | None]:
        """Return the default of every parameter whose default is a literal."""
        return {p.name: p.default.value for p in self.function.params if isinstance(p.default, Literal)}

    # ------------------------------------------------------------------ editing

    def replace(self, node: Expression | Statement | Target, new: str) -> None:
        """Replace a node by `new`."""
        self.edits.append((*self.place(node.span), new))

    def before(self, statement: Statement, *lines: str) -> None:
        """Insert lines before a statement, indented like the statement."""
        start, _ = self.place(statement.span)
        indent = " " * (statement.span.column - 1)
        self.edits.append((start, start, "".join(f"{line}\n{indent}" for line in lines)))

    def after(self, statement: Statement, *lines: str) -> None:
        """Insert lines after the last line of a statement, for a loop or branch after its body, indented like it."""
        last = statement
        while isinstance(last, ForStmt | IfStmt):
            last = last.body[-1] if isinstance(last, ForStmt) else (last.orelse or last.then)[-1]
        end = self.starts[last.span.end_line]
        indent = " " * (statement.span.column - 1)
        self.edits.append((end, end, "".join(f"{indent}{line}\n" for line in lines)))

    def remove(self, statement: Statement) -> None:
        """Remove a statement that shares its lines with no other."""
        self.edits.append((self.starts[statement.span.line - 1], self.starts[statement.span.end_line], ""))

    def keyword(self, call: Call, name: str, value: str) -> None:
        """Give a call a keyword argument; replace the value if the call has the argument."""
        given = next((k for k in call.keywords if k.name == name), None)
        if given is not None:
            self.replace(given.value, value)
            return
        _, end = self.place(call.span)
        inside = self.text[: end - 1].rstrip()
        comma = " " if inside.endswith(",") else ", "
        self.edits.append((len(inside), len(inside), f"{comma}{name}={value}"))

    def parameter(self, name: str, value: object) -> None:
        """Give the kernel a constexpr parameter with a default; replace the default if the kernel has the parameter."""
        given = next((p for p in self.function.params if p.name == name), None)
        if given is not None and given.default is not None:
            self.replace(given.default, repr(value))
            return
        last = self.function.params[-1]
        _, end = self.place(last.span)
        indent = " " * (last.span.column - 1) if self._first_on_its_line(last.span) else ""
        between = f",\n{indent}" if indent else ", "
        self.edits.append((end, end, f"{between}{name}: {self.language}.constexpr = {value!r}"))

    def option(self, name: str, value: object) -> None:
        """Give the decorator of the kernel an option; replace the value if the decorator has the option."""
        given = next((k for k in self.function.options if k.name == name), None)
        if given is not None:
            self.replace(given.value, repr(value))
            return
        start, _ = self.place(self.function.span)
        head = self.text.rindex("@", 0, start)
        end = self.text.index("\n", head)
        while self.text[end - 1] in " \r)":
            end -= 1
        opened = "(" in self.text[head:end]
        self.edits.append((end, end, f"{name}={value!r}" if opened else f"({name}={value!r})"))

    def result(self) -> str:
        """Return the text with all edits carried out. Raises OverlapError if two edits change the same text."""
        found, end = [], 0
        for start, stop, new in sorted(self.edits, key=lambda e: e[:2]):
            if start < end:
                raise OverlapError
            found += [self.text[end:start], new]
            end = stop
        return "".join([*found, self.text[end:]])

    def _first_on_its_line(self, span: Span) -> bool:
        return not self.text[self.starts[span.line - 1] :][: span.column - 1].strip()


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Yield all statements of a body; those inside a loop or branch follow its head."""
    for statement in body:
        yield statement
        if isinstance(statement, ForStmt):
            yield from statements(statement.body)
        elif isinstance(statement, IfStmt):
            yield from statements((*statement.then, *statement.orelse))


def expressions(statement: Statement) -> tuple[Expression, ...]:
    """Return the expression of a statement; for a loop or branch, the one in its head."""
    value = getattr(statement, "value", None) or getattr(statement, "iterable", None)
    value = value or getattr(statement, "cond", None)
    return () if value is None else (value,)


def every(expr: Expression) -> Iterator[Expression]:
    """Yield an expression and all expressions in it."""
    yield expr
    for part in parts(expr):
        yield from every(part)


def given(call: Call, name: str) -> Keyword | None:
    """Return a keyword argument of a call, or None."""
    return next((k for k in call.keywords if k.name == name), None)


def bound(statement: Statement) -> str:
    """Return the one name that an assignment binds, or ""."""
    return statement.targets[0].id if isinstance(statement, Assign) and not statement.unpack else ""


def free_name(draft: Draft, wanted: str) -> str:
    """Return `wanted`, with a number appended if the text contains that name."""
    taken, name, number = draft.text, wanted, 2
    while name in taken:
        name, number = f"{wanted}{number}", number + 1
    return name
