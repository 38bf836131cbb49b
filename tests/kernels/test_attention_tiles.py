"""Tiles of attention: what the model deals out is what the kernel does, and what it prefers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argus.kernels import attention_tiles as model
from argus.kernels.attention_tiles import AttentionShape, apart, hopper_tiles

SQUARE = AttentionShape(128, 4096, 4096, 64, 64, False)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 140), st.booleans())
def test_programs_are_dealt_out_as_the_kernel_does(heads: int, places: int, group: int, causal: bool) -> None:
    """By the definitions of `grouped` and `next_program` in `argus_numeric.h`, program by program."""
    costs = np.arange(1.0, places + 1)[::-1]
    order = []
    if causal:
        for first in range(0, heads, group):
            order += [cost for cost in costs for _ in range(min(group, heads - first))]
    else:
        order = [cost for _ in range(heads) for cost in costs]
    busy = [0.0] * 132
    for block in range(132):
        program, back = block, True
        while program < len(order):
            busy[block] += order[program]
            program += 2 * (132 - block) - 1 if back else 2 * block + 1
            back = not back
    assert model.slowest(costs, heads, group, causal) == pytest.approx(max(busy))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.sampled_from([64, 128]), st.booleans())
def test_blocks_of_a_program_are_those_that_its_rows_see(rows: int, keys: int, span: int, causal: bool) -> None:
    shape = model.Shape(64, 128, 4, 1.0, 0.0, 0.0)
    found = model.costs(AttentionShape(64, rows, keys, 1, 1, causal), shape, 128, 16 * span)
    wanted = []
    for first in range(0, rows, 64):
        for begin in range(0, keys, 16 * span):
            seen = first + 63 + keys - rows if causal else keys - 1  # by the last row of the tile
            last = min(seen, keys - 1, begin + 16 * span - 1)
            wanted.append(max(-(-(last - begin + 1) // 128), 1))
    assert list(found) == (wanted[::-1] if causal else wanted)


def test_heads_go_together_as_the_cache_holds_their_keys_and_rounds_come_out_even() -> None:
    causal = replace(SQUARE, causal=True)
    assert hopper_tiles(causal)["HEADS"] == 11  # 33 of them are 66 MiB
    assert hopper_tiles(replace(causal, shared=16))["HEADS"] == 33
    assert hopper_tiles(AttentionShape(128, 16384, 16384, 32, 32, True))["HEADS"] == 33  # nor does it hold 11
    # else 7 are left for one more round
    assert hopper_tiles(AttentionShape(128, 2048, 2048, 40, 40, True))["HEADS"] == 66
    # nine blocks of rows, three rounds
    assert hopper_tiles(AttentionShape(128, 1108, 1108, 160, 160, True))["HEADS"] == 44
    assert "HEADS" not in hopper_tiles(SQUARE)


def test_few_queries_of_shared_heads_go_together_through_the_keys_that_all_see() -> None:
    few = AttentionShape(128, 16, 8192, 128, 16, True)
    assert apart(few)
    assert not apart(replace(few, rows=128))  # their tiles are full
    assert not apart(replace(few, keys=16))  # there are no such keys
    assert not apart(replace(few, shared=128, keys=32))


def test_rows_of_a_tile_by_the_rounds_that_they_make() -> None:
    def rows(length: int, heads: int) -> int | str:
        return hopper_tiles(AttentionShape(64, length, length, heads, heads, False))["BLOCK_M"]

    assert rows(4096, 64) == 192 and rows(16384, 32) == 192
    assert rows(2048, 64) == 128 and rows(8192, 16) == 128  # 5.3 and 5.2 rounds of 192 rows
    assert rows(1024, 256) == 128
    assert hopper_tiles(AttentionShape(64, 256, 256, 256, 256, True))["BLOCK_M"] == 64  # less of it is masked
    assert hopper_tiles(AttentionShape(64, 200, 200, 12, 3, True))["BLOCK_N"] == 112  # no two share a multiprocessor


def test_blocks_of_few_keys_are_as_wide_as_these() -> None:
    for size, keys, width in ((64, 77, 80), (128, 77, 80), (128, 129, 80), (128, 300, 112), (128, 1, 16)):
        assert hopper_tiles(AttentionShape(size, 4096, keys, 32, 32, False))["BLOCK_N"] == width
        assert hopper_tiles(AttentionShape(128, 64, keys, 4, 4, True))["BLOCK_N"] == width
    widths = [hopper_tiles(replace(SQUARE, keys=keys))["BLOCK_N"] for keys in range(1, 5000, 7)]
    assert set(widths) <= set(range(16, 129, 16)) and all(n == 128 for n in widths[128:])


def test_few_programs_have_smaller_tiles_and_parts_of_the_keys() -> None:
    def tiles(*sizes: int, causal: bool = False) -> Mapping[str, int | str]:
        size, rows, keys, heads = sizes
        return hopper_tiles(AttentionShape(size, rows, keys, heads, heads, causal))

    assert tiles(128, 2048, 2048, 4)["BLOCK_M"] == tiles(128, 512, 512, 8, causal=True)["BLOCK_M"] == 64
    assert tiles(128, 128, 8192, 16).items() >= {"BLOCK_M": 64, "PARTS": 4, "SPAN": 2048}.items()
    assert tiles(64, 64, 16384, 8, causal=True).items() >= {"BLOCK_M": 64, "PARTS": 16, "SPAN": 1024}.items()
    assert tiles(128, 4096, 4096, 5)["PARTS"] == 4  # 160 programs are 1.2 rounds
    assert "PARTS" not in tiles(128, 4096, 4096, 64)
    for keys in range(1, 40_000, 501):
        found = tiles(128, 1, keys, 3)
        if "PARTS" in found:
            parts, span = int(found["PARTS"]), int(found["SPAN"])
            assert 0 < keys - (parts - 1) * span <= span, "none is empty"
