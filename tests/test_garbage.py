"""Garbage is collected less often during compilation, and as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from argus.garbage import _Seldom, seldom

BEFORE = (700, 10, 10)


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    own = gc.get_threshold()
    gc.set_threshold(*BEFORE)
    yield
    gc.set_threshold(*own)


def test_thresholds_are_restored() -> None:
    with seldom():
        assert gc.get_threshold()[0] > BEFORE[0]
        with seldom():
            pass
        assert gc.get_threshold()[0] > BEFORE[0]
    assert gc.get_threshold() == BEFORE


def test_blocks_of_threads_may_overlap() -> None:
    one = _Seldom()
    one.begin()
    one.begin()
    one.end()
    assert gc.get_threshold()[0] > BEFORE[0]
    one.end()
    assert gc.get_threshold() == BEFORE


@pytest.mark.parametrize("own", [(0, 10, 10), (100_000, 5, 5)])
def test_what_the_program_chose_stays(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with seldom():
        assert gc.get_threshold() == own
    with seldom():
        gc.set_threshold(*BEFORE)
        gc.set_threshold(9, 9, 9)
    assert gc.get_threshold() == (9, 9, 9)
