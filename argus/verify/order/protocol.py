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

from functools import reduce
from itertools import chain, product

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
    Role,
    Stmt,
)
from argus.ir.rings import RingPlace, turn_parity
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.model.barriers import barrier_use
from argus.verify.model.isl import Map, isl, smallest
from argus.verify.model.program import Site, turns
from argus.verify.model.relations import Model
from argus.verify.model.translator import NonAffine
from argus.verify.order.knowledge import Event, Knowledge, Wait
from argus.verify.order.uses import Ring, Uses


class Protocol:
    """The mbarrier protocol of a kernel. `findings` are its errors; only barriers without errors establish order."""

    def __init__(self, model: Model) -> None:
        self.model, self._uses = model, Uses(model)
        self.findings: list[Finding] = []
        self.arrivals: list[Event] = []
        self.signals: list[Event] = []
        self.waits: list[Wait] = []
        self.later = model.before()
        self._previous: dict[str, Map] = {}
        for barrier in (*model.kernel.barriers, *self._named_barriers()):
            self._read(barrier)
        self.knowledge = Knowledge(model, self.arrivals, self.waits)
        near = [e for e in self.arrivals if not _elsewhere(e.site.stmt)]
        self.ordinary = Knowledge(model, near, self.waits) if len(near) < len(self.arrivals) else self.knowledge
        """The order of ordinary accesses, for which arrivals in other blocks of the cluster do not count."""
        copies = [e for e in self.signals if not self._announced_by(e)]
        self._order = Knowledge(model, [*self.arrivals, *copies], self.waits) if copies else self.knowledge
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
            for ring in self._uses.rings(barrier, uses):
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
        arrivals = [self._event(s, keys) for s, keys in self._uses.named(ring, arriving, once=True)]
        copies = [s for s in uses if isinstance(s.stmt, Copy)]
        signals = self._signals(ring, copies, arrivals) if copies or any(e.bytes for e in arrivals) else []
        waiting = [s for s in uses if isinstance(s.stmt, MbarrierWait)]
        waits = [self._wait(ring, s, keys) for s, keys in self._uses.named(ring, waiting, once=False)]
        waits += [self._meeting(ring, e) for e in arrivals if isinstance(e.site.stmt, BarrierSync)]
        problem = self._count(barrier, arrivals, uses[0])
        if problem is not None or isinstance(signals, Finding):
            self.findings += [f for f in (problem, signals) if isinstance(f, Finding)]
        elif not any(w is None for w in waits):
            self._previous[barrier.name] = ring.previous
            self.arrivals += arrivals
            self.signals += signals
            self.waits += [w for w in waits if w is not None]

    def _refuse(self, site: Site, barrier: Mbarrier, why: str) -> None:
        text = f"the protocol of {_called(barrier.name)} is not that of a ring of buffers: {why}"
        help = "use each barrier as a ring: index (i % stages), one use a role and iteration"
        if isinstance(site.stmt, BarrierSync | BarrierArrive):
            text = f"the phases of {_called(barrier.name)} cannot be told: {why}"
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
        place = self.model.ring_place(site, stmt.index)
        if place is not None:
            return data if self._of_its_round(site, place, stmt.parity, keys) else space
        parity = self.model.translator.integer(self.model.resolve(site, stmt.parity), ())
        text = f"{{ {self.model.tuple_text(site, ())} -> [q] : (q - ({parity})) mod 2 = 0 and 0 <= q <= 1 }}"
        parities = self.model.parse_map(text).drop_unused_params().intersect_domain(keys.domain())
        ordinal = isl.Map("{ [i, n] -> [q] : (q - n) mod 2 = 0 and 0 <= q <= 1 }")
        if self.model.context.same(keys.apply_range(ordinal), parities):
            return data
        free = keys.apply_range(isl.Map("{ [i, n] -> [q] : (q - n - 1) mod 2 = 0 and 0 <= q <= 1 }"))
        if self.model.context.same(free, parities):
            return space
        wrong = self.model.context.known(free.subtract(parities).domain())
        at = place_of(self.model.kernel, smallest(wrong if not wrong.is_empty() else keys.domain()), site)
        text = f"the parity of this wait on {_called(stmt.barrier)} is not that of the phase it has to wait for"
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
        nearest = self.model.trips(site, place, place.shift % place.size).intersect_domain(keys.domain())
        return (ahead + rounds + (0 if self.model.context.same(keys, nearest) else 1)) % 2 == 0

    # ------------------------------------------------------------------ arrivals and bytes

    def _count(self, barrier: Mbarrier, arrivals: list[Event], use: Site) -> Finding | None:
        """Check that the arrivals of all roles in one phase add up to the initialised count."""
        units: dict[str, set[int]] = {}
        for event in arrivals:
            units.setdefault(self._uses.team(event.site), set()).add(event.units)
        total = sum(max(each) for each in units.values())
        if all(len(each) == 1 for each in units.values()) and total == barrier.arrivals:
            return None
        site = arrivals[0].site if arrivals else use
        text = f"{_called(barrier.name)} expects {barrier.arrivals} arrivals a phase and gets {total}"
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
            for keys, event in product(self._uses.guesses(ring, copy), expects):
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

    # ------------------------------------------------------------------ progress

    def check(self) -> list[Finding]:
        """Find errors of the protocol: those found while reading it, unsatisfied waits, and phases that overrun."""
        findings = list(self.findings)
        if findings:
            return findings
        for wait in self.waits:
            findings += self._satisfied(wait)
            findings += self._not_lapped(wait)
            if isinstance(wait.site.stmt, MbarrierWait) and self._may_skip(wait):
                findings += self._not_behind(wait)
        like = {(self.model.like[e.site.index].index, e.barrier): e for e in reversed(self.signals)}
        for event in (*self.arrivals, *like.values()):  # no wait stands between copies with the same representative
            findings += self._not_early(event)
        return findings

    def _arriving(self, barrier: str) -> dict[str, dict[str, Map]]:
        """Return the map from uses of a barrier to times of arrivals, for each arriving team and each of its roles."""
        found: dict[str, dict[str, Map]] = {}
        for event in self.arrivals:
            if event.barrier == barrier and event.site.role is not None:
                times = found.setdefault(self._uses.team(event.site), {})
                when = event.keys.reverse().apply_range(self.model.iteration_schedule(event.site))
                name = event.site.role.name
                times[name] = times[name].union(when) if name in times else when
        return dict(sorted(found.items()))

    def _brought(self, barrier: str) -> list[Map]:
        """Return, for each signalled copy, the map from a use of the barrier to the time of the copy."""
        return [
            event.keys.reverse().apply_range(self.model.iteration_schedule(event.site))
            for event in self.signals
            if event.barrier == barrier
        ]

    def _satisfied(self, wait: Wait) -> list[Finding]:
        """Check that everything a wait needs comes before it in the schedule."""
        # Roles that wait for each other at a named barrier have arrived there when any of them goes on.
        met = isinstance(wait.site.stmt, BarrierSync)
        earlier = self.model.iteration_schedule(wait.site).apply_range(self.model.before(strict=not met).reverse())
        made = self._arriving(wait.barrier).values()
        needed = [(wait.needs, reduce(Map.union, team.values())) for team in made]
        needed += [(wait.needs.intersect_range(when.domain()), when) for when in self._brought(wait.barrier)]
        for uses, when in needed:
            stuck = uses.domain().subtract(uses.apply_range(when).intersect(earlier).domain())
            if not self.model.context.nothing(stuck):
                stuck = self.model.context.known(stuck)
                text = f"this wait on {_called(wait.barrier)} can never return: the arrival that it needs never comes"
                help = "every phase that is waited for needs all of its arrivals, before or beside the wait"
                place = place_of(self.model.kernel, smallest(stuck), wait.site)
                return [
                    Finding("deadlock", "progress", Verdict.REFUTED, text, wait.site.stmt.span,
                            label="waits for ever", help=help, place=place)
                ]  # fmt: skip
        return []

    def _not_lapped(self, wait: Wait) -> list[Finding]:
        """Check that the phase after the awaited one needs an arrival that comes after the wait."""
        assert wait.site.role is not None
        waited = self.model.iteration_schedule(wait.site)
        for team in self._arriving(wait.barrier).values():
            following = ((wait.next.apply_range(when), name) for name, when in team.items())
            if all(self._comes_after(arrivals, waited, wait.site.role, name) for arrivals, name in following):
                return []
        return [
            unknown(
                "progress-unknown",
                "progress",
                wait.site.stmt.span,
                f"cannot exclude that {_called(wait.barrier)} gets two phases ahead of this wait",
                "let the next phase's arrival wait, directly or through other barriers, for this role",
            )
        ]

    def _comes_after(self, arrivals: Map, waited: Map, role: Role, name: str) -> bool:
        """Return True if each arrival of role `name` at arrivals(x) is ordered after what `role` did at waited(x)."""
        own = (waited,) if role.name == name else ()
        for known in chain(own, self.knowledge.after(waited, role, name)):
            if self.model.context.nothing(arrivals):  # true at once if no buffer of the ring is used twice
                break
            arrivals = arrivals.subtract(known.apply_range(self.later))
        return self.model.context.nothing(arrivals)

    def _may_skip(self, wait: Wait) -> bool:
        """Return True if the role of a wait may not have waited itself for the phase before the awaited one.

        That is so if another role had the turn before, or if some of the role's waits are for the phases of their own
        uses and some for the phases before those.
        """
        team = self._uses.team(wait.site)
        alike = (w for w in self.waits if w.barrier == wait.barrier and self._uses.team(w.site) == team)
        return turns(wait.site.role) > 1 or any(w.behind is not wait.behind for w in alike)

    def _not_behind(self, wait: Wait) -> list[Finding]:
        """Check that the role of a wait knows that the phase before the awaited one is complete.

        Otherwise the wait could mistake the phase two before for the awaited one, which has the same parity.
        """
        role = wait.site.role
        assert role is not None
        before = wait.needs.apply_range(self._previous[wait.barrier])
        waited, left = self.model.iteration_schedule(wait.site), before.domain()
        for known in self.knowledge.spread(self.knowledge.heard(before, wait.barrier), role.name):
            if self.model.context.nothing(left):
                return []
            left = left.subtract(known.apply_range(self.later).intersect(waited).domain())
        if self.model.context.nothing(left):
            return []
        text = f"cannot exclude that {_called(wait.barrier)} is two phases behind this wait"
        help = "let the role wait for every phase, or for its turn, at a barrier to which others come once they have"
        return [unknown("progress-unknown", "progress", wait.site.stmt.span, text, help)]

    def _not_early(self, event: Event) -> list[Finding]:
        """Check that an event of one phase comes after the phase before it is complete."""
        role = event.site.role
        assert role is not None
        before = event.keys.apply_range(self._previous[event.barrier])
        done = self.model.iteration_schedule(event.site)
        early = before.domain()
        if self.model.context.nothing(early):
            return []
        for known in self._order.spread(self._order.heard(before, event.barrier), role.name):
            early = early.subtract(known.apply_range(self.later).intersect(done).domain())
            if self.model.context.nothing(early):
                return []
        return [
            unknown(
                "progress-unknown",
                "progress",
                event.site.stmt.span,
                f"cannot exclude that this use of {_called(event.barrier)} precedes the end of its last phase",
                "wait for the phase, directly or through other barriers, before arriving for the next",
            )
        ]


def _elsewhere(stmt: Stmt) -> bool:
    """Return True if a statement arrives at a barrier of another block of the cluster."""
    return isinstance(stmt, MbarrierArrive) and stmt.scope == "cluster"


def _called(barrier: str) -> str:
    """Name a barrier in a message; a name with a space is that of a named barrier."""
    return f"named {barrier}" if " " in barrier else f"mbarrier '{barrier}'"
