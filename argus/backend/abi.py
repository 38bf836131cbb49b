"""The calling convention of an emitted kernel, shared by the emitter and every launcher."""

from __future__ import annotations

import re
from dataclasses import dataclass

from argus.ir.expr import Coord, Param
from argus.ir.expr import walk as walk_expr
from argus.ir.instruction import BULK_LOADS, BULK_STORES, REDUCES
from argus.ir.nodes import Access, Accumulate, Copy, Kernel, Programs, Scalar, Tensor
from argus.ir.pixels import Pixels, column_of
from argus.ir.types import DType, int32, int64, uint8
from argus.ir.visit import walk

_UNSWIZZLED = 16  # bytes of a row


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the entry point.

    `kind` is "pointer" (device address of tensor `name`), "size" (int32), "stride" (int64, elements), "scalar" or
    "tensormap" (a CUtensorMap by value: 128 bytes, 64-byte aligned).
    """

    name: str
    kind: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map, which the launcher encodes for the copy engine (CUDA driver API, cuTensorMapEncodeTiled, and
    cuTensorMapEncodeIm2col for `pixels`).

    `box` is the copied box in elements, in the tensor's own order of dimensions; the last dimension has stride 1. For a
    column of `pixels`, the first extent is their number, and those between the first and the last are 1.
    Elements outside the tensor read as zero. `swizzle_bytes` is the width of the swizzle, one row of the box: 128, or
    64 or 32 for a box that is stored. It is 0 for boxes without a swizzle: one row, or rows of 16 bytes.
    """

    name: str
    tensor: str
    box: tuple[int, ...]
    swizzle_bytes: int
    pixels: Pixels | None = None


def box(access: Access, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of a copied box along all dimensions of its tensor; 1 where the index is fixed, or where an
    earlier dimension counts the pixels."""
    if column_of(access.index) is not None:
        return (shape[0], *(1,) * (len(access.index) - 2), shape[1])
    extents = iter(shape)
    return tuple(next(extents) if any(isinstance(e, Coord) for e in walk_expr(i)) else 1 for i in access.index)


def tensor_maps(kernel: Kernel) -> tuple[TensorMap, ...]:
    """Return the tensor maps of a kernel's bulk copies, each once, in program order."""
    found: dict[tuple[str, tuple[int, ...], Pixels | None], TensorMap] = {}
    for stmt in walk(kernel.body):
        if isinstance(stmt, Copy | Accumulate) and stmt.instr in BULK_LOADS | BULK_STORES | REDUCES.keys():
            outside = stmt.src if isinstance(stmt, Copy) and stmt.instr in BULK_LOADS else stmt.dst
            key = described(outside, stmt.shape)
            row = key[1][-1] * kernel.object(outside.obj).dtype.bytes
            swizzle = row if row > _UNSWIZZLED and len(stmt.shape) > 1 else 0
            found.setdefault(key, TensorMap(f"{outside.obj}_map{len(found)}", *key[:2], swizzle, key[2]))
    return tuple(found.values())


def described(outside: Access, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], Pixels | None]:
    """Return the tensor, the box and the pixels of the tensor map that a copy of `shape` needs."""
    column = column_of(outside.index)
    return outside.obj, box(outside, shape), None if column is None else column.pixels


def arguments(kernel: Kernel) -> tuple[Argument, ...]:
    """Return tensors, sizes, symbolic strides, scalars and tensor maps, each in declaration order, each name once."""
    pointers = [Argument(t.name, "pointer", t.dtype) for t in kernel.tensors]
    sizes = [Argument(name, "size", int32) for name in kernel.sizes]
    symbolic = (s for t in kernel.tensors for s in _symbolic(t) if s.name not in kernel.sizes)
    strides = {s.name: Argument(s.name, "stride", int64) for s in symbolic}
    scalars = [Argument(p.name, "scalar", p.dtype) for p in kernel.params if isinstance(p, Scalar)]
    maps = [Argument(m.name, "tensormap", uint8) for m in tensor_maps(kernel)]
    return (*pointers, *sizes, *strides.values(), *scalars, *maps)


def _symbolic(tensor: Tensor) -> list[Param]:
    return [s for s in tensor.strides if isinstance(s, Param)]


def persistent(kernel: Kernel) -> bool:
    """Return True if each block runs several programs. At most as many blocks as run at once are then launched."""
    return any(isinstance(stmt, Programs) for stmt in walk(kernel.body))


def shared_bytes(kernel: Kernel) -> int:
    """Return the bytes of shared memory that a block of the explicit kernel needs, and that a launcher requests."""
    ends = [
        s.offset + s.layout.cosize() * s.dtype.bytes
        for s in kernel.shared
        if s.offset is not None and s.layout is not None
    ]
    ends += [b.offset + 8 * b.count for b in kernel.barriers if b.offset is not None]
    return max(ends, default=0)


def entry(kernel: Kernel) -> str:
    """Return the symbol of the kernel's entry point. The prefix avoids names that C libraries declare."""
    return "argus_" + re.sub(r"\W", "_", kernel.name)
