"""Register tiles: which thread holds which element of a tile, in which of its registers.

A fragment layout is a thread-value layout whose strides are steps along the dimensions of the tile:
thread `t` and value `v` are split into mixed-radix digits, fastest first, and each digit moves along one
dimension. Written `[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]`: the tile is 16x8; the low digit of the
thread, of extent 4, steps by 2 along dimension 1; the next, of extent 8, steps by 1 along dimension 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from argus.layout import fragment_tables as tables
from argus.layout.core import Layout, flat_modes
from argus.layout.fragment_tables import Mode
from argus.layout.inttuple import LayoutError, is_int
from argus.layout.notation import MAX_SIZE, Scanner

__all__ = [
    "FragmentLayout",
    "Mode",
    "from_cute",
    "parse_fragment",
]


@dataclass(frozen=True, slots=True)
class FragmentLayout:
    """A tile of `shape` spread over `num_threads` threads with `num_values` elements each.

    Coordinate d of (thread t, value v) is the sum over all modes with `dim == d` of digit times stride.
    `shape` may be `()`: a scalar that every thread holds. Elements may be held several times (replicated) or
    not at all (`covers()` tells). Raises `LayoutError` when a mode leaves the tile.
    """

    shape: tuple[int, ...]
    threads: tuple[Mode, ...]
    values: tuple[Mode, ...]

    def __post_init__(self) -> None:
        check_shape(self.shape)
        last = [0] * len(self.shape)
        for mode in (*self.threads, *self.values):
            if mode.dim is None:
                continue
            if mode.dim >= len(self.shape):
                raise LayoutError(f"mode {mode} moves along a dimension the tile {self.shape} does not have")
            last[mode.dim] += (mode.extent - 1) * mode.stride
        for dim, (reach, extent) in enumerate(zip(last, self.shape, strict=True)):
            if reach >= extent:
                raise LayoutError(
                    f"fragment {self} reaches coordinate {reach} along dimension {dim} of extent {extent}: "
                    "shrink the modes along it or enlarge the tile"
                )

    @property
    def rank(self) -> int:
        """Number of dimensions of the tile."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements of the tile."""
        return prod(self.shape)

    @property
    def num_threads(self) -> int:
        """The number of threads, including those that only hold replicas."""
        return prod(mode.extent for mode in self.threads)

    @property
    def num_values(self) -> int:
        """Registers (elements) per thread."""
        return prod(mode.extent for mode in self.values)

    def _repr_html_(self) -> str:
        """Return a picture as a notebook shows it, or the notation where that would be too large."""
        from argus.layout.picture import notebook

        return notebook(self)

    def __str__(self) -> str:
        shape = "x".join(str(n) for n in self.shape) or "()"
        threads = " ".join(["t", *map(str, self.threads)])
        values = " ".join(["v", *map(str, self.values)])
        return f"[{shape} | {threads} | {values}]"

    # Tables. The arrays are shared and read-only.

    def coordinates(self) -> NDArray[np.int32]:
        """int32 `[num_threads, num_values, rank]`: the tile coordinate of every register."""
        return tables.coordinates(self.shape, self.threads, self.values)

    def linear(self) -> NDArray[np.int64]:
        """int64 `[num_threads, num_values]`: row-major (NumPy order) index of every register's element."""
        return tables.linear(self.shape, self.threads, self.values)

    def counts(self) -> NDArray[np.int64]:
        """int64 array of the tile's shape: how many registers hold each element."""
        return tables.counts(self.shape, self.threads, self.values)

    def covers(self) -> bool:
        """Return True when every element is held by some thread."""
        return bool((self.counts() > 0).all())

    def replication(self) -> int:
        """Return the number of registers that hold each element. Raises `LayoutError` unless the number is the same for
        all."""
        counts = self.counts()
        low, high = int(counts.min()), int(counts.max())
        if low != high:
            raise LayoutError(
                f"fragment {self} holds some elements {low} times and others {high} times: "
                "its replication is not one number; look at counts()"
            )
        return low

    def primary(self) -> NDArray[np.bool_]:
        """bool `[num_threads, num_values]`, true for exactly one holder of each held element.

        The canonical holder is the lowest thread, then its lowest value.
        """
        return tables.primary(self.shape, self.threads, self.values)

    def holders(self, coord: tuple[int, ...]) -> list[tuple[int, int]]:
        """Return all `(thread, value)` that hold element `coord`, in order."""
        if len(coord) != self.rank or any(not 0 <= c < n for c, n in zip(coord, self.shape, strict=True)):
            raise LayoutError(f"coordinate {coord} is not inside the tile of shape {self.shape}")
        index = 0
        for c, n in zip(coord, self.shape, strict=True):
            index = index * n + c
        return [(int(t), int(v)) for t, v in np.argwhere(self.linear() == index)]

    def locate(self) -> NDArray[np.int32]:
        """int32 `[num_threads, *shape]`: the (lowest) value of that thread holding the element, or -1."""
        return tables.locate(self.shape, self.threads, self.values)

    def vector_width(self, dim: int) -> int:
        """Largest w such that every aligned run of w values is w consecutive elements along `dim`.

        Reads the fastest value digits only; it says nothing of alignment in memory.
        """
        self._check_dim(dim)
        width = 1
        for mode in self.values:
            if mode.extent == 1:
                continue
            if mode.dim != dim or mode.stride != width:
                break
            width *= mode.extent
        return width

    # Derived layouts.

    def drop(self, dim: int) -> FragmentLayout:
        """Layout of a reduction along `dim`.

        Thread modes along it replicate, value modes along it vanish, later dimensions move down one.
        """
        self._check_dim(dim)

        def renumber(mode: Mode) -> Mode:
            if mode.dim is None or mode.dim < dim:
                return mode
            if mode.dim == dim:
                return Mode(mode.extent, None)
            return Mode(mode.extent, mode.dim - 1, mode.stride)

        return FragmentLayout(
            self.shape[:dim] + self.shape[dim + 1 :],
            tuple(renumber(m) for m in self.threads),
            tuple(renumber(m) for m in self.values if m.dim != dim),
        )

    def insert(self, dim: int, extent: int = 1) -> FragmentLayout:
        """Return the layout with a new dimension of `extent` at position `dim`, as in `x[:, None]`.

        With `extent > 1` it is a broadcast: every thread gets all `extent` copies, as the slowest values.
        """
        if not is_int(dim) or not 0 <= dim <= self.rank:
            raise LayoutError(f"cannot insert dimension {dim} into a tile of rank {self.rank}")

        def renumber(mode: Mode) -> Mode:
            moves = mode.dim is not None and mode.dim >= dim
            return Mode(mode.extent, (mode.dim or 0) + 1, mode.stride) if moves else mode

        copies = () if extent == 1 else (Mode(extent, dim),)
        return FragmentLayout(
            (*self.shape[:dim], extent, *self.shape[dim:]),
            tuple(renumber(m) for m in self.threads),
            (*(renumber(m) for m in self.values), *copies),
        )

    def permute(self, dims: tuple[int, ...]) -> FragmentLayout:
        """Transpose as NumPy does: dimension i of the result is dimension `dims[i]` of this tile."""
        if sorted(dims) != list(range(self.rank)):
            raise LayoutError(f"{dims} is not a permutation of the dimensions 0..{self.rank - 1}")

        def renumber(mode: Mode) -> Mode:
            return mode if mode.dim is None else Mode(mode.extent, dims.index(mode.dim), mode.stride)

        return FragmentLayout(
            tuple(self.shape[d] for d in dims),
            tuple(renumber(m) for m in self.threads),
            tuple(renumber(m) for m in self.values),
        )

    def simplify(self) -> FragmentLayout:
        """Return the same function with as few modes as possible: modes of extent 1 are dropped, and adjacent modes are
        merged."""
        return FragmentLayout(self.shape, merged(self.threads), merged(self.values))

    def to_cute(self) -> Layout:
        """Return the map from `((threads), (values))` to the column-major index of the tile, in CuTe's thread-value
        form."""
        steps = [1]
        for extent in self.shape:
            steps.append(steps[-1] * extent)

        def strides(modes: tuple[Mode, ...]) -> tuple[int, ...]:
            return tuple(0 if m.dim is None else m.stride * steps[m.dim] for m in modes)

        return Layout(
            (tuple(m.extent for m in self.threads), tuple(m.extent for m in self.values)),
            (strides(self.threads), strides(self.values)),
        )

    def _check_dim(self, dim: int) -> None:
        if not is_int(dim) or not 0 <= dim < self.rank:
            raise LayoutError(f"there is no dimension {dim} in a tile of rank {self.rank}: count from 0")


def merged(modes: Iterable[Mode]) -> tuple[Mode, ...]:
    """Modes, fastest first, with extent 1 dropped and each run that steps on evenly merged into one."""
    result: list[Mode] = []
    for mode in modes:
        if mode.extent == 1:
            continue
        if result and result[-1].dim == mode.dim and result[-1].extent * result[-1].stride == mode.stride:
            result[-1] = Mode(result[-1].extent * mode.extent, mode.dim, result[-1].stride)
        else:
            result.append(mode)
    return tuple(result)


def cut(modes: tuple[Mode, ...], low: int, high: int | None = None) -> tuple[Mode, ...]:
    """Return the digits of weight `low` up to (not including) `high` of a mixed-radix index. Modes are split where
    needed.

    Raises ValueError if a digit cannot be split there.
    """
    result: list[Mode] = []
    weight = 1
    for mode in modes:
        end = weight * mode.extent
        start, stop = max(weight, low), end if high is None else min(end, high)
        if start < stop:
            if start % weight or stop % start or end % stop:
                raise ValueError(f"mode {mode} cannot be split at {low} and {high}")
            step = mode.stride * (start // weight) if mode.dim is not None else 1
            result.append(Mode(stop // start, mode.dim, step))
        weight = end
    return tuple(result)


def from_cute(layout: Layout, shape: tuple[int, ...]) -> FragmentLayout:
    """Return the fragment of a CuTe thread-value layout `((threads), (values))` over a column-major tile of `shape`.

    Inverse of `to_cute` up to `simplify`. A stride that runs through several dimensions is split. Raises `LayoutError`
    when a mode crosses the edge of a dimension unevenly.
    """
    if layout.rank != 2:
        raise LayoutError(f"layout {layout} has {layout.rank} modes: a thread-value layout has two")
    check_shape(shape)
    dims = [(d, n, prod(shape[:d])) for d, n in enumerate(shape) if n > 1]

    def split(extent: int, step: int) -> list[Mode]:
        if extent == 1 or step == 0:
            return [Mode(extent, None)]
        home = next((entry for entry in reversed(dims) if entry[2] <= step), None)
        if home is None or step % home[2]:
            raise LayoutError(f"stride {step} of {layout} is no step along a dimension of the tile {shape}")
        dim, size, unit = home
        stride = step // unit
        count = size // stride
        if extent <= -(-size // stride):
            return [Mode(extent, dim, stride)]
        if size % stride or extent % count:
            raise LayoutError(f"mode {extent}:{step} of {layout} crosses dimension {dim} of the tile {shape} unevenly")
        return [Mode(count, dim, stride), *split(extent // count, size * unit)]

    threads, values = (tuple(m for s, d in flat_modes(part) for m in split(s, d)) for part in layout)
    return FragmentLayout(shape, threads, values)


def parse_fragment(text: str) -> FragmentLayout:
    """Read `[128x64 | t 8@1*8 16@0 | v 8@1 4@0*32]`. `parse_fragment(str(f)) == f`.

        fragment := "[" shape "|" "t" mode* "|" "v" mode* "]"
        shape    := "()" | extent ("x" extent)*
        mode     := extent "@" dim ["*" stride] | extent "@" "_"       ("_": replicated)

    Modes stand fastest first. Raises `LayoutError` with the position and a caret.
    """
    if not isinstance(text, str):
        raise LayoutError(f"cannot read a fragment layout from {type(text).__name__}: pass a string")
    scan = Scanner(text, "fragment layout")
    scan.expect("[")
    shape = _shape(scan)
    scan.expect("|")
    scan.expect("t")
    threads = _modes(scan)
    scan.expect("|")
    scan.expect("v")
    values = _modes(scan)
    scan.expect("]")
    scan.end()
    read = FragmentLayout(shape, threads, values)
    if max(read.size, read.num_threads * read.num_values) > MAX_SIZE:
        raise LayoutError(f"fragment {read} is too large: a notation describes at most {MAX_SIZE} registers")
    return read


def _shape(scan: Scanner) -> tuple[int, ...]:
    if scan.accept("("):
        scan.expect(")")
        return ()
    extents = [scan.integer()]
    while scan.accept("x"):
        extents.append(scan.integer())
    return tuple(extents)


def _modes(scan: Scanner) -> tuple[Mode, ...]:
    modes: list[Mode] = []
    while scan.token and scan.token not in "|]":
        extent = scan.integer()
        scan.expect("@")
        if scan.accept("_"):
            modes.append(Mode(extent, None))
            continue
        dim = scan.integer()
        modes.append(Mode(extent, dim, scan.integer() if scan.accept("*") else 1))
    return tuple(modes)


# Constructors


def check_shape(shape: tuple[int, ...]) -> None:
    if not isinstance(shape, tuple) or not all(is_int(n) and n >= 1 for n in shape):
        raise LayoutError(f"tile shape {shape!r} must be a tuple of positive integers")


def checked_order(order: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Return `order` (dimensions, fastest first). The default is the last dimension fastest."""
    if order is None:
        return tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise LayoutError(f"order {order} must name each of the dimensions 0..{rank - 1} once, fastest first")
    return tuple(order)
