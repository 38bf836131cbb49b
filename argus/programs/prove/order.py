"""Check order: two accesses of the same elements, at least one a write, are ordered by their stream or by events.

The analysis walks the text in the order in which the host executes it. For every stream and every site it keeps a
*lag*: the number of the site's most recent instances that may be incomplete before the stream's next work. A lag of 0
means that all instances are complete. A launch adds 1 for all other streams and events, a record saves the lags of its
stream, and a wait takes the smaller of two lags. Where paths meet, the greater lag counts, and loops are repeated until
nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from argus.diagnostic import Verdict
from argus.ir.expr import Const, Expr, LoopVar, op
from argus.programs.bound import overlap
from argus.programs.ir import MAIN, Collective, For, If, Launch, Program, Record, Step, Wait
from argus.programs.prove.facts import Doubt, Facts
from argus.programs.sites import Access, Site, primed, primed_part

UNKNOWN = 8
"""A lag about which nothing is known. Greater lags are not distinguished."""

BEGIN = 0
"""The number of the site that stands for the caller's earlier work."""

Lags = dict[int, int]


@dataclass
class State:
    """Lags by stream and by event, then by the number of a site. A missing entry means 0."""

    streams: dict[str, Lags]
    events: dict[str, Lags] = field(default_factory=dict)

    def copy(self) -> State:
        """Return an independent copy."""
        return State({k: dict(v) for k, v in self.streams.items()}, {k: dict(v) for k, v in self.events.items()})

    def join(self, other: State) -> State:
        """Return the knowledge that holds if either of two states may hold."""
        events = {
            name: _greater(self.events.get(name), other.events.get(name)) for name in {*self.events, *other.events}
        }
        streams = {name: _greater(self.streams[name], other.streams[name]) for name in self.streams}
        return State(streams, events)


def _greater(a: Lags | None, b: Lags | None) -> Lags:
    if a is None or b is None:  # The event was recorded on one of two paths. Names of events end with their block.
        return dict(a or b or {})
    return {site: max(a.get(site, 0), b.get(site, 0)) for site in {*a, *b}}


@dataclass(frozen=True)
class Order:
    """The result of the analysis: the state before each site, by its number, and the state at the end."""

    before: dict[int, State]
    end: State

    def lag(self, site: Site, earlier: int) -> int:
        """Return the number of instances of site `earlier` that may be incomplete when `site` starts."""
        return self.before[site.number].streams[site.step.stream].get(earlier, 0)


def order(program: Program, sites: tuple[Site, ...]) -> Order:
    """Analyse the order of a program's work."""
    return _Analysis(program, sites).run()


class _Analysis:
    def __init__(self, program: Program, sites: tuple[Site, ...]) -> None:
        self.program = program
        self.numbers = {id(s.step): s.number for s in sites}
        self.before: dict[int, State] = {}

    def run(self) -> Order:
        start = State({name: {} if name == MAIN else {BEGIN: UNKNOWN} for name in self.program.streams})
        end = self.body(self.program.body, start)
        return Order(self.before, end)

    def body(self, body: tuple[Step, ...], state: State) -> State:
        for step in body:
            state = self.step(step, state)
        return state

    def step(self, step: Step, state: State) -> State:
        match step:
            case Launch() | Collective():
                return self.work(self.numbers[id(step)], step.stream, state)
            case Record(event=event, stream=stream):
                found = state.copy()
                found.events[event] = dict(state.streams[stream])
                return found
            case Wait(stream=stream, event=event):
                return self.wait(stream, event, state)
            case If(then=then, orelse=orelse):
                return self.body(then, state.copy()).join(self.body(orelse, state.copy()))
            case For(body=inner):
                while True:
                    found = state.join(self.body(inner, state.copy()))
                    if found == state:
                        return state
                    state = found

    def work(self, number: int, stream: str, state: State) -> State:
        self.before[number] = state.copy()
        found = state.copy()
        others = [lags for name, lags in found.streams.items() if name != stream]
        for lags in (*others, *found.events.values()):
            lags[number] = min(lags.get(number, 0) + 1, UNKNOWN)
        return found

    def wait(self, stream: str, event: str, state: State) -> State:
        found = state.copy()
        known = state.events.get(event)
        if known is not None:
            lags = found.streams[stream]
            found.streams[stream] = {site: min(lag, known.get(site, 0)) for site, lag in lags.items()}
        return found


# ---------------------------------------------------------------------------- the check


def check(facts: Facts, sites: tuple[Site, ...], found: Order) -> Iterator[Doubt]:
    """Find accesses that may not be ordered."""
    for site in sites:
        stream = site.step.stream
        if found.lag(site, BEGIN):
            what = f"stream `{stream}` does not wait for what the caller did before, on the caller's stream"
            yield from _started(facts, site, what)
        for other in sites:
            lag = found.lag(site, other.number)
            if lag and other.step.stream != stream:
                yield from _pair(facts, site, other, lag)
    for site in sites:
        if found.end.streams[MAIN].get(site.number, 0):
            what = f"the caller may go on before this work on stream `{site.step.stream}` is complete"
            yield from _started(facts, site, what)


def _started(facts: Facts, site: Site, what: str) -> Iterator[Doubt]:
    """Yield a doubt that holds if the site runs at all."""
    answer = facts.impossible([*site.given])
    if answer.verdict is not Verdict.PROVED:
        buffer = next((a.part.obj for a in site.accesses), "")
        yield Doubt("program-race", what, site.step, buffer, site.step.stream, facts.sizes(answer), answer.reason)


def _pair(facts: Facts, site: Site, other: Site, lag: int) -> Iterator[Doubt]:
    """Compare the accesses of a site with those of the preceding `lag` instances of another site."""
    for a in site.accesses:
        for b in other.accesses:
            if a.part.obj == b.part.obj and (a.writes or b.writes):
                yield from _conflict(facts, (site, a), (other, b), lag)


def _conflict(facts: Facts, mine: tuple[Site, Access], theirs: tuple[Site, Access], lag: int) -> Iterator[Doubt]:
    (site, a), (other, b) = mine, theirs
    given = [*site.given, *(primed(g, other.loops) for g in other.given)]
    for case in earlier(other, site, lag):
        meet = overlap(a.part, primed_part(b.part, other.loops))
        answer = facts.impossible([*given, *case, meet])
        if answer.verdict is not Verdict.PROVED:
            what = (
                f"this access of `{a.part.obj}` on stream `{site.step.stream}` is not ordered after the one on stream "
                f"`{other.step.stream}`"
            )
            yield Doubt("program-race", what, site.step, a.part.obj, site.step.stream, facts.sizes(answer),
                        answer.reason, other.step)  # fmt: skip
            return


def earlier(other: Site, site: Site, lag: int = UNKNOWN) -> Iterator[list[Expr]]:
    """Yield the cases, as conditions, in which an instance of `other` (whose counters are marked) precedes an instance
    of `site`.

    With a known lag, only the last instances count, if `other` runs once in each iteration of the innermost loop that
    both share.
    """
    common = [a for a, b in zip(other.loops, site.loops, strict=False) if a is b]
    for depth in range(len(common)):
        same = [op("eq", LoopVar(f"{loop.var}'"), LoopVar(loop.var)) for loop in common[:depth]]
        loop = common[depth]
        before = op("lt", LoopVar(f"{loop.var}'"), LoopVar(loop.var))
        near: list[Expr] = []
        if depth == len(common) - 1 and lag < UNKNOWN and _once(other, len(common)):
            turns = lag - 1 if other.number < site.number else lag
            distance = op("sub", LoopVar(loop.var), LoopVar(f"{loop.var}'"))
            near = [op("le", distance, Const(turns * loop.step))]
        yield [*same, before, *near]
    if other.number < site.number:
        yield [op("eq", LoopVar(f"{loop.var}'"), LoopVar(loop.var)) for loop in common]


def _once(other: Site, common: int) -> bool:
    """Return True if a site runs exactly once in each iteration of its loop number `common`."""
    return len(other.loops) == common and not other.path[-1][1]
