"""Facts about the contents of index tensors: declared facts, and what they imply for single elements."""

from __future__ import annotations

from typing import Any

from argus.ir.expr import Const, Expr, conjunction, op
from argus.ir.nodes import Arranged, InRange, Kernel, Precondition, Tensor

ARRANGEMENTS = ("sorted", "distinct", "permutation", "offsets")
"""The values of `Arranged.how`."""


def ranges(kernel: Kernel, tensor: str | None = None) -> tuple[InRange, ...]:
    """Return the ranges of elements that are declared, or that follow from a declared arrangement: of all tensors, or
    of one tensor."""
    found = (_range(kernel, p) for p in kernel.preconditions)
    return tuple(r for r in found if r is not None and tensor in (None, r.tensor))


def _range(kernel: Kernel, fact: Precondition) -> InRange | None:
    match fact:
        case InRange():
            return fact
        case Arranged(tensor=name, how="permutation", span=span):
            return InRange(name, Const(0), extent(kernel, name), span)
        case Arranged(tensor=name, how="offsets", total=total, span=span) if total is not None:
            return InRange(name, Const(0), op("add", total, Const(1)), span)
        case _:
            return None


def extent(kernel: Kernel, tensor: str) -> Expr:
    """Return the number of elements of a tensor of one dimension."""
    found = kernel.object(tensor)
    assert isinstance(found, Tensor)
    return found.shape[0]


def arrangements(kernel: Kernel, tensor: str) -> tuple[Arranged, ...]:
    """Return the preconditions on the arrangement of a tensor's elements."""
    return tuple(p for p in kernel.preconditions if isinstance(p, Arranged) and p.tensor == tensor)


def is_sorted(kernel: Kernel, tensor: str) -> bool:
    """Return True if a precondition says that the elements do not decrease along the last dimension."""
    return any(p.how in ("sorted", "offsets") for p in arrangements(kernel, tensor))


def is_distinct(kernel: Kernel, tensor: str) -> bool:
    """Return True if a precondition says that no two elements are equal."""
    return any(p.how in ("distinct", "permutation") for p in arrangements(kernel, tensor))


def offsets_of(kernel: Kernel, tensor: str) -> Arranged | None:
    """Return the segments whose bounds a tensor's elements are, or None if they are no bounds."""
    return next((p for p in arrangements(kernel, tensor) if p.how == "offsets"), None)


def possible(kernel: Kernel, fact: InRange | Arranged) -> Expr | None:
    """Return a condition on sizes and scalars under which some contents fulfil `fact`, or None if no such condition is
    known."""
    tensor = kernel.object(fact.tensor)
    assert isinstance(tensor, Tensor)
    match fact:
        case InRange(lo=lo):
            held = conjunction([op("lt", lo, each.hi) for each in ranges(kernel, fact.tensor)])
            if held is None:
                return None
            for size in tensor.shape:
                held = op("or", held, op("le", size, Const(0)))
            return held
        case Arranged(how="distinct", tensor=name) if len(tensor.shape) == 1:
            fits: Expr | None = None
            for each in ranges(kernel, name):
                room = op("le", tensor.shape[0], op("sub", op("maximum", each.lo, each.hi), each.lo))
                fits = room if fits is None else op("and", fits, room)
            return fits
        case Arranged(how="offsets", total=total, longest=longest) if total is not None:
            count = tensor.shape[0]
            some = op("and", op("ge", count, Const(1)), op("ge", total, Const(0)))
            nothing = op("or", op("gt", count, Const(1)), op("eq", total, Const(0)))
            some = op("and", some, nothing)
            if longest is None:
                return some
            # Products of sizes are left out: any total is possible if segments may have elements.
            return op("and", some, op("or", op("gt", longest, Const(0)), op("eq", total, Const(0))))
        case _:
            return None


# ---------------------------------------------------------------------------- concrete contents


def offence(how: str, values: Any, total: int = 0, longest: int | None = None) -> str | None:
    """Return the first place at which the contents violate the declared arrangement, in words, or None. `total` and
    `longest` belong to `offsets`. `values` is an array of NumPy or PyTorch and is read on its own device."""
    if how == "offsets":
        if values.shape[0] == 0:
            return "has no elements, and offsets begin with 0"
        for place, wanted in ((0, 0), (values.shape[0] - 1, total)):
            if int(values[place]) != wanted:
                return f"[{place}] is {int(values[place])}, and must be {wanted}"
    if how in ("sorted", "offsets"):
        found = _first(values[..., 1:] < values[..., :-1])
        if found is not None:
            (*row, at) = found
            return f"{_place(row, at + 1)} is less than {_place(row, at)}"
        apart = None if how == "sorted" or longest is None else _first(values[1:] - values[:-1] > longest)
        return None if apart is None else f"[{apart[0] + 1}] is more than {longest} above [{apart[0]}]"
    flat = values.reshape(-1)
    order = flat.argsort()
    found = _first(flat[order[1:]] == flat[order[:-1]])
    if found is None:
        return None
    shape = tuple(int(n) for n in values.shape)
    one, two = sorted(int(order[found[0] + step]) for step in (0, 1))
    return f"{_place(_unravelled(one, shape))} and {_place(_unravelled(two, shape))} are both {int(flat[one])}"


def outside(values: Any, lo: int, hi: int) -> str | None:
    """Return the first place that holds a number outside of [lo, hi), in words, or None."""
    found = _first((values < lo) | (values >= hi))
    if found is None:
        return None
    return f"{_place(found)} is {int(values[tuple(found)])}, and must be in [{lo}, {hi})"


def spaced(offending: str) -> str:
    """Return the text of a violation that follows a tensor's name: `[3]` without a space, words after a space."""
    return offending if offending.startswith("[") else f" {offending}"


def _first(wrong: Any) -> list[int] | None:
    """Return the first coordinate, in row-major order, at which a boolean array is true."""
    if 0 in wrong.shape or not bool(wrong.any()):
        return None
    return _unravelled(int((wrong * 1).reshape(-1).argmax()), tuple(int(n) for n in wrong.shape))


def _unravelled(number: int, shape: tuple[int, ...]) -> list[int]:
    place: list[int] = []
    for size in reversed(shape):
        number, digit = divmod(number, size)
        place.append(digit)
    return place[::-1]


def _place(row: list[int], at: int | None = None) -> str:
    return str(row if at is None else [*row, at])
