"""Happens-before between threads of a block: barriers, and the completion of asynchronous copy groups.

Over time vectors (see `Model.schedule`): an access at time x is ordered before one at time y of another thread
iff some barrier runs at a time b with x < b < y. An asynchronous copy issued at x is complete, for its
own thread, at the first wait that covers its group, and for other threads at the first barrier after that
(PTX ISA, cp.async.wait_group: all but the most recent n groups are complete).
"""

from __future__ import annotations

import islpy as isl

from argus.ir.nodes import Barrier, CommitGroup, WaitGroup
from argus.verify.relations import Map, Model, Set


class Ordering:
    """The order relations of one kernel; maps are {time -> later time}."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.later = model.before()
        self.barriers = self._times(Barrier)
        self.between_barriers = self.through(self.later.intersect_range(self.barriers))
        self._completions: Map | None = None

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

    def through(self, first: Map) -> Map:
        """{x -> y}: some z with first(x) = z and z < y."""
        return first.apply_range(self.later).coalesce()

    @property
    def completions(self) -> Map:
        """{time of an asynchronous copy -> time of a wait that covers it}."""
        if self._completions is None:
            self._completions = self._make_completions()
        return self._completions

    def _make_completions(self) -> Map:
        commits = self._times(CommitGroup)
        next_commit = self.later.intersect_range(commits).lexmin()
        result = isl.Map.empty(self.later.get_space())
        pendings = sorted({s.stmt.pending for s in self.model.sites if isinstance(s.stmt, WaitGroup)})
        reach, steps = next_commit, 1
        for pending in pendings:
            while steps < pending + 1:
                reach = reach.apply_range(next_commit)
                steps += 1
            waits = self._times(WaitGroup, pending)
            result = result.union(self.through(reach).intersect_range(waits))
        return result.coalesce()

    def ordered(self, asynchronous: bool) -> Map:
        """{x -> y}: an access issued at x is ordered before one at y in any other thread of the block."""
        if not asynchronous:
            return self.between_barriers
        complete_then_barrier = self.through(self.completions).intersect_range(self.barriers)
        return self.through(complete_then_barrier)

    def ordered_in_thread(self, asynchronous: bool) -> Map:
        """{x -> y}: the same, in the issuing thread itself."""
        return self.through(self.completions) if asynchronous else self.later
