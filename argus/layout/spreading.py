"""Constructors of register tiles: spread elements or atoms over threads."""

from __future__ import annotations

from math import gcd, prod

from argus.layout.fragment import FragmentLayout, check_shape, checked_order
from argus.layout.fragment_tables import Mode
from argus.layout.inttuple import LayoutError, is_int


def replicate(shape: tuple[int, ...], num_threads: int) -> FragmentLayout:
    """Return the fragment in which every thread holds all elements, the last dimension fastest."""
    check_shape(shape)
    values = tuple(Mode(shape[d], d) for d in reversed(range(len(shape))) if shape[d] > 1)
    return FragmentLayout(shape, (Mode(num_threads, None),), values)


def blocked(
    shape: tuple[int, ...], num_threads: int, order: tuple[int, ...] | None = None, vector: int = 1
) -> FragmentLayout:
    """Threads side by side, each with `vector` consecutive elements along dimension `order[0]`.

    Threads run along `order[0]`, then `order[1]`, and so on; what is left of each dimension becomes slower
    value digits in the same order. Surplus threads (more threads than vectors) replicate. `order`
    lists the dimensions fastest first (default: the last fastest). When `vector` does not divide the
    extent, or the threads do not divide what it leaves, the largest smaller vector that works is taken;
    raises `LayoutError` when there is none.
    """
    check_shape(shape)
    order = checked_order(order, len(shape))
    if not is_int(num_threads) or num_threads < 1 or not is_int(vector) or vector < 1:
        raise LayoutError(f"num_threads ({num_threads!r}) and vector ({vector!r}) must be positive integers")
    if not shape:
        return replicate(shape, num_threads)
    widest = gcd(vector, shape[order[0]])
    for width in range(widest, 0, -1):
        if widest % width == 0:
            found = _blocked(shape, num_threads, order, width)
            if found is not None:
                return found
    raise LayoutError(
        f"{num_threads} threads cannot share a tile of shape {shape} evenly: "
        "choose a number of threads that divides its extents, or is a multiple of its size"
    )


def _blocked(shape: tuple[int, ...], num_threads: int, order: tuple[int, ...], vector: int) -> FragmentLayout | None:
    threads: list[Mode] = []
    values = [Mode(vector, order[0])]
    for dim in order:
        start = vector if dim == order[0] else 1
        across = gcd(num_threads, shape[dim] // start)
        threads.append(Mode(across, dim, start))
        values.append(Mode(shape[dim] // start // across, dim, start * across))
        num_threads //= across
    if num_threads > 1 and prod(m.extent for m in values[1:]) > 1:
        return None
    threads.append(Mode(num_threads, None))
    return FragmentLayout(shape, tuple(m for m in threads if m.extent > 1), tuple(m for m in values if m.extent > 1))


def tile(
    atom: FragmentLayout,
    grid_threads: tuple[int, ...],
    shape: tuple[int, ...],
    order: tuple[int, ...] | None = None,
) -> FragmentLayout:
    """Extend an atom (one warp, say) to a tile of `shape`: by groups of threads first, then by values.

    `grid_threads[d]` groups of threads stand side by side along dimension d, each with its own copy of the
    atom; group numbers run row-major (last dimension fastest) unless `order` lists the dimensions fastest
    first. When the grid is wider than the tile along a dimension, the surplus groups replicate. The rest
    of the tile is repetition, the same `order`, by value digits after the atom's own.
    Raises `LayoutError` when the atom does not divide the shape or the grid does not divide the atoms.
    """
    check_shape(shape)
    order = checked_order(order, atom.rank)
    counts = _atom_counts(atom, shape)
    if len(grid_threads) != atom.rank or any(not is_int(n) or n < 1 for n in grid_threads):
        raise LayoutError(f"grid {grid_threads} must hold one positive integer a dimension of {shape}")
    groups: list[Mode] = []
    for dim in order:
        across = gcd(grid_threads[dim], counts[dim])
        if across not in (grid_threads[dim], counts[dim]):
            raise LayoutError(
                f"{grid_threads[dim]} groups of threads cannot share {counts[dim]} atoms along dim {dim} "
                f"of the tile {shape} (atom {atom.shape}): one number must divide the other"
            )
        groups += [Mode(across, dim), Mode(grid_threads[dim] // across, None)]
    return tile_groups(atom, tuple(groups), shape, order)


def tile_groups(
    atom: FragmentLayout,
    groups: tuple[Mode, ...],
    shape: tuple[int, ...],
    order: tuple[int, ...] | None = None,
) -> FragmentLayout:
    """Like `tile`, with the digits of the group number spelled out, fastest first, in units of the atom.

    For the A operand of a matrix product whose warps form a 2x4 grid over (M, N), N fastest, the groups are
    `(Mode(4, None), Mode(2, 0))`: warps along N hold the same A. Positions that no group takes become value
    digits after the atom's own, the last dimension fastest unless `order` says otherwise.
    """
    check_shape(shape)
    order = checked_order(order, atom.rank)
    counts = _atom_counts(atom, shape)
    repeats: list[Mode] = []
    for dim in order:
        repeats += _gaps(tuple(m for m in groups if m.dim == dim and m.extent > 1), counts[dim], dim)

    def scaled(mode: Mode) -> Mode:
        return mode if mode.dim is None else Mode(mode.extent, mode.dim, mode.stride * atom.shape[mode.dim])

    return FragmentLayout(
        shape,
        atom.threads + tuple(scaled(m) for m in groups if m.extent > 1),
        atom.values + tuple(scaled(m) for m in repeats if m.extent > 1),
    )


def _atom_counts(atom: FragmentLayout, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) != atom.rank or any(n % a for n, a in zip(shape, atom.shape, strict=True)):
        raise LayoutError(
            f"an atom of shape {atom.shape} does not divide a tile of shape {shape}: "
            "make every extent of the tile a multiple of the atom's"
        )
    return tuple(n // a for n, a in zip(shape, atom.shape, strict=True))


def _gaps(groups: tuple[Mode, ...], count: int, dim: int) -> list[Mode]:
    """Modes for the positions in `0..count-1` that the groups skip."""
    result: list[Mode] = []
    covered = 1
    for mode in sorted(groups, key=lambda m: m.stride):
        if mode.stride % covered:
            raise LayoutError(f"group digit {mode} overlaps another along dimension {dim}: strides must nest")
        result.append(Mode(mode.stride // covered, dim, covered))
        covered = mode.stride * mode.extent
    if count % covered:
        raise LayoutError(
            f"the groups span {covered} atoms along dimension {dim}, which does not divide its {count} atoms"
        )
    return [*result, Mode(count // covered, dim, covered)]
