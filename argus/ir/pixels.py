"""Columns of pixels: copies of the windows of a convolution for one tap, as the copy engine's im2col mode makes them.

    x[pixel // 784, pixel // 28 % 28 * 2 + (r - 1), pixel % 28 * 2 + (s - 1), channel]

The copy engine goes through the places of an image's windows, then through those of the next image. A place along a
dimension is one of `counts`, times the stride, plus `lower`. An offset, the tap, is added to it. What lies outside of
the tensor reads as zero (PTX ISA, tensor im2col mode; CUDA driver API, cuTensorMapEncodeIm2col).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from argus.ir.expr import Const, Coord, Elem, Expr, Op, Thread, linear, op, substitute_coords, walk
from argus.ir.interval import WIDE, Interval, operate, within

CORNERS = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}
"""By rank: the corners of the places lie from minus this number up to below it (cuTensorMapEncodeIm2col)."""
OFFSETS = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}
"""By rank: the end of the offsets, which begin at 0 (PTX ISA, cp.async.bulk.tensor)."""
MAX_STEP = 8
"""Largest stride of places (cuTensorMapEncodeIm2col)."""


@dataclass(frozen=True, slots=True)
class Pixels:
    """The places of windows along the dimensions between the first and the last: how many there are, the stride, and
    the first one."""

    counts: tuple[int, ...]
    strides: tuple[int, ...]
    lower: tuple[int, ...]

    def upper(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the ends of the places, counted from the ends of an image of these sizes."""
        places = zip(self.counts, self.strides, self.lower, sizes, strict=True)
        return tuple(first + (count - 1) * stride + 1 - size for count, stride, first, size in places)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `pixels`: the coordinates of its first element without offsets, and the offsets."""

    pixels: Pixels
    first: tuple[Expr, ...]
    offsets: tuple[Expr, ...]


def column_of(index: Sequence[Expr]) -> Column | None:
    """Return the column that an index of pixels (`Coord(0)`) and channels (`Coord(1)`) describes, or None if the index
    has another form."""
    if not 3 <= len(index) <= 5:
        return None
    image, *inside, channel = index
    dims = [_places(e) for e in inside]
    if None in dims or not (isinstance(image, Op) and image.op == "floordiv") or not is_shifted(channel, 1):
        return None
    places = [d for d in dims if d is not None]
    counts = tuple(_modulus(d.term) for d in places)
    pixel, total = image.args
    if not is_shifted(pixel, 0) or total != Const(prod(counts)):
        return None
    if any(d.term != _counted(pixel, counts, number) for number, d in enumerate(places)):
        return None
    pixels = Pixels(counts, tuple(d.stride for d in places), tuple(d.first for d in places))
    first = (image, *(op("add", op("mul", d.term, Const(d.stride)), Const(d.first)) for d in places), channel)
    zeros: tuple[Expr, ...] = (Const(0), Const(0))
    return Column(pixels, tuple(substitute_coords(e, zeros) for e in first), tuple(d.offset for d in places))


@dataclass(frozen=True, slots=True)
class _Places:
    """The index `term * stride + first + offset`, where only `term` differs between elements."""

    term: Expr
    stride: int
    first: int
    offset: Expr


def _places(expr: Expr) -> _Places | None:
    terms, first = linear(expr)
    moving = [(term, factor) for term, factor in terms.items() if not one_place(term)]
    if len(moving) != 1:
        return None
    offset: Expr = Const(0)
    for term, factor in terms.items():
        if one_place(term):
            offset = op("add", offset, op("mul", term, Const(factor)))
    return _Places(*moving[0], first, offset)


def _modulus(term: Expr) -> int:
    match term:
        case Op(op="mod", args=(_, Const(value=value))):
            return int(value)
        case _:
            return 0


def _counted(pixel: Expr, counts: Sequence[int], number: int) -> Expr:
    """Return the number of a pixel's place along a dimension."""
    return op("mod", op("floordiv", pixel, Const(prod(counts[number + 1 :]))), Const(counts[number]))


def one_place(expr: Expr) -> bool:
    """Return True if `expr` is the same for all elements of a box, in the thread that issues its copy."""
    return not any(isinstance(e, Thread | Coord) or (isinstance(e, Elem) and e.index) for e in walk(expr))


def is_shifted(expr: Expr, axis: int) -> bool:
    """Return True if `expr` is a start, the same for the box, plus the coordinate of `axis`."""
    return start_of(expr, axis) is not None


def start_of(expr: Expr, axis: int) -> Expr | None:
    """Return the start, the same for the box, of places that are a start plus the coordinate of `axis`, else None."""
    match expr:
        case Coord(axis=found):
            return Const(0) if found == axis else None
        case Op(op="add", args=(start, Coord(axis=found))) | Op(op="add", args=(Coord(axis=found), start)):
            return start if found == axis and one_place(start) else None
        case _:
            return None


def bounds(expr: Expr) -> Interval:
    """Return an interval of the values of an integer expression, from its constants alone."""
    match expr:
        case Const(value=value):
            return int(value), int(value)
        case Op(op=name, args=args, dtype=dtype) if dtype.is_int:
            return within(dtype, operate(name, [bounds(e) for e in args]))
        case _:
            return WIDE
