"""Where a walk over a term and a specification stands, and how it ends where they differ."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
