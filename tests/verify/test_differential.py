"""The verifier against the simulator on generated kernels; the long run is `python -m tests.verify.differential`."""

from __future__ import annotations

import pytest

from argus.ir.expr import Param
from tests import indices
from tests.backend.emitted import examples
from tests.strategies import ASYNCHRONOUS
from tests.verify.differential import Tally, run

SEED = 9712


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


@pytest.mark.nightly
@pytest.mark.parametrize("family", ASYNCHRONOUS)
def test_right_ones_are_proved_and_wrong_ones_refuted(family: str) -> None:
    right = run(6, SEED, only=ASYNCHRONOUS[family](right=True))
    assert not right.disagreements, "\n\n".join(right.disagreements)
    assert right.total("proved") == right.total("kernels") > 0, right.examples
    wrong = run(12, SEED, only=ASYNCHRONOUS[family](right=False))
    assert not wrong.disagreements, "\n\n".join(wrong.disagreements)
    assert wrong.total("refuted"), wrong.table()


def test_sizes_of_drawn_segments_are_those_of_tensors() -> None:
    """A launch takes sizes from tensors: a kernel with another size cannot run."""
    for kernel in examples(indices.segments(), 30, 1):
        assert set(kernel.sizes) <= {e.name for t in kernel.tensors for e in t.shape if isinstance(e, Param)}
