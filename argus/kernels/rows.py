"""Code that the row kernels share: distributing rows over threads, and checking arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import TYPE_CHECKING

from argus.diagnostic import LaunchError
from argus.ir.types import DTYPES, DType
from argus.runtime.device import target_of

if TYPE_CHECKING:
    import torch

    from argus.runtime.jit_kernel import JitKernel

FLOATS = ("float32", "float16", "bfloat16")
"""Dtypes of the elements that the kernels take: arithmetic is done in float32."""

LONGEST_ROW = 32768
"""Elements of a row that a block keeps in registers: 32 in each of 1024 threads, whatever their size."""

CHUNK, CHUNK_WARPS = 8192, 8
"""Elements at a time, and warps, of a block that reads a longer row piece by piece, from the second time on out of the
L2 cache while rows are not too long."""

BYTES, SMALL = 64, 32
"""Bytes of a row that a thread holds: four vectors of 16, all in flight before the first is used. More would leave room
for fewer blocks. Half of that, in twice the threads, is as much in flight, and leaves them sooner: faster where as much
is written as is read, and few warps meet at barriers."""

LEAST_AROUND = 2000  # elements of an odd row that is moved by the memory's own vectors: of shorter ones many are cut

_WARPS, _MOST_WARPS, _LANES = 4, 32, 32
_HELD = 96 * 1024  # bytes of rows in the shared memory of a block: two such blocks fit a multiprocessor
_HELD_IN_LDS = 48 * 1024  # the same on gfx942: with what sums need, no more blocks of 16 KiB fit its 64 KiB of LDS
_MOST_BLOCKS = 4  # of a cluster, whose blocks share longer rows
_FEW = 12288  # elements of such a row that 8 warps work on; a block on its own has 16 for a longer one
_EACH = 16  # elements of such a row in a thread's registers, at a time
_TILE_WARPS = 8
_VECTOR = 8  # elements: 16 bytes of a 16-bit type


@dataclass(frozen=True)
class Spread:
    """A block of `warps` warps works on `rows` rows of at least `least` and at most `block` elements.

    Where there is a `step`, each row begins as many elements further behind an address that is aligned to vectors of
    `width` elements, and `block` holds the aligned vectors around it.
    """

    rows: int
    block: int
    warps: int
    least: int = 0
    step: int = 0
    width: int = 1

    @property
    def constants(self) -> dict[str, int]:
        """The constants of a kernel's launch."""
        least = {"FROM": self.least} if self.least else {}
        step = {"STEP": self.step, "WIDTH": self.width} if self.step else {}
        return {"ROWS": self.rows, "BLOCK": self.block, **least, **step, "num_warps": self.warps}


@lru_cache(maxsize=4096)
def spread(
    columns: int, itemsize: int = 2, held: int = BYTES, most: int = _MOST_WARPS, width: int | None = None
) -> Spread:
    """Spread rows of `columns` elements of `itemsize` bytes over threads: about `held` bytes for each thread.

    A block has 4 warps, and as many rows as these hold; a row that is longer than they hold gets more warps, by powers
    of two up to `most`, once the excess is more than a half. `block` is `columns` rounded up so that the threads of a
    row share it evenly, in vectors of `width` elements (16 bytes): rows of similar lengths share a kernel, which asks
    of a thread's last vector alone whether the row has it.
    """
    each, warps = held // itemsize, _WARPS
    while warps < most and columns * 2 > 3 * each * _LANES * warps:
        warps *= 2
    if columns <= _LANES * _VECTOR:
        block = 2
        while block < columns:
            block *= 2
        least = block // 2 + 1 if block > 2 else 0
    else:
        unit = _LANES * (width or 16 // itemsize) * (1 if columns <= each * _LANES else warps)
        block = -(-columns // unit) * unit
        least = block - unit + 1
    rows = 1
    while 2 * rows * block <= each * _LANES * _WARPS:
        rows *= 2
    return Spread(rows, block, warps, least)


def balanced(columns: int, itemsize: int, width: int | None = None, most: int = _MOST_WARPS) -> Spread:
    """Return `spread` for a kernel that writes as much as it reads: SMALL for short rows, if this leaves no more
    multiprocessors idle.

    SMALL as well for rows of narrower vectors, each of which takes as many registers and instructions as a whole one.
    """
    usual, small = (spread(columns, itemsize, bytes, most, width) for bytes in (BYTES, SMALL))
    if width is not None and width * itemsize < 16:
        return small
    return small if small.warps == _WARPS and small.block <= usual.block else usual


@lru_cache(maxsize=4096)
def around(columns: int, itemsize: int, step: int, held: tuple[int, ...]) -> Spread:
    """Spread rows over blocks, one each; each row begins `step` elements further behind an aligned address.

    A thread has one of the numbers `held` of vectors of 16 bytes, the one that leaves the fewest idle; the mask may
    cut those that are its first and its last.
    """
    width = 16 // itemsize
    line, room = _LANES * width, columns + width - 1
    ways = ((-(-room // (each * line)), each) for each in held)
    warps, each = min((way for way in ways if way[0] <= _MOST_WARPS), key=lambda way: (way[0] * way[1], way[0]))
    return Spread(1, each * warps * line, warps, min(columns, (each - 1) * warps * line), step, width)


def step_of(*matrices: torch.Tensor) -> int:
    """Return how many elements further behind an address aligned to 16 bytes each row begins than the row before.

    Return 0 if rows consist of vectors of at least 8 bytes, if matrices differ (a vector of each has as many elements
    as one of the first), or if the machine has no vectors that a mask cuts.
    """
    first = matrices[0]
    width = 16 // first.element_size()
    if vector(first) * 2 >= width or _amd(first):
        return 0
    steps = {rows.stride(0) % width or width for rows in matrices}
    even = all(rows.data_ptr() % (width * rows.element_size()) == 0 for rows in matrices)
    return steps.pop() if even and len(steps) == 1 else 0


@lru_cache(maxsize=4096)
def tiled(columns: int, itemsize: int) -> Spread:
    """Cut a matrix with rows of `columns` elements of `itemsize` bytes into tiles for elementwise work.

    A block of 8 warps has one vector of 16 bytes a thread, of one row or, if rows are shorter, of several.
    """
    size = 16 // itemsize * _LANES * _TILE_WARPS
    block = _VECTOR
    while block < min(columns, size):
        block *= 2
    return Spread(size // block, block, _TILE_WARPS)


def fitting(
    rows: torch.Tensor, longest: int, registers: JitKernel, shared: JitKernel, pieces: JitKernel
) -> tuple[JitKernel, Mapping[str, int | str | None]]:
    """Return the one of three kernels that suits the rows, with its constants. Rows of up to `longest` elements stay in
    registers, rows of up to `longest_held` wait in shared memory, and longer rows are read again piece by piece."""
    columns = rows.shape[1]
    if columns <= longest:
        most = _MOST_WARPS // 2 if _amd(rows) else _MOST_WARPS  # of 64 lanes: a block has as many threads
        return registers, balanced(columns, rows.element_size(), vector(rows), most).constants
    if columns <= longest_held(rows):
        return shared, held(rows)
    return pieces, {"BLOCK": CHUNK, "num_warps": CHUNK_WARPS}


def longest_held(*matrices: torch.Tensor) -> int:
    """Return the number of elements of a row, one of each matrix, that fit into the shared memory of a block or of a
    cluster."""
    if _amd(matrices[0]):
        return _HELD_IN_LDS // sum(rows.element_size() for rows in matrices)
    size = _HELD // matrices[0].element_size()
    return max(size, _MOST_BLOCKS * size // len(matrices)) if _clusters(matrices[0]) else size


def held(*matrices: torch.Tensor) -> dict[str, int | str | None]:
    """Return the constants that spread rows: each block of CLUSTER holds BLOCKS parts of BLOCK elements, by COPY."""
    columns, cluster = matrices[0].shape[1], 1
    size = columns * sum(rows.element_size() for rows in matrices)
    while _clusters(matrices[0]) and cluster < _MOST_BLOCKS and size > cluster * _HELD:
        cluster *= 2
    warps = 8 if cluster > 1 or columns <= _FEW else 16
    block = _LANES * warps * _EACH
    least = min(vector(rows) * rows.element_size() for rows in matrices)
    copy = "cp.async" if least >= 4 and not _amd(matrices[0]) else None
    blocks = -(-columns // (cluster * block))
    return {"BLOCK": block, "BLOCKS": blocks, "COPY": copy, "CLUSTER": cluster, "num_warps": warps}


def _clusters(rows: torch.Tensor) -> bool:
    return target_of(str(rows.device)) == "sm_90a"


def _amd(rows: torch.Tensor) -> bool:
    return target_of(str(rows.device)) == "gfx942"


def columns(x: torch.Tensor) -> int:
    """Return the number of elements in a row of `x`. Raises LaunchError "shape-mismatch" for a scalar."""
    if not x.ndim:
        raise LaunchError.of("shape-mismatch", "a scalar has no rows", "pass a tensor of at least one dimension")
    return x.shape[-1]


def matrix(x: torch.Tensor) -> torch.Tensor:
    """Return `x` as rows `[M, N]` of contiguous elements. The rows may be any distance apart. `x` is copied only if no
    view has this form.

    Raises LaunchError "shape-mismatch" for a scalar.
    """
    columns(x)
    rows = x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])
    return rows if rows.shape[1] < 2 or rows.stride(1) == 1 else rows.contiguous()


def shaped(rows: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Rows as `matrix` makes them of `x`, in the shape of `x` again."""
    return rows if x.ndim == 2 else rows.view(x.shape)


def vector(rows: torch.Tensor) -> int:
    """Return the largest number of elements, up to 16 bytes, that one aligned access can move at every such place of
    `rows`."""
    size = rows.element_size()
    return gcd(16, rows.data_ptr(), rows.stride(0) * size, rows.shape[1] * size) // size


def dtype_of(name: str, x: torch.Tensor, allowed: tuple[str, ...] = FLOATS) -> DType:
    """Return the language's dtype of `x`, which must be one of `allowed`. Raises LaunchError "dtype-mismatch"."""
    found = str(x.dtype).removeprefix("torch.")
    if found not in allowed:
        what = f"`{name}` is a tensor of {found}; this kernel takes {', '.join(allowed)}"
        raise LaunchError.of("dtype-mismatch", what, f"convert it: {name}.to(torch.{allowed[0]})")
    return DTYPES[found]


def same_shape(name: str, x: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise LaunchError "shape-mismatch" unless `x` has `shape`."""
    if tuple(x.shape) != tuple(shape):
        what = f"`{name}` has the shape {tuple(x.shape)}, and {tuple(shape)} is needed"
        raise LaunchError.of("shape-mismatch", what, "pass a tensor of that shape")


def same_rank(name: str, x: torch.Tensor, rank: int) -> None:
    """Raise LaunchError "shape-mismatch" unless `x` has `rank` dimensions."""
    if x.ndim != rank:
        what = f"`{name}` has {x.ndim} dimensions, and {rank} are needed"
        raise LaunchError.of("shape-mismatch", what, f"pass a tensor of {rank} dimensions")


def longest(name: str, rows: torch.Tensor, columns: int) -> None:
    """Raise LaunchError "shape-mismatch" if rows have more than `columns` elements."""
    if rows.shape[1] > columns:
        what = f"rows of `{name}` have {rows.shape[1]} elements, and this kernel takes at most {columns}"
        raise LaunchError.of("shape-mismatch", what, "use the kernels of the single steps")
