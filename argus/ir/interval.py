"""Interval arithmetic on integers with constant ends."""

from __future__ import annotations

from argus.ir.types import DType

Interval = tuple[int, int]
WIDE = (-(2**63), 2**63 - 1)
"""The interval of a value about which nothing is known."""
ANY = (-(2**127), 2**127)
"""The interval of a result before it is reduced to its type."""


def operate(name: str, args: list[Interval]) -> Interval:
    """Return the range of an operator's results in unbounded arithmetic, given the ranges of its arguments."""
    match name, args:
        case "add", [(a, b), (c, d)]:
            return a + c, b + d
        case "sub", [(a, b), (c, d)]:
            return a - d, b - c
        case "mul", [(a, b), (c, d)]:
            products = (a * c, a * d, b * c, b * d)
            return min(products), max(products)
        case "neg", [(a, b)]:
            return -b, -a
        case "cast", [interval]:
            return interval
        case "abs", [(a, b)]:
            return max(a, -b, 0), max(-a, b)
        case "minimum", [(a, b), (c, d)]:
            return min(a, c), min(b, d)
        case "maximum", [(a, b), (c, d)]:
            return max(a, c), max(b, d)
        case "floordiv", [(a, b), (c, d)] if c > 0:
            return min(a // c, a // d), max(b // c, b // d)
        case "floordiv", [(a, b), _]:
            return min(a, -b), max(b, -a)
        case "mod", [(a, b), (c, d)] if c > 0:
            return (a, b) if a >= 0 and b < c else (0, d - 1)
        case "shl", [(a, b), (c, d)] if c == d and 0 <= c < 63:
            return a << c, b << c
        case "shr", [(a, b), (c, d)] if c == d and 0 <= c < 63:
            return a >> c, b >> c
        case "shl", _:
            return ANY
        case "and", [(a, b), (c, d)] if a >= 0 or c >= 0:
            return 0, min(high for low, high in ((a, b), (c, d)) if low >= 0)
        case "xor" | "or", [(a, b), (c, d)] if a >= 0 and c >= 0:
            return 0, (1 << max(b.bit_length(), d.bit_length())) - 1
        case _:
            return WIDE


def within(dtype: DType, result: Interval) -> Interval:
    """Return the range of an operation's results in its type. If an operation modulo 2^32 may leave its range, the
    result is the whole range."""
    least, most = dtype.integers
    return (least, most) if dtype.modular and not least <= result[0] <= result[1] <= most else result
