"""Kernels whose blocks go by tokens can be launched for more of them than the second axis of a grid counts (65535)."""

from __future__ import annotations

import pytest

from argus.backend.launch.grid import launch_grid
from argus.backend.launch.signature import signature
from argus.compile import elaborate
from argus.frontend import Options
from argus.passes import lower
from tests.kernels.common import source_of

MANY = 200_000
SIZES = {
    ("experts", "gather_rows"): {"T": 7, "K": 7168, "P": MANY},
    ("experts", "combine_rows"): {"P": MANY, "T": MANY, "K": 8, "N": 7168},
    ("cache_append", "append_tokens"): {"T": MANY, "H": 32, "E": 64, "C": MANY},
    ("rotary", "rotated"): {"B": 2, "T": MANY, "H": 32, "D": 128, "R": 64},
    ("attention", "attention_combine"): {"Z": MANY, "P": 4, "M": 8},
}


@pytest.mark.parametrize(("file", "name"), SIZES)
def test_many_rows_can_be_launched(file: str, name: str) -> None:
    options = Options("cpu", None, {})
    kernel = signature(lower(elaborate(source_of(file), name, options), "cpu"))
    grid = launch_grid(kernel, SIZES[file, name], None)
    assert grid[0] >= MANY and max(grid[1:]) < MANY
