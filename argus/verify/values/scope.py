"""The position at which two terms are compared, and the exception that reports a difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from argus.verify.model.isl import UnionMap, UnionSet
from argus.verify.values.terms import Term


@dataclass(frozen=True)
class Mismatch(Exception):
    """Two terms differ. `roots` are the root instances at which indices differ, or None if the forms differ."""

    message: str
    roots: UnionSet | None = None


@dataclass(frozen=True)
class Given:
    """A condition on data that holds, or that does not, at every root. `path`: {root -> instance of its term}. `found`:
    it is one of the kernel's conditions, and not a specified one."""

    test: Term
    path: UnionMap
    holds: bool = True
    found: bool = False


@dataclass(frozen=True)
class Scope:
    """Two terms as seen from roots: `path` is {root -> instance of the kernel's term}, `other` that of the specified
    term.

    `trail` leads from roots to the reported instances, map by map, the last map first. `given` is what is known of
    conditions on data. With `walking`, only terms of the same form are compared.
    """

    path: UnionMap
    other: UnionMap
    trail: tuple[UnionMap, ...] = ()
    given: tuple[Given, ...] = ()
    walking: bool = False

    @property
    def roots(self) -> UnionSet:
        return self.path.domain()

    def restricted(self, roots: UnionSet) -> Scope:
        """Return the scope limited to some roots."""
        given = tuple(replace(g, path=g.path.intersect_domain(roots)) for g in self.given)
        path, other = self.path.intersect_domain(roots), self.other.intersect_domain(roots)
        return replace(self, path=path, other=other, given=given)

    def origins(self, roots: UnionSet) -> UnionSet:
        """Return the store instances that some roots come from."""
        for step in reversed(self.trail):
            roots = roots.apply(step)
        return roots


TOLERANCE = 1e-6
"""Relative difference of constants that rounding to float32 explains."""

_EXACT = 2.0**53
"""Integers below this number are represented exactly, so rounding explains no difference between them."""


def close(a: float, b: float) -> bool:
    """Return True if two constants are equal up to rounding."""
    if a.is_integer() and b.is_integer() and max(abs(a), abs(b)) < _EXACT:
        return a == b
    return math.isclose(a, b, rel_tol=TOLERANCE)


_Choice = TypeVar("_Choice")
_Result = TypeVar("_Result")
MOST = 24
"""Largest number of assignments of found operands to specified ones that are tried: all orders of four."""


def first_that_holds(choices: Iterable[_Choice], attempt: Callable[[_Choice], _Result]) -> _Result:
    """Return the result of the first attempt that raises no `Mismatch`. If all attempts raise, raise the first
    `Mismatch`."""
    first: Mismatch | None = None
    for choice in islice(choices, MOST):
        try:
            return attempt(choice)
        except Mismatch as mismatch:
            first = first or mismatch
    raise first or Mismatch("nothing to compare with")
