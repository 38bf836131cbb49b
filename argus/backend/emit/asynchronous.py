"""mbarriers, bulk copies, and what orders asynchronous products: one line of text each."""

from __future__ import annotations

from typing_extensions import assert_never

from argus.backend.abi import box, tensor_maps
from argus.backend.emit.expression import Printer
from argus.backend.emit.panels import box_corner, box_origin
from argus.backend.emit.problem import problem
from argus.backend.emit.scope import Writer
from argus.ir import visit
from argus.ir.expr import Const, Expr
from argus.ir.nodes import (
    Access,
    AssertTags,
    Asynchronous,
    BarrierArrive,
    BarrierSync,
    BulkCommit,
    BulkWait,
    Copy,
    Kernel,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    MmaCommit,
    MmaFence,
    MmaWait,
    ProxyFence,
    Shared,
    Spec,
    Stmt,
    Tag,
)


def emit_asynchronous(stmt: Asynchronous, writer: Writer) -> None:
    """One statement that only orders others."""
    match stmt:
        case MmaFence():
            writer.line("argus::wgmma_fence();")
        case MmaCommit():
            writer.line("argus::wgmma_commit();")
        case MmaWait(pending=pending):
            writer.line(f"argus::wgmma_wait<{pending}>();")
        case ProxyFence():
            writer.line("argus::async_fence();")
        case MbarrierExpect(barrier=name, index=index, bytes=count):
            writer.line(f"argus::mbarrier_expect(smem, {_place(name, index, writer)}, {count});")
        case MbarrierArrive(barrier=name, index=index):
            writer.line(f"argus::mbarrier_arrive(smem, {_place(name, index, writer)});")
        case MbarrierWait(barrier=name, index=index, parity=parity):
            place = _place(name, index, writer)
            writer.line(f"argus::mbarrier_wait(smem, {place}, {Printer(writer).text(parity)});")
        case BarrierSync(number=number, count=count):
            writer.line(f"argus::role_barrier<{number}, {count}>();")
        case BarrierArrive(number=number, count=count):
            writer.line(f"argus::role_barrier_arrive<{number}, {count}>();")
        case BulkCommit():
            writer.line("if (thread == 0) argus::bulk_commit();")
        case BulkWait(pending=pending, read=read):
            writer.line(f"if (thread == 0) argus::bulk_wait{'_read' if read else ''}<{pending}>();")
        case _:
            assert_never(stmt)


def _place(name: str, index: Expr, writer: Writer) -> str:
    """Byte offset of `name[index]` in the block's shared memory."""
    barrier = next(b for b in writer.kernel.barriers if b.name == name)
    if barrier.offset is None:
        raise problem("not-explicit", f"mbarrier `{name}` has no offset", barrier.span)
    if isinstance(index, Const):
        return str(barrier.offset + 8 * int(index.value))
    return f"{Printer(writer).times(index, 8)} + {barrier.offset}"


def emit_bulk_load(stmt: Copy, dst: Shared, writer: Writer) -> None:
    """The copy "tma.load": one lane of the warp hands the whole box to the copy engine."""
    if stmt.signal is None:
        raise problem("not-explicit", f"the bulk copy to `{dst.name}` signals no mbarrier", stmt.span)
    to = box_origin(dst, stmt.dst.index, stmt.shape, writer, stmt.span)
    barrier = _place(stmt.signal.barrier, stmt.signal.index, writer)
    writer.line(f"argus::tma_load(smem, {to}, {barrier}, {_box(stmt, stmt.src, writer)});")


def emit_bulk_store(stmt: Copy, src: Shared, writer: Writer) -> None:
    """The copy "tma.store": the first thread hands the whole box to the copy engine."""
    place = box_origin(src, stmt.src.index, stmt.shape, writer, stmt.span)
    writer.line(f"if (thread == 0) argus::tma_store(smem, {place}, {_box(stmt, stmt.dst, writer)});")


def _box(stmt: Copy, outside: Access, writer: Writer) -> str:
    """The tensor map, and the box's corner, innermost first."""
    wanted = (outside.obj, box(outside, stmt.shape))
    tensor_map = next(m for m in tensor_maps(writer.kernel) if (m.tensor, m.box) == wanted)
    corner = [box_corner(e, writer, stmt.span) for e in reversed(outside.index)]
    return ", ".join([writer.names[tensor_map.name], *corner])


def finish(body: tuple[Stmt, ...], writer: Writer) -> None:
    """A block's shared memory is there until its bulk stores have read it: those of no group yet get theirs."""
    if not any(_bulk_store(s) for s in visit.walk(body)):
        return
    committed = True

    def block(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        nonlocal committed
        stores = [i for i, s in enumerate(stmts) if _bulk_store(s)]
        committed = committed and (not stores or any(isinstance(s, BulkCommit) for s in stmts[stores[-1] :]))
        return stmts

    visit.rewrite_blocks(body, block)
    last = next((s for s in reversed(body) if not isinstance(s, Tag | AssertTags | Spec)), None)
    if not committed:
        writer.line("if (thread == 0) argus::bulk_commit();")
    if not committed or last != BulkWait(0):
        writer.line("if (thread == 0) argus::bulk_wait_read<0>();")


def _bulk_store(stmt: Stmt) -> bool:
    return isinstance(stmt, Copy) and stmt.instr == "tma.store"


def initialise(kernel: Kernel, writer: Writer) -> None:
    """One thread makes all mbarriers ready before anybody, or the copy engine, uses them."""
    maps = tensor_maps(kernel)
    if not kernel.barriers and not maps:
        return
    with writer.block("if (argus::thread_id() == 0)"):
        for tensor_map in maps:
            writer.line(f"argus::tma_prefetch({writer.names[tensor_map.name]});")
        for b in kernel.barriers:
            call = f"argus::mbarrier_init(smem, {b.offset} + i * 8, {b.arrivals});"
            writer.line(f"for (int i = 0; i < {b.count}; ++i) {call}")
        if kernel.barriers:
            writer.line("argus::mbarrier_init_fence();")
    if kernel.barriers:
        writer.line("argus::barrier();")
