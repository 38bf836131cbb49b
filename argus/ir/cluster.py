"""Thread block clusters: a cluster as one block.

The blocks of a cluster run at the same time and reach each other's shared memory. `unite` writes a cluster down as a
single block with the warps, shared tiles, registers and mbarriers of all of its blocks, each named after its block
("at.0", "at.1"), and with all of their roles side by side:

    grid [ceil(M, 256) * 2]  cluster 2        grid [ceil(M, 256)]
    role load {                               role load.0 {
      bt[(p0 % 2) * 64 + c0] <~ b[...]          bt.0[c0] <~ b[...] signal full.0
        signal full[0] multicast         ->     bt.1[c0] <~ b[...] signal full.1
      arrive empty[0] scope cluster             arrive empty.0[0];  arrive empty.1[0] scope cluster
    }                                         }
                                              role load.1 {  bt.0[64 + c0] <~ b[...] signal full.0  ...

A multicast `among` some blocks of a cluster (in 2 x 2 blocks, those that multiply the same rows) becomes copies to
these blocks. Arrivals that reach another block's mbarrier keep "scope cluster": see `MbarrierArrive`.

In a kernel without roles, each block becomes a role. A tile of another block (`Access.block`) is then an ordinary tile,
and a cluster barrier becomes a named barrier of all roles:

    copy s[c0] <- x[c0]                       role block.0 {                    role block.1 {
    barrier scope cluster                       copy s.0[c0] <- x.0[c0]           copy s.1[c0] <- x.1[c0]
    copy y[c0] <- s[c0] block 1 - p0 % 2  ->    barrier_sync 3 count 256          barrier_sync 3 count 256
                                                copy y.0[c0] <- s.1[c0]           copy y.1[c0] <- s.0[c0]

The verifier proves the united block, and the simulator runs it; the emitter prints the original kernel. Properties
therefore need no rules for clusters, with one exception: a block's shared memory exists only from its start to its end,
and another block may start later or end earlier (argus/verify/order/peers.py). For mbarriers of other blocks, the
emitter writes a cluster barrier at the end of every block with roles (PTX ISA, barrier.cluster), so that no block
accesses the memory of a block that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count as count_from

from argus.ir.expr import Const, Expr, Op, ProgramId, op, rewrite
from argus.ir.instruction import BARRIERS, INSTRUCTIONS, MULTICASTS
from argus.ir.machine import WARPGROUP
from argus.ir.nodes import (
    Access,
    Among,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BulkCopy,
    Copy,
    Fragment,
    Kernel,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    Role,
    Roles,
    Shared,
    Signal,
    Spec,
    Stmt,
    Tag,
    ThreadCopy,
)
from argus.ir.visit import map_accesses, map_exprs, rewrite_body, walk

MULTICAST = "tma.load.multicast"
_ATOM = 1024  # in bytes: shared tiles keep their offset within the period of the swizzle


def rank_in_cluster(cluster: int) -> Expr:
    """Return the number of a program's block within its cluster of the given size."""
    return op("mod", ProgramId(0), Const(cluster))


def peer(block: Expr, rank: int, cluster: int) -> int | None:
    """Return the number of the block that the field `block` of an `Access` names, seen from block `rank` of a cluster.
    Return None if the number depends on anything but the rank."""

    def change(expr: Expr) -> Expr | None:
        if expr == rank_in_cluster(cluster):
            return Const(rank)
        if isinstance(expr, Op) and len(expr.args) == 2 and all(isinstance(a, Const) for a in expr.args):
            return op(expr.op, *expr.args)
        return None

    found = rewrite(block, change)
    return int(found.value) if isinstance(found, Const) else None


def of_block(rank: int, cluster: int) -> Callable[[Expr], Expr | None]:
    """Return the rewriting rule that expresses a program of block `rank` through the number of its cluster,
    `ProgramId(0)`."""
    mine = op("add", op("mul", ProgramId(0), Const(cluster)), Const(rank))

    def change(expr: Expr) -> Expr | None:
        match expr:
            case ProgramId(axis=0):
                return mine
            case Op(op="mod", args=(program, Const(value=count))) if program == mine and count == cluster:
                return Const(rank)
            case Op(op="floordiv", args=(program, Const(value=count))) if program == mine and count == cluster:
                return ProgramId(0)
            case Op(op="add" | "sub" | "mul" | "floordiv" | "mod" as name, args=args) if all(
                isinstance(a, Const) for a in args
            ):
                return op(name, *args)
            case Op(op="add", args=(x, y)) if Const(0, expr.dtype) in (x, y):
                return op("add", x, y)
            case _:
                return None

    return change


def members(among: Among, rank: int) -> tuple[int, ...]:
    """Return the blocks that `among` names for block `rank`. They include block `rank`."""
    first = rank - rank // among.stride % among.count * among.stride
    return tuple(first + number * among.stride for number in range(among.count))


def reached(groups: Sequence[Among], rank: int, cluster: int) -> tuple[int, ...]:
    """Return the blocks that share one of the `groups` with block `rank`, or all blocks of the cluster if there are no
    groups."""
    if not groups:
        return tuple(range(cluster))
    return tuple(sorted({block for among in groups for block in members(among, rank)}))


def number_among(among: Among, cluster: int) -> Expr:
    """Return the position of the own block among these blocks, counted from 0."""
    rank = rank_in_cluster(cluster)
    digit = op("floordiv", rank, Const(among.stride))
    return digit if among.count * among.stride == cluster else op("mod", digit, Const(among.count))


def that_share(exprs: Sequence[Expr], cluster: int) -> Among | None:
    """Return the largest groups of blocks of a cluster in which all of `exprs` have equal values, or None if no two
    blocks agree."""
    seen = [tuple(rewrite(e, of_block(rank, cluster)) for e in exprs) for rank in range(cluster)]
    sizes = [n for n in range(cluster, 1, -1) if cluster % n == 0]
    found = (
        Among(count, stride)
        for count in sizes
        for stride in range(1, cluster // count + 1)
        if cluster // count % stride == 0
    )
    alike = (
        among for among in found if all(len({seen[r] for r in members(among, rank)}) == 1 for rank in range(cluster))
    )
    return next(alike, None)


def reaches_peers(kernel: Kernel) -> bool:
    """Return True if the author's kernel has a cluster barrier, or an access to a tile of another block."""
    return any((isinstance(s, Barrier) and s.scope == "cluster") or peers_of(s) for s in walk(kernel.body))


def peers_of(stmt: Stmt) -> tuple[Access, ...]:
    """Return the accesses of a statement to tiles of another block of the cluster."""
    return tuple(a for a in (stmt.dst, stmt.src) if a.block is not None) if isinstance(stmt, Copy) else ()


def rank_of(name: str) -> int | None:
    """Return the block that owns the object `name` of a united block, or None if no single block owns it."""
    _, dot, rank = name.rpartition(".")
    return int(rank) if dot and rank.isdecimal() else None


def clusters(extent: Expr, cluster: int) -> Expr | None:
    """Return the number of clusters in a grid's extent, or None unless the extent is written as a multiple of
    `cluster`."""
    if cluster == 1:
        return extent
    match extent:
        case Op(op="mul", args=(count, Const(value=value))) if value == cluster:
            return count
        case Const(value=value) if int(value) % cluster == 0:
            return Const(int(value) // cluster)
        case _:
            return None


def grid_of_clusters(kernel: Kernel) -> tuple[Expr, ...]:
    """Return the extents of a kernel's grid, with axis 0 counted in clusters. Return () if the kernel declares no grid.
    """
    if not kernel.grid:
        return ()
    along = clusters(kernel.grid[0], kernel.cluster)
    assert along is not None
    return (along, *kernel.grid[1:])


def group_of_clusters(kernel: Kernel) -> int:
    """Return the number of rows of clusters that run together."""
    return max(1, kernel.group // kernel.cluster)


def unite(kernel: Kernel) -> Kernel:
    """Return a well-formed explicit kernel in which each cluster is one block. A kernel without clusters is returned
    unchanged."""
    if kernel.cluster == 1:
        return kernel
    kernel = _in_roles(kernel)
    count, ranks = kernel.cluster, range(kernel.cluster)
    warps = -(-kernel.num_warps // WARPGROUP) * WARPGROUP
    ends = [*(_end_of_tile(s) for s in kernel.shared), *(_end_of_mbarriers(b) for b in kernel.barriers)]
    room = -(-max(ends, default=0) // _ATOM) * _ATOM
    body: list[Stmt] = []
    for stmt in kernel.body:
        if isinstance(stmt, Roles):
            roles = tuple(_Block(kernel, rank).role(role, warps) for rank in ranks for role in stmt.roles)
            body.append(replace(stmt, roles=roles))
        elif isinstance(stmt, MbarrierInit):
            body += [MbarrierInit(_name(stmt.barrier, rank), span=stmt.span) for rank in ranks]
        else:
            body.append(replace(stmt, scope="block") if isinstance(stmt, Barrier) else stmt)
    return replace(
        kernel,
        grid=grid_of_clusters(kernel),
        group=group_of_clusters(kernel),
        num_warps=count * warps,
        shared=tuple(
            replace(s, name=_name(s.name, rank), offset=_moved(s.offset, rank * room))
            for rank in ranks
            for s in kernel.shared
        ),
        barriers=tuple(
            replace(b, name=_name(b.name, rank), offset=_moved(b.offset, rank * room))
            for rank in ranks
            for b in kernel.barriers
        ),
        fragments=tuple(replace(f, name=_name(f.name, rank)) for rank in ranks for f in kernel.fragments),
        body=tuple(body),
        cluster=1,
    )


def _in_roles(kernel: Kernel) -> Kernel:
    """Move all statements of the kernel's threads into one role, if the kernel has no roles."""
    if any(isinstance(s, Roles) for s in kernel.body):
        return kernel
    tensors = {t.name for t in kernel.tensors}
    before = tuple(s for s in kernel.body if isinstance(s, Tag) and s.obj in tensors)
    after = tuple(s for s in kernel.body if isinstance(s, Spec))
    inner = tuple(s for s in kernel.body if not any(s is other for other in (*before, *after)))
    role = Role("block", 0, kernel.num_warps, None, inner, kernel.span)
    return replace(kernel, body=(*before, Roles((role,), span=kernel.span), *after))


def _end_of_tile(tile: Shared) -> int:
    assert tile.layout is not None
    return _moved(tile.offset, int(tile.layout.cosize()) * tile.dtype.bytes)


def _end_of_mbarriers(barrier: Mbarrier) -> int:
    return _moved(barrier.offset, 8 * barrier.count)


def _moved(offset: int | None, by: int) -> int:
    assert offset is not None
    return offset + by


def _name(name: str, rank: int) -> str:
    """Return the name of an object of block `rank`. Authors cannot write such a name, because it has a number after a
    dot."""
    return f"{name}.{rank}"


class _Block:
    """Rewrites the statements of block `rank` of a cluster with the names of the united block."""

    def __init__(self, kernel: Kernel, rank: int) -> None:
        self._rank, self._count = rank, kernel.cluster
        own: tuple[Shared | Fragment, ...] = (*kernel.shared, *kernel.fragments)
        self._own = {s.name for s in own}
        # Blocks that arrive at different barriers deadlock, so each statement may have its own barrier. The first
        # barriers belong to the roles.
        self._met = count_from(kernel.cluster + 1)
        self._threads = kernel.cluster * kernel.num_threads

    def role(self, role: Role, warps: int) -> Role:
        """Return the role as a role of the united block."""
        return replace(
            role,
            name=_name(role.name, self._rank),
            first_warp=role.first_warp + self._rank * warps,
            body=rewrite_body(role.body, self._statement),
        )

    def _statement(self, stmt: Stmt) -> tuple[Stmt, ...]:
        stmt = map_exprs(map_accesses(stmt, self._access), of_block(self._rank, self._count))
        match stmt:
            case Barrier(scope="cluster"):
                return (BarrierSync(next(self._met), self._threads, span=stmt.span),)
            case ThreadCopy(instr=str(name)) if INSTRUCTIONS[name].peer:
                return (replace(stmt, instr=name.removesuffix(".cluster")),)
            case BulkCopy(instr=instr, signal=Signal(barrier, index), among=among) if instr in MULTICASTS:
                to = reached(() if among is None else (among,), self._rank, self._count)
                return tuple(self._arriving_at(stmt, Signal(_name(barrier, r), index), r) for r in to)
            case BulkCopy(signal=Signal(barrier, index)):
                return (replace(stmt, signal=Signal(self._own_name(barrier), index)),)
            case MbarrierArrive(barrier=barrier, scope="cluster", among=groups):
                return tuple(
                    replace(stmt, barrier=_name(barrier, r), scope="block" if r == self._rank else "cluster", among=())
                    for r in reached(groups, self._rank, self._count)
                )
            case (
                MbarrierArrive(barrier=barrier)
                | MbarrierExpect(barrier=barrier)
                | MbarrierWait(barrier=barrier)
                | MbarrierInit(barrier=barrier)
            ):
                return (replace(stmt, barrier=self._own_name(barrier)),)
            case BarrierSync(number=number) | BarrierArrive(number=number):
                return (replace(stmt, number=number + (self._rank + 1) * BARRIERS["bar.sync"].barriers),)
            case Tag(obj=obj) if obj in self._own:
                return (replace(stmt, obj=self._own_name(obj)),)
            case _:
                return (stmt,)

    def _arriving_at(self, stmt: BulkCopy, signal: Signal, rank: int) -> BulkCopy:
        """Return the share of a multicast that arrives in one block."""
        tile = stmt.dst.obj.removesuffix(_name("", self._rank))
        return replace(stmt, dst=Access(_name(tile, rank), stmt.dst.index), signal=signal, instr="tma.load", among=None)

    def _own_name(self, name: str) -> str:
        return _name(name, self._rank)

    def _access(self, access: Access) -> Access:
        if access.obj not in self._own:
            return access
        block = self._rank if access.block is None else peer(access.block, self._rank, self._count)
        assert block is not None
        return Access(_name(access.obj, block), access.index)
