"""Split each grid axis that counts several quantities into separate axes, so that no program id is divided by sizes.

    grid [H * B]                                              ->  grid [H, B] flat
    copy r[c0] <- x[program_id(0) // H, program_id(0) % H, c0]    copy r[c0] <- x[program_id(1), program_id(0), c0]

Blocks decode the same digits of the same numbers in the same order. Proofs see independent axes; they cannot handle
quotients by sizes. An axis stays as it is if its id is used in any other way, if all divisors are constants, or if
clusters or the order of blocks depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import permutations

from argus.ir.expr import Const, Expr, Op, ProgramId, op
from argus.ir.nodes import Kernel, Stmt
from argus.ir.types import MAX_GRID_AXES
from argus.ir.visit import map_exprs, rewrite_body, walk

_MOST_FACTORS = 4
"""Most factors of one axis. Each of their orders is tried."""


def separate_axes(kernel: Kernel) -> Kernel:
    """Return the kernel with a separate grid axis for each digit that it decodes from a program id by dividing by
    sizes."""
    if kernel.grid is None or kernel.group > 1 or kernel.cluster > 1:
        return kernel
    for axis in reversed(range(len(kernel.grid))):
        kernel = next(filter(None, (_separated(kernel, axis, e) for e in _digits(kernel.grid[axis]))), kernel)
    return kernel


def _digits(extent: Expr) -> Iterator[tuple[Expr, ...]]:
    """Yield the ways to write `extent` as a product, in all orders and groupings of its factors.

    Finer groupings come first. Within a grouping, the slowest digit comes first.
    """
    factors = _factors(extent)
    if len(factors) > _MOST_FACTORS:
        return
    for count in range(len(factors), 1, -1):
        for order in permutations(factors):
            for digits in _grouped(order, count):
                # Constants alone do not show that an axis counts several quantities.
                if not all(isinstance(e, Const) for e in digits[1:]):
                    yield digits


def _grouped(factors: tuple[Expr, ...], count: int) -> Iterator[tuple[Expr, ...]]:
    """Yield the groupings of adjacent `factors` into `count` products."""
    if count == 1:
        yield (_product(factors),)
        return
    for first in range(1, len(factors) - count + 2):
        yield from ((_product(factors[:first]), *rest) for rest in _grouped(factors[first:], count - 1))


def _separated(kernel: Kernel, axis: int, digits: tuple[Expr, ...]) -> Kernel | None:
    """Return `kernel` with an axis for each of `digits` in place of `axis`, or None if its program id has any other
    use."""
    grid, count = kernel.grid or (), len(digits)
    if len(grid) + count - 1 > MAX_GRID_AXES:
        return None
    own = [ProgramId(axis + place) for place in reversed(range(count))]
    # The number that each run of adjacent digits forms, by the first digit and the end of the run.
    numbers = {(a, b): _number(own[a:b], digits[a:b]) for a in range(count) for b in range(a + 1, count + 1)}
    spans = {number: span for span, number in numbers.items()}
    divisors = {(c, b): _known(_product(digits[c:b])) for c in range(count) for b in range(c + 1, count + 1)}

    def decoded(expr: Expr) -> Expr | None:
        match expr:
            case ProgramId(axis=found):
                later = ProgramId(found + count - 1)
                return numbers[0, count] if found == axis else later if found > axis else None
            case Op(op="floordiv" | "mod" as name, args=(number, divisor)) if number in spans:
                first, end = spans[number]
                cut = next((c for c in range(first + 1, end) if divisors[c, end] == _known(divisor)), None)
                if cut is None:
                    return None
                return numbers[(first, cut) if name == "floordiv" else (cut, end)]
            case Op(op="sub", args=(number, multiple)) if number in spans:  # p - p // H * H
                first, end = spans[number]
                for cut in range(first + 1, end):
                    if _known(multiple) == _known(op("mul", numbers[first, cut], _product(digits[cut:end]))):
                        return numbers[cut, end]
                return None
            case _:
                return None

    body = rewrite_body(kernel.body, lambda stmt: (map_exprs(stmt, decoded),))
    joined = {number for number, (first, end) in spans.items() if end - first > 1}
    if not _uses(kernel.body, lambda e: e == ProgramId(axis)) or _uses(body, lambda e: e in joined):
        return None
    return replace(kernel, grid=(*grid[:axis], *reversed(digits), *grid[axis + 1 :]), body=body, flat=True)


def _uses(body: tuple[Stmt, ...], wanted: Callable[[Expr], bool]) -> bool:
    """Return True if some statement computes with an expression for which `wanted` is true."""
    found: list[Expr] = []

    def look(expr: Expr) -> Expr | None:
        if wanted(expr):
            found.append(expr)
        return None

    for stmt in walk(body):
        map_exprs(stmt, look)
    return bool(found)


def _number(ids: list[ProgramId], digits: tuple[Expr, ...]) -> Expr:
    """Combine the digits `ids`, slowest first, into one number."""
    places = zip(ids[1:], digits[1:], strict=True)
    number: Expr = ids[0]
    for digit, extent in places:
        number = op("add", op("mul", number, extent), digit)
    return number


def _product(factors: tuple[Expr, ...]) -> Expr:
    return reduce(lambda x, y: op("mul", x, y), factors)


def _factors(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Op(op="mul", args=(x, y)):
            return (*_factors(x), *_factors(y))
        case _:
            return (expr,)


def _known(expr: Expr) -> tuple[Expr, ...]:
    """Return the factors of a product in a canonical order, so that equal products have equal factors."""
    return tuple(sorted(_factors(expr), key=repr))
