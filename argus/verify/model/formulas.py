"""Sets and relations from their parts: tuples of terms, and conditions on the terms.

A term and a condition are text of ISL, as `translator` makes it of an expression. Only this module puts such texts
together and lets ISL read the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from argus.verify.model.isl import Map, Set


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of terms. `name` is that of a statement or an object, or "" for plain numbers."""

    terms: Sequence[str] = ()
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(self.terms)}]"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tuples as one point."""

    first: Tuple
    second: Tuple

    def __str__(self) -> str:
        return f"[{self.first} -> {self.second}]"


def points(at: Tuple | Pair, conditions: Iterable[str] = (), parameters: Iterable[str] = ()) -> Set:
    """Return the points `at` that satisfy all conditions. `parameters` are the names that the texts may use."""
    return Set(_text(str(at), conditions, parameters))


def relation(
    source: Tuple | Pair, image: Tuple | Pair, conditions: Iterable[str] = (), parameters: Iterable[str] = ()
) -> Map:
    """Return {source -> image} where all conditions hold; see `points`."""
    return Map(_text(f"{source} -> {image}", conditions, parameters))


def facts(conditions: Iterable[str], parameters: Iterable[str] = ()) -> Set:
    """Return the parameters that satisfy all conditions."""
    return Set(_text("", conditions, parameters))


def numbered(letter: str, count: int) -> tuple[str, ...]:
    """Return the names of dimensions: a letter with 0, 1, ..."""
    return tuple(f"{letter}{i}" for i in range(count))


def both(conditions: Iterable[str]) -> str:
    """Return the condition that all conditions hold."""
    return " and ".join(conditions) or "true"


def either(conditions: Iterable[str]) -> str:
    """Return the condition that at least one condition holds."""
    return f"({' or '.join(conditions) or 'false'})"


def between(name: str, low: str, high: str) -> str:
    """Return the condition that a number is at least `low` and less than `high`."""
    return f"{low} <= {name} < {high}"


def equal(one: str, other: str) -> str:
    """Return the condition that two numbers are equal."""
    return f"{one} = {other}"


def multiple(number: str, of: int) -> str:
    """Return the condition that a number is a multiple of a constant."""
    return f"({number}) mod {of} = 0"


def _text(what: str, conditions: Iterable[str], parameters: Iterable[str]) -> str:
    return f"[{', '.join(parameters)}] -> {{ {what} : {both(conditions)} }}"
