"""A record of every question that a proof asks ISL or Z3, with the answer. Only this module listens to the engines.

ISL is called in about a hundred places. So during a recorded proof, its methods that answer questions are replaced by
methods that also record the question; none can be missed. The record is examined after the proof, so the proof's work
limits count the same steps as without recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from argus.verify.model.isl import Map, Set, UnionMap, UnionSet
from argus.verify.model.solver import Solver, z3

TRUTHS = ("is_empty", "is_subset", "is_equal", "is_disjoint", "is_single_valued", "is_injective", "is_bijective")
"""The methods of ISL that answer yes or no."""
RESULTS = ("lexmin", "lexmax", "subtract", "coalesce", "apply_range", "domain", "range")
"""The methods of ISL that return a set or a relation, and whose results can be checked against a definition."""
_KINDS = (Set, Map, UnionSet, UnionMap)


@dataclass(frozen=True, slots=True)
class OfIsl:
    """A question to ISL: the name of the method, its operands, and the answer, a truth value or a result."""

    name: str
    operands: tuple[Any, ...]
    answer: Any


@dataclass(frozen=True, slots=True)
class OfZ3:
    """A question to Z3, if formulas have a model, and the answer: "sat" with a model, or "unsat"."""

    formulas: tuple[z3.BoolRef, ...]
    answer: str
    model: z3.ModelRef | None


Asked = OfIsl | OfZ3


@contextmanager
def listening() -> Iterator[list[Asked]]:
    """Yield the list of the questions that are asked inside. Proofs run one at a time, so one list is one proof's."""
    heard: list[Asked] = []
    inside = [False]
    replaced: list[tuple[Any, str, Callable[..., Any]]] = [(Solver, "_check", Solver._check)]
    replaced += [(k, name, getattr(k, name)) for k in _KINDS for name in (*TRUTHS, *RESULTS) if hasattr(k, name)]
    for kind, name, method in replaced:
        setattr(kind, name, _heard_z3(method, heard) if kind is Solver else _heard(name, method, heard, inside))
    try:
        yield heard
    finally:
        for kind, name, method in replaced:
            setattr(kind, name, method)


def _heard(name: str, method: Callable[..., Any], heard: list[Asked], inside: list[bool]) -> Callable[..., Any]:
    """Wrap a method of ISL so that it records its answers, except when another recorded method calls it."""

    @wraps(method)
    def asked(*operands: Any) -> Any:
        if inside[0]:
            return method(*operands)
        inside[0] = True
        try:
            answer = method(*operands)
        finally:
            inside[0] = False
        heard.append(OfIsl(name, operands, answer))
        return answer

    return asked


def _heard_z3(
    check: Callable[[Solver, int], z3.CheckSatResult], heard: list[Asked]
) -> Callable[[Solver, int], z3.CheckSatResult]:
    @wraps(check)
    def asked(self: Solver, limit: int) -> z3.CheckSatResult:
        outcome = check(self, limit)
        if outcome in (z3.sat, z3.unsat):
            model = self.solver.model() if outcome == z3.sat else None
            heard.append(OfZ3(tuple(self.solver.assertions()), str(outcome), model))
        return outcome

    return asked
