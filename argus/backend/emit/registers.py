"""Find the digits of register tiles, and the register that holds an element, by enumerating the layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from argus.backend.emit.problem import problem
from argus.ir.expr import Const, Coord, Expr, Op, Thread
from argus.ir.nodes import Fragment
from argus.layout import FragmentLayout
from argus.layout.fragment import cut, merged
from argus.source import Span

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Digit:
    """One unrolled loop of a statement. Each step of its counter `name` in [0, extent) moves `stride` elements along
    `dim`.

    If `down`, the loop counts from the last element to the first.
    """

    name: str
    extent: int
    dim: int
    stride: int
    weight: int
    down: bool = False


def digits(layout: FragmentLayout, vector: int = 1) -> tuple[Digit, ...]:
    """Return the loops over the vectors of a thread, slowest first. Replicated digits stay 0 and have no loop."""
    result: list[Digit] = []
    weight = vector
    for mode in cut(merged(layout.values), vector):
        if mode.dim is not None:
            result.append(Digit(f"v{len(result)}", mode.extent, mode.dim, mode.stride, weight))
        weight *= mode.extent
    return tuple(reversed(result))


def counters(loops: tuple[Digit, ...]) -> dict[str, Ints]:
    """Return every combination of counters: arrays `[combinations]` by name, the last loop fastest."""
    extents = [d.extent for d in loops]
    grids = np.unravel_index(np.arange(prod(extents)), extents) if loops else ()
    return {d.name: np.asarray(g, dtype=np.int64) for d, g in zip(loops, grids, strict=True)}


def coordinates(layout: FragmentLayout, loops: tuple[Digit, ...], inner: int = 0) -> tuple[Ints, ...]:
    """Return the coordinates of value `inner` of each vector, `[threads, combinations]` for each dimension."""
    values = sum((c * d.weight for d, c in zip(loops, counters(loops).values(), strict=True)), np.int64(inner))
    index = np.broadcast_to(values, prod(d.extent for d in loops))
    table = layout.coordinates()
    return tuple(table[:, index, d].astype(np.int64) for d in range(layout.rank))


_NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "mod": np.mod,
    "minimum": np.minimum, "maximum": np.maximum, "xor": np.bitwise_xor, "and": np.bitwise_and,
    "or": np.bitwise_or, "shl": np.left_shift, "shr": np.right_shift, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def evaluate(expr: Expr, at: tuple[Ints, ...], threads: Ints, span: Span) -> Ints:
    """Evaluate an index expression at element coordinates `at`, for `threads` (broadcast against them).

    Raises `ArgusError` "register-dynamic" if it depends on anything that is only known at run time.
    """
    match expr:
        case Const(value=value):
            return np.asarray(int(value))
        case Coord(axis=axis):
            return at[axis]
        case Thread():
            return threads
        case Op(op="where", args=(c, x, y)):
            parts = [evaluate(e, at, threads, span) for e in (c, x, y)]
            return np.where(parts[0] != 0, parts[1], parts[2])
        case Op(op="neg", args=(x,)):
            return -evaluate(x, at, threads, span)
        case Op(op="cast", args=(x,)) if expr.dtype.is_int and not x.dtype.modular:
            return evaluate(x, at, threads, span)
        case Op(op=name, args=(x, y)) if name in _NUMPY:
            return np.asarray(_NUMPY[name](evaluate(x, at, threads, span), evaluate(y, at, threads, span)))
        case _:
            raise problem(
                "register-dynamic", "a register tile is indexed by a run-time value", span,
                "registers have no addresses: index the tile by constants, or keep it in shared memory",
            )  # fmt: skip


def locate(fragment: Fragment, index: tuple[Expr, ...], at: tuple[Ints, ...], threads: Ints, span: Span) -> Ints:
    """Return the register of each thread that holds `fragment[index]`, or -1: `[threads, combinations]`."""
    layout = register_layout(fragment)
    wanted = np.zeros((1, 1), dtype=np.int64)
    inside: NDArray[np.bool_] = np.ones((1, 1), dtype=np.bool_)
    for expr, extent in zip(index, fragment.shape, strict=True):
        coordinate = evaluate(expr, at, threads, span)
        inside = inside & (coordinate >= 0) & (coordinate < extent)
        wanted = wanted * extent + coordinate
    size = prod(fragment.shape)
    first = threads * size
    keys, registers = _holders(layout, size)
    shape = np.broadcast_shapes(wanted.shape, first.shape)
    target = np.where(inside, wanted, -1) + first
    target = np.broadcast_to(target, shape)
    place = np.minimum(np.searchsorted(keys, target), keys.size - 1)
    found = np.broadcast_to(inside, shape) & (keys[place] == target)
    return np.where(found, registers[place], -1)


@lru_cache(maxsize=64)
def _holders(layout: FragmentLayout, size: int) -> tuple[Ints, Ints]:
    """Return the sorted keys `thread * size + element`, and the register of each; equal keys have the lowest first."""
    held = layout.linear()
    order = np.argsort(held, axis=1, kind="stable")
    keys = np.take_along_axis(held, order, axis=1) + np.arange(len(held), dtype=np.int64)[:, None] * size
    return keys.reshape(-1), order.reshape(-1)


def uniform_registers(
    fragment: Fragment, index: tuple[Expr, ...], at: tuple[Ints, ...], threads: Ints, span: Span
) -> Ints:
    """Return the register that holds the element, the same in every thread: `[combinations]`.

    Raises `ArgusError` "register-missing" if a thread does not hold what it uses, "register-varies" if the
    number of the register depends on the thread.
    """
    found = locate(fragment, index, at, threads, span)
    if (found < 0).any():
        thread = int(threads[int(np.argwhere(found < 0)[0][0]), 0])
        raise problem(
            "register-missing", f"thread {thread} does not hold each element of `{fragment.name}` it uses",
            span, "give both tiles the same layout, or move the values through shared memory",
        )  # fmt: skip
    if (found != found[:1]).any():
        raise problem(
            "register-varies", f"the threads hold elements of `{fragment.name}` in different registers",
            span, "give both tiles the same layout, or move the values through shared memory",
        )  # fmt: skip
    return np.asarray(found[0])


@dataclass(frozen=True, slots=True)
class Affine:
    """`base + sum of factors[name] * name` over loop counters."""

    base: int
    factors: Mapping[str, int]

    def text(self) -> str:
        """Return the sum as C++, without factors of zero."""
        terms = [n if f == 1 else f"{f} * {n}" for n, f in self.factors.items() if f]
        if self.base or not terms:
            terms.append(str(self.base))
        return " + ".join(terms)


def fit(values: Ints, loops: tuple[Digit, ...]) -> Affine | None:
    """Return the affine form of `values[combination]` over the counters, or None if there is none."""
    names = counters(loops)
    base = int(values[0])
    factors: dict[str, int] = {}
    predicted = np.full(values.shape, base, dtype=np.int64)
    step = prod(d.extent for d in loops)
    for digit in loops:
        step //= digit.extent
        factors[digit.name] = int(values[step]) - base if digit.extent > 1 else 0
        predicted = predicted + names[digit.name] * factors[digit.name]
    return Affine(base, factors) if (predicted == values).all() else None


def register_layout(fragment: Fragment) -> FragmentLayout:
    """Return the layout of a fragment of explicit IR. Raises `ArgusError` "not-explicit" if it has none."""
    if fragment.layout is None:
        raise problem("not-explicit", f"register tile `{fragment.name}` has no layout", fragment.span)
    return fragment.layout
