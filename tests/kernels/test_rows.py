"""How rows are spread over threads."""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch")

from argus.kernels.rows import BYTES, LONGEST_ROW, SMALL, around, balanced, spread, step_of, tiled, vector  # noqa: E402


def test_rows_fit_and_few_threads_idle() -> None:
    for columns, itemsize in product((*range(300), *range(300, LONGEST_ROW + 1, 111), LONGEST_ROW), (2, 4)):
        for held, most in ((BYTES, 32), (SMALL, 32), (SMALL, 16)):
            s = spread(columns, itemsize, held, most)
            assert s.block >= columns and s.rows & (s.rows - 1) == 0 and 4 <= s.warps <= most
            each = s.rows * s.block / (32 * s.warps) * itemsize
            assert (each <= 1.5 * held or s.warps == most) and (each >= held / 2 or s.rows == 1)
            assert s.block % (16 // itemsize if columns > 4 else 2) == 0 and s.block <= max(2, 2 * columns)
            assert s.rows == 1 or s.warps == 4
            assert s.least <= columns and spread(max(s.least, 1), itemsize, held, most).block <= s.block
        usual, small = (spread(columns, itemsize, held) for held in (BYTES, SMALL))
        assert balanced(columns, itemsize) in (usual, small) and balanced(columns, itemsize).block <= usual.block
    assert [balanced(n, 2) == spread(n, 2, SMALL) for n in (128, 1024, 2048, 4096, 600)] == [True] * 3 + [False] * 2


def test_rows_of_single_elements_leave_few_of_the_last_ones_out() -> None:
    for columns in (17, 255, 257, 1001, 4095, 12287):
        for held in (BYTES, SMALL):
            s = spread(columns, 2, held, width=1)
            assert s.least <= columns <= s.block and (columns <= 256 or s.block - columns < 32 * s.warps)
        assert balanced(columns, 2, 1) == spread(columns, 2, SMALL, width=1)
    assert spread(4095, width=1).constants == {"ROWS": 1, "BLOCK": 4096, "FROM": 3969, "num_warps": 4}


def test_rows_that_begin_anywhere_fit_with_what_is_around_them() -> None:
    for columns in (2048, 2049, 3001, 4095, 8191, 16384):
        for itemsize, width in ((2, 8), (4, 4)):
            s = around(columns, itemsize, 1, (3, 5, 6))
            assert s.block >= columns + width - 1 and s.block % (32 * s.warps * width) == 0 and s.warps <= 32
            assert s.block - 32 * s.warps * width <= columns + width - 1 and s.least <= columns
    assert [around(n, 2, 1, (3, 5, 6)).block for n in (2047, 2999, 5001)] == [2304, 3072, 5120]
    assert around(4095, 2, 7, (5, 6)).constants == {
        "ROWS": 1, "BLOCK": 4608, "FROM": 3840, "STEP": 7, "WIDTH": 8, "num_warps": 3,
    }  # fmt: skip


def test_steps_of_rows() -> None:
    """From one row to the next, in elements beyond vectors of 16 bytes; none where the rows differ or are aligned."""
    odd, wide = torch.zeros(4, 63, dtype=torch.bfloat16), torch.zeros(4, 64, dtype=torch.bfloat16)
    cases = ((odd, 7), (wide, 0), (wide[:, :63], 8), (wide[:, :60], 0), (odd[:, 1:], 0), (odd.float(), 3), (odd[1:], 0))
    assert [step_of(x) for x, _ in cases] == [step for _, step in cases]
    assert step_of(odd, torch.zeros(4, 63, dtype=torch.float8_e4m3fn)) == 7 and step_of(odd, wide[:, :63]) == 0


def test_tiles_hold_the_same_whatever_the_length_of_a_row() -> None:
    for columns in (0, 1, 7, 8, 100, 2048, 5000):
        for itemsize in (2, 4):
            s = tiled(columns, itemsize)
            assert s.rows * s.block * itemsize == 16 * 32 * s.warps and (s.block >= columns or s.rows == 1)


def test_vectors_fit_addresses_rows_and_distances() -> None:
    wide = torch.zeros(4, 64, dtype=torch.bfloat16)
    assert [vector(x) for x in (wide, wide[:, 4:], wide[:, 2:62], wide[:, :63])] == [8, 4, 2, 1]
