"""The assumptions of a kernel about a launch, and its promises beyond specifications."""

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
    """A precondition on an index tensor's contents: lo <= every element < hi. Checked at launch on request."""

    tensor: str
    lo: Expr
    hi: Expr
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Arranged:
    """A precondition on the order of an index tensor's contents. Checked at launch on request.

    "sorted": the elements do not decrease along the last dimension.
    "distinct": no two elements are equal.
    "permutation": each integer from 0 up to the extent of the one dimension occurs once.
    "offsets": of one dimension, sorted; the first element is 0, the last is `total`, and none is more than `longest`
    (if given) above the one before it. Segment s of what they divide is [t[s], t[s + 1]).
    """

    tensor: str
    how: str
    total: Expr | None = None
    longest: Expr | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Assume:
    """An author's unproved assumption; printed in the artefact."""

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
    """A promise about the bits of `tensor`: each of its rows is the same in every launch that has this row.

    A row is what `tensor` holds at one index along the axes whose extents are `sizes`. Launches may differ in these
    sizes, in what other rows hold, and in the order in which blocks run.
    """

    tensor: str
    sizes: tuple[str, ...]
    span: Span = span_field()
