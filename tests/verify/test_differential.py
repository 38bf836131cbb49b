"""The verifier against the simulator on generated kernels; the long run is `python -m tests.verify.differential`."""

from __future__ import annotations

import pytest

from tests.verify.differential import Tally, run

SEED = 9712
ASYNCHRONOUS = ("pipeline", "copies", "loads", "streams", "shares", "relays", "contractions", "stores", "handovers",
                "exchanges", "peers", "turning")  # fmt: skip


def agreed(tally: Tally, count: int) -> None:
    assert not tally.disagreements, "\n\n".join(tally.disagreements)
    assert tally.total("kernels") == count
    assert tally.undecided == 0, tally.examples


def test_quick() -> None:
    tally = run(20, SEED)
    agreed(tally, 20)
    assert tally.total("proved") and tally.total("refuted")


@pytest.mark.nightly
def test_four_hundred(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(400, SEED)
    with capsys.disabled():
        print(f"\ndifferential: seed {SEED}, count 400", *tally.table(), sep="\n")
    agreed(tally, 400)
    asynchronous = tally.total("kernels", *ASYNCHRONOUS)
    assert 160 <= asynchronous <= 280
    assert tally.total("unknown", *ASYNCHRONOUS) <= asynchronous // 10
    assert all(tally.total(verdict, family) for verdict in ("proved", "refuted") for family in ASYNCHRONOUS)
