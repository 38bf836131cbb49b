"""Candidates: tags and assertions at places of a kernel, which a proof may confirm or drop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from argus.agents.invariants.carried import ZERO, Carried, Term, changed, coordinates, plain
from argus.ir.expr import Const, Coord, Elem, Expr, conjunction, substitute_coords
from argus.ir.expr import walk as parts_of
from argus.ir.nodes import Access, AssertTags, Kernel, Once, Stmt, Tag, TagEqual, TagField

_LETTERS = "ijklmnop"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tag or an assertion before or after statement `at`. Of those of one `group`, the first that proves is kept."""

    at: int
    after: bool
    stmt: Tag | AssertTags
    group: tuple[object, ...]


@dataclass(slots=True)
class Candidates:
    """The candidates found so far. `writer` is the statement that wrote an object last; nothing is noted unless
    `noting` is true."""

    kernel: Kernel
    writer: Callable[[str], int | None]
    found: dict[tuple[object, ...], Candidate] = field(default_factory=dict)
    noting: bool = True

    def carries(self, stmt: Stmt, after: bool, access: Access, carried: Carried | None) -> None:
        """Note an assertion for each field of what an element carries; of a set, where there are elements."""
        if carried is None or carried.assumed or not self.noting:
            return
        for name, terms in carried.fields.items():
            for term in terms:
                where = carried.inside if isinstance(term, Once) else ()
                made = self._equal(access, name, term, where)
                if made is not None:
                    self.note(stmt.id, after, made, (stmt.id, after, access.obj, name))

    def meet(self, stmt: Stmt, sides: Sequence[tuple[Access, Carried]], shape: tuple[int, ...]) -> None:
        """Note that operands that meet carry the same, in each field that both have."""
        for number, (one, left) in enumerate(sides):
            for other, right in sides[number + 1 :]:
                for name in left.fields:
                    if name in right.fields and one.obj != other.obj and self.noting:
                        axes = sorted(axes_of((*one.index, *other.index)))
                        made = self._assertion(axes, dict(enumerate(shape)), [(one, name), (other, name)], None, ())
                        if made is not None:
                            self.note(stmt.id, False, made, (stmt.id, one.obj, other.obj, name))

    def note(self, at: int, after: bool, stmt: Tag | AssertTags, group: tuple[object, ...]) -> None:
        """Note a candidate, unless the same was noted since its object was written."""
        written = tuple(by for name in objects(stmt) if (by := self.writer(name)) is not None)
        self.found.setdefault((written, stmt), Candidate(at, after, stmt, group))

    def _equal(self, access: Access, name: str, term: Term, where: tuple[Expr, ...]) -> AssertTags | None:
        shape = self.kernel.object(access.obj).shape
        axes = sorted(axes_of(access.index))
        extents = {a: int(shape[d].value) if isinstance(shape[d], Const) else int(shape[d])  # type: ignore[union-attr,arg-type]
                   for d, e in enumerate(access.index) for a in coordinates(e)}  # fmt: skip
        return self._assertion(axes, extents, [(access, name)], term, where)

    def _assertion(self, axes: list[int], extents: dict[int, int], sides: list[tuple[Access, str]],
                   term: Term | None, where: tuple[Expr, ...]) -> AssertTags | None:  # fmt: skip
        """Return an assertion over the coordinates that its elements have, numbered from 0."""
        places: dict[int, Expr] = {axis: Coord(number) for number, axis in enumerate(axes)}

        def renumbered(e: Expr) -> Expr:
            return substitute_coords(e, tuple(places.get(axis, ZERO) for axis in range(max(axes, default=-1) + 1)))

        used = set() if term is None or isinstance(term, Once) else coordinates(term)
        if not used <= set(axes) or len(axes) > len(_LETTERS) or any(loads(c) for c in where):
            return None
        elems = [TagField(Elem(a.obj, tuple(renumbered(e) for e in a.index), self.kernel.object(a.obj).dtype), n)
                 for a, n in sides]  # fmt: skip
        right = elems[1] if term is None else plain(changed(term, renumbered))
        condition = conjunction([renumbered(c) for c in where if coordinates(c) <= set(axes)])
        return AssertTags(tuple(extents[a] for a in axes), tuple(_LETTERS[: len(axes)]),
                          (TagEqual(elems[0], right),), condition)  # fmt: skip


def objects(stmt: Tag | AssertTags) -> tuple[str, ...]:
    """Return the objects that a tag or an assertion is of."""
    return (stmt.obj,) if isinstance(stmt, Tag) else tuple(e.elem.obj for e in _tagged(stmt))


def _tagged(stmt: AssertTags) -> Iterator[TagField]:
    for condition in stmt.conditions:
        if isinstance(condition, TagEqual):
            yield from (side for side in (condition.left, condition.right) if isinstance(side, TagField))


def loads(expr: Expr) -> bool:
    return any(isinstance(e, Elem) for e in parts_of(expr))


def axes_of(places: Iterable[Expr]) -> set[int]:
    """Return the axes whose coordinates occur in expressions."""
    return set().union(*map(coordinates, places))
