"""Shared-memory wavefronts of one access of a warp or wave."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.layout import LayoutError
from argus.layout.analysis import AMD_LDS, AMD_LDS_WRITE, access_conflicts, bank_conflicts

from .strategies import law

LANE = np.arange(32)
WAVE = np.arange(64)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 8, 16, 17, 32, 33])
def test_words_at_a_stride(stride: int) -> None:
    """32 lanes, one word each, at a stride of s words: gcd(s, 32) passes."""
    assert bank_conflicts(LANE * stride * 4, 4) == np.gcd(stride, 32)


def test_broadcast_and_contiguous_vectors() -> None:
    assert bank_conflicts(LANE * 0, 4) == 1
    assert bank_conflicts(LANE // 2 * 4, 4) == 1
    assert bank_conflicts(LANE * 2, 2) == 1 and bank_conflicts(LANE, 1) == 1
    assert bank_conflicts(LANE * 8, 8) == 2 and bank_conflicts(LANE * 16, 16) == 4
    assert access_conflicts(LANE * 16, 16).degree == 1.0


def test_rows_of_128_bytes_with_and_without_the_swizzle() -> None:
    """Column 0 of 8 rows (ldmatrix): eight passes a quarter plain, one with the 128-byte swizzle."""
    row = LANE % 8
    plain = row * 128 + LANE // 8 * 16
    assert access_conflicts(plain, 16).wavefronts == 32 and access_conflicts(plain, 16).degree == 8.0
    assert bank_conflicts(row * 128 + ((LANE // 8) ^ row) * 16, 16) == 4
    assert bank_conflicts(row * 144 + LANE // 8 * 16, 16) == 4


def test_inactive_lanes_ask_for_nothing() -> None:
    addresses = LANE * 128
    assert access_conflicts(addresses, 4, active=LANE < 8).wavefronts == 8
    assert access_conflicts(addresses, 4, active=LANE < 0).wavefronts == 0


def test_amd_phases() -> None:
    """ds_read_b128 serves lanes 0-3 with 20-23, ds_write_b128 serves eight lanes in a row."""
    assert AMD_LDS.phases[16][0] == (0, 1, 2, 3, 20, 21, 22, 23)
    assert AMD_LDS.phases[16][3] == (12, 13, 14, 15, 24, 25, 26, 27)
    assert AMD_LDS.phases[16][7] == (44, 45, 46, 47, 56, 57, 58, 59)
    for model in (AMD_LDS, AMD_LDS_WRITE):
        for phases in model.phases.values():
            assert sorted(lane for group in phases for lane in group) == list(range(64))
        assert bank_conflicts(WAVE * 16, 16, model) == 8
        assert bank_conflicts(WAVE * 8, 8, model) == 4 and bank_conflicts(WAVE * 4, 4, model) == 2
    chunk = WAVE % 8 ^ np.where(WAVE % 32 < 16, 0, 4)
    crossed = WAVE // 8 * 128 + chunk * 16
    assert bank_conflicts(crossed, 16, AMD_LDS) == 16 and bank_conflicts(crossed, 16, AMD_LDS_WRITE) == 8


@given(st.lists(st.integers(0, 255), min_size=32, max_size=32), st.sampled_from([4, 8, 16]))
@law
def test_bounds(chunks: list[int], width: int) -> None:
    result = access_conflicts(np.array(chunks) * width, width)
    words = {(c * width + b) // 4 for c in chunks for b in range(0, width, 4)}
    assert result.ideal <= result.wavefronts <= 32 * width // 4
    assert result.ideal >= -(-len(words) // 32)


def test_bad_input() -> None:
    with pytest.raises(LayoutError, match="has no 3-byte access"):
        bank_conflicts(LANE, 3)
    with pytest.raises(LayoutError, match="serves 32 lanes"):
        bank_conflicts(WAVE * 4, 4)
    with pytest.raises(LayoutError, match="non-negative multiples of 8"):
        bank_conflicts(LANE * 4, 8)
