"""Rings of buffers that are counted through nested loops: which trip of the loops uses which buffer.

The cells of such a ring are named by trips, so that several cells are one place in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from argus.ir.access import Relation
from argus.ir.expr import Expr
from argus.ir.nodes import For
from argus.ir.rings import RingPlace, place_in_ring
from argus.verify.model.formulas import Tuple
from argus.verify.model.instances import Instances
from argus.verify.model.isl import IslError, Map, Set, first, isl, point
from argus.verify.model.program import Site, turns
from argus.verify.model.translator import NonAffine, counter, identifier


@dataclass
class Count:
    """A running count over nested loops. `trips` are the tuples of trip numbers [t0, t1, ...] that occur."""

    trips: Set
    _after: list[Map] = field(default_factory=list)

    def after(self, steps: int) -> Map:
        """Return {trip -> the trip `steps` later}; earlier if negative."""
        if steps < 0:
            return self.after(-steps).reverse()
        if not self._after:
            order = isl.Map.lex_lt(self.trips.get_space())
            order = order.intersect_domain(self.trips).intersect_range(self.trips)
            following = first(order)
            if not following.intersect(order.apply_range(order)).is_empty():
                raise IslError("isl_map_lexmin is not the first")
            self._after = [self.trips.identity(), following]
        while len(self._after) <= steps:
            self._after.append(self._after[-1].apply_range(self._after[1]).coalesce())
        return self._after[steps]

    def from_then_on(self, steps: int) -> Map:
        """Return {trip -> every trip at least `steps` later}."""
        later = isl.Map.lex_le(self.trips.get_space()).intersect_range(self.trips)
        return self.after(steps).apply_range(later)


def _before_first(trips: Set, number: int) -> Set:
    """Return a point that stands for the trip `number` before the first one of `trips`."""
    return point((-number, *[0] * (trips.dim(isl.dim_type.set) - 1)))


class Rings:
    """The rings of a kernel and the running counts that number their trips, each computed once."""

    def __init__(self, model: Instances) -> None:
        self._model = model
        self._counts: dict[int, Count] = {}
        self._turning: dict[str, list[Count]] = {}
        self._early: set[str] = set()
        self._next_rounds: dict[str, Map] = {}
        shared = (tile.name for tile in model.kernel.shared)
        self._sizes = {obj: size for obj in shared if (size := self._size(obj))}

    def __contains__(self, obj: str) -> bool:
        """Return True if a shared tile is a ring."""
        return obj in self._sizes

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of buffers of the shared tiles that are rings counted through nested loops."""
        return tuple(self._sizes.values())

    def place(self, site: Site, index: Expr) -> RingPlace | None:
        """Return the place that an index names in a ring counted through nested loops, or None for other indices."""
        place = place_in_ring(index)
        if place is None or place.counter not in self._model.translator.counts:
            return None
        counting = self._nest(site, place.counter)[-1].counter
        if counting is None or counting.wrap % (2 * place.size):
            raise NonAffine(f"the count '{place.counter}' begins anew inside of two rounds of {place.size}")
        return place

    def count(self, site: Site, place: RingPlace) -> Count:
        """Return the trips over which the count of a ring runs."""
        return self.count_of(site, self._nest(site, place.counter))

    def count_of(self, site: Site, nest: tuple[For, ...]) -> Count:
        """Return the trips of the loops of `nest`, the outermost loops around a site. Raises `NonAffine` in a branch.
        """
        loop = next(s for s in self._model.sites if s.stmt is nest[-1] and s.role is site.role and s.loops == nest[:-1])
        if loop.index not in self._counts:
            if len(loop.guards) > int(turns(loop.role) > 1):
                raise NonAffine(f"the loop over '{nest[-1].var}', whose trips are counted, is inside a branch")
            conditions = self._model.loop_conditions(site, nest)
            counters = tuple(counter(loop.var) for loop in nest)
            ran = self._model.context.simply(self._model.instances(counters, tuple(conditions)))
            trips = self._model.relation(Tuple(counters), self._trip(site, nest))
            self._counts[loop.index] = Count(ran.apply(trips))
        return self._counts[loop.index]

    def trips(self, site: Site, place: RingPlace, shift: int, coords: tuple[str, ...] = ()) -> Map:
        """Return the map from an instance of a site to the trip `shift` trips after the instance's own trip."""
        own = self.trip(site, self._nest(site, place.counter), coords).drop_unused_params()
        return own.apply_range(self.count(site, place).after(shift))

    def trip(self, site: Site, nest: tuple[For, ...], coords: tuple[str, ...] = ()) -> Map:
        """Return the map from an instance of a site to its trip numbers in the loops of `nest`."""
        return self._model.relation(self._model.instance(site, coords), self._trip(site, nest))

    def trip_of_cells(self, site: Site, relation: Relation, coords: tuple[str, ...]) -> Map:
        """Return {instance -> the trip whose buffer it uses}."""
        size = self._sizes[relation.obj]
        place = self.place(site, relation.index[0])
        if place is None or place.size != size or size != self._model.kernel.object(relation.obj).shape[0]:
            raise NonAffine(f"'{relation.obj}' is used as a ring of buffers and otherwise too")
        count = self.count(site, place)
        turning = self._turning.setdefault(relation.obj, [count])
        if not any(known is count for known in turning):  # a trip names one buffer only if all counts are the same
            if not self._model.context.same(turning[0].after(0), count.after(0)):
                raise NonAffine(f"loops of other trips count the buffers of '{relation.obj}', too")
            turning.append(count)
        # The last trip up to now with that buffer. Later ones have not begun in the schedule, or `races` reports it.
        moved = place.shift % size
        trip = self.trips(site, place, moved - size if moved else 0, coords)
        if moved and not self._model.context.nothing(self._model.bare_domain(site)[0].subtract(trip.domain())):
            self._early.add(relation.obj)
            own = self.trip(site, self._nest(site, place.counter), coords)
            for rank in range(size - moved):  # trips so early that no trip has used the buffer yet
                here = count.after(-rank).domain().subtract(count.after(-rank - 1).domain())
                named = isl.Map.from_domain_and_range(here, _before_first(here, size - moved - rank))
                trip = trip.union(own.apply_range(named))
        return trip

    def next_rounds(self, obj: str) -> Map | None:
        """Return {cell -> the same cell of a ring in every later round}; None for objects that are no such ring.

        In a ring counted through nested loops, cells are named by trips. So several cells are one place in memory.
        """
        if obj not in self._sizes:
            return None
        if obj not in self._next_rounds:
            self._next_rounds[obj] = self._later_cells(obj, self._sizes[obj])
        return self._next_rounds[obj]

    def _later_cells(self, obj: str, size: int) -> Map:
        """Return {cell -> the same cell of a ring of `size` buffers in every later round}."""
        every = ((site, relation) for site in self._model.sites for relation in site.accesses if relation.obj == obj)
        site, index = next((site, relation.index[0]) for site, relation in every if relation.index)
        place = self.place(site, index)
        assert place is not None  # else its cells would not be exact
        count = self.count(site, place)
        later = count.from_then_on(size)
        for before in range(1, size) if obj in self._early else ():
            there = count.after(before - size).domain()
            later = later.union(isl.Map.from_domain_and_range(_before_first(there, before), there))
        rest = len(self._model.kernel.object(obj).shape) - 1
        same = isl.Map.identity(isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, rest, rest))
        named = later.flat_product(same).set_tuple_name(isl.dim_type.in_, identifier(obj))
        return named.set_tuple_name(isl.dim_type.out, identifier(obj))

    def _nest(self, site: Site, name: str) -> tuple[For, ...]:
        """Return the loops around a site, down to the one that counts `name`."""
        for depth, loop in enumerate(site.loops):
            if loop.counter is not None and loop.counter.name == name:
                return site.loops[: depth + 1]
        raise NonAffine(f"the running count '{name}' is used outside of its loop")

    def _trip(self, site: Site, nest: tuple[For, ...]) -> Tuple:
        """Return the trip number of each loop."""
        numbers = []
        for loop in nest:
            start = self._model.translator.integer(self._model.resolve(site, loop.start), ())
            by_value = f"floor(({counter(loop.var)} - ({start})) / {loop.step})"
            numbers.append(counter(loop.var) if loop.var in self._model.translator.trips else by_value)
        return Tuple(numbers)

    def _size(self, obj: str) -> int | None:
        """Return the number of buffers of a shared tile that is a ring counted through nested loops, or None for other
        tiles."""
        for site in self._model.sites:
            for relation in (*site.accesses, *site.tag_reads):
                place = self.place(site, relation.index[0]) if relation.obj == obj and relation.index else None
                if place is not None:
                    return place.size
        return None
