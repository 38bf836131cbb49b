"""Integer results that may wrap around in their type: constant bounds of terms, by unbounded arithmetic."""

from __future__ import annotations

from argus.ir.expr import Const
from argus.ir.interval import WIDE, Interval, operate
from argus.ir.nodes import InRange, Kernel
from argus.ir.types import DTYPES, DType, uint32
from argus.verify.values.terms import (
    MODULO,
    Apply,
    Cases,
    Choice,
    Constant,
    Index,
    Load,
    Opaque,
    Parameter,
    Reduce,
    Term,
    Via,
)


def _computed(term: Term) -> bool:
    """Return True if a term may be the result of arithmetic."""
    match term:
        case Constant() | Parameter() | Load() | Index():
            return False
        case Via(term=inner):
            return _computed(inner)
        case Cases(parts=parts):
            return any(_computed(inner) for _, inner in parts)
        case Choice(yes=yes, no=no):
            return _computed(yes) or _computed(no)
        case Apply(op="minimum" | "maximum", args=args):
            return any(map(_computed, args))
        case Apply(op=op):
            return not op.startswith("cast of ")
        case _:
            return True


def exact(term: Term, dtype: DType, kernel: Kernel) -> Term:
    """Return the term, or `Opaque` if it is an integer result that may have wrapped around in its type.

    A sum in 32 bits or more counts as exact if each of its terms does: the number of terms is not considered.
    """
    if not dtype.is_int or dtype.modular or not _computed(term):
        return term
    bounded = dtype.bits >= 32 or interval(term, kernel) is not None
    if bounded and not _leaves(term, dtype, kernel):
        return term
    return Opaque(f"a result that may have wrapped around in {dtype}: state al.requires(al.in_range(...)) or widen it")


def _leaves(term: Term, dtype: DType, kernel: Kernel) -> bool:
    """Return True if the known bounds of a term, or of a term within it, exceed the range of the type."""
    known = interval(term, kernel)
    if known is not None:
        return not _fits(known, dtype)
    match term:
        case Via(term=inner):
            return _leaves(inner, dtype, kernel)
        case Cases(parts=parts):
            return any(_leaves(inner, dtype, kernel) for _, inner in parts)
        case Choice(yes=yes, no=no):
            return _leaves(yes, dtype, kernel) or _leaves(no, dtype, kernel)
        case Reduce(start=start, parts=parts):
            return any(_leaves(each, dtype, kernel) for each in (start, *(inner for _, inner in parts)))
        case Apply(op=op, args=args) if op in _GROWING:
            return any(_leaves(each, dtype, kernel) for each in args)
        case _:
            return False


_CAST = "cast of integers to "
_GROWING = ("add", "sub", "mul", "neg", "abs", "shl", "floordiv")
"""Integer operators whose result may lie outside the range of the operands' type."""
_KEEPING = ("minimum", "maximum", "and", "or", "xor", "mod", "shr")
"""Integer operators whose result always lies in the range of the operands' type."""


def interval(term: Term, kernel: Kernel) -> Interval | None:
    """Return constant bounds of an integer term, by unbounded arithmetic on the bounds of its parts; None if unknown.

    Overflow need not be considered: a result that may wrap around has no term where its full value is used (`exact`).
    """
    match term:
        case Constant(value=value):
            return (int(value), int(value)) if value.is_integer() else None
        case Load(tensor=name):
            return _of_tensor(name, kernel)
        case Parameter(bounds=bounds):
            return bounds
        case Via(term=inner):
            return interval(inner, kernel)
        case Cases(parts=parts):
            return _hull([interval(inner, kernel) for _, inner in parts])
        case Choice(yes=yes, no=no):
            return _hull([interval(yes, kernel), interval(no, kernel)])
        case Reduce(op="maximum" | "minimum", start=start, parts=parts):
            return _hull([interval(each, kernel) for each in (start, *(inner for _, inner in parts))])
        case Apply(op=op, args=(inner,)) if op.startswith(_CAST):
            dtype, known = DTYPES[op.removeprefix(_CAST)], interval(inner, kernel)
            return known if known is not None and _fits(known, dtype) else dtype.integers
        case Apply(op=op, args=args) if op.endswith(" of integers"):
            return 0, 1
        case Apply(op=op) if op.endswith(MODULO) or op == "umulhi":
            return uint32.integers
        case Apply(op=op, args=args):
            if op not in _GROWING and op not in _KEEPING:
                return None
            ranges = [interval(a, kernel) for a in args]
            if op == "and":  # One operand that is not negative bounds the result.
                ranges = [each or WIDE for each in ranges]
            complete = [each for each in ranges if each is not None]
            result = operate(op, complete) if len(complete) == len(args) else None
            return None if result == WIDE else result
        case _:
            return None


def _of_tensor(name: str, kernel: Kernel) -> Interval | None:
    dtype = kernel.object(name).dtype
    for fact in kernel.preconditions:
        match fact:
            case InRange(tensor=tensor, lo=Const(value=lo), hi=Const(value=hi)) if tensor == name:
                return int(lo), int(hi) - 1
    return None if dtype.is_float else dtype.integers


def _hull(parts: list[Interval | None]) -> Interval | None:
    known = [part for part in parts if part is not None]
    return (min(a for a, _ in known), max(b for _, b in known)) if known and len(known) == len(parts) else None


def _fits(known: Interval, dtype: DType) -> bool:
    least, most = dtype.integers
    return least <= known[0] and known[1] <= most
