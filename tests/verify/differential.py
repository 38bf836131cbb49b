"""Verifier against simulator on generated kernels and their mutations.

    python -m tests.verify.differential --count 10000 --seed 1

No kernel that is proved may break a rule in the simulator, at any size tried; every refutation carries a replayed
witness (the verifier itself demotes those that do not replay). Prints seed, counts and the unknown ones by code.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from argus.diagnostic import Severity, SourceError, Verdict
from argus.ir.nodes import InRange, Kernel
from argus.ir.text import print_kernel
from argus.simulate import NotReplayable, replay
from argus.verify import verify
from tests.strategies import kernels, mutations, sizes


@dataclass
class Tally:
    """What became of the kernels tried."""

    verdicts: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    undecided: int = 0
    """Unknown ones that depend on no data: their every index is known, so they should be decided."""
    runs: int = 0

    def __str__(self) -> str:
        verdicts = ", ".join(f"{n} {v}" for v, n in sorted(self.verdicts.items()))
        why = ", ".join(f"{n} {code}" for code, n in self.unknown.most_common())
        return f"{sum(self.verdicts.values())} kernels: {verdicts}; {self.runs} simulations of proved ones" + (
            f"; unknown: {why}" if why else ""
        )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Kernel, list[dict[str, int]]]:
    """A generated kernel or one mutation of it, and sizes to try it at."""
    kernel = draw(kernels())
    if draw(st.booleans()):
        changed = mutations(kernel)
        if changed:
            kernel = draw(st.sampled_from(changed)).kernel
    return kernel, draw(st.lists(sizes(kernel), min_size=1, max_size=3))


def examine(kernel: Kernel, tried: list[dict[str, int]], tally: Tally) -> None:
    """Raises AssertionError where the two disagree."""
    try:
        report = verify(kernel)
    except SourceError:
        tally.verdicts["refused"] += 1
        return
    tally.verdicts[report.verdict.value] += 1
    if report.verdict is Verdict.UNKNOWN and not any(isinstance(p, InRange) for p in kernel.preconditions):
        tally.undecided += 1
    errors = [d for d in report.diagnostics if d.severity is Severity.ERROR]
    tally.unknown.update(d.code for d in errors if d.verdict is Verdict.UNKNOWN)
    for diagnostic in errors:
        # An assertion over nothing is refused for what it does not say: there is no run to show.
        if diagnostic.verdict is Verdict.REFUTED and diagnostic.code != "vacuous-assertion":
            assert diagnostic.witness is not None and diagnostic.witness.replayed, diagnostic
    if report.verdict is not Verdict.PROVED:
        return
    for values in tried:
        try:
            found = replay(kernel, values, None, tags=True)
        except NotReplayable:
            continue
        tally.runs += 1
        assert not found, f"proved, and yet at {values}: {found[0]}\n{print_kernel(kernel)}"


def run(count: int, number: int) -> Tally:
    """Examines `count` cases drawn from the seed `number`."""
    tally = Tally()

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def one(case: tuple[Kernel, list[dict[str, int]]]) -> None:
        examine(*case, tally)

    with np.errstate(all="ignore"):
        one()
    return tally


def main(arguments: list[str] | None = None) -> Iterator[str]:
    """The lines that the command prints."""
    parser = argparse.ArgumentParser(description="verifier against simulator on generated kernels")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    tally = run(options.count, options.seed)
    yield f"seed {options.seed}, count {options.count}: no disagreement"
    yield str(tally)


if __name__ == "__main__":
    for line in main():
        sys.stdout.write(line + "\n")
