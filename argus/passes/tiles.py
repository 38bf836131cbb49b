"""Layouts of shared tiles that the author left open.

    %at: shared[128x64, bfloat16]          ->  %at: shared[128x64, bfloat16] Sw<3,3,3> o 0 o (128,64):(64,1)

The dimension that is contiguous in the global source is contiguous in the tile as well, so that 16-byte
copies go straight through. Chunks of 16 bytes are XORed with the row number, so that 8 rows of one column
chunk (ldmatrix), and 8 chunks of one row (a copy), each lie in different banks.
"""

from __future__ import annotations

from dataclasses import replace

from argus.ir.nodes import Copy, Kernel, Mma, Shared, Stage, Tensor
from argus.ir.visit import walk
from argus.layout import AnyLayout, Layout, Swizzle, SwizzledLayout
from argus.passes.moves import contiguous_axis, target_of

_CHUNK = 16  # bytes of one access by one lane: the unit that the swizzle moves
_OPERAND = 8  # the same for operands of mfma, of which a lane reads 8 bytes at a time
_WAVE = 128  # bytes that all banks give at once


def lay_out_tiles(kernel: Kernel) -> Kernel:
    """Give every shared tile without a layout a swizzled (or padded) one."""
    return replace(
        kernel,
        shared=tuple(s if s.layout is not None else replace(s, layout=_layout(kernel, s)) for s in kernel.shared),
    )


def _layout(kernel: Kernel, shared: Shared) -> AnyLayout:
    operand = any(isinstance(s, Mma) and shared.name in (s.a.obj, s.b.obj) for s in walk(kernel.body))
    chunk = _OPERAND if operand and target_of(kernel).vendor == "amd" else _CHUNK
    return tile_layout(shared.shape, shared.dtype.bytes, _order(kernel, shared), chunk)


def _order(kernel: Kernel, shared: Shared) -> tuple[int, ...]:
    """Dimensions of the tile, fastest first: as its first global source has them."""
    order = tuple(reversed(range(len(shared.shape))))
    for stmt in walk(kernel.body):
        match stmt:
            case Stage(dst=name, src=src) if name == shared.name:
                pass
            case Copy(dst=dst, src=src) if dst.obj == shared.name and isinstance(kernel.object(src.obj), Tensor):
                pass
            case _:
                continue
        tensor = kernel.object(src.obj)
        axis = contiguous_axis(tensor, src.index) if isinstance(tensor, Tensor) else None
        if axis is not None:
            return (axis, *(d for d in order if d != axis))
    return order


def tile_layout(
    shape: tuple[int, ...], itemsize: int, order: tuple[int, ...] | None = None, chunk: int = 16
) -> AnyLayout:
    """A compact layout with dimension `order[0]` contiguous (default: the last), free of bank conflicts.

    Rows of a power of two of at least two chunks (of `chunk` bytes) are swizzled; other rows of whole chunks are
    padded to an odd number of chunks; anything else stays as it is.
    """
    order = tuple(reversed(range(len(shape)))) if order is None else order
    if not shape:
        return Layout(1, 0)
    row = shape[order[0]] * itemsize
    found = swizzle(row, itemsize, chunk) if len(shape) > 1 else None
    chunks, rest = divmod(row, chunk)
    padded = len(shape) > 1 and found is None and rest == 0 and chunks > 1 and chunks % 2 == 0
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim] + (chunk // itemsize if padded and dim == order[0] else 0)
    inner = Layout(shape, tuple(strides))
    return inner if found is None else SwizzledLayout(found, 0, inner)


def swizzle(row: int, itemsize: int, chunk: int) -> Swizzle | None:
    """The XOR of `chunk` bytes with the row number, for rows of `row` bytes, on offsets in elements.

    Rows shorter than all banks together count in the groups that fill them. None unless `row` is a power of
    two and at least two chunks.
    """
    if chunk < itemsize or row < 2 * chunk or row & (row - 1):
        return None
    bits = min(row, _WAVE).bit_length() - chunk.bit_length()
    base = (chunk // itemsize).bit_length() - 1
    shift = max(_WAVE, row).bit_length() - chunk.bit_length()
    return Swizzle(bits, base, shift) if shift >= bits > 0 else None


def staged(layout: AnyLayout, stages: int) -> AnyLayout:
    """`layout` with `stages` copies one after the other, as a new first dimension."""
    inner = layout.inner if isinstance(layout, SwizzledLayout) else layout
    shape = inner.shape if isinstance(inner.shape, tuple) else (inner.shape,)
    stride = inner.stride if isinstance(inner.stride, tuple) else (inner.stride,)
    pitch = layout.cosize()
    if isinstance(layout, SwizzledLayout):
        # A copy starts where the swizzle does, or it would be swizzled differently.
        unit = 1 << (layout.swizzle.base + layout.swizzle.shift + layout.swizzle.bits)
        pitch = -(-pitch // unit) * unit
        return SwizzledLayout(layout.swizzle, layout.offset, Layout((stages, *shape), (pitch, *stride)))
    return Layout((stages, *shape), (pitch, *stride))
