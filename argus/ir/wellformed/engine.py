"""Rules of the copy engine: boxes between tensors and panels of shared tiles that are loaded, stored or added."""

from __future__ import annotations

from collections.abc import Iterator

from argus.ir.expr import Const, Coord, Elem, Expr, Op, coords
from argus.ir.instruction import BULK_LOADS, INSTRUCTIONS, MULTICASTS, CopyRow, Mechanism, Order, ReduceRow
from argus.ir.instruction.limits import MAX_BOX, NARROW_ROWS, ROW_BYTES, SWIZZLE_ATOM, row_bytes
from argus.ir.nodes import Access, Accumulate, Among, BulkCopy, Kernel, Shared, Tensor
from argus.ir.pixels import CORNERS, MAX_STEP, OFFSETS, bounds, column_of, is_shifted, one_place
from argus.ir.statement import Problem
from argus.ir.target import Target
from argus.ir.types import boolean
from argus.ir.wellformed import copies
from argus.ir.wellformed.ordering import by_one_warp, in_role, of_cluster
from argus.ir.wellformed.panels import panels
from argus.ir.wellformed.site import Site, mbarrier, uniform
from argus.layout import row_major
from argus.source import Span


def names(stmt: BulkCopy, site: Site) -> Iterator[Problem]:
    """Check that a load signals an mbarrier of the kernel. A load for several blocks of a cluster needs a cluster."""
    yield from copies.names(stmt, site)
    if stmt.signal is not None:
        yield from mbarrier(stmt.signal.barrier, stmt.signal.index, site, stmt.span)
    if stmt.among is not None:
        yield from _group(stmt, stmt.among, site.kernel.cluster)
    if stmt.instr in MULTICASTS and site.kernel.cluster == 1:
        yield f"{stmt.instr} reaches the blocks of a cluster, and the kernel has none", stmt.span
    if stmt.instr in BULK_LOADS:
        yield from by_one_warp(stmt, site)


def _group(stmt: BulkCopy, among: Among, cluster: int) -> Iterator[Problem]:
    """Check that the cluster consists of equal groups as `among` describes them."""
    if stmt.instr not in MULTICASTS:
        yield f"a copy {stmt.instr} reaches one block, not {among.count}", stmt.span
    if among.count < 2 or among.stride < 1 or cluster % (among.count * among.stride):
        what = f"{among.count} blocks, {among.stride} apart"
        yield f"a cluster of {cluster} is not made of groups of {what}", stmt.span


def explicit(stmt: BulkCopy, site: Site, target: Target) -> Iterator[Problem]:
    """Check that the instruction belongs to the copy engine, and that it can move the box."""
    row = INSTRUCTIONS.get(stmt.instr)
    if row is None or row.mechanism is not Mechanism.BULK:
        yield f"`{stmt.instr}` is not an instruction of the copy engine", stmt.span
        return
    yield from copies.moved(stmt, row, site.part, target)
    yield from bulk_copy(stmt, row, site.part)
    if row.name in BULK_LOADS:
        yield from in_role(stmt, site, target)
    if row.multicast:
        yield from of_cluster(stmt, site)


def bulk_copy(stmt: BulkCopy, row: CopyRow, kernel: Kernel) -> Iterator[Problem]:
    """Check a bulk copy: a box of a tensor, clipped to the tensor, to or from a panel of a shared tile."""
    load, span = row.order is Order.ASYNC_BULK, stmt.span
    outside, inside = (stmt.src, stmt.dst) if load else (stmt.dst, stmt.src)
    if (stmt.signal is not None) != load:
        yield f"{row.name} signals {'no mbarrier' if load else 'an mbarrier, which nothing would count'}", span
    yield from _box(row, outside, inside, stmt.shape, stmt.mask, kernel, span)
    if load and stmt.mask is not None and stmt.other is None:
        yield f"{row.name} fills with zeros outside of the tensor", span
    if stmt.other is not None and (stmt.other.value != 0 or not load):
        yield f"{row.name} fills with {'zeros' if load else 'nothing'} outside of the tensor", span


def bulk_reduce(stmt: Accumulate, row: ReduceRow, kernel: Kernel) -> Iterator[Problem]:
    """Check a bulk update: a box of a tensor, clipped to the tensor, from a panel of a shared tile."""
    span, tensor = stmt.span, kernel.object(stmt.dst.obj)
    if stmt.layout is not None or stmt.scope is not None:
        yield f"{row.name} is issued by one thread, for the whole box", span
    if stmt.op != row.op or tensor.dtype not in row.dtypes:
        known = ", ".join(map(str, row.dtypes))
        yield f"{row.name} is the operation {row.op} on {known}, not {stmt.op} on {tensor.dtype}", span
    if not isinstance(stmt.value, Elem) or not isinstance(tensor, Tensor):
        yield f"{row.name} updates a tensor by the elements of a shared tile", span
        return
    yield from _box(row, stmt.dst, Access(stmt.value.obj, stmt.value.index), stmt.shape, stmt.mask, kernel, span)


def _box(
    row: CopyRow | ReduceRow, outside: Access, inside: Access, shape: tuple[int, ...], mask: Expr | None,
    kernel: Kernel, span: Span,
) -> Iterator[Problem]:  # fmt: skip
    """Yield the problems of a box of `shape` between a tensor and a shared tile, for the instruction `row`."""
    tensor, tile, rank, name = kernel.object(outside.obj), kernel.object(inside.obj), len(shape), row.name
    if not isinstance(tensor, Tensor) or not isinstance(tile, Shared):
        return  # The spaces of the instruction are wrong, which is reported elsewhere.
    if not 2 <= len(tensor.shape) <= 5:
        yield f"{name} copies boxes of 2 to 5 dimensions, those of the tensor", span
        return
    moving = [(axis, e) for axis, e in enumerate(outside.index) if not one_place(e)]
    if isinstance(row, CopyRow) and row.pixels:
        yield from _column(row, outside, shape, tensor, span)
    elif [a for a, (_, e) in enumerate(moving) if is_shifted(e, a)] != list(range(rank)):
        text = f"a box of `{tensor.name}` begins at one place in each dimension, and goes on by 1"
        help = "index each dimension by one place, or by a slice `start : start + BLOCK`, in the tensor's order"
        yield f"{text}, and these indices do not: {help}", span
    yield from _row(row, inside, shape, tile, span) if rank == 1 else _panel(row, inside, shape, tile, span)
    if max(shape) > MAX_BOX:
        yield f"a box has at most {MAX_BOX} elements in each dimension, not {shape}", span
    if tensor.alignment < 16 or tensor.strides[-1] != Const(1, tensor.strides[-1].dtype) or moving[-1:] == []:
        yield f"{name} needs `{tensor.name}` aligned to 16 bytes, its last dimension of stride 1", span
    elif moving[-1][0] != len(tensor.shape) - 1:
        yield f"the rows of a box of {name} go along the last dimension of `{tensor.name}`", span
    if not _inside(mask, outside, tensor):
        yield f"{name} masks nothing but what is outside of `{tensor.name}`", span


def _column(row: CopyRow, outside: Access, shape: tuple[int, ...], tensor: Tensor, span: Span) -> Iterator[Problem]:
    """Yield the problems of a column of pixels: the places of a convolution's windows, in their order."""
    column, rank = column_of(outside.index), len(tensor.shape)
    if column is None or len(shape) != 2:
        what = f"{row.name} copies pixels of `{tensor.name}` in the order of a convolution's windows"
        help = "index images by `p // (P * Q)`, rows by `p // Q % P * stride + tap - padding` and so on"
        yield f"{what}, and these indices do not: {help}", span
        return
    sizes = [int(e.value) if isinstance(e, Const) else None for e in tensor.shape[1:-1]]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        yield f"{row.name} needs constant sizes of the images in `{tensor.name}`", span
        return
    pixels, most = column.pixels, CORNERS[rank]
    if any(not -most <= corner < most for corner in (*pixels.lower, *pixels.upper(known))):
        yield f"{row.name} has places from {-most} before an image of {rank} dimensions up to {most} behind it", span
    if any(not 1 <= stride <= MAX_STEP for stride in pixels.strides):
        yield f"{row.name} has strides from 1 to {MAX_STEP}, not {pixels.strides}", span
    for offset in column.offsets:
        low, high = bounds(offset)
        if low < 0 or high >= OFFSETS[rank]:
            yield f"{row.name} has offsets from 0 up to {OFFSETS[rank]}: write taps as remainders `t % TAPS`", span


def _row(
    row: CopyRow | ReduceRow, inside: Access, shape: tuple[int, ...], tile: Shared, span: Span
) -> Iterator[Problem]:
    """Yield the problems of a box of one dimension. It must load a whole row of a tile without a swizzle."""
    *places, column = inside.index
    size = tile.dtype.bytes
    whole = column == Coord(0) and tile.shape[-1] == shape[0] and all(map(uniform, places))
    if row.order is not Order.ASYNC_BULK or not whole:
        yield f"{row.name} with one dimension can only load, and loads a whole row of `{tile.name}` at one place", span
    apart = (tile.shape[-1] if places else 0) * size
    if tile.layout != row_major(tile.shape) or (tile.offset or 0) % ROW_BYTES or apart % ROW_BYTES:
        yield f"{row.name} loads rows of `{tile.name}` that follow one another at multiples of {ROW_BYTES} bytes", span
    elif shape[0] * size % 16:
        yield f"{row.name} loads rows of multiples of 16 bytes, not {shape[0]} elements of {tile.dtype}", span


def _panel(
    row: CopyRow | ReduceRow, inside: Access, shape: tuple[int, ...], tile: Shared, span: Span
) -> Iterator[Problem]:
    """Yield the problems of a box of several dimensions: a panel of a tile, or a part of its rows."""
    rank, name = len(shape), row.name
    leading = len(inside.index) - rank
    *rows, column = inside.index[max(leading, 0) :]
    panel = shape[-1]
    wide = row_bytes(tile.shape[-1], tile.dtype.bytes)
    widths = (wide,) if row.order is Order.ASYNC_BULK else (ROW_BYTES, *NARROW_ROWS)
    placed = leading >= 0 and tuple(rows[1:]) == coords(rank)[1:-1] and all(map(uniform, inside.index[:leading]))
    if not placed or not _in_atoms(rows[0]) or not _in_panel(column, rank - 1, panel):
        yield f"{name} moves rows of a panel of `{tile.name}`: a place, then the coordinates", span
    elif tile.shape[leading + 1 : -1] != shape[1:-1] or panel * tile.dtype.bytes not in widths:
        allowed = " or ".join(map(str, widths))
        yield f"{name} moves boxes of {tile.name} with rows of {allowed} bytes, not {shape}", span
    yield from panels(tile, name, span, next((w for w in widths if w == panel * tile.dtype.bytes), wide))


def _in_atoms(expr: Expr) -> bool:
    """Return True if `expr` is c0 plus a start that is a multiple of the rows after which the swizzle repeats."""
    match expr:
        case Coord(axis=0):
            return True
        case Op(op="add", args=(Coord(axis=0), start)) | Op(op="add", args=(start, Coord(axis=0))):
            unit = SWIZZLE_ATOM // ROW_BYTES
            factor = start.args[1] if isinstance(start, Op) and start.op == "mul" and uniform(start) else start
            return isinstance(factor, Const) and int(factor.value) % unit == 0
        case _:
            return False


def _in_panel(expr: Expr, axis: int, panel: int) -> bool:
    """Return True if `expr` is the coordinate of `axis`, plus a multiple of the panel's width."""
    match expr:
        case Coord(axis=found):
            return found == axis
        case Op(op="add", args=(Coord(axis=found), Const(value=start))):
            return found == axis and int(start) % panel == 0
        case _:
            return False


def _inside(mask: Expr | None, source: Access, tensor: Tensor) -> bool:
    """Return True if `mask` only says that coordinates are inside the tensor.

    A dimension that the mask does not test is proved to be inside, or else reported as out of bounds.
    """
    match mask:
        case None:
            return True
        case Op(op="and", args=(x, y), dtype=dtype) if dtype is boolean:
            return _inside(x, source, tensor) and _inside(y, source, tensor)
        case Op(op="lt", args=(x, y)):
            return (x, y) in zip(source.index, tensor.shape, strict=True)
        case Op(op="ge", args=(x, Const(value=0))) | Op(op="le", args=(Const(value=0), x)):
            return x in source.index
        case _:
            return False
