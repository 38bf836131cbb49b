"""Terms: symbolic expressions, over statement instances, of the values that a kernel computes; for specifications.

A term has one value for each instance of an instance space; `Via` is a term's value at another instance. A load is a
relation to tensor cells, a reduction a relation to contributing instances. Casts that at most round are left out.

Terms share parts, and are compared by identity: a table whose keys are terms holds what is known of each of them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from math import isfinite
from typing import Union

from argus.ir.expr import LEAVING, OPERATORS, Const
from argus.ir.interval import Interval
from argus.ir.types import DType, boolean
from argus.verify.model.isl import UnionMap, UnionSet
from argus.verify.model.translator import identifier


@dataclass(frozen=True, eq=False)
class Constant:
    """A number that is the same at every instance."""

    value: float


@dataclass(frozen=True)
class Parameter:
    """A scalar or a size, fixed at launch.

    What the preconditions say of it: `positive`, and for integers `bounds`, the least and the greatest value.
    """

    name: str
    positive: bool = False
    bounds: Interval | None = None


@dataclass(frozen=True, eq=False)
class Load:
    """An element that a tensor held at launch. `cells`: {instance -> cell}."""

    tensor: str
    cells: UnionMap


@dataclass(frozen=True, eq=False)
class Index:
    """An affine expression of an instance's indices. `values`: {instance -> [integer]}."""

    values: UnionMap


@dataclass(frozen=True, eq=False)
class Apply:
    """An operator applied to terms."""

    op: str
    args: tuple[Term, ...]


@dataclass(frozen=True, eq=False)
class Via:
    """The value of `term` at another instance. `along`: {instance -> that instance}, single-valued."""

    along: UnionMap
    term: Term


@dataclass(frozen=True, eq=False)
class Cases:
    """Terms on disjoint parts of the instance space."""

    parts: tuple[tuple[UnionSet, Term], ...]


@dataclass(frozen=True, eq=False)
class Reduce:
    """`op` over the instances that contribute: each part is {instance -> contributing instance} and its term.

    `count`: the number or launch-time scalar that every instance has of these, which their last dimension counts.
    """

    op: str
    start: Term
    parts: tuple[tuple[UnionMap, Term], ...]
    count: Constant | Parameter | None = None


@dataclass(frozen=True, eq=False)
class Choice:
    """The term `yes` where `test`, a condition on data, holds, and the term `no` elsewhere."""

    test: Term
    yes: Term
    no: Term


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The term of statement `site`, which reads the statement's own earlier values as `Again(site)`."""

    site: int
    term: Term


@dataclass(frozen=True)
class Again:
    """The earlier values of statement `site`, where the term of this statement reads them (a recurrence)."""

    site: int


@dataclass(frozen=True, eq=False)
class Opaque:
    """A value that no term describes, with the reason."""

    reason: str


def constant_term(constant: Const) -> Constant | Parameter:
    """Return the term of a number. An integer that no float equals becomes a parameter, named by its digits."""
    value = constant.value
    if constant.dtype.is_float or float(value) == value:
        return Constant(float(value))
    return Parameter(f"the number {int(value)}", value > 0, (int(value), int(value)))


def index_data(tensor: str) -> str:
    """Return the name of an index in the cells that are addressed through the data of a tensor."""
    return f"{DATA}{identifier(tensor)}"


DATA = "data_"
"""Prefix of the names of cells that are addressed through the data of a tensor."""

OF_INTEGERS = " of integers"
"""The suffix of the names of comparisons of integers."""

MODULO = " modulo 2^32"
"""The suffix of the names of uint32 operators whose results may wrap around."""

Term = Union[Constant, Parameter, Load, Index, Apply, Via, Cases, Reduce, Choice, Recurrence, Again, Opaque]


def operation(op: str, operand: DType, dtype: DType) -> str:
    """Return the name that an operator has in terms, given the types of its operand and of its result.

    The name states the types where they change the meaning. Conversions of integers wrap around, and those of floats
    do not. Rounding may change comparisons of floats. `not` of a truth value differs from `not` of an integer.
    """
    match op:
        case _ if dtype.modular and op in LEAVING and op != "cast":
            return f"{op}{MODULO}"
        case "cast":
            return f"cast of {'floats' if operand.is_float else 'integers'} to {dtype}"
        case "sortable":
            return f"sortable to {dtype}"
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge" if not operand.is_float:
            return f"{op}{OF_INTEGERS}"
        case "not" if operand == boolean:
            return "not of truth values"
        case _:
            return op


def applied(op: str, args: tuple[Term, ...]) -> Term:
    """Return an operator applied to terms: a number if it is a function of one, and the function has a finite value."""
    function = OPERATORS[op].function if op in OPERATORS else None
    match args:
        case (Constant(value=value),) if function is not None:
            with suppress(ValueError, ArithmeticError):
                number = float(function(value))
                return Constant(number) if isfinite(number) else Apply(op, args)
    return Apply(op, args)


def chosen(tests: list[Term], yes: Term, no: Term) -> Term:
    """Return the choice of `yes` where all tests hold, and of `no` elsewhere."""
    return Choice(reduce(lambda a, b: Apply("and", (a, b)), tests), yes, no) if tests else yes


def made(test: Term) -> bool:
    """Return True if a condition is made of others."""
    match test:
        case Via(term=inner):
            return made(inner)
        case Apply(op=op):
            return op in ("and", "or", "not of truth values")
        case _:
            return False


def nested(term: Term) -> bool:
    """Return True for a choice between choices, or by a condition that is made of others."""
    return isinstance(term, Choice) and (made(term.test) or _chooses(term.yes) or _chooses(term.no))


def _chooses(term: Term) -> bool:
    match term:
        case Via(term=inner):
            return _chooses(inner)
        case Cases(parts=parts):
            return any(_chooses(inner) for _, inner in parts)
        case _:
            return isinstance(term, Choice)


def starts_at(term: Term, value: float) -> bool:
    """Return True if a term is the number `value` at every instance, by its form."""
    match term:
        case Via(term=inner):
            return starts_at(inner, value)
        case Cases(parts=parts):
            return all(starts_at(inner, value) for _, inner in parts)
        case Constant(value=found):
            return found == value
        case _:
            return False


FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
"""The comparison that replaces each comparison when its sides are exchanged."""


def comparison(test: Term) -> tuple[str, Term, Term] | None:
    """Return the operator and both sides of a comparison of floats, also behind a `Via`; None for another test."""
    match test:
        case Via(along=along, term=inner):
            found = comparison(inner)
            return found and (found[0], Via(along, found[1]), Via(along, found[2]))
        case Apply(op=op, args=(a, b)) if op in FLIPPED:
            return op, a, b
        case _:
            return None


def compared_with(test: Term, value: float) -> tuple[str, Term] | None:
    """Return the operator of a comparison with `value` on its right, and the left side; None for another test."""
    match comparison(test):
        case (op, term, Constant(value=found)) if found == value:
            return op, term
        case (op, Constant(value=found), term) if found == value:
            return FLIPPED[op], term
        case _:
            return None
