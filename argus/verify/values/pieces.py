"""Factors at points: for equal products, the sum of the arriving factors and the specified factor at each point."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce

from argus.verify.model.isl import UnionSet, empty_set, merged
from argus.verify.values.scope import Mismatch
from argus.verify.values.summands import Summand

CANCELLED = 1e-12
"""A sum of factors counts as 0 if it is below this fraction of the sum of their magnitudes, which rounding to 64 bits
may leave."""


@dataclass(frozen=True)
class Piece:
    """Points, the sum of factors that arrives there, the specified factor, and the sum of the magnitudes of the
    arriving factors."""

    points: UnionSet
    found: float = 0.0
    wanted: float = 0.0
    gross: float = 0.0

    def __add__(self, other: Piece) -> Piece:
        """Return the sum of two pieces at the points that they share."""
        both = self.points.intersect(other.points)
        return Piece(both, self.found + other.found, self.wanted + other.wanted, self.gross + other.gross)


@dataclass
class Group:
    """Equal products. At the points of `like`, the factors of all products equal to it are added up.

    `why` is the first reason why the product differs from the products of earlier groups.
    """

    like: Summand
    specified: bool
    why: Mismatch | None = None
    _arrived: dict[tuple[float, bool], list[UnionSet]] = field(default_factory=dict)

    def add(self, points: UnionSet, factor: float, specified: bool) -> None:
        """Add a factor at some points."""
        self._arrived.setdefault((factor, specified), []).append(points)

    def pieces(self) -> list[Piece]:
        """Return the sums of the added amounts as disjoint pieces."""
        each = [
            Piece(points, 0.0 if specified else factor, factor if specified else 0.0, abs(factor))
            for (factor, specified), sets in self._arrived.items()
            for points in _apart(sets)
        ]
        return reduce(_joined, each, [])


def _apart(sets: list[UnionSet]) -> list[UnionSet]:
    """Return one union of the sets if they are disjoint, or else the sets themselves."""
    united = sets
    while len(united) > 1:
        pairs = list(zip(united[::2], united[1::2], strict=False))
        if not all(a.intersect(b).is_empty() for a, b in pairs):
            return sets
        united = [*(merged(a.union(b)) for a, b in pairs), *united[2 * len(pairs) :]]
    return united


def _joined(pieces: list[Piece], more: Piece) -> list[Piece]:
    """Return disjoint pieces: `pieces` with `more` added, whose numbers are added up where both have points."""
    parts, rest = [], more.points
    for piece in pieces:
        parts += [piece + more, replace(piece, points=piece.points.subtract(more.points))]
        rest = rest.subtract(piece.points)
    joined: dict[tuple[float, float, float], UnionSet] = {}
    for part in (*parts, replace(more, points=rest)):
        if not part.points.is_empty():
            numbers = part.found, part.wanted, part.gross
            joined[numbers] = joined.get(numbers, empty_set()).union(part.points)
    return [Piece(merged(points), *numbers) for numbers, points in joined.items()]
