"""Choose the layouts of shared tiles that the author left open.

    %at: shared[128x64, bfloat16]          ->  %at: shared[128x64, bfloat16] Sw<3,3,3> o 0 o (128,64):(64,1)

The dimension that is contiguous in the global source is also contiguous in the tile, so that 16-byte copies need no
rearrangement. Chunks of 16 bytes are XORed with the row number, so that 8 rows of one column chunk (ldmatrix), and 8
chunks of one row (a copy), each lie in different banks.

Loads to LDS (AMD) fill 256 bytes per wave in the order of its lanes, so their tiles cannot be swizzled. In pipelined
loops of three stages or more, tiles that can be loaded this way get 8 bytes of padding after every 256 bytes instead.
Other tiles are loaded through registers.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from argus.diagnostic import Diagnostic
from argus.ir.affine import Facts, facts
from argus.ir.expr import elements
from argus.ir.nodes import Copy, For, Kernel, Map, Mma, Shared, Stage, Tensor, ThreadCopy
from argus.ir.visit import walk
from argus.layout import AnyLayout, IntTuple, Layout, Swizzle, SwizzledLayout
from argus.passes.fresh import whole
from argus.passes.moves import contiguous_axis, target_of
from argus.passes.report import Unfit
from argus.passes.stages import direct_copy, padded
from argus.passes.turned import turned_axis
from argus.source import Span

_CHUNK = 16  # bytes of one lane's access, and the unit that the swizzle moves
_OPERAND = 8  # bytes for operands of mfma, of which a lane reads 8 bytes at a time
_WAVE = 128  # bytes that all banks deliver at once
_RUN = 256  # bytes that the lanes of a wave load to LDS at once


def lay_out_tiles(kernel: Kernel) -> Kernel:
    """Give every shared tile without a layout a swizzled (or padded) one."""
    straight, remarks = _loaded_straight(kernel)
    laid = (straight.get(s.name, s) for s in kernel.shared)
    return replace(
        kernel,
        shared=tuple(s if s.layout is not None else replace(s, layout=_layout(kernel, s)) for s in laid),
        remarks=(*kernel.remarks, *remarks),
    )


def _loaded_straight(kernel: Kernel) -> tuple[dict[str, Shared], tuple[Diagnostic, ...]]:
    """Return the tiles of pipelined loops that loads to LDS fill, laid out for these loads, if the buffers of all tiles
    fit into shared memory; and remarks that say why the other tiles go through registers."""
    target, known = target_of(kernel), facts(kernel)
    if target.vendor != "amd":
        return {}, ()
    found: dict[str, Shared] = {}
    places: dict[str, Span] = {}
    unfit: dict[str, Unfit] = {}
    size = sum(prod(s.shape) * s.dtype.bytes for s in kernel.shared)
    for loop in walk(kernel.body):
        if not isinstance(loop, For) or loop.kind != "pipelined" or loop.stages < 3:
            continue
        for stage in (s for s in loop.body if isinstance(s, Stage)):
            if turned_axis(kernel, stage) is not None:
                continue  # it is turned in registers
            try:
                tile = _straight(kernel, stage, known)
            except Unfit as reason:
                unfit[stage.dst] = reason
                continue
            assert tile.layout is not None
            found[tile.name], places[tile.name] = tile, stage.span
            size += (staged(tile.layout, loop.stages).cosize() - prod(tile.shape)) * tile.dtype.bytes
    if size > target.shared_bytes:
        why = f"the buffers of all tiles would take {size} bytes, and a block has {target.shared_bytes}"
        unfit |= {name: Unfit(why, places[name], "use fewer stages or smaller tiles") for name in found}
        found = {}
    remarks = (r.remark(f"{name} goes through registers, with two buffers") for name, r in unfit.items())
    return found, tuple(remarks)


def _straight(kernel: Kernel, stage: Stage, known: Facts) -> Shared:
    """Return the tile of `stage` in a layout that loads to LDS can fill. Raises `Unfit` if there is none."""
    tile = kernel.object(stage.dst)
    assert isinstance(tile, Shared)
    layout = tile.layout or wave_layout(tile.shape, tile.dtype.bytes, _order(kernel, tile))
    if layout is None:
        why = f"its rows do not make up runs of {_RUN} bytes, which a wave fills at once"
        raise Unfit(why, stage.span, f"let rows be a part or a multiple of {_RUN} bytes, and the tile a multiple")
    laid = replace(tile, layout=layout)
    there = replace(kernel, shared=tuple(laid if s is tile else s for s in kernel.shared))
    direct_copy(there, padded(stage, there), whole(tile.name, len(tile.shape)), known)
    return laid


def wave_layout(shape: tuple[int, ...], itemsize: int, order: tuple[int, ...]) -> AnyLayout | None:
    """Return a layout of 256-byte runs with 8 bytes of padding after each, in the order of the tile's dimensions
    (`order[0]` first).

    Several short rows share a run. These rows are equally far apart in the tile, so that consecutive rows lie in
    different runs, and therefore in different banks. Return None if rows, or groups of them, do not fill whole runs.
    """
    run, pitch = _RUN // itemsize, (_RUN + _OPERAND) // itemsize
    modes: dict[int, tuple[IntTuple, IntTuple]] = {}
    step = 1  # a divisor or a multiple of `run`
    for dim in order:
        extent, inside = shape[dim], run // step
        if step >= run:
            modes[dim] = (extent, step // run * pitch)
        elif inside % extent == 0:
            modes[dim] = (extent, step)
        elif extent % inside == 0:
            modes[dim] = ((extent // inside, inside), (pitch, step))
        else:
            return None
        step *= extent
    if step % run:
        return None
    sizes, strides = zip(*(modes[d] for d in range(len(shape))), strict=True)
    return Layout(sizes, strides)


def _layout(kernel: Kernel, shared: Shared) -> AnyLayout:
    chunk = _OPERAND if target_of(kernel).vendor == "amd" and _is_multiplied(kernel, shared.name) else _CHUNK
    return tile_layout(shared.shape, shared.dtype.bytes, _order(kernel, shared), chunk)


def _is_multiplied(kernel: Kernel, tile: str) -> bool:
    """Return True if products take a tile, or what elementwise statements make of it in registers."""
    reach, more = set[str](), {tile}
    while more - reach:
        reach |= more
        more = set()
        for stmt in walk(kernel.body):
            match stmt:
                case Mma(a=a, b=b) if a.obj in reach or b.obj in reach:
                    return True
                case ThreadCopy(dst=dst, src=src) if src.obj in reach:
                    more.add(dst.obj)
                case Map(dst=dst, value=value) if any(e.obj in reach for e in elements(value)):
                    more.add(dst.obj)
    return False


def _order(kernel: Kernel, shared: Shared) -> tuple[int, ...]:
    """Return the dimensions of the tile, fastest first, in the order of the tile's first global source."""
    order = tuple(reversed(range(len(shared.shape))))
    for stmt in walk(kernel.body):
        match stmt:
            case Stage(dst=name, src=src) if name == shared.name:
                if (k := turned_axis(kernel, stmt)) is not None:
                    return (k, *(d for d in order if d != k))
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
    """Return a compact layout without bank conflicts whose dimension `order[0]` (default: the last) is contiguous.

    Rows whose size is a power of two, of at least two chunks (of `chunk` bytes), are swizzled. Other rows of whole
    chunks are padded to an odd number of chunks. All other rows are left unchanged.
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
    """Return the swizzle that XORs `chunk` bytes with the row number, for rows of `row` bytes, on offsets in elements.

    Rows shorter than one pass over all banks are counted in groups that fill one pass. Return None unless `row` is a
    power of two and at least two chunks.
    """
    if chunk < itemsize or row < 2 * chunk or row & (row - 1):
        return None
    bits = min(row, _WAVE).bit_length() - chunk.bit_length()
    base = (chunk // itemsize).bit_length() - 1
    shift = max(_WAVE, row).bit_length() - chunk.bit_length()
    return Swizzle(bits, base, shift) if shift >= bits > 0 else None


def staged(layout: AnyLayout, stages: int) -> AnyLayout:
    """Return `layout` with `stages` consecutive buffers as a new first dimension."""
    inner = layout.inner if isinstance(layout, SwizzledLayout) else layout
    shape = inner.shape if isinstance(inner.shape, tuple) else (inner.shape,)
    stride = inner.stride if isinstance(inner.stride, tuple) else (inner.stride,)
    pitch = layout.cosize()
    if isinstance(layout, SwizzledLayout):
        # A copy must start where the swizzle's period starts; otherwise it would be swizzled differently.
        unit = 1 << (layout.swizzle.base + layout.swizzle.shift + layout.swizzle.bits)
        pitch = -(-pitch // unit) * unit
        return SwizzledLayout(layout.swizzle, layout.offset, Layout((stages, *shape), (pitch, *stride)))
    return Layout((stages, *shape), (pitch, *stride))
