"""The verifier against the simulator on generated kernels; the long run is `python -m tests.verify.differential`."""

from __future__ import annotations

import pytest

from tests.verify.differential import run

SEED = 20


def test_quick() -> None:
    tally = run(60, SEED)
    assert sum(tally.verdicts.values()) == 60
    assert tally.verdicts["proved"] and tally.verdicts["refuted"]


@pytest.mark.slow
def test_two_thousand(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(2000, SEED)
    with capsys.disabled():
        print(f"\ndifferential: seed {SEED}, count 2000, no disagreement: {tally}")
    assert sum(tally.verdicts.values()) == 2000
    assert tally.undecided == 0, tally
