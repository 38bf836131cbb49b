"""Progress: no wait of a protocol lasts for ever, and none mistakes one phase for another.

The rules are those of `argus.verify.order.protocol`.
"""

from __future__ import annotations

from functools import reduce
from itertools import chain

from argus.diagnostic import Verdict
from argus.ir.nodes import BarrierSync, MbarrierWait, Role
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.model.isl import Map, smallest
from argus.verify.model.program import turns
from argus.verify.order.knowledge import Event, Wait
from argus.verify.order.protocol import Protocol, called


def check(protocol: Protocol) -> list[Finding]:
    """Find errors of a protocol: those found while reading it, unsatisfied waits, and phases that overrun."""
    return list(protocol.findings) or _Progress(protocol).run()


class _Progress:
    """A check of the waits and events of a protocol that was read without errors."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol, self._model = protocol, protocol.model

    def run(self) -> list[Finding]:
        """Check all waits and events."""
        findings: list[Finding] = []
        for wait in self._protocol.waits:
            findings += self._satisfied(wait)
            findings += self._not_lapped(wait)
            if isinstance(wait.site.stmt, MbarrierWait) and self._may_skip(wait):
                findings += self._not_behind(wait)
        like = {(self._model.like[e.site.index].index, e.barrier): e for e in reversed(self._protocol.signals)}
        # No wait stands between copies with the same representative.
        for event in (*self._protocol.arrivals, *like.values()):
            findings += self._not_early(event)
        return findings

    def _arriving(self, barrier: str) -> dict[str, dict[str, Map]]:
        """Return the map from uses of a barrier to times of arrivals, for each arriving team and each of its roles."""
        found: dict[str, dict[str, Map]] = {}
        for event in self._protocol.arrivals:
            if event.barrier == barrier and event.site.role is not None:
                times = found.setdefault(self._protocol.uses.team(event.site), {})
                when = event.keys.reverse().apply_range(self._model.iteration_schedule(event.site))
                name = event.site.role.name
                times[name] = times[name].union(when) if name in times else when
        return dict(sorted(found.items()))

    def _brought(self, barrier: str) -> list[Map]:
        """Return, for each signalled copy, the map from a use of the barrier to the time of the copy."""
        return [
            event.keys.reverse().apply_range(self._model.iteration_schedule(event.site))
            for event in self._protocol.signals
            if event.barrier == barrier
        ]

    def _satisfied(self, wait: Wait) -> list[Finding]:
        """Check that everything a wait needs comes before it in the schedule."""
        # Roles that wait for each other at a named barrier have arrived there when any of them goes on.
        met = isinstance(wait.site.stmt, BarrierSync)
        earlier = self._model.iteration_schedule(wait.site).apply_range(self._model.before(strict=not met).reverse())
        made = self._arriving(wait.barrier).values()
        needed = [(wait.needs, reduce(Map.union, team.values())) for team in made]
        needed += [(wait.needs.intersect_range(when.domain()), when) for when in self._brought(wait.barrier)]
        for uses, when in needed:
            stuck = uses.domain().subtract(uses.apply_range(when).intersect(earlier).domain())
            if not self._model.context.nothing(stuck):
                stuck = self._model.context.known(stuck)
                text = f"this wait on {called(wait.barrier)} can never return: the arrival that it needs never comes"
                help = "every phase that is waited for needs all of its arrivals, before or beside the wait"
                place = place_of(self._model.kernel, smallest(stuck), wait.site)
                return [
                    Finding("deadlock", "progress", Verdict.REFUTED, text, wait.site.stmt.span,
                            label="waits for ever", help=help, place=place)
                ]  # fmt: skip
        return []

    def _not_lapped(self, wait: Wait) -> list[Finding]:
        """Check that the phase after the awaited one needs an arrival that comes after the wait."""
        assert wait.site.role is not None
        waited, arriving = self._model.iteration_schedule(wait.site), self._arriving(wait.barrier)
        if not arriving:  # then no phase completes
            return []
        for team in arriving.values():
            following = ((wait.next.apply_range(when), name) for name, when in team.items())
            if all(self._comes_after(arrivals, waited, wait.site.role, name) for arrivals, name in following):
                return []
        return [
            unknown(
                "progress-unknown",
                "progress",
                wait.site.stmt.span,
                f"cannot exclude that {called(wait.barrier)} gets two phases ahead of this wait",
                "let the next phase's arrival wait, directly or through other barriers, for this role",
            )
        ]

    def _comes_after(self, arrivals: Map, waited: Map, role: Role, name: str) -> bool:
        """Return True if each arrival of role `name` at arrivals(x) is ordered after what `role` did at waited(x)."""
        own = (waited,) if role.name == name else ()
        for known in chain(own, self._protocol.knowledge.after(waited, role, name)):
            if self._model.context.nothing(arrivals):  # true at once if no buffer of the ring is used twice
                break
            arrivals = arrivals.subtract(known.apply_range(self._protocol.later))
        return self._model.context.nothing(arrivals)

    def _may_skip(self, wait: Wait) -> bool:
        """Return True if the role of a wait may not have waited itself for the phase before the awaited one.

        That is so if another role had the turn before, or if some of the role's waits are for the phases of their own
        uses and some for the phases before those.
        """
        team = self._protocol.uses.team
        same = (w for w in self._protocol.waits if w.barrier == wait.barrier)
        alike = (w for w in same if team(w.site) == team(wait.site))
        return turns(wait.site.role) > 1 or any(w.behind is not wait.behind for w in alike)

    def _not_behind(self, wait: Wait) -> list[Finding]:
        """Check that the role of a wait knows that the phase before the awaited one is complete.

        Otherwise the wait could mistake the phase two before for the awaited one, which has the same parity.
        """
        role = wait.site.role
        assert role is not None
        before = wait.needs.apply_range(self._protocol.previous[wait.barrier])
        waited, left = self._model.iteration_schedule(wait.site), before.domain()
        for known in self._protocol.knowledge.spread(self._protocol.knowledge.heard(before, wait.barrier), role.name):
            if self._model.context.nothing(left):
                return []
            left = left.subtract(known.apply_range(self._protocol.later).intersect(waited).domain())
        if self._model.context.nothing(left):
            return []
        text = f"cannot exclude that {called(wait.barrier)} is two phases behind this wait"
        help = "let the role wait for every phase, or for its turn, at a barrier to which others come once they have"
        return [unknown("progress-unknown", "progress", wait.site.stmt.span, text, help)]

    def _not_early(self, event: Event) -> list[Finding]:
        """Check that an event of one phase comes after the phase before it is complete."""
        role = event.site.role
        assert role is not None
        before = event.keys.apply_range(self._protocol.previous[event.barrier])
        done = self._model.iteration_schedule(event.site)
        early = before.domain()
        if self._model.context.nothing(early):
            return []
        for known in self._protocol.phases.spread(self._protocol.phases.heard(before, event.barrier), role.name):
            early = early.subtract(known.apply_range(self._protocol.later).intersect(done).domain())
            if self._model.context.nothing(early):
                return []
        return [
            unknown(
                "progress-unknown",
                "progress",
                event.site.stmt.span,
                f"cannot exclude that this use of {called(event.barrier)} precedes the end of its last phase",
                "wait for the phase, directly or through other barriers, before arriving for the next",
            )
        ]
