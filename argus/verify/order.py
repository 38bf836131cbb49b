"""Happens-before between threads of a block: barriers, and the completion of asynchronous copy groups.

Over time vectors (see `Model.schedule`): an access at time x is ordered before one at time y of another thread
iff some barrier runs at a time b with x < b < y, that is iff the *first* barrier after x runs before y. An
asynchronous copy issued at x is complete, for its own thread, at the first wait that covers its group, and
for other threads at the first barrier after that (PTX ISA, cp.async.wait_group: all but the most recent n
groups are complete). So each access has one time at which it is released, and only that is compared.
"""

from __future__ import annotations

from argus.ir.nodes import Barrier, CommitGroup, WaitGroup
from argus.verify.program import Site
from argus.verify.relations import Map, Model, Set, isl


class Ordering:
    """Release times of one kernel's accesses, by statement and iteration (elements are simultaneous)."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.later = model.before()
        self.barriers = self._times(Barrier)
        self.commits = self._times(CommitGroup)
        self._released: dict[tuple[int, bool], Map] = {}
        self._completed: dict[int, Map] = {}

    def _times(self, kind: type, pending: int | None = None) -> Set:
        """Times of all exactly known sites of a kind. Leaving some out only loses order."""
        result = isl.Set.empty(self.later.get_space().domain())
        for site in self.model.sites:
            if not isinstance(site.stmt, kind):
                continue
            if pending is not None and getattr(site.stmt, "pending", None) != pending:
                continue
            _, exact, _ = self.model.domain(site)
            if exact:
                result = result.union(self.model.times(site))
        return result

    def issued(self, site: Site) -> Map:
        """{iteration of a site -> time}."""
        return self.model.iteration_schedule(site)

    def _first_after(self, times: Map, events: Set) -> Map:
        """{x -> the first event after times(x)}; not defined where none follows."""
        return times.apply_range(self.later).intersect_range(events).lexmin().coalesce()

    def completed(self, site: Site) -> Map:
        """{iteration of an asynchronous copy -> time of the first wait that covers it}."""
        if site.index not in self._completed:
            result = isl.Map.empty(self.issued(site).get_space())
            pendings = {s.stmt.pending for s in self.model.sites if isinstance(s.stmt, WaitGroup)}
            reach, commits = self.issued(site), 0
            for pending in sorted(pendings):
                while commits < pending + 1:  # the copy's own group, and `pending` younger ones, are committed
                    reach, commits = self._first_after(reach, self.commits), commits + 1
                waits = self._times(WaitGroup, pending)
                result = result.union(self._first_after(reach, waits))
            self._completed[site.index] = result.lexmin().coalesce()
        return self._completed[site.index]

    def released(self, site: Site, asynchronous: bool) -> Map:
        """{iteration -> time from which on every other thread of the block is ordered after the access}."""
        key = (site.index, asynchronous)
        if key not in self._released:
            times = self.completed(site) if asynchronous else self.issued(site)
            self._released[key] = self._first_after(times, self.barriers)
        return self._released[key]

    def unordered(self, pairs: Map, first: Site, second: Site, asynchronous: bool) -> Map:
        """The pairs {iteration of first -> later iteration of second} that nothing orders between threads."""
        return pairs.intersect(self._precedes(self.issued(first), second)).subtract(
            self._precedes(self.released(first, asynchronous), second)
        )

    def uncompleted(self, pairs: Map, first: Site, second: Site) -> Map:
        """The pairs at which an asynchronous first access is not complete even for its own thread."""
        return pairs.intersect(self._precedes(self.issued(first), second)).subtract(
            self._precedes(self.completed(first), second)
        )

    def _precedes(self, times: Map, second: Site) -> Map:
        """{x -> iteration of second}: times(x) is before it."""
        return times.apply_range(self.later).apply_range(self.issued(second).reverse())
