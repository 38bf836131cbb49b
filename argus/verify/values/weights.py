"""Recognise, by their form, terms that are exponentials, sums of exponentials, or quotients by such sums."""

from __future__ import annotations

import math

from argus.verify.values.signs import always_positive, always_real, same_term
from argus.verify.values.summands import Summand
from argus.verify.values.terms import (
    Again,
    Apply,
    Cases,
    Choice,
    Constant,
    Parameter,
    Recurrence,
    Reduce,
    Term,
    Via,
    compared_with,
)


def unless_zero(term: Choice) -> Term | None:
    """Return the sum in `where(sum == 0, number, sum)`, or None for other choices."""
    match compared_with(term.test, 0.0):
        # Sums of weights are not negative.
        case ("eq" | "le", total):
            empty, used = term.yes, term.no
        case ("ne" | "gt", total):
            empty, used = term.no, term.yes
        case _:
            return None
    if not isinstance(empty, Constant) or not empty.value or math.isnan(empty.value) or not same_term(total, used):
        return None
    return used


def weighs(s: Summand) -> bool:
    """Return True if a summand is an exponential, or another positive number, at each of its points."""
    return s.factor > 0 and not (s.scalars or s.factors or s.divisors or s.again or s.level)


def splits(term: Term, positive: frozenset[str]) -> bool:
    """Return True if a term splits into real numbers and exponentials. Whether the exponentials are numbers is checked
    with their levels. `positive`: the launch-time scalars that are known to be positive."""

    def each(*terms: Term) -> bool:
        return all(splits(inner, positive) for inner in terms)

    if always_real(term):
        return True
    match term:
        case Via(term=inner) | Recurrence(term=inner):
            return each(inner)
        case Cases(parts=parts):
            return each(*(inner for _, inner in parts))
        case Reduce(op="add", start=start, parts=parts):
            return each(start, *(inner for _, inner in parts))
        case Apply(op="exp" | "exp2") | Again():
            return True
        case Apply(op="add" | "sub" | "mul" | "neg" | "share", args=args):
            return each(*args)
        case Apply(op="truediv", args=(inner, divisor)):
            used = scalar(divisor, positive) or always_positive(divisor)
            return each(inner) and (used or (guarded(divisor) and each(divisor)))
        case Choice(yes=yes, no=no):
            return each(yes, no)
        case _:
            return False


def guarded(term: Term) -> bool:
    """Return True for a divisor that is replaced by another number where it is 0."""
    match term:
        case Via(term=inner):
            return guarded(inner)
        case Cases(parts=parts):
            return all(guarded(inner) for _, inner in parts)
        case Choice():
            return unless_zero(term) is not None
        case _:
            return False


def scalar(term: Term, positive: frozenset[str]) -> bool:
    """Return True for a product of launch-time scalars and of numbers, none of which is 0."""
    match term:
        case Constant(value=value):
            return bool(value)
        case Parameter(name=name):
            return name in positive
        case Via(term=inner):
            return scalar(inner, positive)
        case Apply(op="mul", args=args):
            return all(scalar(inner, positive) for inner in args)
        case _:
            return False
