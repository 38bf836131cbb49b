"""Happens-before between threads of a block: barriers, completion of asynchronous work, and mbarriers.

Times are vectors (see `Model.schedule`). An access at time x is ordered before an access at time y of another thread
iff some barrier runs at a time b with x < b < y, that is, iff the *first* barrier after x runs before y. An
asynchronous access is complete for its own thread at the first wait that covers its group (PTX ISA,
cp.async.wait_group and wgmma.wait_group: all but the most recent n groups are complete). It is complete for other
threads at the first barrier after that wait. So each access has one time at which it is released, and only that time is
compared.

On AMD a wave counts single loads to LDS instead of groups. The loads complete in the order of issue, so a wait that
leaves n of them open covers every load after which n more were issued (CDNA3 ISA, s_waitcnt). A bare barrier releases
to other waves only those accesses that a wait for lgkmcnt 0 found complete.

Between roles only mbarriers establish order: an access, then an arrival of its role, then a wait of another role for
the phase of that arrival, possibly in several hops (`Knowledge`). Writes of the copy engine are released at waits for
the phase that counts their bytes.

Where halves of the waves take turns, the half that is behind has passed one barrier less. So its accesses are ordered
before those of the other half only from the barrier after the one that releases them.

So an access has a few release times, one for each way in which others may learn of it. A later access is ordered if
it comes after any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain

from argus.ir.instruction import Order
from argus.ir.nodes import (
    Barrier,
    BeginTurns,
    BulkCommit,
    BulkWait,
    CommitGroup,
    EndTurns,
    MbarrierFence,
    MmaCommit,
    MmaFence,
    MmaWait,
    ProxyFence,
    Role,
    Shared,
    Stmt,
    Tensor,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
)
from argus.ir.waves import counted, loads_to_lds, turns
from argus.verify.model.isl import Map, Set, first, isl
from argus.verify.model.program import Site, is_uniform
from argus.verify.model.relations import Model
from argus.verify.order.knowledge import Knowledge, Remembered
from argus.verify.order.protocol import Protocol

_GROUPS: dict[Order, tuple[type[Stmt], type[Stmt]]] = {
    Order.ASYNC_GROUP: (CommitGroup, WaitGroup),
    Order.ASYNC_MMA: (MmaCommit, MmaWait),
    Order.BULK_READ: (BulkCommit, BulkWait),
    Order.BULK_WRITE: (BulkCommit, BulkWait),
}
"""For each ordering class with groups: the statement that closes a group, and the statement that waits for groups."""


class Ordering:
    """Release times of one kernel's accesses, by statement and iteration; elements of an iteration share one time."""

    def __init__(self, model: Model, read: Callable[[], Protocol]) -> None:
        """Prepare the caches. `read` returns the protocol of the model; it is called only when a question needs it."""
        self.model, self._read = model, read
        self.later = model.before()
        self._bare = any(isinstance(s.stmt, WaveBarrier | BeginTurns) for s in model.sites)
        self.turns = turns(model.kernel) is not None
        # A bare barrier orders statements by the memory that they access, so no statement can represent another.
        self._like = {s.index: s for s in model.sites} if self._bare else model.like
        self._completed: dict[tuple[int, Order], Map] = {}
        self._released: dict[tuple[int, Order, str, type[Stmt] | None], Remembered] = {}
        self._fenced: dict[int, Map] = {}
        self._preceding: dict[int, Map] = {}
        self._reached: dict[int, Map] = {}

    @cached_property
    def protocol(self) -> Protocol:
        return self._read()

    @property
    def knowledge(self) -> Knowledge:
        return self.protocol.knowledge

    # ------------------------------------------------------------------ events

    def _times(self, kind: type[Stmt], role: Role | None, like: Stmt | None = None) -> Set:
        """Times of the exactly known sites of a kind that the threads of a role run; with `like`, of equal statements.

        Sites that are not known exactly are left out, which can only lose order.
        """
        result = isl.Set.empty(self.later.get_space().domain())
        for site in self.model.sites:
            if not isinstance(site.stmt, kind) or (site.role is not None and site.role is not role):
                continue
            if like is not None and site.stmt != like:
                continue
            _, exact, _ = self.model.domain(site)
            if exact:
                result = result.union(self.model.times(site))
        return result

    def issued(self, site: Site) -> Map:
        """Return {iteration of a site -> time}."""
        return self.model.iteration_schedule(site)

    def completed(self, site: Site, order: Order) -> Map:
        """Return {iteration -> time from which an access is complete for its own thread}."""
        if order not in _GROUPS and order is not Order.VMCNT:
            return self.issued(site)
        like = self._like[site.index]
        key = (like.index, order)
        if order is Order.VMCNT and key not in self._completed:
            self._completed[key] = self._counted(like)
        if key not in self._completed:
            commit, wait = _GROUPS[order]
            commits = self._times(commit, like.role)
            result = isl.Map.empty(self.issued(like).get_space())
            reach, groups = self.issued(like), 0
            for waited in self._waits(wait, order):
                while groups < waited.pending + 1:  # commits of the access's own group and of `pending` younger ones
                    reach, groups = self.knowledge.next_after(reach, commits), groups + 1
                result = result.union(self.knowledge.next_after(reach, self._times(wait, like.role, waited)))
            self._completed[key] = first(result)
        return _of(site, self._completed[key])

    def closed(self, site: Site, order: Order) -> Map:
        """Return {iteration -> time at which the group of an asynchronous access is closed}."""
        commit, _ = _GROUPS[order]
        return self.knowledge.next_after(self.issued(site), self._times(commit, site.role))

    def _at(self, chosen: Callable[[Stmt], bool], role: Role | None) -> Set:
        """Times of the chosen statements that all waves of a role run in the same way."""
        result = isl.Set.empty(self.later.get_space().domain())
        for site in self.model.sites:
            if chosen(site.stmt) and (site.role is None or site.role is role) and all(map(is_uniform, site.guards)):
                _, exact, _ = self.model.domain(site)
                if exact:
                    result = result.union(self.model.times(site))
        return result

    def _counted(self, site: Site) -> Map:
        """Return {iteration of a load to LDS -> the first wait before which enough loads were issued after it}.

        A statement that issues several loads is one point in time: its own loads do not count as later ones.
        """
        sizes = {loads_to_lds(s.stmt) for s in self.model.sites if counted(s.stmt)}
        loads = {size: self._at(_issues(size), site.role) for size in sizes}
        any_load = self._at(counted, site.role)
        limits = {s.stmt.vm for s in self.model.sites if isinstance(s.stmt, WaitCounts) and s.stmt.vm is not None}
        result = isl.Map.empty(self.issued(site).get_space())
        reach: dict[int, Map] = {0: self.issued(site)}  # by number of loads since: when the last of them was issued
        for limit in sorted(limits):
            while min(reach, default=limit) < limit:
                number = min(reach)
                following = self.knowledge.next_after(reach.pop(number), any_load)
                for size, times in loads.items():
                    part = following.intersect_range(times)
                    if not part.is_empty():
                        reach[number + size] = reach[number + size].union(part) if number + size in reach else part
            waits = self._at(_leaves(limit), site.role)
            for since in reach.values():
                result = result.union(self.knowledge.next_after(since, waits))
        return first(result)

    def _drained(self, site: Site, done: Map) -> Map:
        """Return {iteration -> the first wait for lgkmcnt 0 at which the access is complete}.

        Empty for statements that access no shared tile, and for those that also access a tensor, except loads to LDS:
        a bare barrier of waves does not order accesses to tensors.
        """
        kinds = {type(self.model.kernel.object(r.obj)) for r in site.accesses}
        if Shared not in kinds or (Tensor in kinds and not counted(site.stmt)):
            return isl.Map.empty(done.get_space())
        waits = self._at(lambda s: isinstance(s, WaitCounts) and s.lgkm == 0, site.role)
        return first(done.intersect_range(waits).union(self.knowledge.next_after(done, waits)))

    def _waits(self, kind: type[Stmt], order: Order) -> list[WaitGroup | MmaWait | BulkWait]:
        """Return the distinct waits for accesses of an ordering class, sorted by the number of groups they leave
        pending."""
        found: dict[Stmt, None] = {}
        for site in self.model.sites:
            only_reads = isinstance(site.stmt, BulkWait) and site.stmt.read and order is Order.BULK_WRITE
            if isinstance(site.stmt, kind) and not only_reads:
                found[site.stmt] = None
        waits = [w for w in found if isinstance(w, (WaitGroup, MmaWait, BulkWait))]
        return sorted(waits, key=lambda w: w.pending)

    # ------------------------------------------------------------------ release

    def released(self, site: Site, order: Order, role: Role | None, fence: type[Stmt] | None = None) -> Iterator[Map]:
        """Return {iteration -> a time from which every other thread of `role` is ordered after the access}, way by way.

        With `fence`, they are also ordered after a fence of that kind that the access's own thread made after it.
        """
        like = self._like[site.index]
        key = (like.index, order, "" if role is None else role.name, fence)
        if key not in self._released:
            self._released[key] = Remembered(self._ways(like, order, role, fence))
        return (_of(site, way) for way in self._released[key])

    def _ways(self, site: Site, order: Order, role: Role | None, fence: type[Stmt] | None) -> Iterator[Map]:
        if order is Order.ASYNC_BULK:
            if role is not None:
                yield from self.knowledge.spread(self.protocol.observed(site), role.name)
            return
        done = self.completed(site, order)
        if fence is not None:
            done = self.knowledge.next_after(done, self._times(fence, site.role))
        yield self.knowledge.next_after(done, self._times(Barrier, role if site.role is role else None))
        if self._bare:  # no target has both bare barriers and roles
            bare = self._at(lambda s: isinstance(s, WaveBarrier), site.role)
            yield self.knowledge.next_after(self._drained(site, done), bare)
        if site.role is not None and role is not None:
            ordinary = not order.by_proxy and fence is None
            knowledge = self.protocol.ordinary if ordinary else self.knowledge
            yield from knowledge.after(done, site.role, role.name)

    def released_to_lead(self, site: Site, order: Order, tensor: bool) -> Iterator[Map]:
        """Return {iteration of the half of the waves that is behind -> a time from which the other half is ordered
        after it}.

        The barrier that releases the access is the last of them that the other half has passed. While halves take
        turns, that half then stands at its next barrier. `tensor`: for accesses to tensors that one must be a full one.
        """
        within = self._in_turns()
        events = self._times(Barrier, None)
        if not tensor:
            bare = self._at(lambda s: isinstance(s, WaveBarrier | EndTurns), None)
            events = events.union(bare)
        for way in self.released(site, order, None):
            yield way.subtract_range(within).union(self.knowledge.next_after(way.intersect_range(within), events))

    def _in_turns(self) -> Set:
        """Times at which halves of the waves take turns."""
        begin, end = self._times(BeginTurns, None), self._times(EndTurns, None)
        return begin.apply(self.later).intersect(end.apply(self.later.reverse()))

    # ------------------------------------------------------------------ questions

    def in_turn(self, pairs: Map, first: Site, second: Site) -> Map:
        """Return the pairs {iteration of first -> iteration of second} in which the second is later in the schedule."""
        return pairs.intersect(self._precedes(self.model.clock(first), second))

    def unordered(self, pairs: Map, first: Site, second: Site, order: Order) -> Map:
        """Return the pairs {iteration of first -> iteration of second} that nothing orders between threads."""
        return self._not_after(pairs, first, second, self.released(first, order, second.role))

    def behind(self, pairs: Map, first: Site, second: Site, order: Order, tensor: bool) -> Map:
        """Return the pairs {iteration of first -> iteration of second} that nothing orders if the first belongs to the
        half of the waves that is behind, and the second to the other half."""
        return self._not_after(pairs, first, second, self.released_to_lead(first, order, tensor))

    def uncompleted(self, pairs: Map, first: Site, second: Site, order: Order) -> Map:
        """Return the pairs in schedule order at which the asynchronous first access is not complete for its own thread.
        """
        return self._not_after(self.in_turn(pairs, first, second), first, second, (self.completed(first, order),))

    def unfenced(self, pairs: Map, first: Site, second: Site) -> Map:
        """Return the pairs {iteration of first -> later iteration of second} without an `MmaFence` between them."""
        pairs = self.in_turn(pairs, first, second)
        if pairs.is_empty():
            return pairs
        like = self._like[first.index]
        if like.index not in self._fenced:
            fences = self._times(MmaFence, like.role)
            self._fenced[like.index] = self.knowledge.next_after(self.issued(like), fences)
        return self._not_after(pairs, first, second, (_of(first, self._fenced[like.index]),))

    def without_proxy_fence(self, pairs: Map, first: Site, second: Site, order: Order) -> Map:
        """Return the pairs {ordinary access of first -> later asynchronous one of second} with no fence between the
        proxies.

        Either the thread of the first access makes the fence, before the synchronisation that orders the two. Or the
        threads of the second access make it, after that synchronisation (PTX ISA, fence.proxy.async).
        """
        before = self.released(first, order, second.role, ProxyFence)
        fences = self._times(ProxyFence, second.role)
        arrived = self.released(first, order, second.role)
        after = (self.knowledge.next_after(way, fences) for way in arrived)
        return self._not_after(pairs, first, second, chain(before, after))

    def invisible(self, initialisation: Site, use: Site) -> Set:
        """Return the iterations in which a use of an mbarrier may not see the initialisation.

        In them, no fence that the initialising thread made after the initialisation is known to come before the use.
        """
        late = self.issued(use).domain()
        for way in self.released(initialisation, Order.SYNC, use.role, MbarrierFence):
            late = late.subtract(self._precedes(way, use).range())
        return late

    def before_start(self, uses: Set, role: Role, use: Site) -> Set:
        """Return the iterations in `uses` at which the role of `use` may not know of anything that `role` did."""
        assert use.role is not None
        space = self.later.get_space().domain()
        start = isl.Set.universe(space).fix_val(isl.dim_type.set, 0, -1)
        for dim in range(1, space.dim(isl.dim_type.set)):
            start = start.fix_val(isl.dim_type.set, dim, 0)
        for way in self.knowledge.after(start.identity(), role, use.role.name):
            if uses.is_empty():
                break
            uses = uses.subtract(self._precedes(way, use).range())
        return uses

    def _not_after(self, pairs: Map, first: Site, second: Site, ways: Iterable[Map]) -> Map:
        """Return the pairs {iteration of first -> iteration of second} for which no chain of synchronisation from first
        ends before second.

        In a window of programs, if there are any pairs, second may also come after the window. So the iterations of
        first in the first program of the window from which no way ends in the window are paired with all of second.
        """
        if pairs.is_empty():
            return pairs
        done = self.issued(first).domain()
        programs = self.model.programs
        left = isl.Set.empty(done.get_space()) if programs is None else done.fix_val(isl.dim_type.set, 0, 0)
        for way in ways:
            if self.model.context.nothing(pairs) and self.model.context.nothing(left):
                return isl.Map.empty(pairs.get_space())
            known, late = way.domain(), way.apply_range(self._up_to(second))
            pairs, left = pairs.subtract_domain(known).union(pairs.intersect(late)), left.subtract(known)
        pairs, left = self.model.context.known(pairs), self.model.context.known(left)
        return pairs.union(isl.Map.from_domain_and_range(left, self.issued(second).domain()))

    def _up_to(self, second: Site) -> Map:
        """Return {time -> iteration of second that is not after this time}."""
        if second.index not in self._reached:
            earlier = self.model.before(strict=False).reverse()
            self._reached[second.index] = earlier.apply_range(self.model.clock(second).reverse())
        return self._reached[second.index]

    def _precedes(self, times: Map, second: Site) -> Map:
        """Return {x -> iteration of second that is after times(x)}."""
        if second.index not in self._preceding:
            self._preceding[second.index] = self.later.apply_range(self.model.clock(second).reverse())
        return times.apply_range(self._preceding[second.index])


def _of(site: Site, times: Map) -> Map:
    """Rename the times of a representative statement to those of `site`."""
    return times.set_tuple_name(isl.dim_type.in_, site.name)


def _issues(loads: int) -> Callable[[Stmt], bool]:
    return lambda stmt: counted(stmt) and loads_to_lds(stmt) == loads


def _leaves(open_loads: int) -> Callable[[Stmt], bool]:
    return lambda stmt: isinstance(stmt, WaitCounts) and stmt.vm == open_loads
