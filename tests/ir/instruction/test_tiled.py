import pytest

from argus.ir.instruction import MmaRow
from argus.ir.instruction.tiled import tiled_mma
from argus.ir.types import bfloat16, float32
from argus.layout import LayoutError, parse_fragment

# PTX ISA, mma.m16n8k16: fragments of A (16x16), B (as n x k, 8x16) and C (16x8).
ROW = MmaRow(
    "mma_m16n8k16",
    (16, 8, 16),
    (bfloat16,),
    float32,
    parse_fragment("[16x16 | t 4@1*2 8@0 | v 2@1 2@0*8 2@1*8]"),
    parse_fragment("[8x16 | t 4@1*2 8@0 | v 2@1 2@1*8]"),
    parse_fragment("[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]"),
    32,
    ("sm_80",),
    "PTX ISA, mma",
)


def test_every_warp_multiplies_what_it_accumulates():
    """Warp w = wm * WN + wn holds rows of a and columns of b of exactly its own block of c."""
    tiled = tiled_mma(ROW, (64, 32, 32), (2, 2))
    for warp in range(4):
        lanes = slice(32 * warp, 32 * warp + 32)
        c = tiled.c.coordinates()[lanes]
        rows = {int(r) for r in c[..., 0].ravel()}
        columns = {int(n) for n in c[..., 1].ravel()}
        assert rows == {int(r) for r in tiled.a.coordinates()[lanes][..., 0].ravel()}
        assert columns == {int(n) for n in tiled.b.coordinates()[lanes][..., 0].ravel()}
        # neighbours along N are consecutive warps, in units of the atom
        assert {r // 16 % 2 for r in rows} == {warp // 2}
        assert {n // 8 % 2 for n in columns} == {warp % 2}


def test_operands_are_replicated_over_the_other_axis_of_warps():
    tiled = tiled_mma(ROW, (64, 32, 32), (2, 4))
    assert (tiled.a.replication(), tiled.b.replication(), tiled.c.replication()) == (4, 2, 1)
    assert tiled.a.num_threads == tiled.b.num_threads == tiled.c.num_threads == 256


def test_repetitions_follow_the_atom_with_the_last_dimension_fastest():
    tiled = tiled_mma(ROW, (64, 32, 32), (2, 2))
    atom = len(ROW.a.values)
    assert tiled.a.values[:atom] == ROW.a.values
    assert [(m.extent, m.dim, m.stride) for m in tiled.a.values[atom:]] == [(2, 1, 16), (2, 0, 32)]


@pytest.mark.parametrize(("shape", "axis"), [((48, 32, 32), "M"), ((64, 24, 32), "N"), ((64, 32, 24), "K")])
def test_a_tile_that_the_warps_do_not_divide_names_the_axis(shape, axis):
    with pytest.raises(LayoutError, match=f"along {axis}"):
        tiled_mma(ROW, shape, (2, 2))
