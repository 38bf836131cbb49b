"""Happens-before between threads of a block: barriers, completion of asynchronous work, and mbarriers.

Over time vectors (see `Model.schedule`): an access at time x is ordered before one at time y of another thread
iff some barrier runs at a time b with x < b < y, that is iff the *first* barrier after x runs before y. An
asynchronous access is complete, for its own thread, at the first wait that covers its group (PTX ISA,
cp.async.wait_group and wgmma.wait_group: all but the most recent n groups are complete), and for other threads at
the first barrier after that. So each access has one time at which it is released, and only that is compared.

Between roles nothing but mbarriers orders: an access, then an arrival of its role, then a wait of another role for the
phase that the arrival belongs to (`Protocol` gives the phases), in as many hops as it takes. The copy engine's
writes are released at waits for the phase that counts their bytes.
"""

from __future__ import annotations

from argus.ir.instruction import Order
from argus.ir.nodes import (
    Barrier,
    BulkCommit,
    BulkWait,
    CommitGroup,
    MmaCommit,
    MmaFence,
    MmaWait,
    ProxyFence,
    Role,
    Stmt,
    WaitGroup,
)
from argus.verify.program import Site
from argus.verify.protocol import Protocol, earliest
from argus.verify.relations import Map, Model, Set, first, isl

_GROUPS: dict[Order, tuple[type[Stmt], type[Stmt]]] = {
    Order.ASYNC_GROUP: (CommitGroup, WaitGroup),
    Order.ASYNC_MMA: (MmaCommit, MmaWait),
    Order.BULK_READ: (BulkCommit, BulkWait),
    Order.BULK_WRITE: (BulkCommit, BulkWait),
}
ASYNCHRONOUS_PROXY = (Order.ASYNC_BULK, Order.ASYNC_MMA, Order.BULK_READ, Order.BULK_WRITE)
"""Accesses of the copy engine and of the tensor cores: others to the same cells need a proxy fence before them."""
_HOPS = 3
"""Arrivals and waits that an order between roles is followed through; more are never needed for rings of buffers."""


class Ordering:
    """Release times of one kernel's accesses, by statement and iteration (elements are simultaneous)."""

    def __init__(self, model: Model, protocol: Protocol) -> None:
        self.model, self.protocol = model, protocol
        self.later = model.before()
        self._completed: dict[tuple[int, Order], Map] = {}
        self._known: dict[tuple[int, Order, bool], dict[str, Map]] = {}

    # ------------------------------------------------------------------ events

    def _times(self, kind: type[Stmt], role: Role | None, like: Stmt | None = None) -> Set:
        """Times of all exactly known sites of a kind, or equal to `like`, that the threads of a role run.
        Leaving some out loses order."""
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
        """{iteration of a site -> time}."""
        return self.model.iteration_schedule(site)

    def _first_after(self, times: Map, events: Set) -> Map:
        """{x -> the first event after times(x)}; not defined where none follows."""
        return first(times.apply_range(self.later).intersect_range(events))

    def completed(self, site: Site, order: Order) -> Map:
        """{iteration -> time from which on an access is complete for its own thread}."""
        if order not in _GROUPS:
            return self.issued(site)
        key = (site.index, order)
        if key not in self._completed:
            commit, wait = _GROUPS[order]
            commits = self._times(commit, site.role)
            result = isl.Map.empty(self.issued(site).get_space())
            reach, count = self.issued(site), 0
            for like in self._waits(wait, order):
                while count < like.pending + 1:  # the access's own group, and `pending` younger ones, are committed
                    reach, count = self._first_after(reach, commits), count + 1
                result = result.union(self._first_after(reach, self._times(wait, site.role, like)))
            self._completed[key] = first(result)
        return self._completed[key]

    def _waits(self, kind: type[Stmt], order: Order) -> list[WaitGroup | MmaWait | BulkWait]:
        """The different waits for accesses of an ordering class, those for the fewest pending groups first."""
        found: dict[Stmt, None] = {}
        for site in self.model.sites:
            only_reads = isinstance(site.stmt, BulkWait) and site.stmt.read and order is Order.BULK_WRITE
            if isinstance(site.stmt, kind) and not only_reads:
                found[site.stmt] = None
        waits = [w for w in found if isinstance(w, (WaitGroup, MmaWait, BulkWait))]
        return sorted(waits, key=lambda w: w.pending)

    # ------------------------------------------------------------------ release

    def released(self, site: Site, order: Order, role: Role | None, fenced: bool = False) -> Map:
        """{iteration -> time from which on every other thread of `role` is ordered after the access}.

        With `fenced`: and after a proxy fence that its own thread made after it.
        """
        known = self._knowledge(site, order, fenced)
        return known.get("" if role is None else role.name, isl.Map.empty(self.issued(site).get_space()))

    def _knowledge(self, site: Site, order: Order, fenced: bool) -> dict[str, Map]:
        """By role: the release times of an access; "" stands for the whole block."""
        key = (site.index, order, fenced)
        if key in self._known:
            return self._known[key]
        known: dict[str, Map] = {}
        if order is Order.ASYNC_BULK:
            known = self.protocol.observed(site)
        else:
            done = self.completed(site, order)
            if fenced:
                done = self._first_after(done, self._times(ProxyFence, site.role))
            block = self._first_after(done, self._times(Barrier, None))
            own = self._first_after(done, self._times(Barrier, site.role))
            known = {role.name: block for role in self.protocol.roles} | {"": block}
            known["" if site.role is None else site.role.name] = own
            if site.role is not None:
                start = self.protocol.passed_on(done, site.role)
                known = earliest(known, start)
        for _ in range(_HOPS - 1):
            for role in self.protocol.roles:
                if role.name in known:
                    known = earliest(known, self.protocol.passed_on(known[role.name], role))
        self._known[key] = known
        return known

    # ------------------------------------------------------------------ questions

    def unordered(self, pairs: Map, first: Site, second: Site, order: Order) -> Map:
        """The pairs {iteration of first -> later iteration of second} that nothing orders between threads."""
        return pairs.intersect(self._precedes(self.issued(first), second)).subtract(
            self._precedes(self.released(first, order, second.role), second)
        )

    def uncompleted(self, pairs: Map, first: Site, second: Site, order: Order) -> Map:
        """The pairs at which an asynchronous first access is not complete even for its own thread."""
        return pairs.intersect(self._precedes(self.issued(first), second)).subtract(
            self._precedes(self.completed(first, order), second)
        )

    def unfenced(self, pairs: Map, first: Site, second: Site) -> Map:
        """The pairs {iteration of first -> later iteration of second} without an `MmaFence` between them."""
        fence = self._first_after(self.issued(first), self._times(MmaFence, first.role))
        return pairs.intersect(self._precedes(self.issued(first), second)).subtract(self._precedes(fence, second))

    def without_proxy_fence(self, pairs: Map, first: Site, second: Site, order: Order) -> Map:
        """The pairs {ordinary access of first -> later asynchronous one of second} with no fence between the proxies.

        The fence is made after the first access by its own thread, before what orders the second after it, or after
        that by the threads that make the second (PTX ISA, fence.proxy.async).
        """
        before = self._precedes(self.released(first, order, second.role, fenced=True), second)
        arrived = self.released(first, order, second.role)
        after = self._precedes(self._first_after(arrived, self._times(ProxyFence, second.role)), second)
        return pairs.intersect(self._precedes(self.issued(first), second)).subtract(before.union(after))

    def loose_rounds(self, pairs: Map, first: Site, second: Site, order: Order) -> Map:
        """The pairs {use of a buffer -> use of it in a later round} that are not ordered, whoever comes first."""
        return pairs.subtract(self._precedes(self.released(first, order, second.role), second))

    def _precedes(self, times: Map, second: Site) -> Map:
        """{x -> iteration of second}: times(x) is before it."""
        return times.apply_range(self.later).apply_range(self.issued(second).reverse())
