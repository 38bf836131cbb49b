"""Compile-time arithmetic on Python constants, with Python's meaning and bounded cost."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

MAX_BITS = 4096
"""Length in bits of the longest integer that constant arithmetic may produce."""

MAX_ITEMS = 4096
"""Length of the longest tuple or string that constant arithmetic may produce."""


class ConstantError(Exception):
    """Constant arithmetic has no result. The message says why."""


_NUMERIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": lambda a, b: a is b if a is None or b is None else a == b,
    "is not": lambda a, b: not (a is b if a is None or b is None else a == b),
}


def binary(op: str, left: object, right: object) -> object:
    """Return `left op right`. Raises `ConstantError`."""
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    joined = op == "+" and isinstance(left, (tuple, str)) and type(left) is type(right)
    if not numbers and not joined:
        raise ConstantError(f"`{op}` does not apply to {_kind(left)} and {_kind(right)}")
    if isinstance(left, int) and isinstance(right, int):
        _check_cost(op, left, right)
    try:
        result = _NUMERIC[op](left, right)
    except ZeroDivisionError:
        raise ConstantError("division by zero") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ConstantError(str(error)) from None
    if isinstance(result, complex):
        raise ConstantError("the result is not a real number")
    if isinstance(result, (tuple, str)) and items(result) > MAX_ITEMS:
        raise ConstantError(f"the result has more than {MAX_ITEMS} items")
    return result


def items(value: object) -> int:
    """Return the length of a string, or the number of items in a tuple, counting nested items each time."""
    if isinstance(value, tuple):
        return len(value) + sum(items(item) for item in value if isinstance(item, tuple))
    return len(value) if isinstance(value, str) else 1


def unprintable(value: object) -> bool:
    """Return True for integers of more than `MAX_BITS` bits and for strings with lone surrogates, alone or in tuples.
    """
    if isinstance(value, tuple):
        return any(unprintable(item) for item in value)
    if isinstance(value, str):
        return any(0xD800 <= ord(character) <= 0xDFFF for character in value)
    return isinstance(value, int) and value.bit_length() > MAX_BITS


def compare(op: str, left: object, right: object) -> bool:
    """Return `left op right` of a comparison. Raises `ConstantError`."""
    if op in ("in", "not in"):
        if not isinstance(right, (tuple, str)):
            raise ConstantError(f"`{op}` needs a tuple on the right, not {_kind(right)}")
        try:
            found = left in right
        except TypeError as error:
            raise ConstantError(str(error)) from None
        return found is (op == "in")
    try:
        return bool(_COMPARE[op](left, right))
    except TypeError:
        raise ConstantError(f"`{op}` does not order {_kind(left)} and {_kind(right)}") from None


def unary(op: str, operand: object) -> object:
    """Return `op operand`. Raises `ConstantError`."""
    if op == "not":
        return not operand
    if isinstance(operand, (int, float)):
        if op == "-":
            return -operand
        if op == "+":
            return +operand
        if op == "~" and isinstance(operand, bool):
            return not operand  # The negation is logical, as `~` on tiles of bool.
        if op == "~" and isinstance(operand, int):
            return ~operand
    raise ConstantError(f"`{op}` does not apply to {_kind(operand)}")


def function(name: str, args: tuple[object, ...]) -> object:
    """Return `min`, `max`, `abs`, `len`, `int`, `float`, `bool` of constants. Raises `ConstantError`."""
    functions: dict[str, Callable[..., object]] = {
        "min": min, "max": max, "abs": abs, "len": len, "int": int, "float": float, "bool": bool,
    }  # fmt: skip
    if not args or any(not isinstance(a, (int, float, str, tuple)) for a in args):
        raise ConstantError(f"`{name}` does not apply to these constants")
    try:
        return functions[name](*args)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConstantError(str(error)) from None


FUNCTIONS = ("min", "max", "abs", "len", "int", "float", "bool")
"""Python's functions that may be applied to constants."""


def _check_cost(op: str, left: int, right: int) -> None:
    if op == "**" and left.bit_length() * max(right, 1) > MAX_BITS:
        raise ConstantError(f"the result has more than {MAX_BITS} bits")
    if op == "<<" and left.bit_length() + right > MAX_BITS:
        raise ConstantError(f"the result has more than {MAX_BITS} bits")
    if op == "*" and left.bit_length() + right.bit_length() > MAX_BITS:
        raise ConstantError(f"the result has more than {MAX_BITS} bits")


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
