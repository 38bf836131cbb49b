"""Integer results that may wrap around in their type: constant bounds of terms, by unbounded arithmetic."""

from __future__ import annotations

from typing import Any

from argus.ir.expr import Const
from argus.ir.interval import WIDE, Interval, operate
from argus.ir.nodes import InRange, Kernel
from argus.ir.types import DTYPES, DType, uint32
from argus.verify.values.terms import (
    MODULO,
    OF_INTEGERS,
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

_CAST = "cast of integers to "
_GROWING = ("add", "sub", "mul", "neg", "abs", "shl", "floordiv")
"""Integer operators whose result may lie outside the range of the operands' type."""
_KEEPING = ("minimum", "maximum", "and", "or", "xor", "mod", "shr")
"""Integer operators whose result always lies in the range of the operands' type."""


class Wrapping:
    """The bounds of a kernel's integer terms. Each term is looked at once, however many other terms contain it."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._found: dict[tuple[str, Term], Any] = {}
        """What is known of each term, by its question."""

    def exact(self, term: Term, dtype: DType) -> Term:
        """Return the term, or `Opaque` if it is an integer result that may have wrapped around in its type.

        A sum in 32 bits or more counts as exact if each of its terms does: the number of terms is not considered.
        """
        if not dtype.is_int or dtype.modular or not self._computed(term):
            return term
        bounded = dtype.bits >= 32 or self.interval(term) is not None
        if bounded and not self._leaves(term, dtype):
            return term
        advice = "state al.requires(al.in_range(...)) or widen it"
        return Opaque(f"a result that may have wrapped around in {dtype}: {advice}")

    def _computed(self, term: Term) -> bool:
        """Return True if a term may be the result of arithmetic."""
        key = "computed", term
        if key not in self._found:
            self._found[key] = self._is_computed(term)
        return bool(self._found[key])

    def _is_computed(self, term: Term) -> bool:
        match term:
            case Constant() | Parameter() | Load() | Index():
                return False
            case Via(term=inner):
                return self._computed(inner)
            case Cases(parts=parts):
                return any(self._computed(inner) for _, inner in parts)
            case Choice(yes=yes, no=no):
                return self._computed(yes) or self._computed(no)
            case Apply(op="minimum" | "maximum", args=args):
                return any(map(self._computed, args))
            case Apply(op=op):
                return not op.startswith("cast of ")
            case _:
                return True

    def _leaves(self, term: Term, dtype: DType) -> bool:
        """Return True if the known bounds of a term, or of a term within it, exceed the range of the type."""
        key = dtype.name, term
        if key not in self._found:
            self._found[key] = self._does_leave(term, dtype)
        return bool(self._found[key])

    def _does_leave(self, term: Term, dtype: DType) -> bool:
        known = self.interval(term)
        if known is not None:
            return not _fits(known, dtype)
        match term:
            case Via(term=inner):
                return self._leaves(inner, dtype)
            case Cases(parts=parts):
                return any(self._leaves(inner, dtype) for _, inner in parts)
            case Choice(yes=yes, no=no):
                return self._leaves(yes, dtype) or self._leaves(no, dtype)
            case Reduce(start=start, parts=parts):
                return any(self._leaves(each, dtype) for each in (start, *(inner for _, inner in parts)))
            case Apply(op=op, args=args) if op in _GROWING:
                return any(self._leaves(each, dtype) for each in args)
            case _:
                return False

    def interval(self, term: Term) -> Interval | None:
        """Return constant bounds of an integer term, by unbounded arithmetic on the bounds of its parts, or None.

        Overflow need not be considered: a result that may wrap around has no term where its full value is used
        (`exact`).
        """
        key = "interval", term
        if key not in self._found:
            self._found[key] = self._bounds(term)
        known: Interval | None = self._found[key]
        return known

    def _bounds(self, term: Term) -> Interval | None:
        match term:
            case Constant(value=value):
                return (int(value), int(value)) if value.is_integer() else None
            case Load(tensor=name):
                return _of_tensor(name, self.kernel)
            case Parameter(bounds=bounds):
                return bounds
            case Via(term=inner):
                return self.interval(inner)
            case Cases(parts=parts):
                return _hull([self.interval(inner) for _, inner in parts])
            case Choice(yes=yes, no=no):
                return _hull([self.interval(yes), self.interval(no)])
            case Reduce(op="maximum" | "minimum", start=start, parts=parts):
                return _hull([self.interval(each) for each in (start, *(inner for _, inner in parts))])
            case Apply(op=op, args=(inner,)) if op.startswith(_CAST):
                dtype, known = DTYPES[op.removeprefix(_CAST)], self.interval(inner)
                return known if known is not None and _fits(known, dtype) else dtype.integers
            case Apply(op=op, args=args) if op.endswith(OF_INTEGERS):
                return 0, 1
            case Apply(op=op) if op.endswith(MODULO) or op == "umulhi":
                return uint32.integers
            case Apply(op=op, args=args):
                if op not in _GROWING and op not in _KEEPING:
                    return None
                ranges = [self.interval(a) for a in args]
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
