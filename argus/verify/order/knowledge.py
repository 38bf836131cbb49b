"""The order between roles that mbarriers establish: an arrival, then a wait for its phase, possibly in several hops.

Everything is a single-valued relation: the *next* arrival after a time, the *first* wait for its phase. These are
computed once for each arrival and wait. A *way* is a composition of them. Ways are not merged into one earliest time,
because that would need a minimum for every question. Instead a question tries them one by one, short ones first, and
stops when it is answered. Leaving out a way can only lose order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice

from argus.ir.nodes import Role
from argus.verify.model.isl import Map, Set, first, isl
from argus.verify.model.program import Site
from argus.verify.model.relations import Model

_HOPS = 3
"""The most hops, an arrival and a wait each, in an order between roles; rings of buffers never need more."""


@dataclass(frozen=True)
class Event:
    """One statement's uses of an mbarrier. `keys`: {iteration -> use}, proved.

    `units`: arrivals that one use makes. `bytes`: bytes that one use expects or delivers.
    """

    site: Site
    barrier: str
    keys: Map
    units: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Wait:
    """One statement's waits.

    `needs`: {iteration -> the use whose phase has to be complete}; undefined for the first waits for a free buffer,
    which need nothing. `next`: {iteration -> the use after that one}. `behind`: the wait needs the phase before the
    phase of its own use.
    """

    site: Site
    barrier: str
    needs: Map
    next: Map
    behind: bool = False


class Knowledge:
    """The times at which roles know what others did, through the arrivals and waits of a protocol.

    Bulk copies may be among the arrivals: a role that has seen a copy complete knows which phases were over when the
    copy was issued.
    """

    def __init__(self, model: Model, arrivals: list[Event], waits: list[Wait]) -> None:
        self.model, self.waits = model, waits
        self.later, self._nearest = model.before(), model.before_by_level()
        self._whole: dict[str, list[Event]] = {}
        for event in arrivals:
            role = event.site.role
            if role is not None and not 0 < event.units < role.num_warps:  # one warp does not speak for the others
                self._whole.setdefault(role.name, []).append(event)
        self._heard: dict[int, dict[str, Map]] = {}
        self._told: dict[tuple[int, str, int], Remembered] = {}
        self._passed: dict[tuple[str, str, int], Remembered] = {}
        self._resumed: dict[int, Map] = {}

    def next_after(self, times: Map, events: Set) -> Map:
        """Return {x -> the first event after times(x)}, single-valued; undefined where no event follows.

        Two times are compared in the first dimension in which they differ. The further in that dimension is, the
        nearer the times are, so events that differ in inner dimensions are tried first.
        """
        result, left = isl.Map.empty(times.apply_range(self.later).get_space()), times
        for later in self._nearest:
            if left.is_empty():
                break
            found = left.apply_range(later.intersect_range(events))
            if not found.is_empty():
                found = first(found)
                result, left = result.union(found), left.subtract_domain(found.domain())
        return result.coalesce()

    def heard(self, keys: Map, barrier: str) -> dict[str, Map]:
        """Map each role to {x -> time of its first wait for the phase of the use keys(x)}."""
        found: dict[str, Map] = {}
        for wait in self.waits:
            if wait.barrier != barrier or wait.site.role is None:
                continue
            name = wait.site.role.name
            reached = keys.apply_range(wait.needs.reverse().apply_range(self.model.iteration_schedule(wait.site)))
            found[name] = found[name].union(reached) if name in found else reached
        return {name: first(times) for name, times in found.items()}

    # ------------------------------------------------------------------ ways

    def after(self, times: Map, role: Role, to: str) -> Iterator[Map]:
        """Return {x -> a time from which role `to` knows what all threads of `role` did or knew at times(x)}, way by
        way."""
        following: dict[int, Map] = {}
        for hops in range(1, _HOPS + 1):
            for event in self._whole.get(role.name, []):
                for told in self._ways(event, to, hops):
                    if event.site.index not in following:
                        schedule = self.model.iteration_schedule(event.site)
                        arrival = self.next_after(times, schedule.range()).apply_range(schedule.reverse())
                        following[event.site.index] = arrival
                    yield following[event.site.index].apply_range(told)

    def spread(self, known: Mapping[str, Map], to: str) -> Iterator[Map]:
        """Return {x -> a time from which role `to` knows x}, way by way. `known`: the waits at which roles learn of
        x."""
        if to in known:
            yield known[to]
        for hops in range(1, _HOPS):
            for name, times in known.items():
                yield from (times.apply_range(way) for way in self._onward(name, to, hops))

    def _ways(self, event: Event, to: str, hops: int) -> Remembered:
        """Return {iteration of an arrival -> time at which role `to` knows of it}, for each way of `hops` hops."""
        key = (event.site.index, to, hops)
        if key not in self._told:
            self._told[key] = Remembered(self._all_ways(event, to, hops))
        return self._told[key]

    def _all_ways(self, event: Event, to: str, hops: int) -> Iterator[Map]:
        if event.site.index not in self._heard:
            self._heard[event.site.index] = self.heard(event.keys, event.barrier)
        for name, times in self._heard[event.site.index].items():
            if hops == 1 and name == to:
                yield times
            elif hops > 1 and event.site.role is not None and name != event.site.role.name:
                ways = (times.apply_range(way) for way in self._onward(name, to, hops - 1))
                yield from (way for way in ways if not way.is_empty())

    def _onward(self, name: str, to: str, hops: int) -> Remembered:
        """Return {time of a wait of role `name` -> time at which `to` knows what `name` knew then}, for each way of
        `hops`.

        Ways from a role back to itself are left out. They bring nothing new: the role knew it earlier.
        """
        key = (name, to, hops)
        if key not in self._passed:
            events = self._whole.get(name, []) if name != to else []
            ways = (self._after_waits(e).apply_range(way) for e in events for way in self._ways(e, to, hops))
            self._passed[key] = Remembered(ways)
        return self._passed[key]

    def _after_waits(self, event: Event) -> Map:
        """Return {time of a wait of the role -> iteration of its next arrival by this statement}."""
        if event.site.index not in self._resumed:
            waiting = isl.Set.empty(self.later.get_space().domain())
            for wait in self.waits:
                if wait.site.role is event.site.role:
                    waiting = waiting.union(self.model.times(wait.site))
            schedule = self.model.iteration_schedule(event.site)
            following = self.next_after(waiting.identity(), schedule.range())
            self._resumed[event.site.index] = following.apply_range(schedule.reverse())
        return self._resumed[event.site.index]


class Remembered:
    """A sequence of relations that is computed lazily and can be iterated several times."""

    def __init__(self, source: Iterator[Map]) -> None:
        self._source, self._seen = source, list[Map]()

    def __iter__(self) -> Iterator[Map]:
        for position in count():
            if position == len(self._seen):
                self._seen += islice(self._source, 1)
            if position == len(self._seen):
                return
            yield self._seen[position]
