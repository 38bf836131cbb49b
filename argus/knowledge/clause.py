"""The conditions of entries: comparisons of facts with values. This is the whole language; no Python is evaluated."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Fact = int | float | str
Facts = Mapping[str, Fact]

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Clause:
    """`fact op value`, with a number as the value; or `fact in word word`, and `fact not in word word`."""

    fact: str
    op: str
    values: tuple[str, ...]

    def holds(self, facts: Facts) -> bool:
        """Return True if the facts satisfy the clause. An unknown fact satisfies no clause."""
        value = facts.get(self.fact)
        if value is None:
            return False
        if self.op in ("in", "not in"):
            return (str(value) in self.values) == (self.op == "in")
        return not isinstance(value, str) and _COMPARE[self.op](value, float(self.values[0]))

    def __str__(self) -> str:
        return f"{self.fact} {self.op} {' '.join(self.values)}"


def clauses(text: str, facts: frozenset[str]) -> tuple[Clause, ...]:
    """Read clauses separated by semicolons. Raises ValueError for an unknown fact and for anything but a comparison."""
    return tuple(_clause(part.strip(), facts) for part in text.split(";") if part.strip())


def _clause(text: str, facts: frozenset[str]) -> Clause:
    fact, *rest = text.split()
    op = " ".join(rest[:2]) if rest[:2] == ["not", "in"] else rest[0] if rest else ""
    values = tuple(rest[len(op.split()) :])
    if fact not in facts:
        raise ValueError(f"`{fact}` is no fact of a kernel: {', '.join(sorted(facts))}")
    if op in ("in", "not in"):
        if values:
            return Clause(fact, op, values)
    elif op in _COMPARE and len(values) == 1:
        float(values[0])
        return Clause(fact, op, values)
    raise ValueError(f"`{text}` is no comparison: write `products >= 1` or `target in sm_80 sm_90a`")
