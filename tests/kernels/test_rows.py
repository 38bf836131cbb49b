"""How rows are spread over threads."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from argus.kernels.rows import LONGEST_ROW, spread


@pytest.mark.parametrize("columns", [*range(300), *range(300, LONGEST_ROW + 1, 111), LONGEST_ROW])
def test_rows_fit_and_few_threads_idle(columns: int) -> None:
    s = spread(columns)
    assert s.block >= columns and s.rows & (s.rows - 1) == 0 and 4 <= s.warps <= 32
    each = s.rows * s.block / (32 * s.warps)
    assert each <= 48 and (each >= 16 or s.rows == 1)
    assert s.block % 8 == 0 and s.block <= max(8, 2 * columns)
    assert s.rows == 1 or s.warps == 4
