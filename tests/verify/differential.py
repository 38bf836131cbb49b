"""Verifier against simulator on generated kernels and their mutations.

A third of them depend on data, a tenth write cells twice in one statement, more than a third are asynchronous.

    python -m tests.verify.differential --count 10000 --seed 1

No kernel that is proved may break a rule in the simulator, at any size and under any schedule tried, nor in any order
of the events of small runs (`interleavings`); every refutation carries a replayed witness (the verifier itself demotes
those that do not replay). With `--emitted`, the emitted text of what is proved is also run on the host, many kernels at
a time, and has to end as the simulator does; so is that of as many kernels that compute (`tests.computations`). With
`--again N`, one kernel in N is also verified by the other engine and on no simpler form, and these answers have to
agree. Prints a line for every disagreement, a table by family, and why kernels stay unknown.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import inf
from multiprocessing import get_context

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from argus.diagnostic import Diagnostic, Severity, SourceError, Verdict
from argus.ir.cluster import unite
from argus.ir.nodes import InRange, Kernel
from argus.ir.text import print_kernel
from argus.simulate import NotReplayable, replay
from argus.simulate.launch import scalar
from argus.simulate.usage import kernel_roles
from argus.verify import verify
from tests import computations, indices
from tests.backend.emitted import disagreements, drawn, trials, with_extremes
from tests.strategies import kernels, mutations, sizes
from tests.verify.interleavings import Unmodelled, explore
from tests.verify.second_looks import Looks

LIMIT_S = 30.0
"""Seconds of verification per kernel."""
INDEX_FAMILIES = frozenset(draw.__name__ for draw in indices.FAMILIES)
"""Families whose addresses, bounds or conditions are loaded. Their proofs may end as unknown, which is counted."""
COLUMNS = ("kernels", "proved", "refuted", "unknown", "refused", "simulations", "explored", "disagreements", "seconds")
_SAY_NOTHING = ("vacuous-assertion", "contradictory-requires")
"""Of assertions over nothing, and of preconditions that leave no elements: what is refused so has no run to show."""
MOST_STATES = 5000
"""States of an automaton beyond which not all orders of events are tried."""
BATCH = 100
"""Kernels whose texts are compiled together."""
MOST_PROGRAMS = 3
"""Programs of a block, of which all orders of events are tried."""


@dataclass
class Tally:
    """What became of the kernels tried. The numbers are by family and column."""

    numbers: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    unknown: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    """(family, code, whether it is as generated, without a mutation)."""
    demoted: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Refutations that did not replay, (family, code)."""
    examples: dict[tuple[str, str, bool], str] = field(default_factory=dict)
    """The first message for each demoted or unknown code of a family, and the kernel."""
    undecided: int = 0
    """Unknown synchronous ones that depend on no data: their every index is known, so they should be decided."""
    disagreements: list[str] = field(default_factory=list)
    emitted: bool = False
    """Whether the texts of proved kernels are run."""
    launches: int = 0
    """Runs of emitted texts that were held against the simulator."""
    looks: Looks = field(default_factory=Looks)
    """Second looks at some of the kernels."""
    waiting: list[tuple[Kernel, str, list[dict[str, int]]]] = field(default_factory=list)
    """Proved kernels whose texts are still to be run, by which mutation they came, and their sizes."""

    def add(self, other: Tally) -> None:
        """Count what another run found, too."""
        for key, number in other.numbers.items():
            self.numbers[key] += number
        self.unknown += other.unknown
        self.demoted += other.demoted
        self.examples = {**other.examples, **self.examples}
        self.undecided += other.undecided
        self.disagreements += other.disagreements
        self.launches += other.launches
        self.looks.numbers += other.looks.numbers

    def total(self, column: str, *families: str) -> float:
        """A column's sum, over all families if none is named."""
        chosen = families or self.families
        return sum(n for (family, name), n in self.numbers.items() if name == column and family in chosen)

    @property
    def families(self) -> list[str]:
        return sorted({family for family, _ in self.numbers})

    def table(self) -> list[str]:
        """Lines for a person: a row a family, all, and the reasons of the unknown ones."""
        rows = [(family, *(self.total(c, family) for c in COLUMNS)) for family in self.families]
        rows.append(("all", *(self.total(c) for c in COLUMNS)))
        lines = ["family        " + " ".join(f"{c:>13}" for c in COLUMNS)]
        lines += [f"{name:<14}" + " ".join(f"{n:>13.0f}" for n in numbers) for name, *numbers in rows]
        for title, plain in (("as generated", True), ("mutated", False)):
            lines.append(f"unknown, {title}:")
            for (family, code, mine), n in sorted(self.unknown.items()):
                if mine is plain:
                    lines.append(f"  {n:>6} {family}: {code}")
        lines.append("refutations that did not replay:")
        lines += [f"  {n:>6} {family}: {code}" for (family, code), n in sorted(self.demoted.items())]
        return lines


@st.composite
def cases(draw: st.DrawFn, only: st.SearchStrategy[Kernel] | None) -> tuple[Kernel, str, list[dict[str, int]]]:
    """A generated kernel or one mutation of it (by name, "" for none), and sizes to try it at.

    `only`: kernels that are tried as they are drawn, in place of all."""
    kernel, name = draw(kernels() if only is None else only), ""
    if only is None and draw(st.booleans()):
        mutation = draw(mutations(kernel))
        kernel, name = mutation.kernel, mutation.name
    return kernel, name, draw(st.lists(sizes(kernel), min_size=1, max_size=3))


def schedules(kernel: Kernel) -> tuple[str, ...]:
    """Orders that differ as much as the rules allow: as late, as early, reversed, at random."""
    roles = kernel_roles(kernel)
    if not roles:
        return ("program", "reverse", "random(1)")
    return ("program", "reverse", "lazy", *(f"eager-{role.name}" for role in roles), "random(1)", "random(2)")


def examine(kernel: Kernel, mutation: str, tried: list[dict[str, int]], tally: Tally) -> None:
    """Counts one kernel; notes where the two disagree."""
    family, started = kernel.name, time.monotonic()
    tally.numbers[family, "kernels"] += 1
    try:
        report = verify(kernel, LIMIT_S)
    except SourceError:
        tally.numbers[family, "refused"] += 1
        return
    tally.numbers[family, report.verdict.value] += 1
    errors = [d for d in report.diagnostics if d.severity is Severity.ERROR]
    for diagnostic in errors:
        shown = diagnostic.verdict is Verdict.REFUTED and diagnostic.code not in _SAY_NOTHING
        if shown and (diagnostic.witness is None or not diagnostic.witness.replayed):
            _disagree(kernel, mutation, f"a refutation without a replayed witness: {diagnostic}", tally)
    if report.verdict is Verdict.UNKNOWN:
        _note_unknown(kernel, mutation, errors, tally)
    if tally.looks.due(int(tally.total("kernels"))):
        for text in tally.looks.look(kernel, report.verdict, LIMIT_S):
            _disagree(kernel, mutation, text, tally)
    if report.verdict is Verdict.PROVED:
        _simulate(unite(kernel), mutation, tried, tally)
        if tally.emitted:
            tally.waiting.append((kernel, mutation, tried))
    tally.numbers[family, "seconds"] += time.monotonic() - started


def _note_unknown(kernel: Kernel, mutation: str, errors: list[Diagnostic], tally: Tally) -> None:
    family = kernel.name
    data = family in INDEX_FAMILIES or any(isinstance(p, InRange) for p in kernel.preconditions)
    if not data and not kernel_roles(unite(kernel)):
        tally.undecided += 1
    for code in dict.fromkeys(d.code for d in errors):
        tally.unknown[family, code, not mutation] += 1
    for diagnostic in errors:
        text = f"{diagnostic.message}\nmutation: {mutation or 'none'}\n{print_kernel(kernel)}"
        tally.examples.setdefault((family, diagnostic.code, not mutation), text)
        if "A candidate counterexample" in diagnostic.message:
            tally.demoted[family, diagnostic.code] += 1


def _simulate(kernel: Kernel, mutation: str, tried: list[dict[str, int]], tally: Tally) -> None:
    for values in tried:
        for schedule in schedules(kernel):
            try:
                found = replay(kernel, values, None, tags=True, schedule=schedule)
            except NotReplayable:
                break
            tally.numbers[kernel.name, "simulations"] += 1
            if found:
                _disagree(kernel, mutation, f"proved, and yet at {values}, {schedule}: {found[0]}", tally)
                return
    if kernel_roles(kernel):
        for values in tried:
            _explore(kernel, mutation, values, tally)


def _explore(kernel: Kernel, mutation: str, values: dict[str, int], tally: Tally) -> None:
    """All orders of events in the first block."""
    grid = [int(scalar(extent, values)) for extent in kernel.grid or ()]
    programs = list(product(*(range(n) for n in grid)))[: MOST_PROGRAMS if kernel.persistent else 1]
    try:
        wrong = explore(kernel, values, programs, MOST_STATES) if programs else None
    except Unmodelled:
        return
    tally.numbers[kernel.name, "explored"] += wrong is not None
    if wrong:
        _disagree(kernel, mutation, f"proved, and yet in some order of events at {values}: {wrong}", tally)


def execute(tally: Tally) -> None:
    """Runs the emitted texts of the kernels that wait for it."""
    names: dict[int, str] = {}
    runs = []
    for kernel, mutation, tried in tally.waiting:
        for trial in trials(kernel, tried):
            names[id(trial.kernel)] = mutation
            runs.append(trial)
    count, found = disagreements(runs)
    tally.launches += count
    for trial, text in found:
        sizes = {name: value for name, value in trial.arguments.items() if isinstance(value, int)}
        _disagree(trial.kernel, names[id(trial.kernel)], f"proved, and yet the emitted text, {sizes}: {text}", tally)
    tally.waiting.clear()


def execute_computations(count: int, number: int, tally: Tally) -> None:
    """Runs the emitted texts of kernels that compute, of numbers of all sizes."""
    for first in range(0, count, BATCH):
        runs = drawn(computations.cases(), min(BATCH, count - first), number + first)
        launches, found = disagreements([*runs, *(with_extremes(run, n) for n, run in enumerate(runs))])
        tally.launches += launches
        for trial, text in found:
            sizes = {name: value for name, value in trial.arguments.items() if isinstance(value, int)}
            _disagree(trial.kernel, "", f"the emitted text, {sizes}: {text}", tally)


def _disagree(kernel: Kernel, mutation: str, text: str, tally: Tally) -> None:
    tally.numbers[kernel.name, "disagreements"] += 1
    tally.disagreements.append(f"{text}\nmutation: {mutation or 'none'}\n{print_kernel(kernel)}")


def run(
    count: int,
    number: int,
    progress: Callable[[Tally], None] = lambda tally: None,
    emitted: bool = False,
    seconds: float = inf,
    again: int = 0,
    only: st.SearchStrategy[Kernel] | None = None,
) -> Tally:
    """Examines `count` cases drawn from the seed `number`, their emitted texts as well; tells `progress` after each.

    After `seconds` no further case is drawn. One kernel in `again` has a second look. `only`: kernels that are drawn
    in place of all, without mutations.
    """
    tally, end = Tally(emitted=emitted, looks=Looks(again)), time.monotonic() + seconds

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(only))
    def one(case: tuple[Kernel, str, list[dict[str, int]]]) -> None:
        if time.monotonic() > end:
            raise _Over
        examine(*case, tally)
        done = int(tally.total("kernels"))
        if len(tally.waiting) == BATCH:
            execute(tally)
        if emitted and done % BATCH == 0:
            execute_computations(BATCH, number * count + done, tally)
        progress(tally)

    with np.errstate(all="ignore"):
        with suppress(_Over):
            one()
        execute(tally)
        progress(tally)
    return tally


class _Over(Exception):
    """The time is over."""


def run_in_processes(options: argparse.Namespace) -> Tally:
    """The same in `jobs` processes, each with a seed of its own."""
    tally, seeds = Tally(), range(options.seed * _SEEDS, options.seed * _SEEDS + options.jobs)
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        count, more = -(-options.count // options.jobs), {"seconds": options.seconds, "again": options.again}
        each = partial(_job, count, emitted=options.emitted, **more)
        for found in pool.map(each, seeds):
            tally.add(found)
    return tally


def _job(count: int, number: int, emitted: bool, seconds: float, again: int) -> Tally:
    return run(count, number, _show(_EVERY, f"{number}: "), emitted, seconds, again)


_EVERY = 100
_SEEDS = 1000
"""Seeds of processes that belong to one seed of the command."""


def _show(every: int, name: str = "") -> Callable[[Tally], None]:
    """Tells how far a run is, after each `every` kernels, and each disagreement at once."""
    started, shown = time.monotonic(), 0

    def progress(tally: Tally) -> None:
        nonlocal shown
        for text in tally.disagreements[shown:]:
            print(f"DISAGREEMENT: {text}", flush=True)
        shown = len(tally.disagreements)
        done = tally.total("kernels")
        if done % every == 0:
            parts = (f"{tally.total(c):.0f} {c}" for c in COLUMNS[1:-1])
            print(f"{name}{time.monotonic() - started:6.0f} s  {done:.0f} kernels: {', '.join(parts)}", flush=True)

    return progress


def main() -> int:
    """The command: 0 if nothing disagrees."""
    parser = argparse.ArgumentParser(description="verifier against simulator on generated kernels")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--emitted", action="store_true", help="also run the emitted texts of proved kernels")
    parser.add_argument("--examples", action="store_true", help="print a kernel for each reason of unknown")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a seed of its own")
    parser.add_argument("--seconds", type=float, default=inf, metavar="S", help="draw no more kernels after so long")
    again = "ask the other engine about one kernel in N, and prove it on no simpler form"
    parser.add_argument("--again", type=int, default=0, metavar="N", help=again)
    options = parser.parse_args()
    if options.jobs > 1:
        tally = run_in_processes(options)
    else:
        progress = _show(max(1, min(500, options.count // 10)))
        tally = run(options.count, options.seed, progress, options.emitted, options.seconds, options.again)
    print(f"seed {options.seed}, count {options.count}, jobs {options.jobs}")
    print("\n".join(tally.table()))
    if options.emitted:
        print(f"launches of emitted texts: {tally.launches}")
    if options.again:
        print(tally.looks.line())
    if options.examples:
        for (family, code, _), text in sorted(tally.examples.items()):
            print(f"\n{family}: {code}: {text}")
    return 1 if tally.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
