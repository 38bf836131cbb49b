"""Index expressions. The meaning of an operator is the value of one element of its result, as a term over its operands.

    mm           Reduce("sum", (k,), Load(a, (m, k)) * Load(b, (k, n)))
    permute      Load(x, (j, i))
    layer norm   (x[i, j] - mean(i)) * rsqrt(variance(i) + eps) * weight[j] + bias[j]

Terms are values without behaviour. `argus.graph.operators` makes them, `argus.graph.specification` prints them as
`al.spec`, and the tests compare their values with PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union

Extent = Any
"""A size: a Python integer, or a SymPy expression of symbolic sizes."""


@dataclass(frozen=True, slots=True)
class Var:
    """An integer variable that ranges over [0, size)."""

    name: str
    size: Extent


@dataclass(frozen=True, slots=True)
class Flat:
    """An index made of digits, most significant first: (b, s) stands for b * S + s. No digits stand for 0."""

    digits: tuple[Var, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A constant of the given dtype."""

    value: float | int | bool
    dtype: str


@dataclass(frozen=True, slots=True)
class Load:
    """The element of tensor `source` at an index for each of its dimensions."""

    source: Any
    index: tuple[Term, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise operator of the language, by name. "cast" converts to `dtype`."""

    op: str
    args: tuple[Term, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Reduce:
    """`op` ("sum", "max", "min", "prod") of the body over all values of the variables."""

    op: str
    vars: tuple[Var, ...]
    body: Term
    dtype: str


@dataclass(frozen=True, slots=True)
class Softmax:
    """exp(score) where the variables have the values `at`, divided by the sum of exp(score) over all of their values.
    """

    vars: tuple[Var, ...]
    at: tuple[Var, ...]
    score: Term
    dtype: str


@dataclass(frozen=True, slots=True)
class Count:
    """The number of combinations of values of the variables, as a floating-point number."""

    vars: tuple[Var, ...]
    dtype: str


Term = Union[Flat, Number, Load, Apply, Reduce, Softmax, Count]
Index = tuple[Term, ...]
Element = Callable[[Index], Term]
"""The element of a result at an index."""

ZERO = Flat(())


def dtype_of(term: Term) -> str:
    """Return the dtype of a term. Indices are int64."""
    return "int64" if isinstance(term, Flat) else term.dtype


def parts(term: Term) -> tuple[Term, ...]:
    """Return the direct operands of a term."""
    match term:
        case Load(index=index):
            return index
        case Apply(args=args):
            return args
        case Reduce(body=body):
            return (body,)
        case Softmax(score=score):
            return (score,)
        case _:
            return ()


def walk(term: Term) -> Iterator[Term]:
    """Yield the term and all terms inside it."""
    yield term
    for part in parts(term):
        yield from walk(part)


def cast(term: Term, dtype: str) -> Term:
    """Convert `term` to `dtype`. Constants are converted immediately."""
    if dtype_of(term) == dtype:
        return term
    if isinstance(term, Number):
        return Number(number(term.value, dtype), dtype)
    return Apply("cast", (term,), dtype)


def number(value: float | int | bool, dtype: str) -> float | int | bool:
    """Return a Python number of the kind (bool, int or float) that `dtype` holds."""
    if dtype == "bool":
        return bool(value)
    return float(value) if is_float(dtype) else int(value)


def is_float(dtype: str) -> bool:
    """Return True for a floating-point dtype."""
    return dtype.startswith(("float", "bfloat"))


def wide(dtype: str) -> str:
    """Return the dtype in which an operator computes: PyTorch computes 16-bit floats in float32."""
    return "float64" if dtype == "float64" else "float32"


def product(extents: Sequence[Extent]) -> Extent:
    """Return the product of sizes."""
    result: Extent = 1
    for extent in extents:
        result = result * extent
    return result
