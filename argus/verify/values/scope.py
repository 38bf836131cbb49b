"""The position of matching a term with a specification (`Scope`), and the exception for a difference (`Mismatch`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from argus.ir.nodes import SpecTerm
from argus.verify.model.isl import UnionMap, UnionSet, isl


@dataclass(frozen=True)
class Mismatch(Exception):
    """The terms differ. `roots`: the failing root instances if indices differ; None if the forms differ."""

    message: str
    roots: UnionSet | None = None


@dataclass(frozen=True)
class Scope:
    """A position of matching. `path`: {root -> instance of the term}. `variables`: {root -> V[v0, v1, ...]}.

    `axes`: the axis of each variable. `origin`: {root -> store instance}. `given`: conditions on data that hold here.
    """

    path: UnionMap
    variables: UnionMap
    axes: tuple[int, ...]
    origin: UnionMap
    given: tuple[SpecTerm, ...] = ()

    @property
    def roots(self) -> UnionSet:
        return self.path.domain()

    def restricted(self, roots: UnionSet) -> Scope:
        """Return the scope limited to some roots."""
        return replace(
            self,
            path=self.path.intersect_domain(roots),
            variables=self.variables.intersect_domain(roots),
        )

    def origins(self, roots: UnionSet) -> UnionSet:
        """Return the store instances that some roots come from."""
        return roots.apply(self.origin)


def append(variables: UnionMap, bound: UnionMap, count: int, more: int = 1) -> UnionMap:
    """Return {root -> V[v0, ..., k]} from {root -> V[v0, ...]} and {root -> [k]}, where k is `more` variables."""
    dims, bounds = ([f"{letter}{i}" for i in range(n)] for letter, n in (("v", count), ("k", more)))
    flatten = isl.UnionMap(f"{{ [V[{', '.join(dims)}] -> [{', '.join(bounds)}]] -> V[{', '.join(dims + bounds)}] }}")
    return variables.range_product(bound).apply_range(flatten)


_Choice = TypeVar("_Choice")
_Result = TypeVar("_Result")
_MOST = 24
"""The most assignments of found terms to specified ones that are tried: enough for all orders of four."""


def first_that_holds(choices: Iterable[_Choice], attempt: Callable[[_Choice], _Result]) -> _Result:
    """Return the result of the first attempt that raises no `Mismatch`; if all raise, raise the first `Mismatch`."""
    first: Mismatch | None = None
    for choice in islice(choices, _MOST):
        try:
            return attempt(choice)
        except Mismatch as mismatch:
            first = first or mismatch
    raise first or Mismatch("nothing to compare with")
