"""Tiles of matrix products: what the machine can run, what the model prefers, and the table of measured ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from argus.compile import elaborate, lower
from argus.frontend import Options
from argus.ir.machine import H200
from argus.ir.nodes import Roles
from argus.ir.types import DTYPES
from argus.kernels import operands
from argus.kernels.gemm import gelu, gemm
from argus.kernels.product_tile import ProductShape, Tile, read_once, rows_together
from argus.kernels.table import TRUSTED, from_json, rounded, shape_class, shipped, tile_for, to_json
from argus.kernels.tile_times import ranked, work
from argus.kernels.tiling import tiles
from argus.tuning.model import MODELS, estimate, occupancy
from tests.kernels.common import source_of

LARGE = ProductShape(8192, 8192, 8192, 1, 16, 16, "sm_90a", True)
DTYPE_OF = {8: "float8_e4m3fn", 16: "bfloat16", 32: "tfloat32"}


def best(m: int, n: int, k: int, **rest: object) -> Tile:
    return ranked(replace(LARGE, m=m, n=n, k=k, **rest))[0][0]  # type: ignore[arg-type]


@pytest.mark.parametrize(("rows", "cut"), [(256, True), (512, False), (4096, False)])
def test_long_sums_of_few_tiles_are_cut_on_gfx942(rows: int, cut: bool) -> None:
    """Parts are whole steps, and together no more blocks than compute units take in two rounds."""
    tile = best(rows, rows, 65536 if cut else 8192, target="gfx942", bulk=False)
    assert bool(tile.part) == cut
    if cut:
        assert tile.part % tile.block_k == 0
        assert tile.parts(65536) * -(-rows // tile.block_m) * -(-rows // tile.block_n) <= 608


def test_large_products_get_the_largest_tile_and_fewer_blocks_than_processors_a_smaller_one() -> None:
    assert (best(4096, 4096, 4096).block_m, best(4096, 4096, 4096).block_n) == (128, 256)
    assert best(1000, 3000, 5000).block_n < 256 and best(512, 512, 512).block_n <= 64


@pytest.mark.parametrize("m", [1, 8, 16])
def test_few_rows_are_the_columns_of_the_tile_and_memory_is_what_counts(m: int) -> None:
    tile, found = ranked(replace(LARGE, m=m))[0]
    assert tile.swapped and m <= tile.block_n < 2 * max(m, 5) and found.bound == "memory"
    in_flight = tile.stages * tile.block_m * tile.block_k * 2
    assert in_flight >= 100_000 and work(replace(LARGE, m=m), tile).blocks >= 64


@pytest.mark.parametrize(("m", "n", "k"), [(16, 4096, 4096), (16, 4096, 14336), (64, 4096, 16384), (128, 8192, 8192)])
def test_memory_brings_the_weights_of_few_rows_and_no_two_blocks_read_them(m: int, n: int, k: int) -> None:
    tile = best(m, n, k)
    assert -(-m // (tile.block_n if tile.swapped else tile.block_m * tile.cluster)) == 1
    problem = replace(LARGE, m=m, n=n, k=k)
    whole = [(t.block_n >= m, work(problem, t).all_bytes) for t in tiles(problem) if t.swapped and t.cluster == 1]
    once, again = (next(read for fits, read in whole if fits is wanted) for wanted in (True, False))
    assert again > once + 0.2 * 2 * n * k


def test_few_rows_stream_through_all_of_the_machine_or_half_of_each_pair() -> None:
    """80 blocks of whole sums would be one on each of 52 pairs of multiprocessors, and two on 14."""
    assert best(12, 5120, 13824).parts(13824) > 1
    read = [work(replace(LARGE, m=16, n=64 * n), Tile(64, 16, 256, 5, 4, 4, True)).all_bytes / n for n in (66, 80, 132)]
    assert read[1] > 1.2 * read[0] and abs(read[2] / read[0] - 1) < 0.01


@pytest.mark.parametrize(("m", "n", "k"), [(0, 64, 64), (64, 0, 64), (0, 0, 0), (4, 64, 0)])
def test_products_without_elements_or_terms_have_a_tile(m: int, n: int, k: int) -> None:
    assert all(ranked(replace(LARGE, m=m, n=n, k=k, bulk=bulk)) for bulk in (True, False))


def test_operands_that_no_two_blocks_read_need_not_stay_in_the_cache() -> None:
    few, tile = replace(LARGE, m=16), Tile(64, 16, 256, 5, 4, 4, swapped=True)
    assert read_once(few, tile) == {"A_ONCE": True, "B_ONCE": False}  # b times a: the weights, and the few rows
    assert read_once(few, replace(tile, swapped=False)) == {"A_ONCE": False, "B_ONCE": True}
    assert not any(read_once(few, replace(tile, block_n=8)).values())  # two blocks read the same weights
    two = Tile(64, 128, 64, 8, 4, 4)
    assert [read_once(replace(LARGE, m=128), replace(two, cluster=n))["B_ONCE"] for n in (1, 2)] == [False, True]
    assert not any(read_once(replace(few, batch=2), tile).values()) and not any(read_once(LARGE, two).values())


def test_few_tiles_of_long_sums_are_cut_into_parts() -> None:
    tile = best(512, 512, 8192)
    assert tile.parts(8192) > 1 and 64 <= work(replace(LARGE, m=512, n=512), tile).blocks <= 264
    assert all(t.part == 0 for t in tiles(replace(LARGE, m=512, n=512, batch=4)))
    assert best(4096, 4096, 4096).part == 0 == best(512, 512, 512).part


def test_parts_of_a_sum_are_brought_by_clusters_where_sectors_are_split() -> None:
    tile = best(312, 2504, 5464, a_line=16, b_line=16)
    assert tile.parts(5464) > 1 and tile.cluster == 4
    aligned = best(312, 2504, 5464)
    assert aligned.cluster == 1


def gained(k: int, **rest: object) -> float:
    """The time without clusters over that with them."""
    found = ranked(replace(LARGE, m=1000, n=3000, k=k, **rest))  # type: ignore[arg-type]
    return next(e.seconds for t, e in found if t.cluster == 1) / found[0][1].seconds


def test_rows_that_straddle_cache_lines_are_brought_by_clusters() -> None:
    straddling = {"a_line": 16, "b_line": 16}
    assert best(1000, 3000, 5000, **straddling).cluster > 1
    assert gained(k=5000, **straddling) > 1.2 > 1.06 > gained(k=5024, a_line=64, b_line=64) >= gained(k=5000)
    assert best(64, 3000, 5000, **straddling).cluster == 1  # there is nobody to share with
    assert all(t.cluster == 1 for t in tiles(replace(LARGE, loaded=1, **straddling)))  # type: ignore[arg-type]
    slow, quick = (next(t for t in tiles(LARGE) if t.cluster == n) for n in (1, 2))
    wide = replace(LARGE, m=130, **straddling)  # type: ignore[arg-type]
    assert work(wide, quick).global_traffic < work(wide, slow).global_traffic
    assert work(replace(LARGE, m=300), quick).blocks == 4 * 32 > work(replace(LARGE, m=300), slow).blocks == 3 * 32
    assert shape_class(wide) == "sm_90a bulk 16->16 kk+a16b16 1x192x8192x8192"


def test_four_blocks_share_where_sectors_are_split_and_fill_less_of_the_machine() -> None:
    split = replace(LARGE, m=1000, n=3072, a_line=16, b_line=16)
    four = [t for t in tiles(split) if t.cluster == 4]
    assert {t.across for t in four} == {1, 2} and all(t.groups == 1 for t in four)
    assert not any(t.cluster == 4 for t in tiles(replace(split, a_line=32, b_line=64)))
    tile = next(t for t in four if (t.block_m, t.block_n, t.across) == (128, 192, 1))
    assert work(split, replace(tile, cluster=2)).blocks == 128 <= H200.multiprocessors < work(split, tile).blocks


def test_columns_are_as_many_as_divide_the_work_evenly() -> None:
    assert (best(640, 7936, 4672).block_n, best(1088, 1152, 2880).block_n) == (160, 80)
    assert all(t.block_n % 64 == 0 for t in tiles(replace(LARGE, b_rows=False)) if not t.swapped)


def test_groups_that_take_turns_have_tiles_of_their_own() -> None:
    turns = [t for t in tiles(LARGE) if t.groups == 2]
    assert turns and all((t.block_m, t.num_warps, t.part) == (128, 4, 0) and t.cluster <= 2 for t in turns)
    assert work(LARGE, turns[0]).threads == 12 * 32 and turns[0].constants["SCHEDULE"] == "pingpong"
    others = (replace(LARGE, m=128), replace(LARGE, loaded=1))
    assert not any(t.groups == 2 for problem in others for t in tiles(problem))
    assert {t.cluster for t in tiles(replace(LARGE, b_rows=False, b_line=16))} == {1, 2}
    assert from_json(to_json({"a": turns[0]}))["a"] == turns[0]


def test_operands_change_places_where_that_divides_the_work_more_evenly() -> None:
    tile = best(5952, 384, 7744)
    assert tile.swapped and -(-384 // tile.block_m) * -(-5952 // tile.block_n) <= H200.multiprocessors


def test_sides_of_a_cluster_share_what_they_read() -> None:
    split = replace(LARGE, a_line=16, b_line=16)
    one, high, square = (
        next(t for t in tiles(split) if (t.cluster, t.across, t.block_n) == (*shape, 256))
        for shape in ((1, 1), (4, 1), (4, 2))
    )
    rows = [work(split, t).global_traffic for t in (one, high, square)]
    assert rows[0] > rows[1] == rows[2]  # 128 + 256 rows, 128 + 64, 64 + 128
    uneven = replace(high, block_n=200)
    assert work(split, uneven).global_traffic > work(split, replace(high, block_n=192)).global_traffic
    assert work(replace(split, m=300, n=300), square).blocks == -(-(2 * 2) * 2 * 11 // 10)


def test_even_and_odd_rows_are_two_batches_where_every_other_row_splits_sectors() -> None:
    split = replace(LARGE, m=1000, n=3000, k=5000, a_line=16, b_line=16, halves=True)
    found = [t for t in tiles(split) if t.shift]
    assert found and all(t.shift == 8 and t.groups == 1 and not (t.swapped or t.part) for t in found)
    assert {t.shift for t in tiles(replace(split, bits=8))} == {0, 16}
    assert not any(t.shift for p in (replace(split, halves=False), replace(split, m=250)) for t in tiles(p))
    one = next(t for t in found if (t.block_m, t.block_n, t.cluster) == (128, 192, 2))
    whole, halved = work(split, replace(one, shift=0)), work(split, one)
    assert halved.global_traffic < whole.global_traffic and halved.blocks == whole.blocks
    assert from_json(to_json({"a": one}))["a"] == one


def test_tiles_of_192_rows_leave_registers_for_products() -> None:
    tall = [t for t in tiles(replace(LARGE, residual=16)) if t.num_warps == 12]
    assert tall and all(t.block_m == 192 and t.block_n <= 136 for t in tall)
    assert max(t.block_n for t in tiles(LARGE) if t.num_warps == 12) == 200


def test_operands_that_threads_load_have_tiles_that_leave_them_registers() -> None:
    for tile in tiles(replace(LARGE, loaded=1)):
        assert tile.producers == 8 and tile.block_m * tile.block_n <= 128 * 192


@pytest.mark.parametrize("loaded", [0, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", None])
def test_epilogues_find_room_in_registers(loaded: int, dtype: str | None) -> None:
    """Scales, a bias and a residual, for the tile that leaves a thread the fewest registers."""
    bits = DTYPES[dtype].bits if dtype else 0
    tile = max(tiles(replace(LARGE, residual=bits, loaded=loaded)), key=lambda t: t.block_m * t.block_n / t.num_warps)
    constants = {name: value for name, value in tile.constants.items() if name != "num_warps"}
    constants |= {"EPILOGUE": gelu, "SCALED": True, "SCALE_A": "M", "SCALE_B": "N", "BIAS": "N"}
    constants |= {"RESIDUAL": "M N", "RESIDUAL_TYPE": DTYPES[dtype]} if dtype else {}
    alignment = dict.fromkeys(("a", "b", "residual"), 4 if dtype == "float32" else 2) if loaded else {}
    options = Options("sm_90a", tile.num_warps, constants, alignment)
    lower(elaborate(source_of("gemm"), "gemm", options), "sm_90a")


def test_batches_of_none_have_a_tile() -> None:
    assert ranked(replace(LARGE, n=8, batch=0))


def test_results_that_the_copy_engine_stores_leave_room_for_a_stage_more() -> None:
    stages = {b: max(t.stages for t in tiles(replace(LARGE, bulk_out=b)) if t.block_n == 256) for b in (False, True)}
    assert stages[True] > stages[False]


def test_rows_that_would_be_half_a_tile_of_padding_are_always_swapped() -> None:
    few = replace(LARGE, m=20, n=19840)
    assert all(t.swapped for t in tiles(few)) and not all(t.swapped for t in tiles(replace(few, m=40)))
    assert not any(t.swapped for t in tiles(replace(few, m=5, a_rows=False)))  # no tile takes so few columns of k


def test_few_columns_are_not_swapped_into_rows() -> None:
    assert not best(8192, 16, 8192).swapped


SIZES = st.integers(1, 20000)


FLAGS = st.tuples(*[st.booleans()] * 4)


@settings(deadline=None)  # thousands of tiles, on a machine that others use
@given(SIZES, SIZES, SIZES, st.sampled_from([8, 16, 32]), st.sampled_from([16, 32]), st.booleans(), FLAGS)
def test_every_tile_has_room(
    m: int, n: int, k: int, bits: int, out: int, bulk: bool, more: tuple[bool, bool, bool, bool]
) -> None:
    problem = ProductShape(m, n, k, 1, bits, out, "sm_90a", bulk, *more)
    found = list(tiles(problem))
    assert found and len(set(found)) == len(found)
    assert all(occupancy(work(problem, tile), H200)[0] for tile in found)


def test_what_has_no_room_says_why() -> None:
    much = replace(work(LARGE, next(tiles(LARGE))), shared_bytes=300_000)
    assert estimate(much, MODELS["sm_90a"]).reason == "300000 bytes of shared memory, and a block has 232448"


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("m", [5, 64, 2000])
def test_every_tile_for_the_copy_engine_is_lowered_to_roles(bits: int, m: int) -> None:
    dtype = DTYPES[DTYPE_OF[bits]]
    for tile in dict.fromkeys(t for t, _ in ranked(replace(LARGE, m=m, bits=bits))[:3]):
        constants = {name: value for name, value in tile.constants.items() if name != "num_warps"}
        shape: dict[str, object] = {"C": ("Z " if tile.part else "") + ("N M" if tile.swapped else "M N")}
        if tile.part:
            shape["OUT"] = DTYPES["float32"]
        options = Options("sm_90a", tile.num_warps, {**constants, **shape, "IN": dtype, "MULTIPLY": dtype})
        kernel = lower(elaborate(source_of("gemm"), "gemm", options), "sm_90a")
        assert any(isinstance(s, Roles) for s in kernel.body), str(tile)


def test_a_target_that_is_not_modelled_has_one_tile() -> None:
    assert len(ranked(replace(LARGE, target="cpu", bulk=False))) == 1


def test_classes_of_shapes() -> None:
    assert [rounded(n) for n in (1, 2, 3, 5, 7, 9, 12, 13, 4096, 5000, 7000)] == [
        1, 2, 4, 6, 8, 12, 12, 16, 4096, 6144, 8192,
    ]  # fmt: skip
    assert shape_class(LARGE) == "sm_90a bulk 16->16 kk 1x8192x8192x8192"
    assert shape_class(replace(LARGE, m=8000)) == shape_class(LARGE) != shape_class(replace(LARGE, b_rows=False))


def test_tables_are_read_as_they_are_written() -> None:
    table = {shape_class(LARGE): best(8192, 8192, 8192), "another": best(16, 8192, 8192)}
    assert from_json(to_json(table)) == table
    with pytest.raises(KeyError):
        from_json({"key": {"BLOCK_M": 1}})


def test_the_shipped_table_is_used_where_it_fits() -> None:
    for key, tile in shipped().items():
        assert key.startswith("sm_90a") and tile.stages >= 2
    assert tile_for(LARGE) in set(tiles(LARGE))


def test_a_measured_tile_gives_way_to_one_that_fits_the_sizes_better() -> None:
    trusted = replace(LARGE, m=4096, n=4096, k=4096)
    key = shape_class(trusted)
    assert tile_for(trusted) == shipped()[key]
    others = [replace(trusted, n=n) for n in range(3104, 4096, 64)]
    chosen = {p: tile_for(p) for p in others}
    assert {shape_class(p) for p in others} == {key} and any(t != shipped()[key] for t in chosen.values())
    for p, tile in chosen.items():
        expected = {t: e.seconds for t, e in ranked(p)}
        assert (tile == shipped()[key]) == (expected[shipped()[key]] <= TRUSTED * min(expected.values()))


def test_kernel_and_tile_agree_on_constants() -> None:
    assert set(best(64, 64, 64).constants) - {"num_warps"} <= {name for name, _ in gemm.declaration().constexprs}


@pytest.mark.parametrize(("k", "bulk"), [(64, True), (0, False)])
def test_the_copy_engine_takes_no_tensor_without_elements(monkeypatch: pytest.MonkeyPatch, k: int, bulk: bool) -> None:
    monkeypatch.setattr(operands, "target_of", lambda device: "sm_90a")
    a, b, c = (torch.empty(size, dtype=torch.bfloat16) for size in ((8, k), (64, k), (8, 64)))
    assert operands.problem(operands.request(a, b.t(), c, None, None, None, None, None)).bulk == bulk


def test_few_rows_are_no_more_columns_than_whole_products_take() -> None:
    found = list(tiles(replace(LARGE, m=67, n=17920, k=2944)))
    assert {t.block_n for t in found if t.swapped} == {8, 16, 32, 64, 80, 128}
    assert all(t.block_m == 64 for t in found if not t.swapped)  # 61 of 128 rows would be padding
    tall = [t for t in found if t.swapped and t.num_warps == 12]
    assert {t.block_m for t in tall} == {192} and not any(t.part for t in tall)
    assert best(67, 17920, 2944).block_n == 80  # 94 tiles of 192 rows, where 128 columns have 125 of 128 by 144


def test_fewer_rows_of_tiles_go_together_where_the_cache_holds_the_operands() -> None:
    small = replace(LARGE, m=1280, n=512, k=1984)
    assert rows_together(small) == {"GROUP": 8} and rows_together(LARGE) == {}
    assert rows_together(replace(small, batch=2)) == {} == rows_together(replace(small, bulk=False))
