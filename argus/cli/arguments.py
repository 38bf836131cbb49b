"""Parse the values of flags: times, counts, and definitions of constants."""

from __future__ import annotations

import argparse
import ast
import math

from argus.ir.types import DTYPES

_LONGEST_S = 86400


def seconds(text: str) -> float:
    """Parse a time of more than 0 seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text} is not a time above 0 s, and at most {_LONGEST_S} s (a day)")
    return value


def number(text: str) -> tuple[str, float]:
    """Parse NAME=VALUE, where the value is a finite float."""
    name, equals, value = text.partition("=")
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not equals or not name.isidentifier() or not math.isfinite(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE with a number")
    return name, found


def positive(text: str) -> int:
    """Parse an integer of at least 1."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def definition(text: str) -> tuple[str, object]:
    """Parse NAME=VALUE, where the value is a Python literal, the name of an element type, or else a string."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    dtype = DTYPES.get(value.removeprefix("al."))
    if dtype is not None:
        return name, dtype
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name, value


def size(text: str) -> tuple[str, int]:
    """Parse NAME=VALUE, where the value is a size: a whole number that is not negative."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE with a whole number")
    return name, int(value)


def acceptable(text: str) -> str:
    """Return `text`, the code of unknown findings that may be accepted. Raises ArgumentTypeError for any other text."""
    from argus.frontend.options import ACCEPTABLE, unacceptable

    if text not in ACCEPTABLE:
        raise argparse.ArgumentTypeError(unacceptable(text))
    return text
