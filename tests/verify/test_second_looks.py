"""Generated kernels are verified again, by the other engine and on no simpler form; a contradiction is a difference."""

from __future__ import annotations

from typing import Any

import pytest

from argus.diagnostic import Opinion, Verdict
from argus.verify import Report
from tests.ir.kernels import explicit_reduce
from tests.verify import differential, second_looks
from tests.verify.differential import Tally, examine, run
from tests.verify.second_looks import Looks

SEED = 9712


@pytest.mark.nightly
def test_generated_kernels_are_verified_again_and_agree() -> None:
    tally = run(8, SEED, again=4)
    assert not tally.disagreements
    numbers = tally.looks.numbers
    assert numbers["kernels"] == 2 and numbers["agreed"] + numbers["undecided"] == numbers["asked"] > 0


def test_one_in_so_many_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def undecided(kernel: Any, limit_s: float, **how: bool) -> Report:
        return Report("k", Verdict.UNKNOWN, (), (), 0.0, ())

    for module in (differential, second_looks):
        monkeypatch.setattr(module, "verify", undecided)
    tally, none = run(1, SEED, again=1), Tally()
    others = Tally(looks=Looks(2))
    for _ in range(5):
        examine(explicit_reduce(), "", [], others)
        examine(explicit_reduce(), "", [], none)
    tally.add(others)
    assert tally.looks.numbers["kernels"] == tally.looks.numbers["exact unknown"] == 1 + 2
    assert not none.looks.numbers


@pytest.mark.parametrize(
    ("exact", "disagreed", "found"),
    [
        (Verdict.PROVED, (), 0),
        (Verdict.UNKNOWN, (), 0),
        (Verdict.REFUTED, (), 1),
        (Verdict.PROVED, ("a set is empty",), 1),
    ],
)
def test_a_contradiction_is_a_difference(
    monkeypatch: pytest.MonkeyPatch, exact: Verdict, disagreed: tuple[str, ...], found: int
) -> None:
    opinions = (Opinion("isl", "empty", 3, 0, disagreed),)

    def verified(kernel: Any, limit_s: float, **how: bool) -> Report:
        verdict = exact if how.get("exact") else Verdict.PROVED
        return Report("k", verdict, (), (), 0.0, (), opinions=opinions if how.get("second_opinion") else ())

    for module in (differential, second_looks):
        monkeypatch.setattr(module, "verify", verified)
    tally = Tally(looks=Looks(1))
    examine(explicit_reduce(), "", [], tally)
    assert len(tally.disagreements) == found and tally.looks.numbers[f"exact {exact.value}"] == 1
