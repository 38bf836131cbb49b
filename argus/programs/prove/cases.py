"""Equality of specified terms by cases: a condition on places and sizes holds or does not, and each case is compared.

A tensor that several launches wrote in parts is such a choice (specs.py), and so is `where` in a specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from argus.diagnostic import Verdict
from argus.ir.expr import Const, Coord, Elem, Expr, Op, Param, op, rewrite, walk
from argus.ir.nodes import SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.spec_terms import mapped, recognised, renumbered, strip
from argus.ir.types import boolean
from argus.programs.prove.facts import Facts
from argus.programs.prove.normal import normal, text

MOST_CASES = 64
"""Cases that are compared before the answer is unknown."""


class Cases:
    """Compares terms over the coordinates of `output`, whose elements are within `shape`."""

    def __init__(self, facts: Facts, output: str, shape: Sequence[Expr]) -> None:
        self.facts, self.output, self.left = facts, output, MOST_CASES
        self.places: list[Expr] = []
        self.names: dict[int, str] = {}
        self.sizes: dict[str, int] | None = None  # at which a case was not found equal, if one was
        self.given = [fact for extent in shape for fact in self._axis(extent)]

    def _axis(self, extent: Expr) -> tuple[Expr, ...]:
        """Add an axis to those that both terms depend on; the result says that its places are below `extent`."""
        axis = len(self.places)
        place = Param(f"{self.output}[{axis}]")
        self.places.append(place)
        self.names[axis] = f"c{axis}"
        return op("ge", place, Const(0)), op("lt", place, extent)

    def equal(self, found: SpecTerm, wanted: SpecTerm, given: Sequence[Expr] = ()) -> bool:
        """Return True if two terms are equal at every place at which the conditions `given` hold. Raises `TooLarge`."""
        if self._alike(found, wanted):
            return True
        cond = next((c for term in (found, wanted) for c in conditions(term) if self._decidable(c)), None)
        if cond is None or self.left <= 0:
            known = self._known_places(given)
            if known and self._alike(*(mapped(term, lambda e: rewrite(e, known.get)) for term in (found, wanted))):
                return True
            if self._parts_equal(strip(found), strip(wanted), given):
                return True
            self.sizes = self.facts.sizes(self.facts.impossible([*self.given, *given]))
            return False
        self.left -= 1
        placed = self._at_places(cond)
        for holds, fact in ((True, placed), (False, Op("not", (placed,), boolean))):
            facts = [*given, fact]
            if self.facts.impossible([*self.given, *facts]).verdict is Verdict.PROVED:
                continue
            if not self.equal(_settled(found, cond, holds), _settled(wanted, cond, holds), facts):
                return False
        return True

    def _parts_equal(self, found: SpecTerm, wanted: SpecTerm, given: Sequence[Expr]) -> bool:
        """Return True if two terms are the same operation or reduction of equal parts."""
        match found, wanted:
            case SpecReduce(), SpecReduce() if found.op == wanted.op and self._alike(found.extent, wanted.extent):
                axes = {axis: axis for axis in self.names}
                inside = self._axis(self._at_places(found.extent))
                one, two = (renumbered(r.body, {**axes, r.axis: len(axes)}) for r in (found, wanted))
                return self.equal(one, two, [*given, *inside])
            case ((SpecOp() | Op()), (SpecOp() | Op())) if found.op == wanted.op and len(found.args) == len(
                wanted.args
            ):
                return all(self.equal(a, b, given) for a, b in zip(found.args, wanted.args, strict=True))
            case _:
                return False

    def _known_places(self, given: Sequence[Expr]) -> dict[Expr, Expr]:
        """Find coordinates that have one value where `given` holds: the bound of a comparison in `given`."""
        found: dict[Expr, Expr] = {}
        for part in (e for fact in (*self.given, *given) for e in walk(fact)):
            match part:
                case Op(op="ge" | "le" | "eq", args=(place, bound)) if place in self.places and self._outside(bound):
                    same = op("eq", place, bound)
                    if self.facts.ask(same, [*self.given, *given]).verdict is Verdict.PROVED:
                        found[Coord(self.places.index(place))] = bound
                case _:
                    pass
        return found

    def _at_places(self, expr: Expr) -> Expr:
        return rewrite(expr, lambda e: self.places[e.axis] if isinstance(e, Coord) else None)

    def _outside(self, expr: Expr) -> bool:
        return not any(e in self.places for e in walk(expr))

    def _alike(self, *terms: SpecTerm) -> bool:
        plain, joined = ([text(normal(t, self.names)) for t in form] for form in (terms, map(recognised, terms)))
        return plain[0] == plain[1] or joined[0] == joined[1]

    def _decidable(self, cond: Expr) -> bool:
        """Return True if a condition is one on this element's place and on sizes, and on nothing that is loaded."""
        parts = list(walk(cond))
        bound = any(isinstance(e, Coord) and e.axis not in self.names for e in parts)
        return not bound and all(isinstance(e, (Coord, Const, Param, Op)) and not e.dtype.is_float for e in parts)


def conditions(term: SpecTerm) -> Iterator[Expr]:
    """Find the conditions of all choices in a term, outermost first."""
    match term:
        case SpecReduce(body=body):
            yield from conditions(body)
        case SpecSoftmax(at=at, score=score):
            yield from conditions(at)
            yield from conditions(score)
        case Op(op=name, args=args) | SpecOp(op=name, args=args):
            first = args[0]
            if name == "where" and not isinstance(first, (SpecReduce, SpecSoftmax, SpecOp)):
                yield first
            for arg in args:
                yield from conditions(arg)
        case Elem(index=index):
            for place in index:
                yield from conditions(place)
        case _:
            pass


def _settled(term: SpecTerm, cond: Expr, holds: bool) -> SpecTerm:
    """Return a term in which every choice by `cond` is made."""

    def made(expr: Expr) -> Expr | None:
        match expr:
            case Op(op="where", args=(first, then, orelse)) if first == cond:
                return then if holds else orelse
            case _:
                return None

    match term:
        case SpecOp(op="where", args=(first, then, orelse)) if first == cond:
            return _settled(then if holds else orelse, cond, holds)
        case SpecReduce(body=body):
            return replace(term, body=_settled(body, cond, holds))
        case SpecSoftmax(at=at, score=score):
            return replace(term, at=rewrite(at, made), score=_settled(score, cond, holds))
        case SpecOp(args=args):
            return replace(term, args=tuple(_settled(a, cond, holds) for a in args))
        case _:
            expr: Expr = term
            return rewrite(expr, made)
