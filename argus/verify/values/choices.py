"""Choices by conditions of which sets decide some parts, and data others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from argus.ir.expr import Op
from argus.ir.nodes import SpecOp, SpecTerm
from argus.ir.types import boolean
from argus.verify.model.isl import UnionSet
from argus.verify.values.terms import Cases, Term, chosen, made

Split = Callable[[SpecTerm], tuple[UnionSet, list[Term]]]
"""Returns the instances at which the part of a condition that sets decide holds, and the terms of the other parts."""


@dataclass(frozen=True)
class Condition:
    """A condition over the instances `every`, split by `split` where it is not made by `and`."""

    condition: SpecTerm
    every: UnionSet
    split: Split

    @cached_property
    def made(self) -> tuple[str, tuple[Condition, ...]]:
        """The operator by which the condition is made of others, and these; "" for other conditions."""
        match self.condition:
            case Op(op="and" | "or" | "not" as op, args=args) | SpecOp(op="and" | "or" | "not" as op, args=args) if (
                self.condition.dtype == boolean
            ):
                return op, tuple(replace(self, condition=part) for part in args)
            case _:
                return "", ()

    @cached_property
    def decided(self) -> tuple[UnionSet, list[Term]]:
        """The instances at which the parts of a conjunction that sets decide hold, and the terms of its other parts."""
        op, parts = self.made
        if op != "and":
            return self.split(self.condition)
        (here, some), (there, more) = (part.decided for part in parts)
        return here.intersect(there), some + more

    @cached_property
    def partly_known(self) -> bool:
        """True if sets decide some part."""
        _, parts = self.made
        return any(part.partly_known for part in parts) if parts else not self.decided[1]

    def choice(self, yes: Term, no: Term) -> Term:
        """Return the choice of `yes` where the condition holds, and of `no` elsewhere.

        If sets decide a part of a condition that is made by `or` or `not`, there is a choice for each part.
        """
        inside, tests = self.decided
        if any(map(made, tests)) and self.partly_known:
            match self.made:
                case "and", (a, b):
                    first, second = (b, a) if any(map(made, a.decided[1])) else (a, b)
                    return first.choice(second.choice(yes, no), no)
                case "or", (a, b):
                    return a.choice(yes, b.choice(yes, no))
                case "not", (a,):
                    return a.choice(no, yes)
        outside, term = self.every.subtract(inside), chosen(tests, yes, no)
        return term if outside.is_empty() else Cases(((inside, term), (outside, no)))
