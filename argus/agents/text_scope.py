"""An edit of the author's text, and the names of a kernel by what they are for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from argus.frontend.surface import (
    Assign,
    AugAssign,
    Expression,
    ForStmt,
    Literal,
    Name,
    Slice,
    Statement,
    Subscript,
    parts,
)
from argus.knowledge.draft import Draft, every, expressions, statements

_STATING = ("spec", "tag", "assert_tags", "requires", "assume", "covers", "invariant", "device_print", "device_assert")


class Sort(Enum):
    """The kind of thing that an edit changes; the value is its name for people."""

    FIX = "a fix of the finding"
    DERIVED = "what the rest of the kernel says"
    SPECIFIED = "what the specification says"
    DEAD = "use what is computed and not used"
    CHECK = "checks and masks"
    NAME = "another name"
    NUMBER = "another number"
    OPERATOR = "another operator"
    FUNCTION = "another function"
    OPTION = "another option"
    TERM = "without a term or factor"
    EXCHANGE = "exchange two operands"
    ORDER = "order of statements"
    PLACE = "the place of a tile"
    MISSING = "what is missing"
    OTHER = "a name of another sort"


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replacements (start, end, new) in the text, the line of the statement that changes, and the change's sort."""

    title: str
    sort: Sort
    line: int
    changes: tuple[tuple[int, int, str], ...]

    def apply(self, text: str) -> str:
        """Return the text with all replacements made."""
        for start, end, new in sorted(self.changes, reverse=True):
            text = text[:start] + new + text[end:]
        return text


def computing(draft: Draft) -> list[Statement]:
    """Return the statements that compute something, without those that state something."""
    return [s for s in statements(draft.function.body)
            if not any(draft.called(e) in _STATING for e in expressions(s)) and not _prose(s)]  # fmt: skip


def _prose(statement: Statement) -> bool:
    return any(isinstance(e, Literal) for e in expressions(statement)) and not isinstance(statement, Assign | AugAssign)


@dataclass(frozen=True, slots=True)
class Scope:
    """Names of a kernel by sort: tensors, what is constant in a launch, and what statements bind; and its numbers.

    `dead`: bound and never read. `ids`: numbers of the program along the grid. `places`: names that index tensors.
    `sizes` and `extents`: of tensors, and of tiles.
    """

    tensors: tuple[str, ...]
    fixed: tuple[str, ...]
    local: tuple[str, ...]
    dead: tuple[str, ...]
    numbers: tuple[str, ...]
    ids: tuple[str, ...]
    places: tuple[str, ...]
    sizes: tuple[str, ...]
    extents: tuple[str, ...]

    @classmethod
    def of(cls, draft: Draft) -> Scope:
        """Return the names of a kernel."""
        tensors = [p.name for p in draft.function.params if "Tensor" in draft.text[slice(*draft.place(p.span))]]
        fixed = [p.name for p in draft.function.params if p.name not in tensors]
        local: dict[str, None] = {}
        read: set[str] = set()
        numbers: dict[str, None] = {"0": None, "1": None}
        for statement in computing(draft):
            for expr in expressions(statement):
                for part in every(expr):
                    if isinstance(part, Name):
                        read.add(part.id)
                    elif isinstance(part, Literal) and isinstance(part.value, int | float):
                        numbers[draft.read(part)] = None
            for target in names_bound(statement):
                local[target] = None
        others = {n for n in read if n.isupper()} - set(fixed) - set(local)
        uppercase = [n for n in local if n.isupper()]
        dead = [n for n in local if n not in read]
        places = [n for n in local if n not in uppercase]
        indexing = [part.id for s in computing(draft) for e in expressions(s) for x in every(e)
                    if isinstance(x, Subscript) and isinstance(x.value, Name) and x.value.id in tensors
                    for item in x.items for e in _of(item) for part in every(e) if isinstance(part, Name)]  # fmt: skip
        ids = [n for s in computing(draft) if isinstance(s, Assign) for n in names_bound(s)
               if any(draft.called(x) in ("grid", "program_id") for x in every(s.value))]  # fmt: skip
        extents = [p.name for p in draft.function.params if "constexpr" in draft.text[slice(*draft.place(p.span))]]
        return cls(tuple(tensors), (*fixed, *uppercase, *sorted(others)), tuple(places), tuple(dead), tuple(numbers),
                   tuple(ids), tuple(n for n in dict.fromkeys(indexing) if n in local), tuple(uppercase),
                   tuple(extents))  # fmt: skip

    def like(self, name: str) -> tuple[str, ...]:
        """Return the other names of the same sort, those that nothing reads first."""
        for names in (self.tensors, self.fixed, self.local):
            if name in names:
                return tuple(sorted((n for n in names if n != name), key=lambda n: n not in self.dead))
        return ()


def _of(item: Expression | Slice) -> tuple[Expression, ...]:
    """Return the expressions in one index of a subscript: up to three of a slice."""
    parts_ = (item.lower, item.upper, item.step) if isinstance(item, Slice) else (item,)
    return tuple(e for e in parts_ if e is not None)


def names_bound(statement: Statement) -> list[str]:
    """Return the names that an assignment or a loop binds."""
    match statement:
        case Assign(targets=targets):
            return [t.id for t in targets]
        case ForStmt(target=target):
            return [target.id]
        case _:
            return []


def used(expr: Expression) -> Iterator[str]:
    """Yield the names in an expression."""
    if isinstance(expr, Name):
        yield expr.id
    for part in parts(expr):
        yield from used(part)
