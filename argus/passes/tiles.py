"""Layouts of shared tiles that the author left open.

    %at: shared[128x64, bfloat16]          ->  %at: shared[128x64, bfloat16] Sw<3,3,3> o 0 o (128,64):(64,1)

The dimension that is contiguous in the global source is contiguous in the tile as well, so that 16-byte
copies go straight through. Chunks of 16 bytes are XORed with the row number, so that 8 rows of one column
chunk (ldmatrix), and 8 chunks of one row (a copy), each lie in different banks.
"""

from __future__ import annotations

from dataclasses import replace

from argus.ir.nodes import Copy, Kernel, Shared, Stage, Tensor
from argus.ir.visit import walk
from argus.layout import AnyLayout, Layout, Swizzle, SwizzledLayout
from argus.passes.moves import contiguous_axis

_CHUNK = 16  # bytes of one access by one lane: the unit that the swizzle moves
_WAVE = 128  # bytes that all banks give at once


def lay_out_tiles(kernel: Kernel) -> Kernel:
    """Give every shared tile without a layout a swizzled (or padded) one."""
    return replace(
        kernel,
        shared=tuple(
            replace(s, layout=tile_layout(s.shape, s.dtype.bytes, _order(kernel, s))) if s.layout is None else s
            for s in kernel.shared
        ),
    )


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


def tile_layout(shape: tuple[int, ...], itemsize: int, order: tuple[int, ...] | None = None) -> AnyLayout:
    """A compact layout with dimension `order[0]` contiguous (default: the last), free of bank conflicts.

    Rows of a power of two of at least 32 bytes are swizzled; other rows of whole chunks are padded to an odd
    number of chunks; anything else stays as it is.
    """
    order = tuple(reversed(range(len(shape)))) if order is None else order
    if not shape:
        return Layout(1, 0)
    row = shape[order[0]] * itemsize
    swizzled = len(shape) > 1 and row >= 2 * _CHUNK and row & (row - 1) == 0
    padded = len(shape) > 1 and not swizzled and row > _CHUNK and row % _CHUNK == 0 and (row // _CHUNK) % 2 == 0
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim] + (_CHUNK // itemsize if padded and dim == order[0] else 0)
    inner = Layout(shape, tuple(strides))
    if not swizzled:
        return inner
    bits = min(row, _WAVE).bit_length() - _CHUNK.bit_length()
    base = (_CHUNK // itemsize).bit_length() - 1
    shift = max(_WAVE, row).bit_length() - _CHUNK.bit_length()
    return SwizzledLayout(Swizzle(bits, base, shift), 0, inner)


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
