"""Protocols of mbarriers and named barriers: phases, parities, bytes, and that no wait is for ever.

Every arrival, expectation, signalled copy and wait on mbarrier `b[i]` has an *ordinal*: how many of its kind its role
made on `b[i]` before. The *use* of a barrier array is named by a pair, [index, ordinal], or, where a count through
nested loops runs the ring, by the trip [t0, t1, ...] whose buffer it is (see `rings`); either way the use before it on
the same barrier is a relation. The names are a guess, proved by induction: uses of a role happen in the order of their
names, none is left out, arrivals have one name each. Then, for every trip count:

- a phase takes one arrival of each kind and role, which add up to the initialised count, and the bytes expected are
  the bytes copied: so a phase completes exactly when all uses of its name have happened;
- a wait whose own use is u waits for the phase of u or for the one before, as its parity says; the one before that is
  complete (its predecessor waited for it), and the next cannot complete before it returned, so parity never lies;
- in the schedule of `program`, whatever phase a wait needs has happened before it. Since waits are the only statements
  that block, every other order of events gets as far: no deadlock.

A named barrier is one mbarrier whose arrivals are warps; who waits for it waits for the phase in which it arrived.

PTX ISA, mbarrier: phase completion, arrive.expect_tx, complete_tx, try_wait.parity; bar: sync, arrive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import chain, product

from argus.diagnostic import Verdict
from argus.ir.expr import Const, Expr, LoopVar, Op, op
from argus.ir.nodes import (
    BarrierArrive,
    BarrierSync,
    Copy,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Role,
    Roles,
    Stmt,
)
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.knowledge import Event, Knowledge, Wait
from argus.verify.program import PROGRAM, Site, barrier_use, own_turn, turns
from argus.verify.relations import Count, Map, Model, NonAffine, Set, isl, smallest
from argus.verify.rings import Place, turn_parity

_FEW = 4
"""Uses of one barrier outside of loops that are told apart."""


@dataclass(frozen=True)
class Ring:
    """How the uses of one mbarrier array are named, and {use -> the one before it on the same barrier}."""

    barrier: Mbarrier
    previous: Map
    count: Count | None


class Protocol:
    """The mbarrier protocol of a kernel: `findings` says what is wrong; order is derived only from what is right."""

    def __init__(self, model: Model) -> None:
        self.model = model
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
        """Of ordinary accesses: arrivals in other blocks of the cluster do not tell of them."""
        copies = [e for e in self.signals if not self._announced_by(e)]
        self._order = Knowledge(model, [*self.arrivals, *copies], self.waits) if copies else self.knowledge
        """Of phases alone, whose order bulk copies of other roles than the announcing one pass on as well."""

    # ------------------------------------------------------------------ reading the protocol

    def _named_barriers(self) -> list[Mbarrier]:
        """The named barriers whose users agree on the number of threads, as mbarriers of as many warps."""
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
        """Adds the barrier's events if its arrivals, bytes and parities are right; says what is not."""
        uses = [s for s in self.model.sites if (used := barrier_use(s.stmt)) is not None and used[0] == barrier.name]
        if not uses:
            return
        try:
            ring = self._ring(barrier, uses)
            kinds = MbarrierExpect | MbarrierArrive | BarrierSync | BarrierArrive
            arriving = [s for s in uses if isinstance(s.stmt, kinds)]
            arrivals = [self._event(s, keys) for s, keys in self._named(ring, arriving, once=True)]
            copies = [s for s in uses if isinstance(s.stmt, Copy)]
            signals = self._signals(ring, copies, arrivals) if copies or any(e.bytes for e in arrivals) else []
            waiting = [s for s in uses if isinstance(s.stmt, MbarrierWait)]
            waits = [self._wait(ring, s, keys) for s, keys in self._named(ring, waiting, once=False)]
            waits += [self._meeting(ring, e) for e in arrivals if isinstance(e.site.stmt, BarrierSync)]
        except NonAffine as error:
            self._refuse(uses[0], barrier, str(error))
            return
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
            text = f"the protocol of {_called(barrier.name)} is not decided: {why}"
            help = "let each of its roles come to it once a phase, in the same iterations"
        self.findings.append(self._broken("barrier-protocol", text, help, site))

    def _ring(self, barrier: Mbarrier, uses: list[Site]) -> Ring:
        """How the uses of a barrier are named: alike by all that use it."""
        places = [(s, self.model.ring_place(s, _index_of(s))) for s in uses]
        counts = [self.model.count(s, place) for s, place in places if place is not None]
        if not counts:
            return Ring(barrier, isl.Map("{ [i, n] -> [i, m] : m = n - 1 and m >= 0 }"), None)
        sizes = {place.size for _, place in places if place is not None}
        if len(counts) < len(places) or sizes != {barrier.count}:
            raise NonAffine("it is not one ring of as many places for all that use it")
        if not all(self.model.same(c.after(0), counts[0].after(0)) for c in counts):
            raise NonAffine("its users count different trips")
        return Ring(barrier, counts[0].after(-barrier.count), counts[0])

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

    # ------------------------------------------------------------------ names of uses

    def _named(self, ring: Ring, sites: list[Site], once: bool) -> list[tuple[Site, Map]]:
        """{iteration -> use} of statements of one kind, proved: each role's uses run through the phases one by one."""
        result: list[tuple[Site, Map]] = []
        by_team: dict[str, list[Site]] = {}
        for site in sites:
            by_team.setdefault(self._team(site), []).append(site)
        for group in by_team.values():
            guesses = [self._guesses(ring, site) for site in group]
            chosen = next((keys for keys in product(*guesses) if self._in_order(ring, group, keys, once)), None)
            if chosen is None:
                raise NonAffine("its uses do not run through the phases one by one")
            result += zip(group, chosen, strict=True)
        return result

    def _team(self, site: Site) -> str:
        """The role that uses a barrier; or the roles that take turns, and use an mbarrier as one role would."""
        if site.role is None:
            return ""
        number = turns(site.role)
        if number == 1 or isinstance(site.stmt, BarrierSync | BarrierArrive):
            return site.role.name
        groups: dict[int, list[str]] = {}  # by turn; those of several blocks side by side
        for stmt in self.model.kernel.body:
            for role in stmt.roles if isinstance(stmt, Roles) else ():
                if turns(role) == number:
                    groups.setdefault(own_turn(role), []).append(role.name)
        place = groups[own_turn(site.role)].index(site.role.name)
        return " ".join(names[place] for names in groups.values() if place < len(names))

    def _guesses(self, ring: Ring, site: Site) -> list[Map]:
        """Candidates for {iteration -> use}."""
        _, exact, reason = self.model.domain(site)
        if not exact:
            raise NonAffine(reason)
        iterations = self.model.iteration_schedule(site).domain()
        index = _index_of(site)
        place = self.model.ring_place(site, index)
        if place is not None:
            shifts = {place.shift % place.size, place.shift % place.size - place.size}
            found = [self.model.trips(site, place, shift) for shift in sorted(shifts, key=abs)]
            return [keys.intersect_domain(iterations) for keys in found]
        index = self.model.resolve(site, index)
        if isinstance(index, Const):
            return [self._keys(site, iterations, index, turn) for turn in self._turns(site)]
        index, running, stages = _places(index)
        ordinals = [op("sub", op("floordiv", running, Const(stages)), Const(shift)) for shift in (0, 1)]
        return [self._keys(site, iterations, index, ordinal) for ordinal in ordinals]

    def _turns(self, site: Site) -> list[Expr]:
        """How often one barrier may have been used before: trips of the outermost loop, and a few uses before it."""
        if not site.loops:
            return [Const(before) for before in range(_FEW)]
        loop = site.loops[0]
        trip = op("floordiv", op("sub", LoopVar(loop.var), loop.start), Const(loop.step))
        if loop.var == PROGRAM:
            trip = op("floordiv", trip, Const(turns(site.role)))
        return [op("add", trip, Const(before)) for before in range(_FEW)]

    def _keys(self, site: Site, iterations: Set, index: Expr, value: Expr) -> Map:
        texts = [self.model.translator.integer(e, ()) for e in (index, value)]
        text = f"{{ {self.model.tuple_text(site, ())} -> [{', '.join(texts)}] }}"
        return self.model.parse_map(text).intersect_domain(iterations)

    def _in_order(self, ring: Ring, sites: list[Site], names: Iterable[Map], once: bool) -> bool:
        """Every use comes after the one before it on its barrier; with `once`, no use is made twice."""
        times: Map | None = None  # {use -> times}
        for site, keys in zip(sites, names, strict=True):
            domain = self.model.iteration_schedule(site).domain()
            legal = ring.count.trips if ring.count is not None else isl.Set("{ [i, n] : n >= 0 }")
            if not self.model.nothing(domain.subtract(keys.domain())):
                return False
            if not self.model.nothing(keys.range().subtract(legal)):
                return False
            if once and not keys.intersect_params(self.model.context).is_injective():
                return False
            here = keys.reverse().apply_range(self.model.iteration_schedule(site))
            times = here if times is None else times.union(here)
        assert times is not None
        if once and not times.intersect_params(self.model.context).is_single_valued():
            return False
        uses = times.reverse()  # {time -> use}
        following = uses.apply_range(ring.previous)  # {time -> the use before}
        earlier = following.apply_range(times).intersect(self.later.reverse())
        return self.model.nothing(following.domain().subtract(earlier.domain()))

    def _wait(self, ring: Ring, site: Site, keys: Map) -> Wait | None:
        """The phases that a wait waits for, from its own uses and its parity."""
        stmt = site.stmt
        assert isinstance(stmt, MbarrierWait)
        data = Wait(site, stmt.barrier, keys, keys.apply_range(ring.previous.reverse()))
        space = Wait(site, stmt.barrier, keys.apply_range(ring.previous), keys)
        place = self.model.ring_place(site, stmt.index)
        if place is not None:
            return data if self._of_its_round(site, place, stmt.parity, keys) else space
        parity = self.model.translator.integer(self.model.resolve(site, stmt.parity), ())
        text = f"{{ {self.model.tuple_text(site, ())} -> [q] : (q - ({parity})) mod 2 = 0 and 0 <= q <= 1 }}"
        parities = self.model.parse_map(text).intersect_domain(keys.domain())
        ordinal = isl.Map("{ [i, n] -> [q] : (q - n) mod 2 = 0 and 0 <= q <= 1 }")
        if self.model.same(keys.apply_range(ordinal), parities):
            return data
        free = keys.apply_range(isl.Map("{ [i, n] -> [q] : (q - n - 1) mod 2 = 0 and 0 <= q <= 1 }"))
        if self.model.same(free, parities):
            return space
        wrong = free.subtract(parities).domain().intersect_params(self.model.context)
        at = place_of(self.model.kernel, smallest(wrong if not wrong.is_empty() else keys.domain()), site)
        text = f"the parity of this wait on {_called(stmt.barrier)} is not that of the phase it has to wait for"
        help = "for the i-th use of a ring of S: (i // S) % 2 to wait for data, (i // S + 1) % 2 for a free slot"
        label = "waits for the wrong phase"
        self.findings.append(
            Finding("wrong-parity", "progress", Verdict.REFUTED, text, stmt.span, label=label, help=help, place=at)
        )
        return None

    def _meeting(self, ring: Ring, arrival: Event) -> Wait:
        """The wait of a role for the phase of a named barrier in which it arrived."""
        following = arrival.keys.apply_range(ring.previous.reverse())
        return Wait(arrival.site, arrival.barrier, arrival.keys, following)

    def _of_its_round(self, site: Site, place: Place, parity: Expr, keys: Map) -> bool:
        """Whether a wait waits for the phase of its own use, `keys`, and not for the one before."""
        ahead = turn_parity(parity, place)
        if ahead is None:
            raise NonAffine("the parity of a wait is not that of its place's round")
        rounds = place.shift // place.size  # that the place's expression is ahead of the trip
        nearest = self.model.trips(site, place, place.shift % place.size).intersect_domain(keys.domain())
        return (ahead + rounds + (0 if self.model.same(keys, nearest) else 1)) % 2 == 0

    # ------------------------------------------------------------------ arrivals and bytes

    def _count(self, barrier: Mbarrier, arrivals: list[Event], use: Site) -> Finding | None:
        """All roles together make a phase."""
        units: dict[str, set[int]] = {}
        for event in arrivals:
            units.setdefault(self._team(event.site), set()).add(event.units)
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
        """The signalled copies, each of the uses that its role announced; every use brings what was announced."""
        expects, signals = [e for e in arrivals if e.bytes], []
        brought = dict.fromkeys((e.site.index for e in expects), 0)
        for copy in copies:
            for keys, event in product(self._guesses(ring, copy), expects):
                alike = self.model.same(isl.Map.from_range(keys.range()), isl.Map.from_range(event.keys.range()))
                alike = alike and keys.intersect_params(self.model.context).is_injective()
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
        """Whether the role of a signalled copy announces its bytes."""
        return any(e.bytes and e.barrier == signal.barrier and e.site.role is signal.site.role for e in self.arrivals)

    def _broken(self, code: str, text: str, help: str, site: Site) -> Finding:
        domain = self.model.domain(site)[0]
        if domain.is_empty():
            return unknown("progress-unknown", "progress", site.stmt.span, text, help)
        place = place_of(self.model.kernel, smallest(domain), site)
        return Finding(code, "progress", Verdict.REFUTED, text, site.stmt.span, help=help, place=place)

    # ------------------------------------------------------------------ order

    def observed(self, site: Site) -> dict[str, Map]:
        """By role: {iteration of a signalled copy -> time of the first wait for the phase that counts its bytes}."""
        for event in self.signals:
            if event.site is site:
                return self.knowledge.heard(event.keys, event.barrier)
        return {}

    # ------------------------------------------------------------------ progress

    def check(self) -> list[Finding]:
        """What is wrong with the protocol: the findings of reading it, unsatisfied waits, and phases that overrun."""
        findings = list(self.findings)
        if findings:
            return findings
        for wait in self.waits:
            findings += self._satisfied(wait)
            findings += self._not_lapped(wait)
            if turns(wait.site.role) > 1 and isinstance(wait.site.stmt, MbarrierWait):
                findings += self._not_behind(wait)
        like = {(self.model.like[e.site.index].index, e.barrier): e for e in reversed(self.signals)}
        for event in (*self.arrivals, *like.values()):  # no wait stands between copies that are like each other
            findings += self._not_early(event)
        return findings

    def _arriving(self, barrier: str) -> dict[str, dict[str, Map]]:
        """By team that arrives on a barrier, and by role: {use -> time} of its arrivals."""
        found: dict[str, dict[str, Map]] = {}
        for event in self.arrivals:
            if event.barrier == barrier and event.site.role is not None:
                times = found.setdefault(self._team(event.site), {})
                when = event.keys.reverse().apply_range(self.model.iteration_schedule(event.site))
                name = event.site.role.name
                times[name] = times[name].union(when) if name in times else when
        return dict(sorted(found.items()))

    def _brought(self, barrier: str) -> list[Map]:
        """{use -> time} of each signalled copy."""
        return [
            event.keys.reverse().apply_range(self.model.iteration_schedule(event.site))
            for event in self.signals
            if event.barrier == barrier
        ]

    def _satisfied(self, wait: Wait) -> list[Finding]:
        """Whatever a wait needs comes before it in the schedule."""
        # Roles that wait for each other at a named barrier have arrived there when any of them goes on.
        met = isinstance(wait.site.stmt, BarrierSync)
        earlier = self.model.iteration_schedule(wait.site).apply_range(self.model.before(strict=not met).reverse())
        made = self._arriving(wait.barrier).values()
        needed = [(wait.needs, reduce(Map.union, team.values())) for team in made]
        needed += [(wait.needs.intersect_range(when.domain()), when) for when in self._brought(wait.barrier)]
        for uses, when in needed:
            stuck = uses.domain().subtract(uses.apply_range(when).intersect(earlier).domain())
            if not self.model.nothing(stuck):
                stuck = stuck.intersect_params(self.model.context)
                text = f"this wait on {_called(wait.barrier)} can never return: the arrival that it needs never comes"
                help = "every phase that is waited for needs all of its arrivals, before or beside the wait"
                place = place_of(self.model.kernel, smallest(stuck), wait.site)
                return [
                    Finding("deadlock", "progress", Verdict.REFUTED, text, wait.site.stmt.span,
                            label="waits for ever", help=help, place=place)
                ]  # fmt: skip
        return []

    def _not_lapped(self, wait: Wait) -> list[Finding]:
        """The phase after that of a wait needs an arrival that comes after the wait."""
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
        """Whether {x -> time of an arrival of role `name`} is ordered after what `role` did at waited(x)."""
        own = (waited,) if role.name == name else ()
        for known in chain(own, self.knowledge.after(waited, role, name)):
            if self.model.nothing(arrivals):  # at once for a ring that is not gone through twice
                break
            arrivals = arrivals.subtract(known.apply_range(self.later))
        return self.model.nothing(arrivals)

    def _not_behind(self, wait: Wait) -> list[Finding]:
        """Of roles that take turns the one whose turn it is knows that the phase before the one that it waits for is
        complete, though another has waited for that: else it could take one two phases ago for its own."""
        role = wait.site.role
        assert role is not None
        before = wait.needs.apply_range(self._previous[wait.barrier])
        waited, left = self.model.iteration_schedule(wait.site), before.domain()
        for known in self.knowledge.spread(self.knowledge.heard(before, wait.barrier), role.name):
            if self.model.nothing(left):
                return []
            left = left.subtract(known.apply_range(self.later).intersect(waited).domain())
        if self.model.nothing(left):
            return []
        text = f"cannot exclude that {_called(wait.barrier)} is two phases behind this wait: its role takes turns"
        help = "let the role wait for its turn, at a barrier to which the others come once they have waited here"
        return [unknown("progress-unknown", "progress", wait.site.stmt.span, text, help)]

    def _not_early(self, event: Event) -> list[Finding]:
        """What is done for one phase comes after the phase before it is complete."""
        role = event.site.role
        assert role is not None
        before = event.keys.apply_range(self._previous[event.barrier])
        done = self.model.iteration_schedule(event.site)
        early = before.domain()
        if self.model.nothing(early):
            return []
        for known in self._order.spread(self._order.heard(before, event.barrier), role.name):
            early = early.subtract(known.apply_range(self.later).intersect(done).domain())
            if self.model.nothing(early):
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
    """Whether a statement arrives in another block of the cluster."""
    return isinstance(stmt, MbarrierArrive) and stmt.scope == "cluster"


def _called(barrier: str) -> str:
    """A barrier for a person; names of mbarriers have no spaces."""
    return f"named {barrier}" if " " in barrier else f"mbarrier '{barrier}'"


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
