"""Shifts: the level to which every weight of a sum is relative, and levels that cancel.

The value of a level does not matter, but every weight and every sum of a row must be relative to the same level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.verify.model.isl import UnionMap, UnionSet, empty_map
from argus.verify.values.linear import Exponents
from argus.verify.values.scope import Mismatch, close
from argus.verify.values.summands import Level, Summand, one_image


@dataclass(frozen=True)
class Shift:
    """The number to which all summands of a root are relative: `factor` * scalars * level. `made` is {root -> level}.
    """

    factor: float
    scalars: tuple[str, ...]
    made: UnionMap


def alike(a: Shift, b: Shift) -> bool:
    """Return True if two levels have the same factor, up to rounding, and the same scalars."""
    return (close(a.factor, b.factor) or a.factor == b.factor) and a.scalars == b.scalars


def joined(shifts: list[Shift]) -> Shift | None:
    """Combine the shifts of several sums or summands into one. Raise `Mismatch` unless they agree."""
    if not shifts:
        return None
    both = shifts[0].made
    for other in shifts[1:]:
        if not alike(other, shifts[0]):
            raise Mismatch("weights of one sum are relative to the maximum times different factors")
        both = both.union(other.made)
    for one in shifts if not one_image(both) else []:
        if not both.intersect_domain(one.made.domain()).is_equal(one.made):
            raise Mismatch(NOT_RESCALED)
    return replace(shifts[0], made=both.coalesce())


NOT_RESCALED = (
    "a sum adds up weights that are relative to different maxima: what was summed before is not rescaled by "
    "exp(old maximum - new maximum) when the maximum moves"
)


class Shifts:
    """Finds the levels of summands that cancel, and the level to which a sum is relative."""

    def __init__(self, exponents: Exponents) -> None:
        self._exponents = exponents

    def settled(self, summand: Summand) -> Summand:
        """Return the summand without levels that cancel."""
        levels = list(summand.levels)
        for a in summand.levels:
            for b in summand.levels:
                if a.factor > 0 > b.factor and a in levels and b in levels and self._cancel(summand, a, b):
                    levels = [level for level in levels if level is not a and level is not b]
        return replace(summand, levels=tuple(levels))

    def _cancel(self, summand: Summand, a: Level, b: Level) -> bool:
        if not close(a.factor, -b.factor) or a.scalars != b.scalars:
            return False
        if a.root == b.root:
            mine, other = a.made, b.made
            where = summand.roots if a.root else summand.points
        else:
            mine, other, where = summand.over(a.made, a.root), summand.over(b.made, b.root), summand.points
        if not mine.intersect_domain(where).is_equal(other.intersect_domain(where)):
            return False
        self.require_finite(summand, a, summand.points)
        return True

    def require_finite(self, summand: Summand, level: Level, points: UnionSet) -> None:
        """Raise `Mismatch` if a maximum may be -inf at these points, since rescaling would then wipe out the sum."""
        if level.ref is None:
            return
        finite = self._exponents.finite(level.ref)
        if level.root and summand.up is not None:
            finite = finite.apply(summand.up.reverse())
        if not points.is_subset(finite):
            raise Mismatch(
                "the maximum may fall back to -inf after terms were added up, and rescaling by "
                "exp(old maximum - new maximum) then forgets them: keep it a maximum of the old one and the new terms"
            )

    def shift(self, summands: list[Summand]) -> Shift | None:
        """Return the level to which all summands are relative, by root, or None if there are no summands."""
        found: list[Shift] = []
        for summand in summands:
            if len(summand.levels) > 1:
                one, *others = summand.levels
                if any(not close(abs(o.factor), abs(one.factor)) or o.scalars != one.scalars for o in others):
                    raise Mismatch(
                        "a weight is not relative to one maximum: what it was relative to, and what it was rescaled "
                        "by, are maxima times different factors"
                    )
                raise Mismatch(
                    "a weight is not relative to one maximum: what it was relative to, and what it was rescaled from, "
                    "are maxima of different steps"
                )
            made, level = empty_map(), summand.levels[0] if summand.levels else None
            if level is not None:
                made = self._by_root(summand, level)
                self.require_finite(summand, level, summand.points)
            found.append(Shift(level.factor, level.scalars, made) if level is not None else Shift(0.0, (), made))
        return joined(found)

    def _by_root(self, summand: Summand, level: Level) -> UnionMap:
        """Return {root -> instances} of a level, also for points at which the summand is 0."""
        if level.root or summand.up is None:
            return level.made
        by_root = summand.up.reverse().apply_range(level.made)
        if not summand.up.apply_range(by_root).intersect_domain(summand.points).is_subset(level.made):
            raise Mismatch(NOT_RESCALED)
        return by_root.coalesce()
