"""Names for the uses of a barrier, which identify the phase of each use.

A *use* of a barrier array is named by a pair [index, ordinal], or by a trip [t0, t1, ...], the trip numbers of nested
loops. It is named by the trip whose buffer it belongs to, if a count through the loops drives the ring (see
`argus.ir.rings`). The names are guessed and then proved by induction: the uses of a role happen in the order of their
names, and no name is left out.

A named barrier that is used in nested loops is a ring of one place that counts itself. A role may use it before the
loops, and is ahead from then on. Its uses there are named by the d trips before the first one. Roles that do not use it
there are d trips behind in each iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from argus.ir.expr import Const, Expr, LoopVar, Op, op
from argus.ir.nodes import BarrierArrive, BarrierSync, Mbarrier, Roles
from argus.verify.model.barriers import barrier_use
from argus.verify.model.formulas import Tuple, points, relation
from argus.verify.model.isl import Map, Set, isl, point
from argus.verify.model.program import PROGRAM, Site, own_turn, turns
from argus.verify.model.relations import Model
from argus.verify.model.rings import Count
from argus.verify.model.translator import NonAffine

USE = Tuple(("i", "n"))
"""Use number n of place i of a barrier."""
_FEW = 4
"""The number of uses of one barrier outside of loops that are distinguished."""


@dataclass(frozen=True)
class Ring:
    """A way to name the uses of one mbarrier array.

    `previous`: {use -> the use before it on the same barrier}. `count`: the trips that name uses; None if pairs
    [index, ordinal] name them. `ahead`: the number of trips before the first that name uses, too.
    """

    barrier: Mbarrier
    previous: Map
    count: Count | None
    ahead: int = 0


class Uses:
    """The names of the uses of one kernel's barriers."""

    def __init__(self, model: Model) -> None:
        self.model, self.later = model, model.before()

    def rings(self, barrier: Mbarrier, uses: list[Site]) -> Iterator[Ring]:
        """Candidate ways to name the uses of a barrier, the same for all its users, likely ways first."""
        depths = {len(site.loops) for site in uses} - {0}
        if all(map(is_named, uses)) and len(depths) == 1 and depths != {1}:
            yield from self._by_trips(barrier, uses)
        places = [(s, self.model.rings.place(s, _index_of(s))) for s in uses]
        counts = [self.model.rings.count(s, place) for s, place in places if place is not None]
        if not counts:
            yield Ring(barrier, relation(USE, Tuple(("i", "n - 1")), ["n >= 1"]), None)
            return
        sizes = {place.size for _, place in places if place is not None}
        if len(counts) < len(places) or sizes != {barrier.count}:
            raise NonAffine("it is not one ring of as many places for all that use it")
        if not self._alike(counts):
            raise NonAffine("its users count different trips")
        yield Ring(barrier, counts[0].after(-barrier.count), counts[0])

    def _by_trips(self, barrier: Mbarrier, uses: list[Site]) -> Iterator[Ring]:
        """Name a named barrier's uses by the trips of nested loops, and by earlier trips for uses before the loops."""
        counts = [self.model.rings.count_of(site, site.loops) for site in uses if site.loops]
        if not self._alike(counts):
            return
        roles = [self.team(site) for site in uses if not site.loops]
        ahead = max(map(roles.count, roles), default=0)
        trips = counts[0].trips
        for before in range(1, ahead + 1):
            trips = trips.union(_trip_before(trips.dim(isl.dim_type.set), before))
        count = Count(trips)
        yield Ring(barrier, count.after(-1), count, ahead)

    def _alike(self, counts: list[Count]) -> bool:
        return all(self.model.context.same(c.after(0), counts[0].after(0)) for c in counts)

    def named(self, ring: Ring, sites: list[Site], once: bool) -> list[tuple[Site, Map]]:
        """Return {iteration -> use} of statements of one kind, with proof that each role uses every phase in turn."""
        result: list[tuple[Site, Map]] = []
        by_team: dict[str, list[Site]] = {}
        for site in sites:
            by_team.setdefault(self.team(site), []).append(site)
        for group in by_team.values():
            guesses = [self.guesses(ring, site) for site in group]
            chosen = next((keys for keys in product(*guesses) if self._in_order(ring, group, keys, once)), None)
            if chosen is None:
                raise NonAffine("its uses do not run through the phases one by one")
            result += zip(group, chosen, strict=True)
        return result

    def team(self, site: Site) -> str:
        """Return the name of the role that uses a barrier, or the names of roles that take turns and act as one role.
        """
        if site.role is None:
            return ""
        number = turns(site.role)
        if number == 1 or is_named(site):
            return site.role.name
        groups: dict[int, list[str]] = {}  # by turn; one list holds the roles of several blocks
        for stmt in self.model.kernel.body:
            for role in stmt.roles if isinstance(stmt, Roles) else ():
                if turns(role) == number:
                    groups.setdefault(own_turn(role), []).append(role.name)
        place = groups[own_turn(site.role)].index(site.role.name)
        return " ".join(names[place] for names in groups.values() if place < len(names))

    def guesses(self, ring: Ring, site: Site) -> list[Map]:
        """Candidates for {iteration -> use}."""
        _, exact, reason = self.model.domain(site)
        if not exact:
            raise NonAffine(reason)
        iterations = self.model.iteration_schedule(site).domain()
        index = _index_of(site)
        if ring.count is not None and is_named(site):
            return [keys.intersect_domain(iterations) for keys in self._trips(ring, ring.count, site)]
        place = self.model.rings.place(site, index)
        if place is not None:
            shifts = {place.shift % place.size, place.shift % place.size - place.size}
            found = [self.model.rings.trips(site, place, shift) for shift in sorted(shifts, key=abs)]
            return [keys.intersect_domain(iterations) for keys in found]
        index = self.model.resolve(site, index)
        if isinstance(index, Const):
            return [self._keys(site, iterations, index, turn) for turn in self._turns(site)]
        index, running, stages = _places(index)
        ordinals = [op("sub", op("floordiv", running, Const(stages)), Const(shift)) for shift in (0, 1)]
        return [self._keys(site, iterations, index, ordinal) for ordinal in ordinals]

    def _trips(self, ring: Ring, count: Count, site: Site) -> list[Map]:
        """Candidate trips for the uses of a named barrier.

        In the loops: the statement's own trip, or up to `ring.ahead` trips before that. Before the loops: one of the
        `ring.ahead` trips before the first.
        """
        if site.loops:
            own = self.model.rings.trip(site, site.loops)
            return [own.apply_range(count.after(-behind)) for behind in range(ring.ahead + 1)]
        depth, every = count.trips.dim(isl.dim_type.set), self.model.clock(site).domain()
        return [isl.Map.from_domain_and_range(every, _trip_before(depth, d)) for d in range(ring.ahead, 0, -1)]

    def _turns(self, site: Site) -> list[Expr]:
        """Candidate counts of earlier uses of a barrier: the trip of the outermost loop plus 0 to `_FEW` - 1."""
        if not site.loops:
            return [Const(before) for before in range(_FEW)]
        loop = site.loops[0]
        trip = op("floordiv", op("sub", LoopVar(loop.var), loop.start), Const(loop.step))
        if loop.var == PROGRAM:
            trip = op("floordiv", trip, Const(turns(site.role)))
        return [op("add", trip, Const(before)) for before in range(_FEW)]

    def _keys(self, site: Site, iterations: Set, index: Expr, value: Expr) -> Map:
        keys = self.model.image(site, (index, value), elements=False)
        return keys.drop_unused_params().intersect_domain(iterations)

    def _in_order(self, ring: Ring, sites: list[Site], names: Iterable[Map], once: bool) -> bool:
        """Return True if every use comes after the previous use of its barrier; with `once`, no use is made twice."""
        times: Map | None = None  # {use -> times}
        for site, keys in zip(sites, names, strict=True):
            domain = self.model.iteration_schedule(site).domain()
            legal = ring.count.trips if ring.count is not None else points(USE, ["n >= 0"])
            if not self.model.context.nothing(domain.subtract(keys.domain())):
                return False
            if not self.model.context.nothing(keys.range().subtract(legal)):
                return False
            if once and not (keys.is_injective() or self.model.context.known(keys).is_injective()):
                return False
            here = keys.reverse().apply_range(self.model.iteration_schedule(site))
            times = here if times is None else times.union(here)
        assert times is not None
        if once and not (times.is_single_valued() or self.model.context.known(times).is_single_valued()):
            return False
        uses = times.reverse()  # {time -> use}
        following = uses.apply_range(ring.previous)  # {time -> the use before}
        earlier = following.apply_range(times).intersect(self.later.reverse())
        return self.model.context.nothing(following.domain().subtract(earlier.domain()))


def is_named(site: Site) -> bool:
    """Return True if a site uses a named barrier."""
    return isinstance(site.stmt, BarrierSync | BarrierArrive)


def _trip_before(depth: int, number: int) -> Set:
    """Return the trip `number` before the first one."""
    return point((-number, *[0] * (depth - 1)))


def _index_of(site: Site) -> Expr:
    used = barrier_use(site.stmt)
    assert used is not None
    return used[1]


def _places(index: Expr) -> tuple[Expr, Expr, int]:
    """(index, running count, stages) of an index `count mod stages`."""
    match index:
        case Op(op="mod", args=(running, Const(value=stages))):
            return index, running, int(stages)
        case _:
            raise NonAffine("the index is not a count modulo the number of stages")
