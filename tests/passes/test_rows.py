"""Rows that are reduced stay in few warps."""

from __future__ import annotations

import pytest

from argus.passes.rows import in_rows


@pytest.mark.parametrize(
    ("shape", "warps", "vector", "text"),
    [
        ((4, 1024), 4, 8, "[4x1024 | t 32@1*8 4@0 | v 8@1 4@1*256]"),
        ((2, 4096), 4, 8, "[2x4096 | t 32@1*8 2@0 2@1*256 | v 8@1 8@1*512]"),
        ((1, 4096), 4, 8, "[1x4096 | t 128@1*8 | v 8@1 4@1*1024]"),
        ((64, 64), 4, 8, "[64x64 | t 8@1*8 16@0 | v 8@1 4@0*16]"),
    ],
)
def test_lanes_run_along_the_row_and_warps_across(shape: tuple[int, ...], warps: int, vector: int, text: str) -> None:
    assert str(in_rows(shape, 32, warps, (1, 0), vector)) == text


def test_what_the_threads_cannot_share_has_no_such_layout() -> None:
    assert in_rows((1, 8), 32, 1, (1, 0), 8) is None
    assert in_rows((3, 12), 32, 4, (1, 0), 8) is None
