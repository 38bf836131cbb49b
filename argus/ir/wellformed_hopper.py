"""The rules of mbarriers, roles, bulk copies and asynchronous matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import dropwhile, pairwise

from argus.ir.access import relations
from argus.ir.cluster import MAX_CLUSTER, clusters, peer, peers_of
from argus.ir.expr import Const, Coord, Elem, Expr, Op, Param, Thread, coords, walk
from argus.ir.instruction import BULK_LOADS, INSTRUCTIONS, MULTICASTS, CopyRow, Order, ReduceRow, WgmmaRow
from argus.ir.instruction.tiled import wgmma_accumulator, wgmma_operand
from argus.ir.machine import H200, WARPGROUP
from argus.ir.nodes import (
    Access,
    Accumulate,
    Among,
    AssertTags,
    Barrier,
    BarrierArrive,
    BulkCopy,
    BulkWait,
    Copy,
    For,
    Fragment,
    Kernel,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    Mma,
    Programs,
    Role,
    Roles,
    Shared,
    Spec,
    Stmt,
    Tag,
    Tensor,
)
from argus.ir.target import Target
from argus.ir.types import boolean
from argus.ir.visit import walk as walk_statements
from argus.layout import Layout, LayoutError, SwizzledLayout
from argus.source import Span

Problem = tuple[str, Span]

ROW_BYTES = 128
"""Bytes of a row of a tile that bulk copies fill and asynchronous products read: the width of the swizzle."""
NARROW_ROWS = (64, 32, 16)
"""Bytes of other rows that bulk copies store, in the swizzles of 64 and 32 bytes, and in none."""
SWIZZLE_ATOM = 1024
"""Bytes after which the 128-byte swizzle repeats: 8 rows. Tiles begin at multiples of it."""
MAX_BOX = 256
"""Largest extent of a bulk copy's box (CUDA driver API, cuTensorMapEncodeTiled)."""
MIN_BUDGET, MAX_BUDGET, BUDGET_UNIT = 24, 256, 8
"""Registers a thread of a role may ask for (PTX ISA, setmaxnreg)."""
_MAX_COUNT = (1 << 20) - 1  # arrivals and bytes of one phase (PTX ISA, mbarrier)


# ---------------------------------------------------------------------------- at every stage: names and places


def roles_placement(kernel: Kernel) -> Iterator[Problem]:
    """Roles stand once, at the top level, with nothing but tags after them; their warps are their own."""
    found = [s for s in walk_statements(kernel.body) if isinstance(s, Roles)]
    if not found:
        return
    top = [s for s in kernel.body if not isinstance(s, Tag | AssertTags | Spec)]
    if len(found) > 1 or top[-1] is not found[0]:
        yield "roles stand at the top level of a kernel, once, and nothing runs after them", found[0].span
    roles = found[0].roles
    if len({r.name for r in roles}) != len(roles):
        yield "two roles have one name", found[0].span
    for role in roles:
        last = role.first_warp + role.num_warps
        if role.num_warps < 1 or role.first_warp < 0 or last > kernel.num_warps:
            yield f"role `{role.name}` takes warps {role.first_warp} to {last - 1} of {kernel.num_warps}", role.span
        if role.first_warp % WARPGROUP:
            yield f"role `{role.name}` begins at warp {role.first_warp}, inside of a warpgroup", role.span
    for a, b in pairwise(sorted(roles, key=lambda r: r.first_warp)):
        if a.first_warp + a.num_warps > b.first_warp:
            yield f"roles `{a.name}` and `{b.name}` share warps", b.span
    yield from _issuers(roles)
    yield from _budgets(kernel, roles, found[0].span)


def programs_placement(kernel: Kernel) -> Iterator[Problem]:
    """`Programs` is all of a persistent kernel, or of each of its roles; the initialisation of mbarriers stands before
    it, and waits for bulk stores may follow."""
    found = [s for s in walk_statements(kernel.body) if isinstance(s, Programs)]
    if not found:
        return
    if not kernel.persistent:
        yield "the kernel is not persistent: its blocks have one program each", found[0].span
    top = _started([s for s in kernel.body if not isinstance(s, Tag | AssertTags | Spec)])
    bodies = [_started(role.body) for role in top[0].roles] if isinstance(top[0], Roles) else [top]
    beside_roles = isinstance(top[0], Roles) and len(top) > 1
    if beside_roles or not all(map(_only_programs, bodies)) or len(found) != len(bodies):
        yield "programs are all that a kernel, or each of its roles, runs", found[0].span
    if len({s.turns for s in found} - {1}) > 1 or (not isinstance(top[0], Roles) and found[0].turns > 1):
        yield "roles take turns, as many as there are turns", found[0].span
    for stmt in found:
        if not 0 <= stmt.turn < stmt.turns:
            yield f"turn {stmt.turn} of {stmt.turns} is none", stmt.span
        loops = [s for s in walk_statements(stmt.body) if isinstance(s, For) and s.counter is not None]
        skipped = [s for s in loops if not any(s is direct for direct in stmt.body) or not _of_launch(s)]
        if stmt.turns > 1 and skipped:
            yield "loops that count where roles take turns stand in their programs, with bounds alike in all", stmt.span


def _of_launch(loop: For) -> bool:
    """Whether a loop has as many trips in every program."""
    return all(isinstance(e, Const | Param | Op) for bound in (loop.start, loop.stop) for e in walk(bound))


def _started(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """What follows the initialisation of mbarriers, and first arrivals."""
    return tuple(dropwhile(lambda s: isinstance(s, MbarrierInit | MbarrierFence | Barrier | BarrierArrive), body))


def _only_programs(body: tuple[Stmt, ...]) -> bool:
    return bool(body) and isinstance(body[0], Programs) and all(isinstance(s, BulkWait) for s in body[1:])


def cluster_problems(kernel: Kernel) -> Iterator[Problem]:
    """Clusters are blocks along axis 0; what reaches the other blocks of one needs one."""
    count, span = kernel.cluster, kernel.span
    if not 1 <= count <= MAX_CLUSTER:
        yield f"a cluster has 1 to {MAX_CLUSTER} blocks, not {count}", span
    elif count > 1 and (not kernel.grid or clusters(kernel.grid[0], count) is None):
        yield f"the first extent of the grid is not written as a multiple of the cluster's {count} blocks", span
    for stmt in walk_statements(kernel.body):
        for access in peers_of(stmt):
            yield from _peer_problems(kernel, access, stmt.span)
        if isinstance(stmt, BulkCopy) and stmt.among is not None:
            yield from _group_problems(stmt, stmt.among, count)
    for stmt in walk_statements(kernel.body) if count == 1 else ():
        if isinstance(stmt, MbarrierArrive) and stmt.scope != "block":
            yield "an arrival reaches the blocks of a cluster, and the kernel has none", stmt.span
        if isinstance(stmt, Barrier) and stmt.scope != "block":
            yield "a barrier joins the blocks of a cluster, and the kernel has none", stmt.span
        if isinstance(stmt, Copy) and stmt.instr in MULTICASTS:
            yield f"{stmt.instr} reaches the blocks of a cluster, and the kernel has none", stmt.span


def _group_problems(stmt: BulkCopy, among: Among, cluster: int) -> Iterator[Problem]:
    """Blocks of which some are among others are all of the cluster, in groups of the same size."""
    if stmt.instr not in MULTICASTS:
        yield f"a copy {stmt.instr} reaches one block, not {among.count}", stmt.span
    if among.count < 2 or among.stride < 1 or cluster % (among.count * among.stride):
        what = f"{among.count} blocks, {among.stride} apart"
        yield f"a cluster of {cluster} is not made of groups of {what}", stmt.span


def _peer_problems(kernel: Kernel, access: Access, span: Span) -> Iterator[Problem]:
    """A tile of a peer is shared memory of a block that is known by the number of one's own."""
    if access.obj not in {s.name for s in kernel.shared}:
        yield f"`{access.obj}` is no shared tile, and so not one of a block", span
    assert access.block is not None
    reached = [peer(access.block, rank, kernel.cluster) for rank in range(kernel.cluster)]
    for number in reached:
        if number is None:
            yield f"which block's `{access.obj}` this is depends on more than the own block's number", span
            return
        if not 0 <= number < kernel.cluster:
            yield f"a cluster of {kernel.cluster} has no block {number}, whose `{access.obj}` this would be", span
            return


def cluster_rules(kernel: Kernel, target: Target) -> Iterator[Problem]:
    """Blocks of a cluster that are made of roles are nothing else; before those, all of them meet wherever threads
    do."""
    if kernel.cluster == 1:
        return
    if "sm_90a" not in target.architectures:
        yield f"{target.name} has no clusters", kernel.span
    reached = {access.obj for s in walk_statements(kernel.body) for access in peers_of(s)}
    for stmt in walk_statements(kernel.body) if reached else ():
        for name in sorted(_by_engine(stmt) & reached):
            yield f"a peer touches `{name}`, and so does the copy engine or an asynchronous product", stmt.span
    if not any(isinstance(s, Roles) for s in kernel.body):
        for stmt in walk_statements(kernel.body):
            arrives = isinstance(stmt, MbarrierArrive) and stmt.scope == "cluster"
            if arrives or (isinstance(stmt, Copy) and stmt.instr in MULTICASTS):
                yield "mbarriers of the blocks of a cluster order roles, and the kernel has none", stmt.span
        return
    work = _started([s for s in kernel.body if not isinstance(s, Tag | AssertTags | Spec)])
    if len(work) != 1 or not isinstance(work[0], Roles):
        yield "roles are all that a block of a cluster runs, once its mbarriers are initialised", kernel.span
    for stmt in walk_statements(kernel.body):
        outside = any(stmt is s for s in kernel.body)
        if isinstance(stmt, Barrier) and stmt.scope != ("cluster" if outside else "block"):
            where = "before the roles of a cluster, all of its blocks" if outside else "in a role, its threads alone"
            yield f"{where} meet at a barrier", stmt.span


def _by_engine(stmt: Stmt) -> set[str]:
    """What the copy engine or an asynchronous product touches: proxy fences order that with the own block's accesses
    alone (fence.proxy.async.shared::cta)."""
    if isinstance(stmt, Copy) and stmt.instr is not None and stmt.instr not in INSTRUCTIONS:
        return set()  # told where copies are looked at
    return {r.obj for r in relations(stmt) if r.order.by_proxy}


def _budgets(kernel: Kernel, roles: tuple[Role, ...], span: Span) -> Iterator[Problem]:
    given = [r for r in roles if r.registers is not None]
    if not given:
        return
    if len(given) != len(roles):
        yield "some roles have a register budget, and some have none", span
    for role in given:
        budget = role.registers or 0
        if budget % BUDGET_UNIT or not MIN_BUDGET <= budget <= MAX_BUDGET:
            yield f"role `{role.name}` cannot have {budget} registers a thread", role.span
        if role.first_warp + _whole(role) > kernel.num_warps:
            yield f"role `{role.name}` ends inside of a warpgroup that the block does not have", role.span
    first = registers_at_first(kernel.num_threads)
    idle = kernel.num_warps - sum(map(_whole, given))
    total = (sum((r.registers or 0) * _whole(r) for r in given) + first * idle) * kernel.warp_size
    pool = kernel.num_threads * first
    if total > pool:
        yield f"the roles take {total} registers, and a block of {kernel.num_threads} threads begins with {pool}", span


def registers_at_first(threads: int) -> int:
    """Registers that each thread of a block of roles begins with: an even share of the multiprocessor's.

    Roles that ask for more wait until others have given that many back (PTX ISA, setmaxnreg): what a block did not
    begin with never comes.
    """
    return min(MAX_BUDGET, H200.registers // threads // BUDGET_UNIT * BUDGET_UNIT)


def _whole(role: Role) -> int:
    """Warps of the role's warpgroups: a budget holds for all of them, also for those that idle."""
    return -(-role.num_warps // WARPGROUP) * WARPGROUP


def outside_of_roles(kernel: Kernel) -> Iterator[Problem]:
    """Phases are those of roles: every warp that is in none would arrive, and issue a bulk copy, by itself."""
    for stmt in walk_statements(tuple(s for s in kernel.body if not isinstance(s, Roles))):
        uses = isinstance(stmt, MbarrierExpect | MbarrierArrive | MbarrierWait)
        if uses or (isinstance(stmt, Copy) and stmt.instr in BULK_LOADS):
            yield "mbarriers order roles, and bulk copies that they count are a role's: this stands in none", stmt.span


def _issuers(roles: tuple[Role, ...]) -> Iterator[Problem]:
    for role in roles:
        issues = any(
            isinstance(s, MbarrierExpect) or (isinstance(s, Copy) and s.instr in BULK_LOADS)
            for s in walk_statements(role.body)
        )
        if issues and role.num_warps != 1:
            yield (
                f"role `{role.name}` issues bulk copies with {role.num_warps} warps: one thread may outrun them",
                role.span,
            )


def barrier_problem(
    name: str, index: Expr, barriers: Mapping[str, Mbarrier], span: Span, parity: Expr | None = None
) -> Iterator[Problem]:
    """What is wrong with `name[index]` as an mbarrier, besides the typing of its expressions."""
    if name not in barriers:
        yield f"there is no mbarrier `{name}`", span
    for what, expr in (("index", index), ("parity", parity)):
        if expr is not None and (not expr.dtype.is_int or not _uniform(expr)):
            yield f"the {what} of mbarrier `{name}` is not one integer for all threads", span


# ---------------------------------------------------------------------------- of explicit IR


def mbarrier_declarations(kernel: Kernel, target: Target) -> Iterator[Problem]:
    """mbarriers have a place of their own, and the target has them."""
    taken = [
        (s.name, s.offset, s.offset + s.layout.cosize() * s.dtype.bytes)
        for s in kernel.shared
        if s.offset is not None and s.layout is not None
    ]
    if kernel.barriers and "sm_90a" not in target.architectures:
        yield f"{target.name} has no bulk copies that an mbarrier could count", kernel.barriers[0].span
    for barrier in kernel.barriers:
        if barrier.count < 1 or not 1 <= barrier.arrivals <= _MAX_COUNT:
            yield f"`{barrier.name}` is {barrier.count} mbarriers of {barrier.arrivals} arrivals", barrier.span
        if barrier.offset is None or barrier.offset < 0 or barrier.offset % 8:
            yield f"mbarrier `{barrier.name}` cannot stand at byte {barrier.offset}", barrier.span
            continue
        end = barrier.offset + 8 * barrier.count
        for name, start, stop in taken:
            if start < end and barrier.offset < stop:
                yield f"mbarrier `{barrier.name}` shares bytes with `{name}`", barrier.span
        taken.append((barrier.name, barrier.offset, end))


def step_problems(stmt: MbarrierExpect | MbarrierArrive | MbarrierWait) -> Iterator[Problem]:
    """Bytes that an mbarrier can count."""
    if isinstance(stmt, MbarrierArrive) and stmt.scope not in ("block", "cluster"):
        yield f"nothing arrives at the scope of a {stmt.scope}", stmt.span
    if isinstance(stmt, MbarrierExpect) and (stmt.bytes % 16 or not 0 < stmt.bytes <= _MAX_COUNT):
        yield f"no phase of mbarrier `{stmt.barrier}` expects {stmt.bytes} bytes", stmt.span


def bulk_copy(stmt: BulkCopy, row: CopyRow, kernel: Kernel) -> Iterator[Problem]:
    """A copy by the copy engine, a box of a tensor to or from a panel of a shared tile, clipped to the tensor."""
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
    """An update of a box of a tensor by the copy engine, from a panel of a shared tile, clipped to the tensor."""
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
    """What is wrong with a box of `shape` between a tensor and a shared tile, for the instruction `row`."""
    tensor, tile, rank, name = kernel.object(outside.obj), kernel.object(inside.obj), len(shape), row.name
    if not isinstance(tensor, Tensor) or not isinstance(tile, Shared):
        return  # the instruction's spaces are wrong, which is told already
    if rank < 2 or not 2 <= len(tensor.shape) <= 5:
        yield f"{name} copies boxes of 2 to 5 dimensions, those of the tensor", span
        return
    moving = [(axis, e) for axis, e in enumerate(outside.index) if not _one_place(e)]
    if [a for a, (_, e) in enumerate(moving) if _shifted(e, a)] != list(range(rank)):
        text = f"a box of `{tensor.name}` begins at one place in each dimension, and goes on by 1"
        help = "index each dimension by one place, or by a slice `start : start + BLOCK`, in the tensor's order"
        yield f"{text}, and these indices do not: {help}", span
    leading = len(inside.index) - rank
    *rows, column = inside.index[max(leading, 0) :]
    panel = shape[-1]
    widths = (ROW_BYTES,) if row.order is Order.ASYNC_BULK else (ROW_BYTES, *NARROW_ROWS)
    placed = leading >= 0 and tuple(rows[1:]) == coords(rank)[1:-1] and all(map(_uniform, inside.index[:leading]))
    if not placed or not _in_atoms(rows[0]) or not _in_panel(column, rank - 1, panel):
        yield f"{name} moves rows of a panel of `{tile.name}`: a place, then the coordinates", span
    elif tile.shape[leading + 1 : -1] != shape[1:-1] or panel * tile.dtype.bytes not in widths:
        allowed = " or ".join(map(str, widths))
        yield f"{name} moves boxes of {tile.name} with rows of {allowed} bytes, not {shape}", span
    if max(shape) > MAX_BOX:
        yield f"a box has at most {MAX_BOX} elements in each dimension, not {shape}", span
    yield from panels(tile, name, span, next((w for w in widths if w == panel * tile.dtype.bytes), ROW_BYTES))
    if tensor.alignment < 16 or tensor.strides[-1] != Const(1, tensor.strides[-1].dtype) or moving[-1:] == []:
        yield f"{name} needs `{tensor.name}` aligned to 16 bytes, its last dimension of stride 1", span
    elif moving[-1][0] != len(tensor.shape) - 1:
        yield f"the rows of a box of {name} go along the last dimension of `{tensor.name}`", span
    if not _inside(mask, outside, tensor):
        yield f"{name} masks nothing but what is outside of `{tensor.name}`", span


def _in_atoms(expr: Expr) -> bool:
    """Whether `expr` is c0, plus a start in units of the rows after which the swizzle repeats."""
    match expr:
        case Coord(axis=0):
            return True
        case Op(op="add", args=(Coord(axis=0), start)) | Op(op="add", args=(start, Coord(axis=0))):
            unit = SWIZZLE_ATOM // ROW_BYTES
            factor = start.args[1] if isinstance(start, Op) and start.op == "mul" and _uniform(start) else start
            return isinstance(factor, Const) and int(factor.value) % unit == 0
        case _:
            return False


def _in_panel(expr: Expr, axis: int, panel: int) -> bool:
    """Whether `expr` is the coordinate of `axis`, plus a multiple of the panel's width."""
    match expr:
        case Coord(axis=found):
            return found == axis
        case Op(op="add", args=(Coord(axis=found), Const(value=start))):
            return found == axis and int(start) % panel == 0
        case _:
            return False


def panels(tile: Shared, what: str, span: Span, row: int = ROW_BYTES) -> Iterator[Problem]:
    """A tile (…, rows, columns) in panels, rows of `row` bytes in their swizzle, one panel of columns after the
    other; 8 rows and 1024 bytes at a time (PTX ISA, matrix descriptors)."""
    layout, unit = tile.layout, tile.dtype.bytes
    width = row // unit
    fits = isinstance(layout, SwizzledLayout) and layout.offset == 0 and len(tile.shape) >= 2
    if fits:
        assert isinstance(layout, SwizzledLayout)
        swizzle, inner = layout.swizzle, layout.inner
        chunk = (16 // unit).bit_length() - 1
        rows, columns = tile.shape[-2:]
        strides = inner.stride if isinstance(inner.stride, tuple) else (inner.stride,)
        count = columns // width
        across = 1 if count == 1 else (1, rows * width)
        fits = (
            (swizzle.bits, swizzle.base, swizzle.shift) == ((row // 16).bit_length() - 1, chunk, 3)
            and width > 0
            and columns % width == 0
            and (count == 1 or rows * row % SWIZZLE_ATOM == 0)
            and inner[len(tile.shape) - 1] == (Layout(width, 1) if count == 1 else Layout((width, count), across))
            and strides[-2] == width
            and all(isinstance(s, int) and s * unit % SWIZZLE_ATOM == 0 for s in strides[:-2])
        )
    if not fits or (tile.offset or 0) % SWIZZLE_ATOM:
        yield f"{what} needs `{tile.name}` in rows of {row} bytes, swizzled by {row} bytes, at a multiple of 1024", span


def asynchronous_product(stmt: Mma, row: WgmmaRow, kernel: Kernel) -> Iterator[Problem]:
    """An asynchronous product of a shared tile and another, or registers, into the registers of whole warpgroups."""
    span, warps = stmt.span, stmt.warps
    c0, c1, c2 = coords(3)
    for access, outer in ((stmt.a, c0), (stmt.b, c1)):
        operand = kernel.object(access.obj)
        if operand.dtype not in row.operands:
            yield f"{row.name} does not take {operand.dtype} (`{access.obj}`)", span
        if isinstance(operand, Shared):
            yield from _shared_operand(operand, access, outer, row, span)
        elif not isinstance(operand, Fragment) or access is not stmt.a or access.index != (c0, c2):
            yield f"{row.name} does not read `{access.obj}` from where it is", span
    target = kernel.object(stmt.d.obj)
    if not isinstance(target, Fragment) or stmt.d.index != (c0, c1) or target.dtype != row.accumulator:
        yield f"{row.name} adds into a register tile of {row.accumulator}", span
        return
    if warps is None or warps[0] % WARPGROUP or warps[0] * warps[1] != kernel.num_warps:
        yield f"{row.name} over warps {warps} does not take the {kernel.num_warps} warps as warpgroups", span
        return
    if stmt.shape[2] % row.shape[2]:
        yield f"{row.name} does not divide {stmt.shape}", span
        return
    m, n, k = stmt.shape
    try:
        held = [(target, wgmma_accumulator(row, (m, n), warps))]
        source = kernel.object(stmt.a.obj)
        if isinstance(source, Fragment):
            held.append((source, wgmma_operand(row, (m, k), warps)))
    except LayoutError as error:
        yield str(error), span
        return
    for fragment, needed in held:
        if fragment.layout is not None and fragment.layout.simplify() != needed.simplify():
            yield f"the layout {fragment.layout} of `{fragment.name}` is not {row.name}'s {needed}", span


def _shared_operand(tile: Shared, access: Access, outer: Expr, row: WgmmaRow, span: Span) -> Iterator[Problem]:
    """A shared operand is read in panels, K-major or MN-major, at one place for all threads."""
    depth = Coord(2)
    yield from panels(tile, row.name, span)
    if access.index[-2:] not in ((outer, depth), (depth, outer)) or not all(map(_uniform, access.index[:-2])):
        yield f"{row.name} reads `{access.obj}` by rows and depth, at one place for all threads", span
    elif access.index[-2] == depth and not row.transposes:
        yield f"{row.name} reads `{access.obj}` only with the depth along its rows", span


def _uniform(expr: Expr) -> bool:
    """Whether all threads of a role, and all elements, have the same value."""
    return not any(isinstance(e, Thread | Coord | Elem) for e in walk(expr))


def _one_place(expr: Expr) -> bool:
    """Whether `expr` is the same for all elements of a box, in the thread that issues its copy: it may be loaded."""
    return not any(isinstance(e, Thread | Coord) or (isinstance(e, Elem) and e.index) for e in walk(expr))


def _shifted(expr: Expr, axis: int) -> bool:
    """Whether `expr` is a start, the same for the box, plus the coordinate of `axis`."""
    match expr:
        case Coord(axis=found):
            return found == axis
        case Op(op="add", args=(start, Coord(axis=found))) | Op(op="add", args=(Coord(axis=found), start)):
            return found == axis and _one_place(start)
        case _:
            return False


def _inside(mask: Expr | None, source: Access, tensor: Tensor) -> bool:
    """Whether `mask` only says that coordinates are inside of the tensor.

    A dimension that it says nothing about is proved to be inside, or else reported as out of bounds.
    """
    match mask:
        case None:
            return True
        case Op(op="and", args=(x, y), dtype=dtype) if dtype is boolean:
            return _inside(x, source, tensor) and _inside(y, source, tensor)
        case Op(op="lt", args=(x, y)):
            return (x, y) in zip(source.index, tensor.shape, strict=True)
        case Op(op="ge", args=(x, Const(value=0))):
            return x in source.index
        case _:
            return False
