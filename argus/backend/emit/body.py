"""Emit the statements of a kernel: loops, branches, programs, and roles, each with its own prologue and registers."""

from __future__ import annotations

import re

from typing_extensions import assert_never

from argus.backend.emit.asynchronous import emit_asynchronous
from argus.backend.emit.compute import emit_accumulate, emit_map
from argus.backend.emit.copy import emit_copy
from argus.backend.emit.declarations import prologue
from argus.backend.emit.expression import ATOM, SUM, Printer, natural
from argus.backend.emit.flight import is_product, used
from argus.backend.emit.matrix import emit_mma
from argus.backend.emit.problem import problem
from argus.backend.emit.roles import emit_roles
from argus.backend.emit.scope import Domain, Writer
from argus.backend.emit.watch import emit_watch
from argus.backend.emit.waves import emit_wave_step
from argus.ir.cluster import grid_of_clusters, group_of_clusters
from argus.ir.expr import Const, coords, elements
from argus.ir.nodes import (
    Accumulate,
    AssertTags,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BeginTurns,
    BulkCommit,
    BulkWait,
    CommitGroup,
    Copy,
    EndTurns,
    For,
    Hint,
    If,
    Kernel,
    Map,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Programs,
    ProxyFence,
    Roles,
    Scan,
    Share,
    Spec,
    Stage,
    Stmt,
    Tag,
    WaitCounts,
    WaitGroup,
    Watch,
    WaveBarrier,
)
from argus.layout import FragmentLayout
from argus.source import Span


def statements(body: tuple[Stmt, ...], writer: Writer) -> None:
    for place in range(len(body)):
        _statement_at(body, place, writer)


def _statement_at(body: tuple[Stmt, ...], place: int, writer: Writer) -> None:
    """Emit statement number `place` of `body`; the statements before it are already emitted."""
    stmt = body[place]
    if isinstance(stmt, Map) and _is_overwritten(stmt, body[place + 1 :], writer.kernel):
        writer.line(f"argus::wgmma_forget({writer.names[stmt.dst.obj]});")
        writer.empty.add(stmt.dst.obj)
        writer.flight = writer.flight.forgetting(stmt.dst.obj)
        return
    held = writer.flight.held(stmt)
    for fragment in writer.kernel.fragments:
        if fragment.name in held:
            writer.line(f"argus::wgmma_hold({writer.names[fragment.name]});")
    if isinstance(stmt, MmaWait):
        _beside(body[place + 1 :], writer)
    _statement(stmt, writer)
    writer.flight = writer.flight.after(stmt)


def _beside(rest: tuple[Stmt, ...], writer: Writer) -> None:
    """Before a wait, hold the tiles that ordinary code computed beside the products and that `rest` uses.

    Their computation then ends before the wait.
    """
    work = writer.flight.beside & used(rest)
    for fragment in writer.kernel.fragments:
        if fragment.name in work:
            writer.line(f"argus::wgmma_hold({writer.names[fragment.name]});")
    if work:
        writer.line("argus::wgmma_beside();")


def _is_overwritten(stmt: Map, rest: tuple[Stmt, ...], kernel: Kernel) -> bool:
    """Return True if `stmt` clears a whole tile and an asynchronous product, which can overwrite it, uses it next.

    Return False for a product in a loop: if another path clears the registers, the compiler of sm_90a waits for each
    product separately.
    """
    tile = kernel.object(stmt.dst.obj)
    if not isinstance(stmt.value, Const) or stmt.value.value != 0 or stmt.shape != tile.shape:
        return False
    product = next((s for s in rest if tile.name in used((s,))), None)
    if not isinstance(product, Mma) or not is_product(product) or product.d.obj != tile.name:
        return False
    whole = stmt.dst.index == product.d.index == coords(2) and product.shape[:2] == tile.shape
    return whole and product.a.obj != tile.name


def _statement(stmt: Stmt, writer: Writer) -> None:
    match stmt:
        case Copy():
            emit_copy(stmt, writer)
        case Map():
            emit_map(stmt, writer)
        case Accumulate():
            emit_accumulate(stmt, writer)
        case Mma():
            emit_mma(stmt, writer)
        case Barrier(scope="cluster"):
            writer.line("argus::cluster_barrier();")
        case Barrier():
            _barrier(writer)
        case CommitGroup():
            writer.line("argus::cp_async_commit();")
        case WaitGroup(pending=pending):
            writer.line(f"argus::cp_async_wait<{pending}>();")
        case For():
            _loop(stmt, writer)
        case If():
            _branch(stmt, writer)
        case MmaFence() | MmaCommit() | MmaWait() | ProxyFence() | MbarrierExpect() | MbarrierArrive() | MbarrierWait():
            emit_asynchronous(stmt, writer)
        case Roles():
            emit_roles(stmt, writer, statements)
        case Tag() | AssertTags() | Spec():
            pass
        case BulkCommit() | BulkWait() | BarrierSync() | BarrierArrive() | MbarrierInit() | MbarrierFence():
            emit_asynchronous(stmt, writer)
        case WaitCounts() | WaveBarrier() | BeginTurns() | EndTurns() | Hint():
            emit_wave_step(stmt, writer)
        case Programs():
            _programs(stmt, writer)
        case Scan():
            raise problem("not-explicit", "a scan is a policy: lower the kernel first", stmt.span)
        case Watch():
            emit_watch(stmt, writer)
        case Stage() | Share():
            raise problem("not-explicit", "a staged copy is a policy: lower the kernel first", stmt.span)
        case _:
            assert_never(stmt)


def _loop(stmt: For, writer: Writer) -> None:
    if stmt.kind != "dynamic":
        raise problem("not-explicit", f"a {stmt.kind} loop is a policy: lower the kernel first", stmt.span)
    printer, name = _of_block(writer, stmt.span), writer.names[stmt.var]
    start, stop = printer.text(stmt.start), printer.text(stmt.stop, SUM)
    # The body may write the register, so the bound is the register's value before the loop.
    if any(True for _ in elements(stmt.stop)):
        # The compiler must know that all threads of a role loop alike to overlap its products.
        if writer.barrier is not None:
            stop = f"argus::uniform({stop})"
        start, stop = f"{start}, _{name}_stop = {stop}", f"_{name}_stop"
    fresh = stmt.var not in writer.natural and natural(stmt.start, writer.natural)
    if fresh:
        writer.natural.add(stmt.var)
    with writer.block(f"for (int {name} = {start}; {name} < {stop}; {name} += {stmt.step})"):
        # This state holds before any iteration as well.
        before, writer.flight = writer.flight, writer.flight.after(stmt)
        statements(stmt.body, writer)
        writer.flight = before
        if stmt.counter is not None:
            count = writer.names[stmt.counter.name]
            writer.line(f"{count} = {count} + 1 == {stmt.counter.wrap} ? 0 : {count} + 1;")
    if fresh:
        writer.natural.discard(stmt.var)


def _of_block(writer: Writer, span: Span) -> Printer:
    """Return a printer for statements without elements; it can also read scalars in registers."""
    return Printer(writer, Domain(writer, FragmentLayout((), (), ()), (), span))


def _programs(stmt: Programs, writer: Writer) -> None:
    """Emit a loop over the programs of the grid, from the block's own on; the first axis of the grid varies fastest.

    Values that depend on the thread or the program are computed again for each program, just before their first use.
    If they lived longer, they would take registers from products in flight, and ptxas would make those wait for one
    another.
    """
    extents = [Printer(writer).text(extent, ATOM) for extent in grid_of_clusters(writer.kernel)]
    if not extents:
        raise problem("not-explicit", "a persistent kernel declares no grid", stmt.span)
    cluster = writer.kernel.cluster
    start, step = "program = argus::block_id<0>()", "program = argus::next_program(program)"
    if cluster > 1:
        start, step = f"{start} / {cluster}", f"program = argus::next_program<{cluster}>(program)"
    if stmt.turns > 1:
        start, step = f"{start}, program_number = 0", f"{step}, ++program_number"
    with writer.block(f"for (int {start}; program < {' * '.join(extents)}; {step})"):
        if stmt.turns > 1:
            _others_turn(stmt, writer)
        outer, writer.prologue = writer.prologue, {}
        before, writer.flight = writer.flight, writer.flight.after(stmt)
        unknown = True
        for place in range(len(stmt.body)):
            lines, writer.lines, defined = writer.lines, [], len(writer.prologue)
            _statement_at(stmt.body, place, writer)
            own, writer.lines = writer.lines, lines
            if unknown and any(_PROGRAM_ID.search(line) for line in own):
                unknown = False
                _program_ids(extents, writer)
            if len(writer.prologue) > defined:
                writer.line("argus::anew(thread);")
                prologue(writer, defined)
            writer.lines += own
        writer.prologue, writer.flight = outer, before


def _others_turn(stmt: Programs, writer: Writer) -> None:
    """Emit the skipping of another role's program, which only advances the running counters of its loops."""
    with writer.block(f"if (program_number % {stmt.turns} != {stmt.turn})"):
        for loop in stmt.body:
            if isinstance(loop, For) and loop.counter is not None:
                printer, count = Printer(writer), writer.names[loop.counter.name]
                start, stop = printer.text(loop.start, ATOM), printer.text(loop.stop, ATOM)
                trips = f"argus::maximum({stop} - {start} + {loop.step - 1}, 0) / {loop.step}"
                writer.line(f"{count} = ({count} + {trips}) % {loop.counter.wrap};")
        writer.line("continue;")


_PROGRAM_ID = re.compile(r"\bblock[012]\b")


def _program_ids(extents: list[str], writer: Writer) -> None:
    """Emit the ids of program number `program`. A cluster shares one number; the ids are those of this block in it."""
    kernel = writer.kernel
    first = "block0" if kernel.cluster == 1 else "cluster0"
    names, rest = [first, *(f"block{axis}" for axis in range(1, len(extents)))], "program"
    if kernel.group > 1:
        *rows, columns = extents
        rest = names[0] if len(rows) == 1 else "program_row"
        ids = f"argus::grouped_program<{group_of_clusters(kernel)}>(program, {' * '.join(rows)}, {columns})"
        writer.line(f"const auto [{rest}, {names.pop()}] = {ids};")
    if rest != names[0]:
        digits(rest, names, extents, writer)
    if kernel.cluster > 1:
        within = f"argus::block_id<0>() % {kernel.cluster}"
        writer.line(f"const int block0 = cluster0 * {kernel.cluster} + {within};")


def digits(number: str, names: list[str], extents: list[str], writer: Writer) -> None:
    """Emit variables `names` for the digits of `number` in the mixed radix `extents`, the fastest digit first."""
    for name, extent in zip(names, extents, strict=False):
        writer.line(f"const int {name} = {number}{'' if name == names[-1] else f' % {extent}'};")
        number += f" / {extent}"


def _branch(stmt: If, writer: Writer) -> None:
    with writer.block(f"if ({_of_block(writer, stmt.span).text(stmt.cond)})"):
        before = writer.flight
        statements(stmt.then, writer)
        writer.flight = before
    if stmt.orelse:
        with writer.block("else"):
            statements(stmt.orelse, writer)
            writer.flight = before

def _barrier(writer: Writer) -> None:
    if writer.barrier is None:
        writer.line("argus::barrier();")
    else:
        writer.line(f"argus::role_barrier<{writer.threads}>({writer.barrier});")


def ending(body: tuple[Stmt, ...], writer: Writer) -> None:
    """Emit the statements after a loop with variables of their own, so that these hold no registers in the loop."""
    if not body:
        return
    outer, above = writer.prologue, writer.lines
    writer.prologue, writer.lines = {}, []
    with writer.braces():
        statements(body, writer)
    (opened, *lines), writer.lines = writer.lines, above
    writer.line(opened.strip())
    writer.depth += 1
    writer.line("const int thread = argus::place(argus::thread_id(), 0);")
    prologue(writer, 0)
    writer.depth -= 1
    writer.lines += lines
    writer.prologue = outer
