"""Plan the division of a kernel into roles. The kernel has one pipelined loop, whose staged tiles are read by products
and loads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from argus.ir.cluster import reaches_peers
from argus.ir.expr import Elem, ProgramId, walk
from argus.ir.instruction import WGMMA
from argus.ir.instruction.tiled import wgmma_accumulator
from argus.ir.machine import WARPGROUP
from argus.ir.nodes import AssertTags, Copy, For, Fragment, If, Kernel, Mma, Share, Stage, Stmt
from argus.ir.visit import numbered, rewrite_body
from argus.ir.visit import walk as statements
from argus.layout import LayoutError
from argus.passes.fresh import Fresh, names
from argus.passes.moves import target_of
from argus.passes.report import Unfit
from argus.passes.specialise.addresses import check_addresses
from argus.passes.specialise.apart import apart, together
from argus.passes.specialise.rings import Ring, alike, tiles_of

_MAX_N = 256  # columns of the widest wgmma instruction
_DEPTH_BITS = 256  # bits in a row of either operand, in every wgmma instruction
_PANELS = 64 * 1024  # bytes of shared memory that are left to panels of results


@dataclass(frozen=True, slots=True)
class RolePlan:
    """A kernel whose products have their instructions, its pipelined loop, and the rings of its staged tiles.

    `turn` counts the loop's iterations and `program` the programs, if a ring needs these counts. `parts` are the
    kernels of the computing groups of warps. `kernel` stages the tiles of all groups. There is one part, equal to
    `kernel`, unless the groups have separate rows. Tiles in `twice`, which computing warps fill in each iteration, have
    two buffers: warps that fill one need not wait until products have read the other.
    """

    kernel: Kernel
    loop: For
    rings: tuple[Ring, ...]
    turn: str
    program: str | None
    parts: tuple[Kernel, ...]
    twice: frozenset[str]

    @property
    def engines(self) -> bool:
        """True if the copy engine loads at least one tile."""
        return any(ring.by_engine for ring in self.rings)

    @property
    def loaders(self) -> int:
        """The number of warps that load tiles, or 0 if threads load none. One warpgroup is reserved for the copy engine
        if it is used."""
        if not any(ring.by_threads for ring in self.rings):
            return 0
        return self.loop.producer_warps - (WARPGROUP if self.engines else 0)

    @property
    def made(self) -> frozenset[str]:
        """The tiles that computing warps fill from their registers."""
        return frozenset(s.dst for part in self.parts for s in statements(part.body) if isinstance(s, Share))

    def part(self, kernel: Kernel) -> RolePlan:
        """Return the plan of one of the `parts`, with its own loop and the rings that it reads."""
        tiles = {s.name for s in kernel.shared}
        rings = tuple(r for r in self.rings if r.tiles & tiles)
        return replace(self, kernel=kernel, loop=_pipelined(kernel), rings=rings, parts=(kernel,))

    def consumers(self, ring: Ring) -> int:
        """Return the number of warps that free the ring's buffers."""
        return sum(k.num_warps for k in self.parts if ring.tiles & {s.name for s in k.shared})

    def loading(self, tiles: frozenset[str]) -> RolePlan:
        """Return the plan in which threads load `tiles`. They load all tiles if no warps are left for the copy engine.
        """
        alone = self.loop.producer_warps <= WARPGROUP
        brought = frozenset(s.dst for ring in self.rings for s in ring.stages if alone or s.dst in tiles)
        return replace(self, rings=tuple(replace(r, loaded=brought & r.tiles) for r in self.rings))


def plan(kernel: Kernel, groups: int) -> RolePlan | None:
    """Plan the roles of a kernel; `groups` of them compute. Return None if the kernel requests no roles, or the target
    has none.

    Raises `Unfit` if a part of the kernel fits no role.
    """
    target = target_of(kernel)
    loops = [s for s in statements(kernel.body) if isinstance(s, For) and s.kind == "pipelined"]
    asking = [s for s in loops if s.producer_warps > 0]
    if "sm_90a" not in target.architectures or not asking or kernel.barriers:
        return None
    loop = asking[0]
    _check_warps(kernel, loop)
    if reaches_peers(kernel):
        help = "leave producer_warps out: all threads of a block come to its cluster's barriers"
        raise Unfit("the blocks of the cluster reach each other's tiles", loop.span, help)
    if len(loops) > 1:
        raise Unfit("the kernel has several pipelined loops", loop.span, "make one loop of them, or two kernels")
    if loop.stages < 2:
        raise Unfit("one buffer cannot be filled while it is read", loop.span, "use stages=2 or more")
    if not any(s is loop for s in kernel.body):
        raise Unfit("the loop stands inside of another loop or branch", loop.span, "let it stand on its own")
    _check_separable(numbered(kernel))
    parts = tuple(_with_instructions(part) for part in apart(kernel, groups))
    chosen = numbered(together(parts, kernel.num_warps))
    loop = _pipelined(chosen)
    products = [s for part in parts for s in statements(part.body) if isinstance(s, Mma)]
    rings, turn, program = _rings(chosen, loop, products)
    return RolePlan(chosen, loop, rings, turn, program, parts, _twice(chosen, parts, rings))


def _twice(kernel: Kernel, parts: Sequence[Kernel], rings: Sequence[Ring]) -> frozenset[str]:
    """Return the tiles that computing warps fill in each iteration, if shared memory has room for two buffers of each.
    """
    made = {s.dst for part in parts for s in _pipelined(part).body if isinstance(s, Share)}
    counts = {name: ring.buffers for name, ring in tiles_of(rings).items()} | dict.fromkeys(made, 2)
    taken = sum(prod(s.shape) * s.dtype.bytes * counts.get(s.name, 1) for s in kernel.shared)
    return frozenset(made if taken <= target_of(kernel).shared_bytes - _PANELS else ())


def _pipelined(kernel: Kernel) -> For:
    return next(s for s in kernel.body if isinstance(s, For) and s.kind == "pipelined")


def _check_warps(kernel: Kernel, loop: For) -> None:
    warps, most = kernel.num_warps + loop.producer_warps, target_of(kernel).max_threads // kernel.warp_size
    for count, what in ((loop.producer_warps, "producer_warps"), (kernel.num_warps, "num_warps")):
        if count % WARPGROUP:
            raise Unfit(f"{what} is {count}, and roles are made of warpgroups", loop.span, "use a multiple of 4")
    if warps > most:
        raise Unfit(f"{warps} warps are more than the {most} of a block", loop.span, "use fewer warps")


# ---------------------------------------------------------------------------- what stands where


def _check_separable(kernel: Kernel) -> None:
    """Check that the copies need no results of the products or of the rest of the kernel, and the other way round."""
    loop, everything = _pipelined(kernel), list(statements(kernel.body))
    staged = [s for s in everything if isinstance(s, Stage)]
    made = [s for s in everything if isinstance(s, Share)]
    tiles = {s.dst for s in staged} | {s.dst for s in made}
    if len(tiles) != len(staged) + len(made) or not any(isinstance(s, Stage) for s in loop.body):
        raise Unfit("the loop stages no tile, or one twice", loop.span, "stage each tile once, in the loop")
    laid = next((s for s in kernel.shared if s.name in tiles and s.layout is not None), None)
    if laid is not None:
        raise Unfit(f"the layout of tile {laid.name} is the author's", loop.span, "leave it open")
    direct = {s.id for s in (*kernel.body, *loop.body)}
    branched = {s.id for b in loop.body if isinstance(b, If) and not b.orelse for s in b.then if isinstance(s, Mma)}
    inner = next((s for s in everything if isinstance(s, Stage | Share | Mma) and s.id not in direct | branched), None)
    if inner is not None:
        help = "stage in every iteration; a product may stand in an `if` of the loop without an `else`"
        raise Unfit("a tile is staged or multiplied in a branch or inner loop", inner.span, help)
    _check_readers(kernel.body, tiles, set())
    _check_readers(loop.body, tiles, {s.dst for s in kernel.body if isinstance(s, Stage | Share)})
    written = {s.dst.obj for s in everything if isinstance(s, Copy) and s.dst.obj not in tiles}
    late = next((s for s in staged if s.src.obj in written), None)
    if late is not None:
        raise Unfit(f"{late.src.obj} is written by the kernel that stages it", late.span, "write to another tensor")
    check_addresses(kernel, loop)


def loads(stmt: Stmt, tiles: Collection[str]) -> bool:
    """Return True if a statement loads one of the tiles to registers and does not use these tiles otherwise."""
    if not isinstance(stmt, Copy) or stmt.src.obj not in tiles:
        return False
    return not (names(replace(stmt, src=stmt.dst)) & set(tiles))


def _check_readers(body: tuple[Stmt, ...], tiles: set[str], before: set[str], branch: bool = False) -> None:
    """Check that only products, loads to registers and tag assertions read tiles, that these tiles are staged `before`
    or here, and that loads are not in a `branch`. Raises `Unfit`."""
    filled = set(before)
    for stmt in body:
        match stmt:
            case Stage(dst=dst) | Share(dst=dst):
                filled.add(dst)
            case For(kind="pipelined"):
                pass
            case If(then=then, orelse=orelse):
                _check_readers((*then, *orelse), tiles, filled, True)
            case _ if isinstance(stmt, Mma | AssertTags) or (loads(stmt, tiles) and not branch):
                if names(stmt) & tiles - filled:
                    raise Unfit("a tile is read before it is staged", stmt.span, "stage it first")
            case _:
                if any(names(s) & tiles for s in statements((stmt,))):
                    why = "a staged tile is read by something other than al.mma and a load outside of branches"
                    raise Unfit(why, stmt.span, "load it there, or load it from the tensor instead")


def _with_instructions(kernel: Kernel) -> Kernel:
    """Return the kernel with an instruction for each product."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (_product(kernel, stmt),) if isinstance(stmt, Mma) else None

    return replace(kernel, body=rewrite_body(kernel.body, change))


def _product(kernel: Kernel, product: Mma) -> Mma:
    """Return `product` with the widest instruction that divides it, spread over warpgroups along M."""
    target = kernel.object(product.d.obj)
    if product.instr is not None or product.warps is not None or not isinstance(target, Fragment):
        raise Unfit("the author chose the instruction of a product", product.span, "leave it open")
    columns = product.shape[1]
    width = max((n for n in range(8, _MAX_N + 1, 8) if columns % n == 0), default=0)
    row = WGMMA.get(f"wgmma_m64n{width}k{_DEPTH_BITS // kernel.object(product.b.obj).dtype.bits}")
    if row is None:
        raise Unfit(f"no product of warpgroups has {columns} columns", product.span, "use a multiple of 8")
    try:
        needed = wgmma_accumulator(row, product.shape[:2], (kernel.num_warps, 1))
    except LayoutError as error:
        raise Unfit(str(error), product.span, f"use a multiple of {16 * kernel.num_warps} rows") from None
    if target.layout is not None and target.layout.simplify() != needed.simplify():
        raise Unfit(f"the layout of {target.name} is the author's", product.span, "leave it open")
    return replace(product, instr=row.name, warps=(kernel.num_warps, 1))


# ---------------------------------------------------------------------------- rings


def _rings(kernel: Kernel, loop: For, products: list[Mma]) -> tuple[tuple[Ring, ...], str, str | None]:
    """Return the rings in the order of staging, and the names of the counts of iterations and of programs.

    Tiles that one of the `products` reads share a ring, and so do tiles of one dimension. The count of programs is None
    unless a persistent kernel stages tiles outside the loop.
    """
    fresh = Fresh(kernel)
    turn, program = fresh.name("turn"), None
    if kernel.persistent and any(isinstance(s, Stage) for s in kernel.body):
        program = fresh.name("program")
    blocks = 1 if differs(loop) else kernel.cluster
    rings: list[Ring] = []
    for stmt in kernel.body:
        looped = stmt is loop
        body, count, counter = (loop.body, loop.stages, turn) if looped else ((stmt,), 1, program)
        for group in _together([s for s in body if isinstance(s, Stage)], products):
            full, empty = fresh.name("full"), None if counter is None else fresh.name("empty")
            shares = tuple((s.dst, among) for s in group if (among := alike(s, blocks)) is not None)
            rings.append(Ring(group, count, full, empty, counter, looped, stmt.span, shares, blocks))
    return tuple(rings), turn, program


def differs(loop: For) -> bool:
    """Return True if the blocks of a cluster may differ in the iterations of the loop."""
    parts = (e for bound in (loop.start, loop.stop) for e in walk(bound))
    return any(isinstance(e, Elem) or (isinstance(e, ProgramId) and e.axis == 0) for e in parts)


def _together(stages: list[Stage], products: list[Mma]) -> list[tuple[Stage, ...]]:
    """Group the stages such that stages whose tiles one product reads are in one group. Tiles of one dimension, which
    threads read, are one group: one fence of their reads is enough."""
    groups: list[list[Stage]] = [[s] for s in stages]
    for product in products:
        read = {product.a.obj, product.b.obj}
        joined = [g for g in groups if any(s.dst in read for s in g)]
        if len(joined) > 1:
            place = groups.index(joined[0])
            groups = [g for g in groups if g not in joined]
            groups.insert(place, [s for s in stages if any(s in g for g in joined)])
    rows = [s for s in stages if len(s.shape) == 1]
    alone = [tuple(g) for g in groups if g[0] not in rows[1:]]
    return [tuple(rows) if g == tuple(rows[:1]) else g for g in alone]
