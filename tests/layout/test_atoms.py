"""Lane maps of matrix instructions against the vendors' formulas, written here as they are published.

NVIDIA: PTX ISA 9.7.14.5 and 9.7.15.5 (`groupID = laneid >> 2`, `threadID_in_group = laneid % 4`).
AMD: CDNA3 ISA guide 7.1; the layouts agree with AMD's matrix instruction calculator element by element.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from argus.layout import FragmentLayout, LayoutError, atoms

Formula = Callable[[int, int], tuple[int, int]]


def check(f: FragmentLayout, formula: Formula) -> None:
    coords = f.coordinates()
    for t in range(f.num_threads):
        for v in range(f.num_values):
            assert tuple(coords[t, v]) == formula(t, v), (t, v)
    assert f.replication() == 1


def accumulator(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + (0 if i < 2 else 8), (lane % 4) * 2 + (i & 1)


def k16_a(lane: int, i: int) -> tuple[int, int]:
    row = (lane >> 2) if 0 <= i < 2 or 4 <= i < 6 else (lane >> 2) + 8
    return row, (lane % 4) * 2 + (i & 1) + (0 if i < 4 else 8)


def k16_b(lane: int, i: int) -> tuple[int, int]:
    k = (lane % 4) * 2 + (i & 1) + (0 if i < 2 else 8)
    return lane >> 2, k


def tf32_a(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + (0 if i in (0, 2) else 8), lane % 4 + (0 if i < 2 else 4)


def tf32_b(lane: int, i: int) -> tuple[int, int]:
    return lane >> 2, lane % 4 + (0 if i == 0 else 4)


def k32_a(lane: int, i: int) -> tuple[int, int]:
    row = (lane >> 2) if 0 <= i < 4 or 8 <= i < 12 else (lane >> 2) + 8
    return row, (lane % 4) * 4 + (i & 3) + (0 if i < 8 else 16)


def k32_b(lane: int, i: int) -> tuple[int, int]:
    return lane >> 2, (lane % 4) * 4 + (i & 3) + (0 if i < 4 else 16)


WARP = [
    (atoms.MMA_M16N8K16, k16_a, k16_b),
    (atoms.MMA_M16N8K8_TF32, tf32_a, tf32_b),
    (atoms.MMA_M16N8K32_8BIT, k32_a, k32_b),
]


@pytest.mark.parametrize(("atom", "a", "b"), WARP, ids=lambda x: getattr(x, "name", ""))
def test_warp_mma(atom: atoms.MmaAtom, a: Formula, b: Formula) -> None:
    assert atom.a is not None and atom.b is not None and atom.num_threads == 32
    check(atom.a, a)
    check(atom.b, b)
    check(atom.c, accumulator)


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_wgmma_accumulator(n: int) -> None:
    def d(thread: int, i: int) -> tuple[int, int]:
        warp, lane = divmod(thread, 32)
        return 16 * warp + (lane >> 2) + 8 * ((i >> 1) & 1), 8 * (i >> 2) + 2 * (lane % 4) + (i & 1)

    atom = atoms.wgmma(n)
    assert atom.num_threads == 128 and atom.c.num_values == n // 2
    check(atom.c, d)


@pytest.mark.parametrize(("bits", "a"), [(16, k16_a), (32, tf32_a), (8, k32_a)])
def test_wgmma_a_in_registers_is_four_warps_of_mma_a(bits: int, a: Formula) -> None:
    def stacked(thread: int, i: int) -> tuple[int, int]:
        warp, lane = divmod(thread, 32)
        row, k = a(lane, i)
        return 16 * warp + row, k

    atom = atoms.wgmma(64, bits)
    assert atom.a is not None and atom.b is None
    check(atom.a, stacked)


@pytest.mark.parametrize(
    ("atom", "side", "run"),
    [
        (atoms.MFMA_32X32X8_16BIT, 32, 4),
        (atoms.MFMA_16X16X16_16BIT, 16, 4),
        (atoms.MFMA_32X32X16_8BIT, 32, 8),
        (atoms.MFMA_16X16X32_8BIT, 16, 8),
        (atoms.MFMA_32X32X2_32BIT, 32, 1),
        (atoms.MFMA_16X16X4_32BIT, 16, 1),
        (atoms.MFMA_32X32X4_XF32, 32, 2),
        (atoms.MFMA_16X16X8_XF32, 16, 2),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_mfma(atom: atoms.MmaAtom, side: int, run: int) -> None:
    assert atom.a is not None and atom.b is not None and atom.num_threads == 64
    check(atom.a, lambda lane, i: (lane % side, run * (lane // side) + i))
    check(atom.b, lambda lane, i: (lane % side, run * (lane // side) + i))
    check(atom.c, lambda lane, i: (8 * (i // 4) + 4 * (lane // side) + i % 4, lane % side))


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("table", [atoms.LDMATRIX, atoms.STMATRIX], ids=["ldmatrix", "stmatrix"])
def test_matrix_moves(table, count: int) -> None:  # type: ignore[no-untyped-def]
    """Register i of lane l holds elements 2*(l%4) and +1 of row l/4 of matrix i; `.trans` swaps row and column."""
    plain, trans = table[count, False], table[count, True]
    assert plain.data.num_values == 2 * count
    check(plain.data, lambda lane, i: (8 * (i // 2) + lane // 4, 2 * (lane % 4) + i % 2))
    check(trans.data, lambda lane, i: (8 * (i // 2) + 2 * (lane % 4) + i % 2, lane // 4))
    for move in (plain, trans):
        assert move.address.num_threads == 32 and move.address.shape == (8 * count,)
        assert [move.address.holders((row,))[0] for row in range(8 * count)] == [(r, 0) for r in range(8 * count)]


def test_ldmatrix_x4_feeds_mma_a() -> None:
    """Four 8x8 quadrants of A, down the rows first, land as the A operand of m16n8k16."""
    stacked = atoms.LDMATRIX[4, False].data.coordinates()
    matrix, row, col = stacked[:, :, 0] // 8, stacked[:, :, 0] % 8, stacked[:, :, 1]
    assert atoms.MMA_M16N8K16.a is not None
    want = atoms.MMA_M16N8K16.a.coordinates()
    assert (want[:, :, 0] == row + 8 * (matrix % 2)).all() and (want[:, :, 1] == col + 8 * (matrix // 2)).all()


def test_every_row_is_consistent() -> None:
    names = [atom.name for atom in atoms.MMA_ATOMS]
    assert len(set(names)) == len(names)
    for atom in atoms.MMA_ATOMS:
        assert atom.c.shape == (atom.m, atom.n) and atom.source
        for operand, extent in ((atom.a, atom.m), (atom.b, atom.n)):
            if operand is not None:
                assert operand.shape == (extent, atom.k) and operand.num_threads == atom.num_threads
                assert operand.num_values * atom.bits % 32 == 0 and operand.covers()


def test_wgmma_that_does_not_exist() -> None:
    for n, bits in ((12, 16), (264, 16), (64, 4)):
        with pytest.raises(LayoutError, match="there is no wgmma"):
            atoms.wgmma(n, bits)
