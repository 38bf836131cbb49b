"""Functions in terms: choices by a comparison, names for messages, and the shapes of terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from argus.verify.values.summands import Summand
from argus.verify.values.terms import FLIPPED as FLIPPED
from argus.verify.values.terms import (
    OF_INTEGERS,
    Apply,
    Cases,
    Choice,
    Constant,
    Index,
    Load,
    Parameter,
    Recurrence,
    Reduce,
    Term,
    Via,
    comparison,
)


@dataclass(frozen=True)
class Compared:
    """The choice of `yes` where left > right (or where they are equal, if `strict` is false), and of `no` elsewhere."""

    strict: bool
    left: Term
    right: Term
    yes: Term
    no: Term


def compared(term: Term) -> Compared | None:
    """Return an extremum, an absolute value or a choice by a comparison as a choice by `>` or `>=`."""
    match term:
        case Apply(op="maximum", args=(a, b)):
            return Compared(False, a, b, a, b)
        case Apply(op="minimum", args=(a, b)):
            return Compared(False, a, b, b, a)
        case Apply(op="abs", args=(a,)):
            return Compared(False, a, Constant(0.0), a, Apply("neg", (a,)))
        case Choice(test=test, yes=yes, no=no):
            match comparison(test):
                case ("gt" | "ge" as op, a, b):
                    return Compared(op == "gt", a, b, yes, no)
                case ("lt" | "le" as op, a, b):
                    return Compared(op == "lt", b, a, yes, no)
    return None


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
"""The comparison of integers that holds where another one does not."""


def negated(test: Term) -> Term | None:
    """Return the comparison of integers that holds where this one does not; None for another condition."""
    match test:
        case Via(along=along, term=inner):
            opposite = negated(inner)
            return None if opposite is None else Via(along, opposite)
        case Apply(op=op, args=args) if op.endswith(OF_INTEGERS):
            return Apply(f"{_OPPOSITE[op.removesuffix(OF_INTEGERS)]}{OF_INTEGERS}", args)
        case _:
            return None


class Shapes:
    """The shapes of terms, ignoring arithmetic. Terms of the same shape are compared first."""

    def __init__(self) -> None:
        self._found: dict[Term, int] = {}

    def of_product(self, s: Summand) -> int:
        """Return the shape of a product, which does not depend on the order of its factors."""
        placed = (tuple(sorted(self.of(p.ref.term) for p in each)) for each in (s.factors, s.divisors))
        return hash((*placed, *sorted(self.of(m.ref.term) for m, _ in s.scores if m.ref is not None)))

    def of(self, term: Term) -> int:
        """Return a number that is equal for terms of the same form."""
        if term not in self._found:
            self._found[term] = self._of(term)
        return self._found[term]

    def _of(self, term: Term) -> int:
        match term:
            case Reduce(op=op) | Apply(op=op):
                name = "" if op in _ARITHMETIC else "".join(sorted((op, FLIPPED.get(op, op))))
                return self._together(name, (inner for each in _parts(term) for inner in _operands(each, op)))
            case Choice(test=test, yes=yes, no=no):
                return self._together("where", (test, yes, no))
            case Load(tensor=tensor):
                return hash(tensor)
            case _:
                return self._together("", _parts(term))

    def _together(self, op: str, terms: Iterable[Term]) -> int:
        each = frozenset(self.of(t) for t in terms) - {0}
        return next(iter(each), 0) if not op and len(each) < 2 else hash((op, each))


def _parts(term: Term) -> list[Term]:
    match term:
        case Via(term=inner) | Recurrence(term=inner):
            return [inner]
        case Cases(parts=parts):
            return [inner for _, inner in parts]
        case Reduce(parts=contributions):
            return [inner for _, inner in contributions]
        case Apply(args=args):
            return list(args)
        case _:
            return []


def _operands(term: Term, op: str) -> Iterator[Term]:
    """Return the operands of an operator, including those of nested applications."""
    nested = isinstance(term, (Via, Cases, Recurrence)) or (isinstance(term, (Reduce, Apply)) and term.op == op)
    if not nested:
        yield term
    for inner in _parts(term) if nested else []:
        yield from _operands(inner, op)


_ARITHMETIC = ("add", "sub", "mul", "neg", "truediv")


def described(term: Term) -> str:
    """Return a term as text for a message."""
    match term:
        case Load(tensor=tensor):
            return f"an element of '{tensor}'"
        case Constant(value=value):
            return f"the constant {value}"
        case Index():
            return "an index"
        case Parameter(name=name):
            return f"'{name}'"
        case Apply(op=op):
            return f"'{op}'"
        case Reduce(op=op):
            return f"a reduction by '{op}'"
        case _:
            return "a value without a term"
