"""Facts that the form of a term shows for all real inputs: that it is a real number, positive, or not negative."""

from __future__ import annotations

import math

from argus.verify.values.terms import (
    Again,
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
)

_PARTIAL = ("truediv", "log", "log2", "log1p", "sqrt", "rsqrt", "sortable to float32")
"""Operators whose result is not a real number for some real operands."""

Sites = frozenset[int]
"""Statements whose earlier instances are assumed to be so, for an induction over the instances."""


def always_real(term: Term, carried: Sites = frozenset()) -> bool:
    """Return True if the form of a term shows that it is a real number at all of its instances, for all real inputs.

    `carried`: statements whose earlier instances are assumed to be real numbers, for an induction over the instances.
    """
    match term:
        case Constant(value=value):
            return math.isfinite(value)
        case Parameter() | Load() | Index():
            return True
        case Via(term=inner):
            return always_real(inner, carried)
        case Cases(parts=parts):
            return all(always_real(inner, carried) for _, inner in parts)
        case Choice(yes=yes, no=no):
            return always_real(yes, carried) and always_real(no, carried)
        case Recurrence(site=site, term=inner):
            return always_real(inner, carried | {site})
        case Again(site=site):
            return site in carried
        case Apply(args=args):
            return all(always_real(a, carried) for a in args) and not partial(term)
        case Reduce(start=start, parts=parts):
            return always_real(start, carried) and all(always_real(inner, carried) for _, inner in parts)
        case _:
            return False


def partial(term: Apply) -> bool:
    """Return True if an operator may have no real result, although its operands are real numbers."""
    match term:
        case Apply(op="truediv", args=(_, Constant(value=value))):
            return not value
        case Apply(op="truediv" | "log" | "log2" | "rsqrt", args=(*_, last)):
            return not always_positive(last)
        case Apply(op="sqrt" | "log1p", args=(inner,)):
            return not never_negative(inner)
        case _:
            return term.op in _PARTIAL


def always_positive(term: Term) -> bool:
    """Return True if the form of a term shows that it is a real number and more than 0, for all real inputs."""
    match term:
        case Constant(value=value):
            return 0 < value < math.inf
        case Parameter(positive=positive):
            return positive
        case Via(term=inner):
            return always_positive(inner)
        case Cases(parts=parts):
            return all(always_positive(inner) for _, inner in parts)
        case Choice(yes=yes, no=no):
            return always_positive(yes) and always_positive(no)
        case Apply(op="exp" | "exp2" | "sigmoid", args=(inner,)):
            return always_real(inner)
        case Apply(op="sqrt" | "rsqrt", args=(inner,)):
            return always_positive(inner)
        case Apply(op="mul" | "truediv" | "minimum", args=(a, b)):
            return always_positive(a) and always_positive(b)
        case Apply(op="add", args=(a, b)):
            return any(always_positive(x) and never_negative(y) for x, y in ((a, b), (b, a)))
        case Apply(op="maximum", args=(a, b)):
            return any(always_positive(x) and always_real(y) for x, y in ((a, b), (b, a)))
        case Reduce(op="add", start=start, parts=parts):
            return always_positive(start) and all(never_negative(inner) for _, inner in parts)
        case _:
            return False


def never_negative(term: Term) -> bool:
    """Return True if the form of a term shows that it is a real number and at least 0, for all real inputs."""
    match term:
        case Constant(value=value):
            return 0 <= value < math.inf
        case Via(term=inner):
            return never_negative(inner)
        case Cases(parts=parts):
            return all(never_negative(inner) for _, inner in parts)
        case Choice(yes=yes, no=no):
            return never_negative(yes) and never_negative(no)
        case Apply(op="exp" | "exp2", args=(inner,)):
            return _masked(inner)
        case Apply(op="abs", args=(inner,)):
            return always_real(inner)
        case Apply(op="mul", args=(a, b)) if same_term(a, b):
            return always_real(a)
        case Apply(op="mul" | "add" | "minimum" | "share", args=(a, b)):
            return never_negative(a) and never_negative(b)
        case Apply(op="truediv", args=(a, b)):
            return never_negative(a) and always_positive(b)
        case Apply(op="sqrt", args=(inner,)):
            return never_negative(inner)
        case Apply(op="maximum", args=(a, b)):
            return any(never_negative(x) and always_real(y) for x, y in ((a, b), (b, a)))
        case Reduce(op="add", start=start, parts=parts):
            return never_negative(start) and all(never_negative(inner) for _, inner in parts)
        case _:
            return always_positive(term)


def _masked(term: Term) -> bool:
    """Return True for a real number that choices may replace by -inf."""
    match term:
        case Constant(value=value):
            return value < math.inf
        case Via(term=inner):
            return _masked(inner)
        case Cases(parts=parts):
            return all(_masked(inner) for _, inner in parts)
        case Choice(yes=yes, no=no):
            return _masked(yes) and _masked(no)
        case _:
            return always_real(term)


def same_term(a: Term, b: Term) -> bool:
    """Return True if two terms are built alike from the same statements' instances."""
    match a, b:
        case Via(), Via():
            return bool(a.along.is_equal(b.along)) and same_term(a.term, b.term)
        case Cases(), Cases():
            return len(a.parts) == len(b.parts) and all(
                bool(r.is_equal(s)) and same_term(t, u) for (r, t), (s, u) in zip(a.parts, b.parts, strict=True)
            )
        case Reduce(), Reduce():
            alike = a.op == b.op and len(a.parts) == len(b.parts) and same_term(a.start, b.start)
            return alike and all(
                bool(m.is_equal(n)) and same_term(t, u) for (m, t), (n, u) in zip(a.parts, b.parts, strict=True)
            )
        case Apply(), Apply():
            alike = a.op == b.op and len(a.args) == len(b.args)
            return alike and all(same_term(x, y) for x, y in zip(a.args, b.args, strict=True))
        case Constant(), Constant():
            return a.value == b.value
        case Load(), Load():
            return a.tensor == b.tensor and bool(a.cells.is_equal(b.cells))
        case _:
            return a is b or (isinstance(a, Parameter) and a == b)
