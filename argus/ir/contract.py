"""The assumptions of a kernel about its launches, and its promises beyond specifications."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from argus.ir.expr import Expr
from argus.source import Span, span_field


@dataclass(frozen=True, slots=True)
class Requires:
    """A precondition on launch-time scalars, checked at launch."""

    cond: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class InRange:
    """A precondition on an index tensor's contents: lo <= element < hi for every element. Checked at launch on request.
    """

    tensor: str
    lo: Expr
    hi: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Arranged:
    """A precondition on the order of an index tensor's contents. Checked at launch on request.

    "sorted": the elements do not decrease along the last dimension. "distinct": no two elements are equal.
    "permutation": the tensor has one dimension, and each integer from 0 up to its extent occurs once. "offsets": the
    tensor has one dimension and is sorted; the first element is 0, the last is `total`, and each exceeds its
    predecessor by at most `longest` (if given). Segment s is then [t[s], t[s + 1]).
    """

    tensor: str
    how: str
    total: Expr | None = None
    longest: Expr | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Assume:
    """An author's unproved assumption. It is printed in the artefact."""

    cond: Expr
    reason: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Covers:
    """The part of `output` that the kernel writes: elements `at`, over `Coord`s in the box `shape`, if `where` holds.

    Each of these elements is written once. All other elements keep their values. `at` and `where` may read tensors that
    the kernel does not write; coordinates for which such an element does not exist stand for no element of `output`.
    """

    output: str
    names: tuple[str, ...]
    shape: tuple[Expr, ...]
    at: tuple[Expr, ...]
    where: Expr | None = None
    span: Span = span_field()


Precondition = Union[Requires, InRange, Arranged, Assume]


@dataclass(frozen=True, slots=True)
class Invariant:
    """A promise about the bits of `tensor`: each row is the same in every launch that has this row.

    A row is the set of elements at one index along the axes whose extents are in `sizes`, which are extents and integer
    arguments. Launches may differ in these, in the contents of other rows, and in the order in which blocks run.
    """

    tensor: str
    sizes: tuple[str, ...]
    span: Span = span_field()
