"""The rules that only explicit IR must keep: layouts, instructions, and whose registers are touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from argus.ir.cluster import peers_of
from argus.ir.expr import Elem, Expr, coords, elements
from argus.ir.instruction import INSTRUCTIONS, MMA, REDUCES, WGMMA, CopyRow, Mechanism, MmaRow
from argus.ir.locality import foreign, partial
from argus.ir.nodes import (
    Access,
    Accumulate,
    BulkCopy,
    CommitGroup,
    Copy,
    For,
    Fragment,
    Hint,
    Kernel,
    Map,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Mma,
    Programs,
    Roles,
    Shared,
    Stage,
    Stmt,
    Tensor,
    ThreadCopy,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
)
from argus.ir.target import TARGETS, Target
from argus.ir.visit import map_accesses, walk
from argus.ir.waves import load_to_lds, off_target
from argus.ir.wellformed_hopper import (
    asynchronous_product,
    bulk_copy,
    bulk_reduce,
    cluster_rules,
    mbarrier_declarations,
    outside_of_roles,
    step_problems,
)
from argus.layout import FragmentLayout, extremes
from argus.source import Span

Problem = tuple[str, Span]
_SPACES: dict[type, str] = {Tensor: "global", Shared: "shared", Fragment: "fragment"}


def explicit_problems(kernel: Kernel) -> Iterator[Problem]:
    """Everything that is open or inconsistent in a kernel whose names, ranks and types are right."""
    target = TARGETS.get(kernel.target or "")
    if target is None:
        yield "the kernel has no target", kernel.span
        return
    if kernel.warp_size != target.warp_size:
        yield f"warps of {kernel.warp_size} threads: {target.name} has {target.warp_size}", kernel.span
    if kernel.persistent and not any(isinstance(s, Programs) for s in walk(kernel.body)):
        yield "sharing out the programs of the grid is still a policy", kernel.span
    yield from outside_of_roles(kernel)
    yield from cluster_rules(kernel, target)
    parts = tuple(_programs(kernel))
    open_or_wrong = [*_declarations(kernel, parts), *mbarrier_declarations(kernel, target)]
    yield from open_or_wrong
    if open_or_wrong:  # the rules of statements take the declarations for granted
        return
    for part in parts:
        yield from _statements(part, target)


def _programs(kernel: Kernel) -> Iterator[Kernel]:
    """What the whole block runs, then the program of each role, as kernels of that many warps."""
    yield replace(kernel, body=tuple(s for s in kernel.body if not isinstance(s, Roles)))
    for stmt in kernel.body:
        if isinstance(stmt, Roles):
            for role in stmt.roles:
                yield replace(kernel, num_warps=role.num_warps, body=role.body)


def _statements(kernel: Kernel, target: Target) -> Iterator[Problem]:
    for stmt in walk(kernel.body):
        match stmt:
            case Stage(dst=dst, span=span):
                yield f"the staging of `{dst}` is still a policy", span
            case For(kind=kind, stages=stages, span=span) if kind != "dynamic" or stages != 1 or stmt.producer_warps:
                yield f"a {kind} loop is still a policy", span
            case ThreadCopy():
                yield from _thread_copy(stmt, kernel, target)
            case BulkCopy():
                yield from _bulk_copy(stmt, kernel, target)
            case Map():
                yield from _map(stmt, kernel)
            case Accumulate():
                yield from _accumulate(stmt, kernel, target)
            case Mma():
                yield from _mma(stmt, kernel, target)
            case MbarrierExpect() | MbarrierArrive() | MbarrierWait():
                yield from step_problems(stmt)
            case WaitCounts() | WaveBarrier() | Hint():
                yield from off_target(stmt, target)
            case CommitGroup() | WaitGroup() if not target.has(INSTRUCTIONS["cp.async"]):
                yield f"{target.name} has no cp.async, and so no groups of copies", stmt.span
            case _:
                pass


def _declarations(kernel: Kernel, parts: tuple[Kernel, ...]) -> Iterator[Problem]:
    for tile in kernel.shared:
        if tile.layout is None or tile.offset is None:
            yield f"the shared tile `{tile.name}` has no place yet", tile.span
            continue
        sizes = tuple(mode.size() for mode in tile.layout)
        if sizes != tile.shape and not (tile.shape == () and tile.layout.size() == 1):
            yield f"the layout {tile.layout} of `{tile.name}` does not have its shape {tile.shape}", tile.span
        if extremes(tile.layout)[0] < 0:
            yield f"the layout {tile.layout} of `{tile.name}` puts an element before the tile", tile.span
        if tile.offset < 0 or tile.offset % tile.dtype.bytes:
            yield f"`{tile.name}` cannot begin at byte {tile.offset}", tile.span
    named = [(part, {name for stmt in walk(part.body) for name in _named(stmt)}) for part in parts]
    for fragment in kernel.fragments:
        if fragment.layout is None:
            yield f"the register tile `{fragment.name}` has no layout yet", fragment.span
            continue
        users = [part for part, names in named if fragment.name in names] or [kernel]
        if len(users) > 1:
            yield f"the register tile `{fragment.name}` belongs to threads of two roles", fragment.span
        yield from _layout(f"`{fragment.name}`", fragment.layout, fragment.shape, users[0], fragment.span)


def _named(stmt: Stmt) -> set[str]:
    """The memory objects that a statement itself names."""
    found: set[str] = set()

    def note(access: Access) -> Access:
        found.add(access.obj)
        return access

    map_accesses(stmt, note)
    return found


def _layout(what: str, layout: FragmentLayout, shape: tuple[int, ...], kernel: Kernel, span: Span) -> Iterator[Problem]:
    if layout.shape != shape:
        yield f"the layout {layout} of {what} does not have its shape {shape}", span
    if layout.num_threads != kernel.num_threads:
        yield f"the layout {layout} of {what} is for {layout.num_threads} threads, not {kernel.num_threads}", span
    if not layout.covers():
        yield f"the layout {layout} of {what} leaves elements to no thread", span


def _domain(stmt: ThreadCopy | Map | Accumulate, kernel: Kernel) -> Iterator[Problem]:
    if stmt.layout is None:
        what = "copy" if isinstance(stmt, ThreadCopy) else type(stmt).__name__.lower()
        yield f"a {what} has no layout yet", stmt.span
    else:
        yield from _layout("a domain", stmt.layout, stmt.shape, kernel, stmt.span)


def _moved(stmt: Copy, row: CopyRow, kernel: Kernel, target: Target) -> Iterator[Problem]:
    """The target has the instruction, which moves data between these two objects."""
    spaces = tuple(_SPACES[type(kernel.object(access.obj))] for access in (stmt.src, stmt.dst))
    if spaces != (row.src, row.dst):
        yield f"{row.name} copies {row.src} to {row.dst}, not {spaces[0]} to {spaces[1]}", stmt.span
    if not target.has(row):
        yield f"{target.name} has no {row.name}", stmt.span
    if row.peer != bool(peers_of(stmt)):
        yield f"{row.name} reaches {'tiles of a peer' if row.peer else 'no tile of a peer'} in a cluster", stmt.span


def _bulk_copy(stmt: BulkCopy, kernel: Kernel, target: Target) -> Iterator[Problem]:
    row = INSTRUCTIONS.get(stmt.instr)
    if row is None or row.mechanism is not Mechanism.BULK:
        yield f"`{stmt.instr}` is not an instruction of the copy engine", stmt.span
        return
    yield from _moved(stmt, row, kernel, target)
    yield from bulk_copy(stmt, row, kernel)


def _thread_copy(stmt: ThreadCopy, kernel: Kernel, target: Target) -> Iterator[Problem]:
    row = INSTRUCTIONS.get(stmt.instr or "")
    problems = list(_domain(stmt, kernel))
    yield from problems
    if row is None or row.mechanism is Mechanism.BULK:
        yield f"`{stmt.instr}` is not a copy instruction of threads", stmt.span
        return
    yield from _moved(stmt, row, kernel, target)
    src, dst = kernel.object(stmt.src.obj), kernel.object(stmt.dst.obj)
    width = stmt.vector * dst.dtype.bytes
    if width not in row.vector_bytes or dst.dtype.bits not in row.dtypes_bits:
        yield f"{row.name} does not move {stmt.vector} elements of {dst.dtype} ({width} bytes) at once", stmt.span
    if problems or stmt.layout is None:
        return
    if stmt.layout.num_values % stmt.vector:
        yield f"{stmt.layout.num_values} values a thread are no multiple of the vector {stmt.vector}", stmt.span
    if row.in_lane_order:
        yield from load_to_lds(stmt, row)
    registers = [a for a, o in ((stmt.src, src), (stmt.dst, dst)) if isinstance(o, Fragment)]
    yield from _own(stmt.layout, registers, kernel, stmt.span)
    exprs = [*stmt.src.index, *stmt.dst.index, *([stmt.mask] if stmt.mask is not None else [])]
    yield from _own(stmt.layout, _reads(exprs), kernel, stmt.span)


def _map(stmt: Map, kernel: Kernel) -> Iterator[Problem]:
    problems = list(_domain(stmt, kernel))
    yield from problems
    if stmt.scope not in ("thread", "warp"):
        yield f"a map has the scope {stmt.scope}", stmt.span
    if stmt.scope == "warp" and not isinstance(stmt.value, Elem):
        yield "a map across lanes reads more than one element", stmt.span
    if problems or stmt.layout is None:
        return
    yield from _own(stmt.layout, [stmt.dst], kernel, stmt.span)
    lanes = kernel.warp_size if stmt.scope == "warp" else None
    yield from _own(stmt.layout, _reads([stmt.value]), kernel, stmt.span, lanes)


def _accumulate(stmt: Accumulate, kernel: Kernel, target: Target) -> Iterator[Problem]:
    engine = REDUCES.get(stmt.instr or "")
    if engine is not None:
        if not target.has(engine):
            yield f"{target.name} has no {engine.name}", stmt.span
        yield from bulk_reduce(stmt, engine, kernel)
        return
    problems = list(_domain(stmt, kernel))
    yield from problems
    to_memory = isinstance(kernel.object(stmt.dst.obj), Tensor)
    if to_memory:
        row = INSTRUCTIONS.get(stmt.instr or "")
        if row is None or (row.src, row.dst) != ("fragment", "global"):
            yield f"`{stmt.instr}` does not accumulate into global memory", stmt.span
        elif not target.has(row):
            yield f"{target.name} has no {row.name}", stmt.span
    elif stmt.scope not in ("thread", "warp"):
        yield f"an accumulation into registers has the scope {stmt.scope}", stmt.span
    if problems or stmt.layout is None:
        return
    exprs = [stmt.value, *([stmt.mask] if stmt.mask is not None else []), *stmt.dst.index]
    yield from _own(stmt.layout, _reads(exprs), kernel, stmt.span)
    if to_memory:
        return
    if stmt.scope == "thread":
        yield from _own(stmt.layout, [stmt.dst], kernel, stmt.span)
    else:
        cell = _fragment_layout(stmt.dst.obj, kernel)
        short = partial(stmt.layout, stmt.dst.index, cell, kernel.warp_size) if cell is not None else None
        if short is not None:
            yield f"warp {short[1]} totals a cell of `{stmt.dst.obj}` without element {short[0]}", stmt.span


def _mma(stmt: Mma, kernel: Kernel, target: Target) -> Iterator[Problem]:
    asynchronous = WGMMA.get(stmt.instr or "")
    if asynchronous is not None:
        if not target.has(asynchronous):
            yield f"{target.name} has no {asynchronous.name}", stmt.span
        yield from asynchronous_product(stmt, asynchronous, kernel)
        return
    row = MMA.get(stmt.instr or "")
    if row is None or stmt.warps is None:
        yield f"`{stmt.instr}` over warps {stmt.warps} is not a matrix instruction", stmt.span
        return
    if not target.has(row):
        yield f"{target.name} has no {row.name}", stmt.span
    if stmt.warps[0] * stmt.warps[1] != kernel.num_warps:
        yield f"{stmt.warps} warps are not the block's {kernel.num_warps}", stmt.span
    tile = (row.shape[0] * stmt.warps[0], row.shape[1] * stmt.warps[1], row.shape[2])
    if any(extent % step for extent, step in zip(stmt.shape, tile, strict=True)):
        yield f"{row.name} on {stmt.warps} warps does not divide {stmt.shape}", stmt.span
    c0, c1, c2 = coords(3)
    operands = ((stmt.a, row.a, (c0, c2)), (stmt.b, row.b, (c1, c2)), (stmt.d, row.c, (c0, c1)))
    for access, atom, plain in operands:
        yield from _operand(access, atom, plain, row, kernel, stmt.span)


def _operand(
    access: Access, atom: FragmentLayout, plain: tuple[Expr, ...], row: MmaRow, kernel: Kernel, span: Span
) -> Iterator[Problem]:
    """The operand's registers begin with the instruction's own lane map."""
    fragment = kernel.object(access.obj)
    if not isinstance(fragment, Fragment):
        yield f"{row.name} takes registers, and `{access.obj}` is none", span
        return
    allowed = (row.accumulator,) if atom is row.c else row.operands
    if fragment.dtype not in allowed:
        yield f"{row.name} does not take {fragment.dtype} (`{access.obj}`)", span
    layout = fragment.layout
    if layout is None or access.index != plain:
        return
    lanes = layout.threads[: len(atom.threads)] == atom.threads
    if not lanes or layout.values[: len(atom.values)] != atom.values:
        yield f"the layout {layout} of `{access.obj}` is not made of {row.name}'s {atom}", span


def _reads(exprs: list[Expr]) -> list[Access]:
    return [Access(e.obj, e.index) for expr in exprs for e in elements(expr)]


def _fragment_layout(obj: str, kernel: Kernel) -> FragmentLayout | None:
    target = kernel.object(obj)
    return target.layout if isinstance(target, Fragment) else None


def _own(
    domain: FragmentLayout, accesses: list[Access], kernel: Kernel, span: Span, warp_size: int | None = None
) -> Iterator[Problem]:
    """Each thread (or warp) of `domain` holds the registers that it touches."""
    whose = "its own" if warp_size is None else "its warp's"
    for access in accesses:
        layout = _fragment_layout(access.obj, kernel)
        bad = None if layout is None else foreign(domain, access.index, layout, warp_size)
        if bad is not None:
            place = f"thread {bad[0]}, value {bad[1]}"
            yield f"`{access.obj}` is touched by {place} of the domain, in registers that are not {whose}", span
