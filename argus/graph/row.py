"""The rows of the operator table: the kind of an operator, its meaning, and the reason if it is not taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from argus.graph.terms import (
    ZERO,
    Apply,
    Element,
    Extent,
    Flat,
    Index,
    Number,
    Term,
    Var,
    cast,
    dtype_of,
    is_float,
    product,
    wide,
)

POINTWISE, VIEW, REDUCTION, PRODUCT = "pointwise", "view", "reduction", "product"
WINDOW, INDEXED, SCATTER, OTHER = "window", "indexed", "scatter", "other"
"""Kinds of operators. The results of `SCATTER` are sums at places that an index tensor holds.
For `OTHER`, the meaning is known, but the generator leaves the operator to PyTorch."""


@dataclass(frozen=True)
class Operand:
    """A tensor argument. `split` lists, for each dimension, the sizes into which its index may be cut, most significant
    first."""

    shape: tuple[Extent, ...]
    dtype: str
    at: Element
    split: Callable[[int], tuple[Extent, ...]]


@dataclass(frozen=True)
class Result:
    """The shape and dtype of a result."""

    shape: tuple[Extent, ...]
    dtype: str


@dataclass
class Site:
    """One use of an operator: its results, and the source of new variables."""

    results: tuple[Result, ...]
    names: Any = field(default_factory=count)

    @property
    def result(self) -> Result:
        return self.results[0]

    def fresh(self, operand: Operand, dim: int) -> Flat:
        """Return a new index over a dimension of an operand."""
        return self.over(operand.split(dim))

    def over(self, sizes: Sequence[Extent]) -> Flat:
        """Return a new index with digits of these sizes."""
        return Flat(tuple(Var(f"r{next(self.names)}", size) for size in sizes))


Meaning = Callable[..., Any]
"""`meaning(site, *arguments)` takes arguments in the order of the operator's schema, with tensors as `Operand`. It
returns the element of the result as a function of its index, or a tuple of such functions."""


@dataclass(frozen=True)
class Row:
    """An operator of the table. `left` is the reason why the generator does not take it, if there is one.

    `places`: its results are indices of elements. They neither wrap around nor lose digits. Elements are compared as
    they are in memory, because rounding would decide between computed ones.
    """

    kind: str
    meaning: Meaning
    left: str = ""
    places: bool = False


class NotExpressible(Exception):
    """The table has no meaning for an operator's arguments. The text gives the reason."""


# ---------------------------------------------------------------------------- arithmetic of terms


def apply(op: str, *args: Term) -> Term:
    """Apply an elementwise operator to terms of one dtype."""
    if op in COMPARISONS:
        return Apply(op, args, "bool")
    return Apply(op, args, dtype_of(args[-1]))


COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def constant(value: float | int | bool, like: Term) -> Number:
    """Return a number as a constant of the dtype of `like`."""
    return Number(float(value) if is_float(dtype_of(like)) else value, dtype_of(like))


def add(a: Term, b: Term) -> Term:
    return apply("add", a, b)


def sub(a: Term, b: Term) -> Term:
    return apply("sub", a, b)


def mul(a: Term, b: Term) -> Term:
    """Return a product. Factors of one are left out."""
    if isinstance(b, Number) and b.value == 1:
        return a
    return b if isinstance(a, Number) and a.value == 1 else apply("mul", a, b)


def div(a: Term, b: Term) -> Term:
    return apply("div", a, b)


def square(a: Term) -> Term:
    return mul(a, a)


def shifted(a: Term, value: float) -> Term:
    """Return `a` plus a number."""
    return add(a, constant(value, a))


def scaled(a: Term, value: float) -> Term:
    """Return `a` times a number."""
    return mul(a, constant(value, a))


# ---------------------------------------------------------------------------- indices


def integer(value: int) -> Number:
    return Number(value, "int64")


def broadcast(operand: Operand, index: Index) -> Term:
    """Return the operand's element for `index` of a result to whose shape the operand is broadcast."""
    own = index[len(index) - len(operand.shape) :]
    return operand.at(tuple(ZERO if size == 1 else i for size, i in zip(operand.shape, own, strict=True)))


def real(operand: Operand, index: Index) -> Term:
    """Return the element that `broadcast` returns, in the dtype in which operators compute."""
    return cast(broadcast(operand, index), wide(operand.dtype))


def real_at(operand: Operand, index: Index) -> Term:
    """Return the operand's element at an index of its own, in the dtype in which operators compute."""
    return cast(operand.at(index), wide(operand.dtype))


def reshaped(index: Index, shape: tuple[Extent, ...], into: tuple[Extent, ...]) -> Index:
    """Convert `index` into a tensor of `shape` to the index of the same element in a reshaped tensor of shape `into`.

    Digits are regrouped. If a size cuts through a digit, the index becomes quotients and remainders.
    """
    regrouped = _regrouped(index, into)
    if regrouped is not None:
        return regrouped
    flat: Term = integer(0)
    for i, size in zip(index, shape, strict=True):
        flat = add(mul(flat, integer(size)), i)
    result = []
    for d, size in enumerate(into):
        behind = integer(product(into[d + 1 :]))
        result.append(apply("mod", apply("floordiv", flat, behind), integer(size)))
    return tuple(result)


def _regrouped(index: Index, into: tuple[Extent, ...]) -> Index | None:
    if not all(isinstance(i, Flat) for i in index):
        return None
    digits = [v for i in index if isinstance(i, Flat) for v in i.digits]
    groups: list[Term] = []
    for size in reversed(into):
        taken: list[Var] = []
        while product([v.size for v in taken]) != size:
            if not digits or size == 1:
                return None
            taken.insert(0, digits.pop())
        groups.insert(0, Flat(tuple(taken)))
    return tuple(groups) if not digits else None


def normal(dim: int, rank: int) -> int:
    """Return a dimension counted from the front. The argument may count from the end."""
    return dim % rank if rank else 0
