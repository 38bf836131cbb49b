"""Scalars of a launch are written again unless they have the bits that are there."""

from __future__ import annotations

import pytest

from argus.backend.launch.plan import _same

NAN = float("nan")


@pytest.mark.parametrize(
    ("scalars", "written", "same"),
    [
        ((0.5, 3), (0.5, 3), True),
        ((0.5, 3), (0.5, 4), False),
        ((0.0,), (-0.0,), False),
        ((1,), (1.0,), False),
        ((True,), (1,), False),
        ((NAN,), (float("nan"),), False),
        ((1.5,), (object(),), False),
    ],
)
def test_equal_scalars_are_not_written_again(
    scalars: tuple[float, ...], written: tuple[object, ...], same: bool
) -> None:
    assert _same(scalars, written) == same
