"""Nested tuples of integers: the coordinates, shapes and strides of the layout algebra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

IntTuple: TypeAlias = int | tuple["IntTuple", ...]


class LayoutError(ValueError):
    """Bad input to the layout algebra. The message says what is wrong, why, and what to do instead."""


def is_int(value: object) -> bool:
    """Return True for a plain integer, and False for `bool`, which is never a meaningful extent."""
    return isinstance(value, int) and not isinstance(value, bool)


def check(value: object, what: str) -> None:
    """Raise `LayoutError` unless `value` is an integer or a (nested) tuple of integers."""
    if isinstance(value, tuple):
        for item in value:
            check(item, what)
    elif not is_int(value):
        raise LayoutError(
            f"{what} holds {value!r} of type {type(value).__name__}: "
            "it must be an int or a nested tuple of ints; convert it first"
        )


def flatten(value: IntTuple) -> tuple[int, ...]:
    """Return all integers, left to right: `flatten(((2, 4), 8)) == (2, 4, 8)`; `flatten(3) == (3,)`."""
    return tuple(_leaves(value))


def _leaves(value: IntTuple) -> Iterator[int]:
    if isinstance(value, tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def product(value: IntTuple) -> int:
    """Product of all integers; 1 for the empty tuple."""
    result = 1
    for leaf in _leaves(value):
        result *= leaf
    return result


def depth(value: IntTuple) -> int:
    """Nesting depth: 0 for an integer, 1 for a flat tuple."""
    if isinstance(value, tuple):
        return 1 + max((depth(item) for item in value), default=0)
    return 0


def congruent(a: IntTuple, b: IntTuple) -> bool:
    """Return True when `a` and `b` have the same tree of tuples."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(congruent(x, y) for x, y in zip(a, b, strict=True))
    return not isinstance(a, tuple) and not isinstance(b, tuple)


def text(value: IntTuple) -> str:
    """CuTe notation without spaces: `((2,4),8)`. A one-tuple prints as `(8)`."""
    if isinstance(value, tuple):
        return "(" + ",".join(text(item) for item in value) + ")"
    return str(value)


def unflatten(leaves: Iterator[int], like: IntTuple) -> IntTuple:
    """Take integers from `leaves` in order and arrange them as the tree of `like`."""
    if isinstance(like, tuple):
        return tuple(unflatten(leaves, item) for item in like)
    return next(leaves)


def compact_strides(shape: IntTuple, first: int = 1) -> IntTuple:
    """Column-major strides of `shape`, the leftmost leaf fastest, starting at `first`."""
    strides: list[int] = []
    for extent in _leaves(shape):
        strides.append(first)
        first *= extent
    return unflatten(iter(strides), shape)


def compact_strides_right(shape: IntTuple) -> IntTuple:
    """Row-major strides of `shape`, the rightmost leaf fastest."""
    strides: list[int] = []
    step = 1
    for extent in reversed(flatten(shape)):
        strides.append(step)
        step *= extent
    return unflatten(reversed(strides), shape)


def inner_product(coord: IntTuple, shape: IntTuple, stride: IntTuple) -> int:
    """Offset of `coord`: the sum of digit times stride, splitting integers colexicographically.

    An integer against a tuple shape is split with the first mode fastest; the last mode takes what
    is left, so an index past the end continues along the last mode (as in CuTe's `crd2idx`).
    Raises `LayoutError` when a coordinate tuple does not follow the shape's tree, or is negative.
    """
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        if isinstance(coord, tuple):
            if len(coord) != len(shape):
                raise LayoutError(
                    f"coordinate {text(coord)} has {len(coord)} entries but shape {text(shape)} has "
                    f"{len(shape)} modes: give one entry a mode, or one flat index"
                )
            return sum(inner_product(c, s, d) for c, s, d in zip(coord, shape, stride, strict=True))
        if coord < 0:
            raise LayoutError(f"coordinate {coord} is negative: layouts are defined from 0 on")
        total = 0
        for s, d in zip(shape[:-1], stride[:-1], strict=True):
            coord, digit = divmod(coord, product(s))
            total += inner_product(digit, s, d)
        return total + inner_product(coord, shape[-1], stride[-1]) if shape else 0
    if isinstance(coord, tuple) or isinstance(stride, tuple) or isinstance(shape, tuple):
        raise LayoutError(
            f"coordinate {text(coord)} is a tuple where shape {text(shape)} is one integer: "
            "index this mode with an integer"
        )
    if coord < 0:
        raise LayoutError(f"coordinate {coord} is negative: layouts are defined from 0 on")
    return coord * stride
