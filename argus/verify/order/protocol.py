"""Protocols of mbarriers and named barriers: phases, parities, bytes, and the absence of deadlock.

Every arrival, expectation, signalled copy and wait on mbarrier `b[i]` belongs to a *use* of it, whose name is proved
(`argus.verify.order.uses`): the uses of a role happen in the order of their names, no name is left out, and different
arrivals have different names. A relation maps each use to the use before it on the same barrier. Then, for every trip
count:

- A phase takes one arrival of each kind and role. They add up to the initialised count, and the bytes expected are the
  bytes copied. So a phase completes exactly when all uses with its name have happened.
- A wait whose own use is u waits for the phase of u or for the phase before u, as its parity says. The phase before the
  awaited one is complete: the role has waited for it, or knows of it from others. The phase after the awaited one
  cannot complete before the wait returns. So the parity identifies the phase.
- In the schedule of `program`, the phase that a wait needs has completed before the wait. Waits are the only statements
  that block, so every other order of events gets as far: no deadlock.

A named barrier is an mbarrier whose arrivals are warps. Its waiting roles wait for the phase in which they arrived.

PTX ISA, mbarrier: phase completion, arrive.expect_tx, complete_tx, try_wait.parity; bar: sync, arrive.
"""

from __future__ import annotations

from itertools import product

from argus.diagnostic import Verdict
from argus.ir.expr import Expr
from argus.ir.nodes import (
    BarrierArrive,
    BarrierSync,
    Copy,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Stmt,
)
from argus.ir.rings import RingPlace, turn_parity
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.model.barriers import barrier_use
from argus.verify.model.formulas import Tuple, multiple, relation
from argus.verify.model.isl import Map, isl, smallest
from argus.verify.model.program import Site
from argus.verify.model.relations import Model
from argus.verify.model.translator import NonAffine
from argus.verify.order.knowledge import Event, Knowledge, Wait
from argus.verify.order.uses import USE, Ring, Uses

_PARITY = Tuple(("q",))


def _of_parity(number: str) -> list[str]:
    """Return the conditions that `q` is the parity of a number."""
    return [multiple(f"q - ({number})", 2), "0 <= q <= 1"]


class Protocol:
    """The mbarrier protocol of a kernel. `findings` are its errors; only barriers without errors establish order."""

    def __init__(self, model: Model) -> None:
        self.model, self.uses = model, Uses(model)
        self.findings: list[Finding] = []
        self.arrivals: list[Event] = []
        self.signals: list[Event] = []
        self.waits: list[Wait] = []
        self.later = model.before()
        self.previous: dict[str, Map] = {}
        """{use of a barrier -> the use before it}, by barrier."""
        for barrier in (*model.kernel.barriers, *self._named_barriers()):
            self._read(barrier)
        self.knowledge = Knowledge(model, self.arrivals, self.waits)
        near = [e for e in self.arrivals if not _elsewhere(e.site.stmt)]
        self.ordinary = Knowledge(model, near, self.waits) if len(near) < len(self.arrivals) else self.knowledge
        """The order of ordinary accesses, for which arrivals in other blocks of the cluster do not count."""
        copies = [e for e in self.signals if not self._announced_by(e)]
        self.phases = Knowledge(model, [*self.arrivals, *copies], self.waits) if copies else self.knowledge
        """The order of phases alone. Bulk copies by roles that do not announce the bytes establish order here, too."""

    # ------------------------------------------------------------------ reading the protocol

    def _named_barriers(self) -> list[Mbarrier]:
        """Return the named barriers whose users agree on the number of threads, as mbarriers that count warps."""
        uses: dict[str, list[Site]] = {}
        for site in self.model.sites:
            if isinstance(site.stmt, BarrierSync | BarrierArrive):
                uses.setdefault(site.stmt.barrier, []).append(site)
        result: list[Mbarrier] = []
        for name, found in uses.items():
            counts = {s.stmt.count: s for s in found if isinstance(s.stmt, BarrierSync | BarrierArrive)}
            if len(counts) == 1:
                result.append(Mbarrier(name, 1, min(counts) // self.model.kernel.warp_size))
                continue
            text = f"{name} is used for {' and for '.join(map(str, sorted(counts)))} threads"
            help = "all that use one named barrier count the same threads: those that one phase gets"
            self.findings.append(self._broken("arrival-count", text, help, list(counts.values())[-1]))
        return result

    def _read(self, barrier: Mbarrier) -> None:
        """Add the barrier's events if its arrivals, bytes and parities are right; otherwise add findings."""
        named = (s for s in self.model.sites if (used := barrier_use(s.stmt)) is not None and used[0] == barrier.name)
        uses = [s for s in named if not self._never_runs(s)]
        if not uses:
            return
        why = ""
        try:
            for ring in self.uses.rings(barrier, uses):
                try:
                    return self._add(ring, uses)
                except NonAffine as error:
                    why = str(error)
        except NonAffine as error:
            why = str(error)
        self._refuse(uses[0], barrier, why)

    def _never_runs(self, site: Site) -> bool:
        """Return True if the branches around a site exclude one another for all sizes."""
        return bool(site.guards) and self.model.context.nothing(self.model.domain(site)[0])

    def _add(self, ring: Ring, uses: list[Site]) -> None:
        """Add the events of a barrier with uses named by `ring`; raise `NonAffine` if they cannot be named so."""
        barrier, kinds = ring.barrier, MbarrierExpect | MbarrierArrive | BarrierSync | BarrierArrive
        arriving = [s for s in uses if isinstance(s.stmt, kinds)]
        arrivals = [self._event(s, keys) for s, keys in self.uses.named(ring, arriving, once=True)]
        copies = [s for s in uses if isinstance(s.stmt, Copy)]
        signals = self._signals(ring, copies, arrivals) if copies or any(e.bytes for e in arrivals) else []
        waiting = [s for s in uses if isinstance(s.stmt, MbarrierWait)]
        waits = [self._wait(ring, s, keys) for s, keys in self.uses.named(ring, waiting, once=False)]
        waits += [self._meeting(ring, e) for e in arrivals if isinstance(e.site.stmt, BarrierSync)]
        problem = None if self._idle(arrivals, waits) else self._count(barrier, arrivals, uses[0])
        if problem is not None or isinstance(signals, Finding):
            self.findings += [f for f in (problem, signals) if isinstance(f, Finding)]
        elif not any(w is None for w in waits):
            self.previous[barrier.name] = ring.previous
            self.arrivals += arrivals
            self.signals += signals
            self.waits += [w for w in waits if w is not None]

    def _refuse(self, site: Site, barrier: Mbarrier, why: str) -> None:
        text = f"the protocol of {called(barrier.name)} is not that of a ring of buffers: {why}"
        help = "use each barrier as a ring: index (i % stages), one use a role and iteration"
        if isinstance(site.stmt, BarrierSync | BarrierArrive):
            text = f"the phases of {called(barrier.name)} cannot be told: {why}"
            help = "let each of its roles come to it once a phase, in the same iterations"
        self.findings.append(self._broken("barrier-protocol", text, help, site))

    def _event(self, site: Site, keys: Map) -> Event:
        stmt = site.stmt
        match stmt:
            case MbarrierExpect(barrier=name, bytes=count):
                return Event(site, name, keys, 1, count)
            case MbarrierArrive(barrier=name) | BarrierSync(barrier=name) | BarrierArrive(barrier=name):
                assert site.role is not None
                return Event(site, name, keys, site.role.num_warps)
            case Copy(signal=signal, shape=shape, dst=dst) if signal is not None:
                count = self.model.kernel.object(dst.obj).dtype.bytes
                for extent in shape:
                    count *= extent
                return Event(site, signal.barrier, keys, 0, count)
            case _:
                raise AssertionError(stmt)

    # ------------------------------------------------------------------ waits

    def _wait(self, ring: Ring, site: Site, keys: Map) -> Wait | None:
        """Return the phases that a wait awaits, derived from its uses and its parity, or None if the parity is wrong.
        """
        stmt = site.stmt
        assert isinstance(stmt, MbarrierWait)
        data = Wait(site, stmt.barrier, keys, keys.apply_range(ring.previous.reverse()))
        space = Wait(site, stmt.barrier, keys.apply_range(ring.previous), keys, behind=True)
        place = self.model.rings.place(site, stmt.index)
        if place is not None:
            return data if self._of_its_round(site, place, stmt.parity, keys) else space
        parity = self.model.translator.integer(self.model.resolve(site, stmt.parity), ())
        awaited = self.model.relation(self.model.instance(site, ()), _PARITY, *_of_parity(parity))
        parities = awaited.drop_unused_params().intersect_domain(keys.domain())
        ordinal = relation(USE, _PARITY, _of_parity("n"))
        if self.model.context.same(keys.apply_range(ordinal), parities):
            return data
        free = keys.apply_range(relation(USE, _PARITY, _of_parity("n - 1")))
        if self.model.context.same(free, parities):
            return space
        wrong = self.model.context.known(free.subtract(parities).domain())
        at = place_of(self.model.kernel, smallest(wrong if not wrong.is_empty() else keys.domain()), site)
        text = f"the parity of this wait on {called(stmt.barrier)} is not that of the phase it has to wait for"
        help = "for the i-th use of a ring of S: (i // S) % 2 to wait for data, (i // S + 1) % 2 for a free slot"
        label = "waits for the wrong phase"
        self.findings.append(
            Finding("wrong-parity", "progress", Verdict.REFUTED, text, stmt.span, label=label, help=help, place=at)
        )
        return None

    def _meeting(self, ring: Ring, arrival: Event) -> Wait:
        """Return the wait of a role for the phase of a named barrier in which the role arrived."""
        following = arrival.keys.apply_range(ring.previous.reverse())
        return Wait(arrival.site, arrival.barrier, arrival.keys, following)

    def _of_its_round(self, site: Site, place: RingPlace, parity: Expr, keys: Map) -> bool:
        """Return True if a wait waits for the phase of its own use, `keys`; False if for the phase before that."""
        ahead = turn_parity(parity, place)
        if ahead is None:
            raise NonAffine("the parity of a wait is not that of its place's round")
        rounds = place.shift // place.size  # rounds by which the place's expression is ahead of the trip
        nearest = self.model.rings.trips(site, place, place.shift % place.size).intersect_domain(keys.domain())
        return (ahead + rounds + (0 if self.model.context.same(keys, nearest) else 1)) % 2 == 0

    # ------------------------------------------------------------------ arrivals and bytes

    def _idle(self, arrivals: list[Event], waits: list[Wait | None]) -> bool:
        """Return True if nobody arrives at a barrier, and no wait needs a phase of it to complete."""
        return not arrivals and all(w is not None and self.model.context.nothing(w.needs.domain()) for w in waits)

    def _count(self, barrier: Mbarrier, arrivals: list[Event], use: Site) -> Finding | None:
        """Check that the arrivals of all roles in one phase add up to the initialised count."""
        units: dict[str, set[int]] = {}
        for event in arrivals:
            units.setdefault(self.uses.team(event.site), set()).add(event.units)
        total = sum(max(each) for each in units.values())
        if all(len(each) == 1 for each in units.values()) and total == barrier.arrivals:
            return None
        site = arrivals[0].site if arrivals else use
        text = f"{called(barrier.name)} expects {barrier.arrivals} arrivals a phase and gets {total}"
        help = "initialise it with the number of arrivals that one phase really gets, one use a role"
        if isinstance(site.stmt, BarrierSync | BarrierArrive):
            size = self.model.kernel.warp_size
            text = f"{barrier.name} counts {barrier.arrivals * size} threads a phase and gets {total * size}"
            help = f"let it count the threads of all the roles that come to it: {total * size}"
        return self._broken("arrival-count", text, help, site)

    def _signals(self, ring: Ring, copies: list[Site], arrivals: list[Event]) -> list[Event] | Finding:
        """Name the signalled copies by announced uses, and check that each use delivers the bytes announced for it."""
        expects, signals = [e for e in arrivals if e.bytes], []
        brought, context = dict.fromkeys((e.site.index for e in expects), 0), self.model.context
        for copy in copies:
            ran = self.model.iteration_schedule(copy).domain()
            for keys, event in product(self.uses.guesses(ring, copy), expects):
                if not context.nothing(ran.subtract(keys.domain())):
                    continue
                alike = context.same(isl.Map.from_range(keys.range()), isl.Map.from_range(event.keys.range()))
                alike = alike and (keys.is_injective() or context.known(keys).is_injective())
                if alike and (event.site.role is copy.role or len(expects) == 1):
                    signals.append(self._event(copy, keys))
                    brought[event.site.index] += signals[-1].bytes
                    break
        name, total = ring.barrier.name, sum(self._event(c, ring.previous).bytes for c in copies)
        announced = sum(e.bytes for e in expects)
        if len(signals) == len(copies) and all(brought[e.site.index] == e.bytes for e in expects):
            return signals
        text = f"mbarrier '{name}' is told of {announced} bytes a phase; its copies bring {total}"
        if announced == total:
            text = f"the copies that signal mbarrier '{name}' are not those that it was told of"
        site = expects[0].site if expects else copies[0]
        return self._broken("transaction-bytes", text, "announce exactly the bytes of the copies", site)

    def _announced_by(self, signal: Event) -> bool:
        """Return True if the role of a signalled copy announces its bytes."""
        return any(e.bytes and e.barrier == signal.barrier and e.site.role is signal.site.role for e in self.arrivals)

    def _broken(self, code: str, text: str, help: str, site: Site) -> Finding:
        domain = self.model.domain(site)[0]
        if domain.is_empty():
            return unknown("progress-unknown", "progress", site.stmt.span, text, help)
        place = place_of(self.model.kernel, smallest(domain), site)
        return Finding(code, "progress", Verdict.REFUTED, text, site.stmt.span, help=help, place=place)

    # ------------------------------------------------------------------ order

    def observed(self, site: Site) -> dict[str, Map]:
        """Map each role to {iteration of a signalled copy -> the role's first wait for the phase with its bytes}."""
        for event in self.signals:
            if event.site is site:
                return self.knowledge.heard(event.keys, event.barrier)
        return {}


def _elsewhere(stmt: Stmt) -> bool:
    """Return True if a statement arrives at a barrier of another block of the cluster."""
    return isinstance(stmt, MbarrierArrive) and stmt.scope == "cluster"


def called(barrier: str) -> str:
    """Name a barrier in a message; a name with a space is that of a named barrier."""
    return f"named {barrier}" if " " in barrier else f"mbarrier '{barrier}'"
