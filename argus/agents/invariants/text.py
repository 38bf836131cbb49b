"""Invariants as lines of the author's text. What the text has no words for stays in the explicit kernel alone."""

from __future__ import annotations

from dataclasses import dataclass

from argus import compile
from argus.agents.invariants.candidates import Candidate
from argus.agents.invariants.stripped import stripped
from argus.agents.invariants.synthesis import Invariants, merged, synthesised
from argus.agents.text_scope import names_bound
from argus.diagnostic import ArgusError, Verdict
from argus.frontend import Options
from argus.frontend.surface import Statement
from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId
from argus.ir.nodes import AssertTags, Kernel, Once, Tag, TagCondition, TagEqual, TagField, Tensor
from argus.ir.tags import TagTerm
from argus.ir.text import print_kernel
from argus.ir.visit import numbered, walk
from argus.knowledge.draft import Draft, OverlapError, expressions, statements
from argus.render import Json
from argus.source import SourceFile, Span
from argus.work import LIMIT_S

_LETTERS = "ijklmnop"


class _Wordless(Exception):
    """The author's text has no word for this."""


@dataclass(frozen=True, slots=True)
class Annotated:
    """The invariants of a kernel, and the author's text with those that it has words for; None if there are none."""

    invariants: Invariants
    lines: tuple[str, ...] = ()
    text: str | None = None


def annotated(source: SourceFile, name: str, options: Options, limit_s: float = LIMIT_S) -> Annotated:
    """Return the invariants of a kernel, and its text with them; the text is proved. Raises `ArgusError`."""
    tile = compile.elaborate(source, name, options)
    found = synthesised(tile, options.target, limit_s)
    draft = Draft.of(source.text, name)
    for statement in statements(draft.function.body):
        if any(draft.called(e) in ("tag", "assert_tags") for e in expressions(statement)):
            draft.remove(statement)  # the author's own give way
    words = _Words(draft, numbered(stripped(tile)))
    lines = [line for c in merged(found.kept) if (line := words.line(c, source)) is not None]
    try:
        text = draft.result()
        report = compile.prove(SourceFile(source.path, text), name, options)
    except (ArgusError, OverlapError):
        return Annotated(found)
    return Annotated(found, tuple(lines), text) if lines and report.verdict is Verdict.PROVED else Annotated(found)


class _Words:
    """The words of one kernel's text: its names, and where its statements stand."""

    def __init__(self, draft: Draft, kernel: Kernel) -> None:
        self.draft, self.kernel = draft, kernel
        self.spans = {s.id: s.span for s in walk(kernel.body)}
        self.statements = list(statements(draft.function.body))
        bound = {n for s in self.statements for n in names_bound(s)}
        self.names = bound | {p.name for p in draft.function.params}

    def line(self, candidate: Candidate, source: SourceFile) -> str | None:
        """Write a candidate into the draft. Returns the line; None if the text has no words or no place for it."""
        statement = self._statement(self.spans[candidate.at], source)
        if statement is None:
            return None
        try:
            line = self._stated(candidate.stmt)
        except _Wordless:
            return None
        (self.draft.after if candidate.after else self.draft.before)(statement, line)
        return line

    def _statement(self, span: Span, source: SourceFile) -> Statement | None:
        if span.call is not None or span.file is None or span.file.path != source.path:
            return None
        line = span.line - source.first_line + 1
        found = [s for s in self.statements if s.span.line <= line <= s.span.end_line]
        return found[-1] if found else None

    def _stated(self, stmt: Tag | AssertTags) -> str:
        al = self.draft.language
        if isinstance(stmt, Tag):
            letters = ", ".join(_LETTERS[: len(stmt.shape)])
            fields = ", ".join(f"{n}={self._term(t)}" for n, t in stmt.fields)
            return f"{al}.tag({self._object(stmt.obj)}, lambda {letters}: dict({fields}))"
        letters = ", ".join(stmt.names)
        conditions = " and ".join(self._condition(c) for c in stmt.conditions)
        where = "" if stmt.where is None else f", where=lambda {letters}: {_bare(self._expr(stmt.where))}"
        return f"{al}.assert_tags(lambda {letters}: {conditions}{where})"

    def _condition(self, condition: TagCondition) -> str:
        if not isinstance(condition, TagEqual):
            raise _Wordless
        return f"{self._term(condition.left)} == {self._term(condition.right)}"

    def _term(self, term: TagTerm) -> str:
        match term:
            case TagField(elem=elem, name=name):
                index = ", ".join(self._expr(e) for e in elem.index)
                return f"{self._object(elem.obj)}[{index}].{name}"
            case Once(lo=lo, hi=hi):
                return f"{self.draft.language}.once({_bare(self._expr(lo))}, {_bare(self._expr(hi))})"
            case Const() | Coord() | LoopVar() | Op() | Param() | ProgramId():
                return _bare(self._expr(term))
            case _:
                raise _Wordless

    def _object(self, name: str) -> str:
        stem = name.rpartition("_")[0] if name.rpartition("_")[2].isdecimal() else name
        for word in (name, stem):
            if word in self.names:
                return word
        raise _Wordless

    def _expr(self, expr: Expr) -> str:
        match expr:
            case Const(value=bool() | int() as value):
                return str(value)
            case Coord(axis=axis):
                return _LETTERS[axis]
            case ProgramId(axis=axis):
                return f"{self.draft.language}.program_id({axis})"
            case LoopVar(name=name) if name in self.names:
                return name
            case Param(name=name):
                return name if name in self.names else self._size(name)
            case Op(op="minimum" | "maximum" as name, args=(a, b)):
                return f"{self.draft.language}.{name}({_bare(self._expr(a))}, {_bare(self._expr(b))})"
            case Op(args=(a, b)) if (symbol := OPERATORS[expr.op].symbol) is not None and not isinstance(a, Elem):
                return f"({self._expr(a)} {symbol} {self._expr(b)})"
            case _:
                raise _Wordless

    def _size(self, name: str) -> str:
        for tensor in self.kernel.params:
            if isinstance(tensor, Tensor):
                for dim, extent in enumerate(tensor.shape):
                    if isinstance(extent, Param) and extent.name == name:
                        return f"{tensor.name}.shape[{dim}]"
        raise _Wordless


def _bare(text: str) -> str:
    """Leave out parentheses around all of a text."""
    depth = 0
    for place, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") else text


def annotated_json(name: str, target: str, found: Annotated) -> Json:
    """Return `kernel`, `lines`, `text`, `explicit`, and the numbers of `assertions` kept and candidates `dropped`."""
    explicit = compile.lower(found.invariants.kernel, target)
    return {
        "kernel": name,
        "lines": list(found.lines),
        "text": found.text,
        "explicit": print_kernel(explicit),
        "assertions": len(found.invariants.assertions),
        "dropped": found.invariants.dropped,
    }
