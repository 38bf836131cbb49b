"""Chosen layouts of shared tiles are injective and free of bank conflicts, for copies and for matrix loads."""

from __future__ import annotations

import numpy as np
import pytest

from argus.ir.instruction import INSTRUCTIONS
from argus.ir.nodes import Copy, Shared
from argus.ir.visit import walk
from argus.layout.analysis import access_conflicts, is_injective
from argus.layout.swizzle import table
from argus.passes import lower
from argus.passes.tiles import staged, tile_layout
from tests.passes import kernels

SHAPES = [(64, 16), (64, 32), (128, 64), (64, 128), (32, 256)]


def rows_of(shape: tuple[int, int], itemsize: int, chunk: int) -> np.ndarray:
    """Byte addresses of 16-byte chunk `chunk` of all rows."""
    offsets = table(tile_layout(shape, itemsize), shape) * itemsize
    return np.asarray(offsets[:, chunk * 16 // itemsize])


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_matrix_loads_and_row_copies_do_not_conflict(shape: tuple[int, int], itemsize: int) -> None:
    rows, columns = shape
    chunks = columns * itemsize // 16
    for chunk in range(chunks):
        addresses = rows_of(shape, itemsize, chunk)
        for first in range(0, rows - 31, 32):
            assert access_conflicts(addresses[first : first + 32], 16).degree == 1
    everything = np.stack([rows_of(shape, itemsize, c) for c in range(chunks)], axis=1).reshape(-1)
    for first in range(0, len(everything) - 31, 32):
        assert access_conflicts(everything[first : first + 32], 16).degree == 1


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("shape", [*SHAPES, (16, 48), (8, 80), (5, 7), (3, 24)])
@pytest.mark.parametrize("order", [None, (0, 1)])
def test_tiles_are_injective(shape: tuple[int, int], itemsize: int, order: tuple[int, int] | None) -> None:
    layout = tile_layout(shape, itemsize, order)
    assert is_injective(layout)
    assert is_injective(staged(layout, 3))


@pytest.mark.parametrize("by_columns", [False, True])
def test_every_shared_access_of_a_product_is_free_of_conflicts(by_columns: bool) -> None:
    kernel = lower(kernels.gemm((128, 128, 64), 3, num_warps=8, b_by_columns=by_columns), "sm_80")
    seen = set()
    for stmt in walk(kernel.body):
        if not isinstance(stmt, Copy) or stmt.layout is None:
            continue
        for access in (stmt.src, stmt.dst):
            obj = kernel.object(access.obj)
            if isinstance(obj, Shared) and not INSTRUCTIONS[stmt.instr or ""].collective:
                seen.add(stmt.instr)
                tile = table(obj.layout, obj.shape) if obj.layout else np.zeros(0)
                tile = tile[0] if tile.ndim == 3 else tile
                coords = stmt.layout.coordinates()[:32, :: stmt.vector]
                addresses = tile[coords[..., 0], coords[..., 1]] * obj.dtype.bytes
                for value in range(addresses.shape[1]):
                    assert access_conflicts(addresses[:, value], stmt.vector * obj.dtype.bytes).degree == 1
    assert seen == {"cp.async", "st.shared", "ld.shared"}


def test_matrix_loads_are_chosen_for_both_orientations() -> None:
    names = {
        s.instr
        for by_columns in (False, True)
        for s in walk(lower(kernels.gemm(b_by_columns=by_columns), "sm_80").body)
        if isinstance(s, Copy)
    }
    assert {"ldmatrix", "ldmatrix.trans"} <= names
