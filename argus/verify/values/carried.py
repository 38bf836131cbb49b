"""Sums that a loop continues, in closed form, by induction over the instances of the statement that writes them.

`x = x * exp(old - new) + exp(score - new) * v` is a sum relative to `new` if `x` was a sum relative to `old`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from argus.verify.model.isl import UnionMap, closure, empty_map, empty_set, union_of_maps
from argus.verify.values.decays import Decay, decay, decays
from argus.verify.values.linear import Exponents
from argus.verify.values.scope import Mismatch, close
from argus.verify.values.shifts import NOT_RESCALED, Shift, Shifts
from argus.verify.values.summands import Level, Summand, seen, spread
from argus.verify.values.terms import Term


@dataclass(frozen=True)
class Carried:
    """The value of a statement that reads its own earlier values: the summands of this and all earlier instances.

    `reach`: {instance -> itself and the earlier ones that it carries on}. `added`: it adds to what it wrote before.
    `decay`: what each step multiplies the earlier values by.
    """

    summands: tuple[Summand, ...]
    reach: UnionMap
    shift: Shift | None
    added: bool
    decay: Decay | None = None


_OTHER_FACTOR = (
    "what a loop carries on is rescaled by another factor than exp(old maximum - new maximum), of the maxima that its "
    "weights before and after are relative to"
)


def _own(site: int, past: list[Summand]) -> None:
    """Raise `Mismatch` unless earlier values are the statement's own, and are added up by nothing else."""
    for s in past:
        assert s.again is not None
        if s.again[0] != site:
            raise Mismatch("two statements that carry each other on")
        if s.up is not None:
            raise Mismatch(_OTHER_FACTOR)


def _once(past: list[Summand]) -> None:
    """Raise `Mismatch` unless the earlier value occurs once at each instance."""
    covered = empty_set()
    for s in past:
        if not covered.intersect(s.points).is_empty():
            raise Mismatch("a statement adds its own earlier value twice")
        covered = covered.union(s.points)


class CarriedSums:
    """Writes the values that statements read of their own earlier instances as summands."""

    def __init__(
        self, exponents: Exponents, shifts: Shifts, summands: Callable[[Term, UnionMap], list[Summand]]
    ) -> None:
        """Create the closed forms of a kernel's statements. `summands`: {term, path} -> its summands."""
        self._exponents = exponents
        self._builder = exponents.builder
        self._shifts = shifts
        self._summands = summands
        self._carried: dict[int, Carried] = {}
        self._open: set[int] = set()

    def again(self, site: int, path: UnionMap) -> list[Summand]:
        if site in self._open:
            return [Summand(path.domain(), again=(site, path))]
        carried = self.carried(site)
        if not carried.added:
            return self._summands(self._exponents.term_of(site), path)
        base = path.apply_range(carried.reach)
        found = []
        for s in carried.summands:
            down = base.apply_range(s.upward.reverse())
            if down.is_empty():
                continue
            up, to = spread(down)
            levels: tuple[Level, ...] = ()
            if carried.shift is not None and carried.shift.factor:
                shift = carried.shift
                levels = (Level(shift.factor, shift.scalars, path.apply_range(shift.made), True),)
            placed = seen(replace(s, levels=levels), to, up)
            if carried.decay is None:
                found.append(placed)
            else:
                found += carried.decay.times(placed, up.apply_range(path), to.apply_range(s.upward))
        return found

    def carried(self, site: int) -> Carried:
        """Return the closed form of a statement that reads its own earlier values, by induction over its instances."""
        if site not in self._carried:
            where = self._builder.model.sites[site]
            domain = self._builder.model.domain(where)[0].to_union_set()
            self._open.add(site)
            try:
                found = self._summands(self._exponents.term_of(site), domain.identity())
            finally:
                self._open.discard(site)
            self._carried[site] = self._induction(site, found)
        return self._carried[site]

    def _induction(self, site: int, found: list[Summand]) -> Carried:
        own = [s for s in found if s.again is None]
        past = [s for s in found if s.again is not None]
        _own(site, past)
        if any(map(decays, past)):
            return self._decaying(site, own, past)
        _once(past)
        if any(len(s.levels) not in (0, 2) for s in past):
            raise Mismatch(_OTHER_FACTOR)
        relative = self._shifts.shift(own)
        sign = relative.factor if relative is not None and relative.factor else -1.0
        new = [replace(s, levels=tuple(x for x in s.levels if x.factor * sign > 0)) for s in past if s.levels]
        shift = self._shifts.shift([*own, *new])
        steps = empty_map()
        for s in past:
            assert s.again is not None
            step = s.again[1].intersect_domain(s.points)
            if shift is not None and shift.factor:
                step = step.intersect_range(shift.made.domain())  # Elsewhere the earlier value is 0.
                self._require_carried(s, step, shift)
            elif s.levels:
                raise Mismatch("a sum that is rescaled adds up what is relative to no maximum")
            steps = steps.union(step)
        if not steps.is_single_valued():
            raise Mismatch("a statement adds up several of its own earlier values")
        instances = self._builder.model.domain(self._builder.model.sites[site])[0].to_union_set()
        earlier = closure(steps)
        self._require_kept(own, past, steps, earlier)
        return Carried(tuple(own), instances.identity().union(earlier).coalesce(), shift, bool(past))

    def _decaying(self, site: int, own: list[Summand], past: list[Summand]) -> Carried:
        """Return the closed form of a recurrence, which multiplies its earlier value in every step."""
        if any(s.levels or s.level is not None for s in (*own, *past)):
            raise Mismatch(_OTHER_FACTOR)
        steps = union_of_maps(s.again[1].intersect_domain(s.points) for s in past if s.again)
        if not steps.is_single_valued():
            raise Mismatch("a statement adds up several of its own earlier values")
        instances = self._builder.model.domain(self._builder.model.sites[site])[0].to_union_set()
        reach = instances.identity().union(closure(steps)).coalesce()
        return Carried(tuple(own), reach, None, True, decay(self._builder, past, steps, reach))

    def _require_kept(self, own: list[Summand], past: list[Summand], steps: UnionMap, earlier: UnionMap) -> None:
        """Raise `Mismatch` unless a nonempty earlier sum is always rescaled from a maximum that is more than -inf."""
        summed = empty_set()
        for s in own:
            summed = summed.union(s.roots)
        summed = summed.union(earlier.intersect_range(summed).domain())
        kept = steps.intersect_range(summed).domain()
        for s in past:
            for level in s.levels:
                self._shifts.require_finite(s, level, kept.intersect(s.points))

    def _require_carried(self, s: Summand, step: UnionMap, shift: Shift) -> None:
        """Raise `Mismatch` unless the earlier value is rescaled by exp(its level - the level of this instance)."""
        before = step.apply_range(shift.made)
        if not s.levels:
            if not before.is_equal(shift.made.intersect_domain(step.domain())):
                raise Mismatch(NOT_RESCALED)
            return
        old = [level for level in s.levels if level.factor * shift.factor < 0]
        if len(s.levels) != 2 or len(old) != 1 or not close(old[0].factor, -shift.factor):
            raise Mismatch(_OTHER_FACTOR)
        if old[0].scalars != shift.scalars:
            raise Mismatch(_OTHER_FACTOR)
        if not before.is_equal(old[0].made.intersect_domain(step.domain())):
            raise Mismatch(_OTHER_FACTOR)
