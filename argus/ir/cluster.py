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

"scope cluster" is left on arrivals that reach another block's mbarrier: see `MbarrierArrive`.

The verifier proves that block, and the simulator runs it; the emitter prints the kernel as it stands. So no property
needs a rule of its own for clusters. Both rest on the last thing that every block of a cluster does (PTX ISA,
barrier.cluster): to wait until all of them are done, so that nobody reaches for the memory of a block that is gone.
"""

from __future__ import annotations

from dataclasses import replace

from argus.ir.expr import Const, Expr, Op, ProgramId, op
from argus.ir.instruction import BARRIERS
from argus.ir.nodes import (
    Access,
    Barrier,
    BarrierArrive,
    BarrierSync,
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
    Stmt,
    Tag,
)
from argus.ir.visit import map_accesses, map_exprs, rewrite_body

MULTICAST = "tma.load.multicast"
MAX_CLUSTER = 8
"""Blocks of a cluster that every device takes (CUDA C++ guide, thread block clusters)."""
_WARPGROUP = 4  # warps
_ATOM = 1024  # bytes: shared tiles keep their place in the pattern of the swizzle


def rank_in_cluster(cluster: int) -> Expr:
    """The number of a block within its cluster of that many, from its program."""
    return op("mod", ProgramId(0), Const(cluster))


def clusters(extent: Expr, cluster: int) -> Expr | None:
    """How many clusters a grid's extent along axis 0 is, if it is written as a multiple of `cluster`."""
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
    """The extents of a kernel's grid, in clusters along axis 0; () if it declares none."""
    if not kernel.grid:
        return ()
    along = clusters(kernel.grid[0], kernel.cluster)
    assert along is not None
    return (along, *kernel.grid[1:])


def group_of_clusters(kernel: Kernel) -> int:
    """Rows of clusters that are walked at a time."""
    return max(1, kernel.group // kernel.cluster)


def unite(kernel: Kernel) -> Kernel:
    """A well-formed explicit kernel with each cluster as one block; a kernel without clusters as it is."""
    if kernel.cluster == 1:
        return kernel
    count, ranks = kernel.cluster, range(kernel.cluster)
    warps = -(-kernel.num_warps // _WARPGROUP) * _WARPGROUP
    ends = [*(_end_of_tile(s) for s in kernel.shared), *(_end_of_mbarriers(b) for b in kernel.barriers)]
    room = -(-max(ends, default=0) // _ATOM) * _ATOM
    body: list[Stmt] = []
    for stmt in kernel.body:
        if isinstance(stmt, Roles):
            roles = tuple(_Block(kernel, rank).role(role, warps) for rank in ranks for role in stmt.roles)
            body.append(replace(stmt, roles=roles))
        elif isinstance(stmt, MbarrierInit):
            body += [MbarrierInit(_name(stmt.barrier, rank), stmt.span) for rank in ranks]
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


def _end_of_tile(tile: Shared) -> int:
    assert tile.layout is not None
    return _moved(tile.offset, int(tile.layout.cosize()) * tile.dtype.bytes)


def _end_of_mbarriers(barrier: Mbarrier) -> int:
    return _moved(barrier.offset, 8 * barrier.count)


def _moved(offset: int | None, by: int) -> int:
    assert offset is not None
    return offset + by


def _name(name: str, rank: int) -> str:
    """The name of what block `rank` has: nothing that an author writes has a number after a dot."""
    return f"{name}.{rank}"


class _Block:
    """What block `rank` of a cluster runs, by the names of the united block."""

    def __init__(self, kernel: Kernel, rank: int) -> None:
        self._rank, self._count = rank, kernel.cluster
        own: tuple[Shared | Fragment, ...] = (*kernel.shared, *kernel.fragments)
        self._own = {s.name for s in own}

    def role(self, role: Role, warps: int) -> Role:
        """The role as one of the united block."""
        return replace(
            role,
            name=_name(role.name, self._rank),
            first_warp=role.first_warp + self._rank * warps,
            body=rewrite_body(role.body, self._statement),
        )

    def _statement(self, stmt: Stmt) -> tuple[Stmt, ...]:
        stmt = map_accesses(map_exprs(stmt, self._expr), self._access)
        match stmt:
            case Copy(instr=instr, signal=Signal(barrier, index)) if instr == MULTICAST:
                return tuple(self._arriving_at(stmt, Signal(_name(barrier, r), index), r) for r in range(self._count))
            case Copy(signal=Signal(barrier, index)):
                return (replace(stmt, signal=Signal(self._own_name(barrier), index)),)
            case MbarrierArrive(barrier=barrier, scope="cluster"):
                return tuple(
                    replace(stmt, barrier=_name(barrier, r), scope="block" if r == self._rank else "cluster")
                    for r in range(self._count)
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

    def _arriving_at(self, stmt: Copy, signal: Signal, rank: int) -> Copy:
        """The share of a multicast that arrives in one block."""
        tile = stmt.dst.obj.removesuffix(_name("", self._rank))
        return replace(stmt, dst=Access(_name(tile, rank), stmt.dst.index), signal=signal, instr="tma.load")

    def _own_name(self, name: str) -> str:
        return _name(name, self._rank)

    def _access(self, access: Access) -> Access:
        return Access(self._own_name(access.obj), access.index) if access.obj in self._own else access

    def _expr(self, expr: Expr) -> Expr | None:
        """`expr` for the program of this block: number `rank` of the cluster's."""
        mine = op("add", op("mul", ProgramId(0), Const(self._count)), Const(self._rank))
        match expr:
            case ProgramId(axis=0):
                return mine
            case Op(op="mod", args=(program, Const(value=count))) if program == mine and count == self._count:
                return Const(self._rank)
            case Op(op="add" | "sub" | "mul" as name, args=args) if all(isinstance(a, Const) for a in args):
                return op(name, *args)
            case Op(op="add", args=(x, y)) if Const(0, expr.dtype) in (x, y):
                return op("add", x, y)
            case _:
                return None
