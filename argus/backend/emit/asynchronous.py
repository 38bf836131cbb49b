"""Emit mbarriers, bulk copies, and the statements that order asynchronous products."""

from __future__ import annotations

from typing_extensions import assert_never

from argus.backend.abi import described, tensor_maps
from argus.backend.device_api import cpp_type
from argus.backend.emit.expression import Printer
from argus.backend.emit.panels import box_corner, box_origin
from argus.backend.emit.problem import problem
from argus.backend.emit.scope import Writer
from argus.ir.expr import Const, Elem, Expr
from argus.ir.instruction import INSTRUCTIONS
from argus.ir.nodes import (
    Access,
    Accumulate,
    Asynchronous,
    BarrierArrive,
    BarrierSync,
    BulkCommit,
    BulkCopy,
    BulkWait,
    Kernel,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    MmaCommit,
    MmaFence,
    MmaWait,
    ProxyFence,
    Shared,
    Tensor,
)
from argus.ir.pixels import column_of


def emit_asynchronous(stmt: Asynchronous, writer: Writer) -> None:
    """Emit a statement that only orders others."""
    match stmt:
        case MmaFence():
            writer.line("argus::wgmma_fence();")
        case MmaCommit():
            writer.line("argus::wgmma_commit();")
        case MmaWait(pending=pending):
            writer.line(f"argus::wgmma_wait<{pending}>();")
        case ProxyFence():
            writer.line("argus::async_fence();")
        case MbarrierInit(barrier=name):
            barrier = _barrier(name, writer)
            call = f"argus::mbarrier_init(smem, {_offset(barrier)} + i * 8, {barrier.arrivals});"
            writer.line(f"if ({_first(writer)}) for (int i = 0; i < {barrier.count}; ++i) {call}")
        case MbarrierFence():
            writer.line(f"if ({_first(writer)}) argus::mbarrier_init_fence();")
        case MbarrierExpect(barrier=name, index=index, bytes=count):
            writer.line(f"argus::mbarrier_expect(smem, {_place(name, index, writer)}, {count});")
        case MbarrierArrive(barrier=name, index=index, scope=scope, among=groups):
            # The value is 1 for a united cluster, whose mbarriers all belong to the one block.
            count = writer.kernel.cluster
            to = f"_cluster<{count}>" if scope == "cluster" and count > 1 else ""
            place = _place(name, index, writer)
            blocks = " | ".join(f"argus::blocks_among<{among.count}, {among.stride}>()" for among in groups)
            writer.line(f"argus::mbarrier_arrive{to}(smem, {place}{f', {blocks}' if blocks else ''});")
        case MbarrierWait(barrier=name, index=index, parity=parity):
            place = _place(name, index, writer)
            writer.line(f"argus::mbarrier_wait(smem, {place}, {Printer(writer).text(parity)});")
        case BarrierSync(number=number, count=count):
            writer.line(f"argus::role_barrier<{count}>({number});")
        case BarrierArrive(number=number, count=count):
            writer.line(f"argus::role_barrier_arrive<{count}>({number});")
        case BulkCommit():
            writer.line("if (thread == 0) argus::bulk_commit();")
        case BulkWait(pending=pending, read=read):
            writer.line(f"if (thread == 0) argus::bulk_wait{'_read' if read else ''}<{pending}>();")
        case _:
            assert_never(stmt)


def _place(name: str, index: Expr, writer: Writer) -> str:
    """Return the byte offset of `name[index]` in the block's shared memory."""
    offset = _offset(_barrier(name, writer))
    if isinstance(index, Const):
        return str(offset + 8 * int(index.value))
    return f"{Printer(writer).times(index, 8)} + {offset}"


def _barrier(name: str, writer: Writer) -> Mbarrier:
    return next(b for b in writer.kernel.barriers if b.name == name)


def _offset(barrier: Mbarrier) -> int:
    if barrier.offset is None:
        raise problem("not-explicit", f"mbarrier `{barrier.name}` has no offset", barrier.span)
    return barrier.offset


def _first(writer: Writer) -> str:
    """Return the C++ condition that is true for thread 0 of the block, or of the role."""
    return "argus::thread_id() == 0" if writer.barrier is None else "thread == 0"


def emit_bulk(stmt: BulkCopy, writer: Writer) -> None:
    """Emit the copy of a box by the copy engine."""
    dst, src = writer.kernel.object(stmt.dst.obj), writer.kernel.object(stmt.src.obj)
    match dst, src:
        case Shared(), Tensor():
            _bulk_load(stmt, dst, writer)
        case Tensor(), Shared():
            _bulk_store(stmt, src, writer)
        case _:
            what = f"{stmt.instr} does not copy `{src.name}` to `{dst.name}`"
            raise problem("copy-unsupported", what, stmt.span, "copy between a tensor and a shared tile")


def _bulk_load(stmt: BulkCopy, dst: Shared, writer: Writer) -> None:
    """Emit the copy of a box to shared memory: one lane of the warp hands the whole box to the copy engine."""
    if stmt.signal is None:
        raise problem("not-explicit", f"the bulk copy to `{dst.name}` signals no mbarrier", stmt.span)
    to = box_origin(dst, stmt.dst.index, stmt.shape, writer, stmt.span)
    barrier = _place(stmt.signal.barrier, stmt.signal.index, writer)
    row, among = INSTRUCTIONS[stmt.instr], stmt.among
    reach = str(writer.kernel.cluster) if among is None else f"{among.count}, {among.stride}"
    way = "_once" if stmt.once and not row.pixels else ""
    way += f"_multicast<{reach}>" if row.multicast else ""
    writer.line(f"argus::{row.call}{way}(smem, {to}, {barrier}, {_box(stmt, stmt.src, writer)});")


def _bulk_store(stmt: BulkCopy, src: Shared, writer: Writer) -> None:
    """Emit the copy "tma.store": the first thread hands the whole box to the copy engine."""
    place = box_origin(src, stmt.src.index, stmt.shape, writer, stmt.span)
    call = INSTRUCTIONS[stmt.instr].call
    writer.line(f"if (thread == 0) argus::{call}(smem, {place}, {_box(stmt, stmt.dst, writer)});")


def emit_bulk_reduce(stmt: Accumulate, writer: Writer) -> None:
    """Emit "tma.reduce.add" and the like: the copy engine combines a box with the contents of the tensor."""
    source = stmt.value
    src = writer.kernel.object(source.obj) if isinstance(source, Elem) else None
    if not isinstance(source, Elem) or not isinstance(src, Shared):
        raise problem("not-explicit", f"{stmt.instr} reads no shared tile", stmt.span)
    place = box_origin(src, source.index, stmt.shape, writer, stmt.span)
    call = f"tma_reduce_{stmt.op}<{cpp_type(src.dtype)}>"
    writer.line(f"if (thread == 0) argus::{call}(smem, {place}, {_box(stmt, stmt.dst, writer)});")


def _box(stmt: BulkCopy | Accumulate, outside: Access, writer: Writer) -> str:
    """Return the tensor map and the box's corner, innermost dimension first, as arguments of a call. The offsets of a
    column of pixels follow."""
    wanted = described(outside, stmt.shape)
    tensor_map = next(m for m in tensor_maps(writer.kernel) if (m.tensor, m.box, m.pixels) == wanted)
    column = column_of(outside.index)
    places = outside.index if column is None else column.first
    offsets = () if column is None else column.offsets
    corner = [box_corner(e, writer, stmt.span) for e in (*reversed(places), *reversed(offsets))]
    return ", ".join([writer.names[tensor_map.name], *corner])


def prefetch_maps(kernel: Kernel, writer: Writer) -> None:
    """Emit the prefetch of the tensor maps by one thread."""
    maps = tensor_maps(kernel)
    if maps:
        with writer.block("if (argus::thread_id() == 0)"):
            for tensor_map in maps:
                writer.line(f"argus::tma_prefetch({writer.names[tensor_map.name]});")
