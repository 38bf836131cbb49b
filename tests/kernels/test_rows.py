"""How rows are spread over threads."""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch")

from argus.kernels.rows import BYTES, LONGEST_ROW, SMALL, balanced, spread, tiled, vector  # noqa: E402


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


def test_tiles_hold_the_same_whatever_the_length_of_a_row() -> None:
    for columns in (0, 1, 7, 8, 100, 2048, 5000):
        for itemsize in (2, 4):
            s = tiled(columns, itemsize)
            assert s.rows * s.block * itemsize == 16 * 32 * s.warps and (s.block >= columns or s.rows == 1)


def test_vectors_fit_addresses_rows_and_distances() -> None:
    wide = torch.zeros(4, 64, dtype=torch.bfloat16)
    assert [vector(x) for x in (wide, wide[:, 4:], wide[:, 2:62], wide[:, :63])] == [8, 4, 2, 1]
