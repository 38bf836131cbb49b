"""Where a comparison of two terms stands, and how it ends where they differ."""

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
    """The terms differ. `roots`: the failing root instances if indices differ; None if the forms differ."""

    message: str
    roots: UnionSet | None = None


@dataclass(frozen=True)
class Scope:
    """Two terms seen from roots: `path` is {root -> instance of the kernel's}, `other` that of the specified one.

    `trail` leads from roots to what is reported, map by map from the last one on. `given`: specified conditions on data
    that hold here, seen from roots. `walking`: only terms that are spelled alike are looked for.
    """

    path: UnionMap
    other: UnionMap
    trail: tuple[UnionMap, ...] = ()
    given: tuple[tuple[Term, UnionMap], ...] = ()
    walking: bool = False

    @property
    def roots(self) -> UnionSet:
        return self.path.domain()

    def restricted(self, roots: UnionSet) -> Scope:
        """Return the scope limited to some roots."""
        given = tuple((term, path.intersect_domain(roots)) for term, path in self.given)
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
"""Integers below this are what they are: no rounding explains a difference."""


def close(a: float, b: float) -> bool:
    """Whether two constants are the same, rounding aside."""
    if a.is_integer() and b.is_integer() and max(abs(a), abs(b)) < _EXACT:
        return a == b
    return math.isclose(a, b, rel_tol=TOLERANCE)


_Choice = TypeVar("_Choice")
_Result = TypeVar("_Result")
MOST = 24
"""How many assignments of what is found to what is specified are tried: every order of four."""


def first_that_holds(choices: Iterable[_Choice], attempt: Callable[[_Choice], _Result]) -> _Result:
    """Return the result of the first attempt that raises no `Mismatch`; if all raise, raise the first `Mismatch`."""
    first: Mismatch | None = None
    for choice in islice(choices, MOST):
        try:
            return attempt(choice)
        except Mismatch as mismatch:
            first = first or mismatch
    raise first or Mismatch("nothing to compare with")
