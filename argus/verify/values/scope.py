"""Where a walk over a term and a specification stands, and how it ends where they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from argus.ir.nodes import SpecTerm
from argus.verify.model.isl import UnionMap, UnionSet, isl


@dataclass(frozen=True)
class Mismatch(Exception):
    """The terms differ. `roots` are failing root instances if indices differ, None if the forms do."""

    message: str
    roots: UnionSet | None = None


@dataclass(frozen=True)
class Scope:
    """Where matching stands: {root -> instance of the term} and {root -> V[v0, v1, ...]} for the bound variables.

    `origin`: {root -> store instance}, for reporting. `given`: specified conditions on data that hold here.
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
        """Only these roots."""
        return replace(
            self,
            path=self.path.intersect_domain(roots),
            variables=self.variables.intersect_domain(roots),
        )

    def origins(self, roots: UnionSet) -> UnionSet:
        """Where some roots come from."""
        return roots.apply(self.origin)


def append(variables: UnionMap, bound: UnionMap, count: int, more: int = 1) -> UnionMap:
    """{root -> V[v0, ..., k]} from {root -> V[v0, ...]} and {root -> [k]}; of several bound variables all."""
    dims, bounds = ([f"{letter}{i}" for i in range(n)] for letter, n in (("v", count), ("k", more)))
    flatten = isl.UnionMap(f"{{ [V[{', '.join(dims)}] -> [{', '.join(bounds)}]] -> V[{', '.join(dims + bounds)}] }}")
    return variables.range_product(bound).apply_range(flatten)


_Choice = TypeVar("_Choice")
_Result = TypeVar("_Result")
_MOST = 24
"""How many assignments of what is found to what is specified are tried: every order of four."""


def first_that_holds(choices: Iterable[_Choice], attempt: Callable[[_Choice], _Result]) -> _Result:
    """What the first attempt returns that does not raise `Mismatch`; if all do, raises what the first one did."""
    first: Mismatch | None = None
    for choice in islice(choices, _MOST):
        try:
            return attempt(choice)
        except Mismatch as mismatch:
            first = first or mismatch
    raise first or Mismatch("nothing to compare with")
