"""Mbarrier protocols: phases, parities, bytes, and that no wait is for ever.

Every arrival, expectation, signalled copy and wait on mbarrier `b[i]` has an *ordinal*: how many of its kind its role
made on `b[i]` before. For rings of buffers that is `e // S` where the index is `e mod S`; the guess is proved by
induction (each ordinal from 0 on exactly once, in order). Then, for every trip count:

- a phase takes one arrival of each kind and role, which add up to the initialised count, and the bytes expected are
  the bytes copied: so phase n completes exactly when all of ordinal n have happened;
- a wait whose ordinal is n waits for T = n or n + 1 completed phases, as its parity says; T - 1 are complete before it
  (its predecessor waited for them), and phase T + 1 cannot complete before it returned, so parity never lies;
- in the schedule of `program`, whatever phase a wait needs has happened before it. Since waits are the only statements
  that block, every other order of events gets as far: no deadlock.

PTX ISA, mbarrier: phase completion, arrive.expect_tx, complete_tx, try_wait.parity.
"""

from __future__ import annotations

from dataclasses import dataclass

from argus.diagnostic import Verdict
from argus.ir.expr import Const, Expr, Op, op
from argus.ir.nodes import (
    Copy,
    Kernel,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Role,
    Roles,
)
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.program import Site
from argus.verify.relations import Map, Model, NonAffine, Set, isl, smallest


@dataclass(frozen=True)
class Event:
    """One statement's uses of an mbarrier: {iteration -> [index, ordinal]}, ordinals proved.

    `units`: arrivals that one use makes. `bytes`: bytes expected or brought by one use.
    """

    site: Site
    barrier: str
    keys: Map
    units: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Wait:
    """One statement's waits: {iteration -> [index, T]}, T the number of completed phases waited for."""

    site: Site
    barrier: str
    targets: Map


class Protocol:
    """The mbarrier protocol of a kernel: `findings` says what is wrong; order is derived only from what is right."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.findings: list[Finding] = []
        self.roles = _roles(model.kernel)
        self.arrivals: list[Event] = []
        self.signals: list[Event] = []
        self.waits: list[Wait] = []
        self.later = model.before()
        for barrier in model.kernel.barriers:
            self._read(barrier)

    # ------------------------------------------------------------------ reading the protocol

    def _read(self, barrier: Mbarrier) -> None:
        """Adds the barrier's events if its arrivals, bytes and parities are right; says what is not."""
        uses = [s for s in self.model.sites if _barrier_of(s) == barrier.name]
        try:
            arrivals = [self._event(s) for s in uses if isinstance(s.stmt, (MbarrierExpect, MbarrierArrive))]
            signals = [self._event(s) for s in uses if isinstance(s.stmt, Copy)]
            waits = [self._wait(s) for s in uses if isinstance(s.stmt, MbarrierWait)]
        except NonAffine as error:
            self._refuse(uses[0], barrier, str(error))
            return
        problems = self._count(barrier, arrivals, uses[0]) or self._bytes(barrier, arrivals, signals)
        if problems is None and not any(w is None for w in waits):
            self.arrivals += arrivals
            self.signals += signals
            self.waits += [w for w in waits if w is not None]
        elif problems is not None:
            self.findings.append(problems)

    def _refuse(self, site: Site, barrier: Mbarrier, why: str) -> None:
        text = f"the protocol of mbarrier '{barrier.name}' is not that of a ring of buffers: {why}"
        help = "use each barrier as a ring: index (i % stages), one use a role and iteration"
        self.findings.append(self._broken("barrier-protocol", text, help, site))

    def _event(self, site: Site) -> Event:
        stmt = site.stmt
        match stmt:
            case MbarrierExpect(barrier=name, bytes=count):
                return Event(site, name, self._ordinals(site), 1, count)
            case MbarrierArrive(barrier=name):
                assert site.role is not None
                return Event(site, name, self._ordinals(site), site.role.num_warps)
            case Copy(signal=signal, shape=shape, dst=dst) if signal is not None:
                count = self.model.kernel.object(dst.obj).dtype.bytes
                for extent in shape:
                    count *= extent
                return Event(site, signal.barrier, self._ordinals(site), 0, count)
            case _:
                raise AssertionError(stmt)

    def _ordinals(self, site: Site) -> Map:
        """{iteration -> [index, ordinal]}, proved: no two uses share a key, each follows its predecessor."""
        domain, exact, reason = self.model.domain(site)
        if not exact:
            raise NonAffine(reason)
        iterations = self.model.iterations(domain, site)
        index, running, stages = _ring(_index_of(site))
        for shift in (0, 1):
            ordinal = op("sub", op("floordiv", running, Const(stages)), Const(shift))
            keys = self._keys(site, iterations, index, ordinal)
            if self._is_ordinal(site, keys):
                return keys
        raise NonAffine("its uses do not run through the phases one by one")

    def _keys(self, site: Site, iterations: Set, index: Expr, value: Expr) -> Map:
        texts = [self.model.translator.integer(e, ()) for e in (index, value)]
        text = f"{{ {self.model.tuple_text(site, ())} -> [{', '.join(texts)}] }}"
        return self.model.parse_map(text).intersect_domain(iterations)

    def _is_ordinal(self, site: Site, keys: Map) -> bool:
        if not keys.is_injective() or not keys.range().subtract(isl.Set("{ [i, n] : n >= 0 }")).is_empty():
            return False
        times = self.model.iteration_schedule(site)
        by_key = keys.reverse().apply_range(times)  # [index, ordinal] -> time
        previous = isl.Map("{ [i, n] -> [i, m] : m = n - 1 and m >= 0 }")
        orphans = (
            by_key.domain()
            .intersect(isl.Set("{ [i, n] : n >= 1 }"))
            .subtract(by_key.domain().apply(previous.reverse()))
        )
        in_order = by_key.reverse().apply_range(previous).apply_range(by_key)  # time -> predecessor's time
        return bool(orphans.is_empty() and in_order.subtract(self.later.reverse()).is_empty())

    def _wait(self, site: Site) -> Wait | None:
        """The phases that a wait waits for, from its ordinal and its parity."""
        stmt = site.stmt
        assert isinstance(stmt, MbarrierWait)
        ordinals = self._ordinals(site)
        iterations = ordinals.domain()
        parity = self.model.translator.integer(stmt.parity, ())
        text = f"{{ {self.model.tuple_text(site, ())} -> [q] : (q - ({parity})) mod 2 = 0 and 0 <= q <= 1 }}"
        parities = self.model.parse_map(text).intersect_domain(iterations)
        for more in (1, 0):
            targets = ordinals.apply_range(isl.Map(f"{{ [i, n] -> [i, t] : t = n + {more} }}"))
            wanted = targets.apply_range(isl.Map("{ [i, t] -> [q] : (q - t - 1) mod 2 = 0 and 0 <= q <= 1 }"))
            if wanted.is_equal(parities):
                return Wait(site, stmt.barrier, targets)
        wrong = wanted.subtract(parities).domain()
        self.findings.append(
            Finding(
                "wrong-parity",
                "progress",
                Verdict.REFUTED,
                f"the parity of this wait on mbarrier '{stmt.barrier}' is not that of the phase it has to wait for",
                stmt.span,
                label="waits for the wrong phase",
                help="for the i-th use of a ring of S: (i // S) % 2 to wait for data, (i // S + 1) % 2 for a free slot",
                place=place_of(self.model.kernel, smallest(wrong if not wrong.is_empty() else iterations), site),
            )
        )
        return None

    # ------------------------------------------------------------------ arrivals and bytes

    def _count(self, barrier: Mbarrier, arrivals: list[Event], use: Site) -> Finding | None:
        """One use a role; all of them together make a phase."""
        by_role = [e.site.role.name if e.site.role is not None else "" for e in arrivals]
        total = sum(e.units for e in arrivals)
        if len(set(by_role)) == len(by_role) and total == barrier.arrivals:
            return None
        site = arrivals[0].site if arrivals else use
        text = f"mbarrier '{barrier.name}' expects {barrier.arrivals} arrivals a phase and gets {total}"
        help = "initialise it with the number of arrivals that one phase really gets, one use a role"
        return self._broken("arrival-count", text, help, site)

    def _bytes(self, barrier: Mbarrier, arrivals: list[Event], signals: list[Event]) -> Finding | None:
        """Every phase brings the bytes that were announced, after they were."""
        expects = [e for e in arrivals if e.bytes]
        announced, brought = sum(e.bytes for e in expects), sum(e.bytes for e in signals)
        alike = all(s.keys.range().is_equal(e.keys.range()) for s in signals for e in expects)
        if announced == brought and alike and len(expects) <= 1:
            return None
        site = (expects or signals)[0].site
        text = f"mbarrier '{barrier.name}' is told of {announced} bytes a phase; its copies bring {brought}"
        if announced == brought:
            text = f"the copies that signal mbarrier '{barrier.name}' are not those that it was told of"
        return self._broken("transaction-bytes", text, "announce exactly the bytes of the copies", site)

    def _broken(self, code: str, text: str, help: str, site: Site) -> Finding:
        domain = self.model.domain(site)[0]
        if domain.is_empty():
            return unknown("progress-unknown", "progress", site.stmt.span, text, help)
        place = place_of(self.model.kernel, smallest(domain), site)
        return Finding(code, "progress", Verdict.REFUTED, text, site.stmt.span, help=help, place=place)

    # ------------------------------------------------------------------ order

    def _waits_for(self, keys: Map, barrier: str) -> dict[str, Map]:
        """By role: {x -> time of its first wait for the phase keys(x) = [index, ordinal]}."""
        needed = keys.apply_range(isl.Map("{ [i, n] -> [i, t] : t = n + 1 }"))
        found: dict[str, Map] = {}
        for wait in self.waits:
            if wait.barrier != barrier or wait.site.role is None:
                continue
            times = wait.targets.reverse().apply_range(self.model.iteration_schedule(wait.site))
            reached = needed.apply_range(times)
            name = wait.site.role.name
            found[name] = found[name].union(reached).lexmin() if name in found else reached.lexmin()
        return found

    def observed(self, site: Site) -> dict[str, Map]:
        """By role: {iteration of a signalled copy -> time of the first wait for the phase that counts its bytes}."""
        for event in self.signals:
            if event.site is site:
                return self._waits_for(event.keys, event.barrier)
        return {}

    def passed_on(self, times: Map, role: Role) -> dict[str, Map]:
        """By role: when others know what all threads of `role` did or knew at times(x), through its next arrivals."""
        result: dict[str, Map] = {}
        for event in self.arrivals:
            if event.site.role is not role or event.units < role.num_warps:
                continue  # an arrival of one warp says nothing of the others
            schedule = self.model.iteration_schedule(event.site)
            first = times.apply_range(self.later).intersect_range(schedule.range()).lexmin()
            keys = first.apply_range(schedule.reverse()).apply_range(event.keys)
            for name, reached in self._waits_for(keys, event.barrier).items():
                result[name] = result[name].union(reached).lexmin() if name in result else reached
        return result

    # ------------------------------------------------------------------ progress

    def check(self) -> list[Finding]:
        """What is wrong with the protocol: the findings of reading it, unsatisfied waits, and phases that overrun."""
        findings = list(self.findings)
        if findings:
            return findings
        for wait in self.waits:
            findings += self._satisfied(wait)
            findings += self._not_lapped(wait)
        for event in self.arrivals:
            findings += self._not_early(event)
        return findings

    def _satisfied(self, wait: Wait) -> list[Finding]:
        """Whatever a wait needs comes before it in the schedule."""
        span = wait.site.stmt.span
        schedule = self.model.iteration_schedule(wait.site)
        needed = wait.targets.intersect_range(isl.Set("{ [i, t] : t >= 1 }"))
        needed = needed.apply_range(isl.Map("{ [i, t] -> [i, n] : n = t - 1 }"))
        for event in [e for e in (*self.arrivals, *self.signals) if e.barrier == wait.barrier]:
            when = event.keys.reverse().apply_range(self.model.iteration_schedule(event.site))
            before = needed.apply_range(when).intersect(schedule.apply_range(self.later.reverse()))
            stuck = needed.domain().subtract(before.domain())
            if not stuck.is_empty():
                text = f"this wait on mbarrier '{wait.barrier}' can never return: the arrival that it needs never comes"
                return [
                    Finding(
                        "deadlock", "progress", Verdict.REFUTED, text, span, label="waits for ever",
                        help="every phase that is waited for needs all of its arrivals, before or beside the wait",
                        place=place_of(self.model.kernel, smallest(stuck), wait.site),
                    )
                ]  # fmt: skip
        return []

    def _not_lapped(self, wait: Wait) -> list[Finding]:
        """Phase T + 1 of a wait for T phases needs an arrival that comes after the wait."""
        schedule = self.model.iteration_schedule(wait.site)
        assert wait.site.role is not None
        known = self._closure(schedule, wait.site.role)
        for event in [e for e in self.arrivals if e.barrier == wait.barrier]:
            assert event.site.role is not None
            when = event.keys.reverse().apply_range(self.model.iteration_schedule(event.site))
            next_phase = wait.targets.apply_range(when)  # {wait -> time of the arrival of ordinal T}
            after = known.get(event.site.role.name)
            if after is None:
                continue
            late = after.apply_range(self.later)
            if next_phase.subtract(late).is_empty():
                return []
        return [
            unknown(
                "progress-unknown",
                "progress",
                wait.site.stmt.span,
                f"cannot exclude that mbarrier {wait.barrier!r} gets two phases ahead of this wait",
                "let the next phase's arrival wait, directly or through other barriers, for this role",
            )
        ]

    def _not_early(self, event: Event) -> list[Finding]:
        """An arrival for phase n + 1 comes after phase n is complete."""
        role = event.site.role
        assert role is not None
        schedule = self.model.iteration_schedule(event.site)
        next_one = event.keys.apply_range(isl.Map("{ [i, n] -> [i, m] : m = n + 1 }"))
        following = next_one.apply_range(event.keys.reverse()).apply_range(schedule)
        seen = self._waits_for(event.keys, event.barrier)
        known: dict[str, Map] = dict(seen)
        for name, times in seen.items():
            for other, reached in self._closure(times, self._role(name)).items():
                known[other] = known[other].union(reached).lexmin() if other in known else reached
        after = known.get(role.name, isl.Map.empty(following.get_space()))
        if following.subtract(after.apply_range(self.later)).is_empty():
            return []
        return [
            unknown(
                "progress-unknown",
                "progress",
                event.site.stmt.span,
                f"cannot exclude that this arrival on mbarrier {event.barrier!r} precedes the end of its last phase",
                "wait for the phase, directly or through other barriers, before arriving for the next",
            )
        ]

    def _role(self, name: str) -> Role:
        return next(r for r in self.roles if r.name == name)

    def _closure(self, times: Map, role: Role) -> dict[str, Map]:
        """By role: when all threads know that `role` was at times(x) (each of its threads was)."""
        known = {role.name: times}
        for _ in range(2):
            for name in list(known):
                for other, reached in self.passed_on(known[name], self._role(name)).items():
                    known[other] = known[other].union(reached).lexmin() if other in known else reached
        return known


def _roles(kernel: Kernel) -> tuple[Role, ...]:
    return tuple(role for stmt in kernel.body if isinstance(stmt, Roles) for role in stmt.roles)


def _barrier_of(site: Site) -> str | None:
    match site.stmt:
        case MbarrierExpect(barrier=name) | MbarrierArrive(barrier=name) | MbarrierWait(barrier=name):
            return name
        case Copy(signal=signal) if signal is not None:
            return signal.barrier
        case _:
            return None


def _index_of(site: Site) -> Expr:
    match site.stmt:
        case MbarrierExpect(index=index) | MbarrierArrive(index=index) | MbarrierWait(index=index):
            return index
        case Copy(signal=signal) if signal is not None:
            return signal.index
        case _:
            raise AssertionError(site.stmt)


def _ring(index: Expr) -> tuple[Expr, Expr, int]:
    """(index, running count, stages) of an index `count mod stages`."""
    match index:
        case Op(op="mod", args=(running, Const(value=stages))):
            return index, running, int(stages)
        case _:
            raise NonAffine("the index is not a count modulo the number of stages")
