"""Divide one matrix product among the warps of a block: the register layouts of its three operands."""

from __future__ import annotations

from dataclasses import dataclass

from argus.ir.instruction.row import MmaRow, WgmmaRow
from argus.layout import FragmentLayout, LayoutError, Mode, tile_groups


@dataclass(frozen=True, slots=True)
class TiledMma:
    """Register layouts of a block-wide product: `a` over (M, K), `b` over (N, K), `c` over (M, N).

    `shape` is (M, N, K). `warps` = (WM, WN) is the number of groups of warps along M and N.
    """

    instr: str
    shape: tuple[int, int, int]
    warps: tuple[int, int]
    a: FragmentLayout
    b: FragmentLayout
    c: FragmentLayout


def tiled_mma(row: MmaRow, shape: tuple[int, int, int], warps: tuple[int, int]) -> TiledMma:
    """Spread an (M, N, K) product over WM x WN warps; warp w = wm * WN + wn has position (wm, wn).

    Adjacent warps hold adjacent atoms. Operand `a` is spread over the WM groups and replicated over WN, `b` the other
    way round, and `c` is spread over both. The rest of the tile is repetition: value digits after the atom's own, with
    the last dimension fastest. Raises `LayoutError` if the instruction's shape times the warps does not divide the
    tile.
    """
    for what, extent, atom, groups in zip("MNK", shape, row.shape, (*warps, 1), strict=True):
        if groups < 1 or extent < 1 or extent % (atom * groups):
            raise LayoutError(
                f"{row.name} with warps {warps} takes steps of {atom * groups} along {what}, which does not "
                f"divide the tile's {extent}: choose {what} as a multiple of {atom * groups}, or other warps"
            )
    m, n, k = shape
    along_m, along_n = warps
    return TiledMma(
        row.name,
        shape,
        warps,
        tile_groups(row.a, (Mode(along_n, None), Mode(along_m, 0)), (m, k)),
        tile_groups(row.b, (Mode(along_n, 0), Mode(along_m, None)), (n, k)),
        tile_groups(row.c, (Mode(along_n, 1), Mode(along_m, 0)), (m, n)),
    )


def wgmma_operand(row: WgmmaRow, shape: tuple[int, int], warps: tuple[int, int]) -> FragmentLayout:
    """Return the register layout of an (M, K) operand `a` over the warps of `wgmma_accumulator`, replicated along N.

    Raises `LayoutError` if the instruction's shape times the warpgroups does not divide the tile.
    """
    along_m, along_n = warps
    m, _, k = row.shape
    if along_m % 4 or shape[0] % (m * along_m // 4) or shape[1] % k:
        raise LayoutError(
            f"{row.name} on {along_m} x {along_n} warps takes steps of {m * along_m // 4} x {k}, which do not divide "
            f"the operand's {shape[0]} x {shape[1]}: choose other tile sizes or warps"
        )
    return tile_groups(row.a, (Mode(along_n, None), Mode(along_m // 4, 0)), shape)


def wgmma_accumulator(row: WgmmaRow, shape: tuple[int, int], warps: tuple[int, int]) -> FragmentLayout:
    """Return the register layout of an (M, N) accumulator over warps (WM, WN). WM is a multiple of 4, and there are WM
    / 4 x WN warpgroups.

    Warpgroups are arranged like the warps in `tiled_mma`. The rest of the tile is repetition, with the last dimension
    fastest. Raises `LayoutError` if the instruction's shape times the warpgroups does not divide the tile.
    """
    along_m, along_n = warps
    m, n, _ = row.shape
    if along_m % 4 or shape[0] % (m * along_m // 4) or shape[1] % (n * along_n):
        raise LayoutError(
            f"{row.name} on {along_m} x {along_n} warps takes steps of {m * along_m // 4} x {n * along_n}, which "
            f"do not divide the tile's {shape[0]} x {shape[1]}: choose other tile sizes or warps"
        )
    return tile_groups(row.c, (Mode(along_n, 1), Mode(along_m // 4, 0)), shape)
