"""Warp specialisation: a pipelined loop with `producer_warps` becomes two roles, on targets that have bulk copies.

    map acc = 0                                       role producer:
    for k in pipelined(lo, hi, step), stages S            for k in range(lo, hi, step):
        stage at <- a[.., k ..]                               wait empty[i % S]; expect full[i % S] bytes
        stage bt <- b[.., k ..]                               at[i % S] <~ a[.., k ..];  bt[i % S] <~ b[.., k ..]
        mma acc += at * bt                      ->    role compute:
    epilogue                                              map acc = 0
                                                          for k in range(lo, hi, step):
                                                              wait full[i % S]
                                                              mma acc += at[i % S] * bt[i % S];  commit
                                                              wait for all products but the last
                                                              if k >= lo + step: arrive empty[(i - 1) % S]
                                                          wait for all products; epilogue

where i counts the iterations. A buffer goes back to the producer an iteration late, so that one product is always in
flight. The producer is one warp of the `producer_warps` that are added, for the others could miss a phase; they
idle. Where the copies or the products do not keep the rules of `tma.load` and `wgmma`, the kernel stays as it is,
for `pipeline`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from argus.ir.expr import Const, Expr, LoopVar, coords, elements, op
from argus.ir.instruction import INSTRUCTIONS, WGMMA
from argus.ir.instruction.tiled import wgmma_accumulator
from argus.ir.nodes import (
    Access,
    AssertTags,
    Copy,
    Counter,
    For,
    Fragment,
    If,
    Kernel,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Role,
    Roles,
    Shared,
    Signal,
    Spec,
    Stage,
    Stmt,
    Tag,
    Tensor,
)
from argus.ir.visit import map_accesses
from argus.ir.visit import walk as statements
from argus.ir.wellformed_hopper import (
    BLOCK_REGISTERS,
    BUDGET_UNIT,
    ROW_BYTES,
    asynchronous_product,
    bulk_copy,
)
from argus.layout import Layout, LayoutError, Swizzle, SwizzledLayout
from argus.passes.fresh import Fresh, names
from argus.passes.moves import target_of
from argus.passes.stages import padded

_WARPGROUP = 4  # warps
_MAX_N = 256  # columns of the widest wgmma
_PRODUCER_REGISTERS = 40  # a thread: addresses and a loop
_MOST_REGISTERS = 240  # a thread: what is left of 255 for the compiler's own use, in units of a budget


@dataclass(frozen=True, slots=True)
class Plan:
    """A loop that can be shared by two roles: where it stands in the body, and what is in it."""

    position: int
    loop: For
    stages: tuple[Stage, ...]
    asserts: tuple[AssertTags, ...]
    products: tuple[Mma, ...]


def specialise(kernel: Kernel) -> Kernel:
    """The kernel with its pipelined loop split into two roles; the kernel itself where that cannot be."""
    plan = _plan(kernel)
    if plan is None:
        return kernel
    products = [_product(kernel, p) for p in plan.products]
    chosen = tuple(p for p in products if p is not None)
    if len(chosen) < len(products):
        return kernel
    split = _split(kernel, replace(plan, products=chosen))
    return split if _legal(split) else kernel


# ---------------------------------------------------------------------------- what can be shared by roles


def _plan(kernel: Kernel) -> Plan | None:
    """The one pipelined loop, if everything in and around it has a place in one of the roles."""
    target = target_of(kernel)
    staged = [s for s in statements(kernel.body) if isinstance(s, Stage)]
    loops = [s for s in statements(kernel.body) if isinstance(s, For) and s.kind == "pipelined"]
    if "sm_90a" not in target.architectures or len(loops) != 1 or kernel.barriers:
        return None
    (loop,) = loops
    warps = kernel.num_warps + loop.producer_warps
    if loop.producer_warps < 1 or loop.producer_warps % _WARPGROUP or kernel.num_warps % _WARPGROUP:
        return None
    if loop.stages < 2 or warps * kernel.warp_size > target.max_threads or not any(s is loop for s in kernel.body):
        return None
    position = next(i for i, s in enumerate(kernel.body) if s is loop)
    plan = Plan(
        position,
        loop,
        tuple(s for s in loop.body if isinstance(s, Stage)),
        tuple(s for s in loop.body if isinstance(s, AssertTags)),
        tuple(s for s in loop.body if isinstance(s, Mma)),
    )
    only = len(plan.stages) + len(plan.asserts) + len(plan.products) == len(loop.body)
    if not only or len(staged) != len(plan.stages) or not plan.products:
        return None
    return plan if _separable(kernel, plan) else None


def _separable(kernel: Kernel, plan: Plan) -> bool:
    """Whether the copies need nothing that the products or the rest of the kernel make, and the other way round."""
    tiles = {s.dst for s in plan.stages}
    if len(tiles) != len(plan.stages) or any(_tile(kernel, name).layout is not None for name in tiles):
        return False
    inside = {id(s) for s in statements(plan.loop.body)}
    if any(tiles & names(s) for s in statements(kernel.body) if id(s) not in inside):
        return False
    filled: set[str] = set()
    for stmt in plan.loop.body:
        if isinstance(stmt, Stage):
            filled.add(stmt.dst)
        elif names(stmt) & tiles - filled:  # of the iteration before
            return False
    accumulators = {p.d.obj for p in plan.products}
    if any(names(a) & accumulators for a in plan.asserts):
        return False
    written = {s.dst.obj for s in statements(kernel.body) if isinstance(s, Copy) and s.dst.obj not in tiles}
    if any(s.src.obj in written for s in plan.stages):
        return False
    exprs: list[Expr] = [plan.loop.start, plan.loop.stop]
    for stage in plan.stages:
        exprs += [*stage.src.index, *([stage.mask] if stage.mask is not None else [])]
    return not any(True for e in exprs for _ in elements(e))


def _tile(kernel: Kernel, name: str) -> Shared:
    tile = kernel.object(name)
    assert isinstance(tile, Shared)
    return tile


def _product(kernel: Kernel, product: Mma) -> Mma | None:
    """`product` with the widest instruction that divides it, over warpgroups along M."""
    target = kernel.object(product.d.obj)
    if product.instr is not None or product.warps is not None or not isinstance(target, Fragment):
        return None
    columns = product.shape[1]
    width = max((n for n in range(8, _MAX_N + 1, 8) if columns % n == 0), default=0)
    row = WGMMA.get(f"wgmma_m64n{width}k16")
    if row is None:
        return None
    try:
        needed = wgmma_accumulator(row, product.shape[:2], (kernel.num_warps, 1))
    except LayoutError:
        return None
    if target.layout is not None and target.layout.simplify() != needed.simplify():
        return None
    return replace(product, instr=row.name, warps=(kernel.num_warps, 1))


def _legal(kernel: Kernel) -> bool:
    """Whether copies and products keep the rules of their instructions."""
    for stmt in statements(kernel.body):
        match stmt:
            case Copy(instr="tma.load") if any(bulk_copy(stmt, INSTRUCTIONS["tma.load"], kernel)):
                return False
            case _:
                pass
    roles = next(s for s in kernel.body if isinstance(s, Roles)).roles
    for role in roles:
        part = replace(kernel, num_warps=role.num_warps)
        for stmt in statements(role.body):
            if isinstance(stmt, Mma) and any(asynchronous_product(stmt, WGMMA[stmt.instr or ""], part)):
                return False
    return True


# ---------------------------------------------------------------------------- the roles


@dataclass(frozen=True, slots=True)
class _Ring:
    """The buffers of a loop and the mbarriers that hand them over: `full` to the products, `empty` to the copies."""

    loop: For
    full: str
    empty: str
    turn: str

    @property
    def counted(self) -> For:
        """The loop without its body, as the roles run it: it counts its turns for the places in the ring."""
        counter = Counter(self.turn, 2 * self.loop.stages)
        return replace(self.loop, body=(), kind="dynamic", stages=1, producer_warps=0, counter=counter)

    @property
    def place(self) -> Expr:
        """The buffer of this iteration."""
        return op("mod", LoopVar(self.turn), Const(self.loop.stages))

    @property
    def previous(self) -> Expr:
        """The buffer of the iteration before."""
        return op("mod", op("add", LoopVar(self.turn), Const(self.loop.stages - 1)), Const(self.loop.stages))

    def parity(self, ahead: int) -> Expr:
        """Parity of the phase in which the ring is gone through, `ahead` rounds later."""
        round_ = op("floordiv", LoopVar(self.turn), Const(self.loop.stages))
        return op("mod", op("add", round_, Const(ahead)), Const(2))


def _split(kernel: Kernel, plan: Plan) -> Kernel:
    fresh = Fresh(kernel)
    loop, computing = plan.loop, kernel.num_warps
    ring = _Ring(loop, fresh.name("full"), fresh.name("empty"), fresh.name("turn"))
    before, after = kernel.body[: plan.position], kernel.body[plan.position + 1 :]
    compute = (
        *(s for s in before if not _on_tensors(kernel, s)),
        replace(ring.counted, body=_multiply(plan, ring)),
        MmaWait(0, loop.span),
        *(s for s in after if not _on_tensors(kernel, s)),
    )
    producing = loop.producer_warps * _PRODUCER_REGISTERS
    budget = (BLOCK_REGISTERS // kernel.warp_size - producing) // computing
    budget = min(_MOST_REGISTERS, budget - budget % BUDGET_UNIT)
    roles = Roles(
        (
            Role("producer", computing, 1, _PRODUCER_REGISTERS,
                 (replace(ring.counted, body=_fill(kernel, plan, ring)),), loop.span),
            Role("compute", 0, computing, budget, compute, loop.span),
        ),
        loop.span,
    )  # fmt: skip
    tiles = {s.dst for s in plan.stages}
    return replace(
        kernel,
        num_warps=computing + loop.producer_warps,
        shared=tuple(_buffers(s, loop.stages) if s.name in tiles else s for s in kernel.shared),
        barriers=(
            Mbarrier(ring.full, loop.stages, 1, span=loop.span),
            Mbarrier(ring.empty, loop.stages, computing, span=loop.span),
        ),
        body=(
            *(s for s in before if _on_tensors(kernel, s)),
            roles,
            *(s for s in after if _on_tensors(kernel, s)),
        ),
    )


def _on_tensors(kernel: Kernel, stmt: Stmt) -> bool:
    """Whether `stmt` only says something about tensors: it belongs to no role."""
    return isinstance(stmt, Spec) or (isinstance(stmt, Tag) and isinstance(kernel.object(stmt.obj), Tensor))


def _buffers(tile: Shared, stages: int) -> Shared:
    """`stages` copies of a tile, their rows in the swizzle of the copy engine."""
    row, unit = tile.shape[-1], tile.dtype.bytes
    strides = [prod(tile.shape[d + 1 :]) for d in range(len(tile.shape))]
    inner = Layout((stages, *tile.shape), (prod(tile.shape), *strides))
    chunk = (ROW_BYTES // 8 // unit).bit_length() - 1
    swizzled = row * unit == ROW_BYTES
    layout = SwizzledLayout(Swizzle(3, chunk, 3), 0, inner) if swizzled else inner
    return replace(tile, shape=(stages, *tile.shape), layout=layout)


def _fill(kernel: Kernel, plan: Plan, ring: _Ring) -> tuple[Stmt, ...]:
    """One iteration of the producer."""
    span = plan.loop.span
    total = sum(prod(s.shape) * _tile(kernel, s.dst).dtype.bytes for s in plan.stages)
    copies = []
    for stage in (padded(s, kernel) for s in plan.stages):
        to = Access(stage.dst, (ring.place, *coords(len(stage.shape))))
        done = Signal(ring.full, ring.place)
        copies.append(
            Copy(to, stage.src, stage.shape, stage.mask, stage.other, instr="tma.load", signal=done, span=stage.span)
        )
    # Round 0 finds every buffer empty: parity 1 of a fresh mbarrier has passed.
    return (
        MbarrierWait(ring.empty, ring.place, ring.parity(1), span),
        MbarrierExpect(ring.full, ring.place, total, span),
        *copies,
    )


def _multiply(plan: Plan, ring: _Ring) -> tuple[Stmt, ...]:
    """One iteration of the computing warps."""
    loop, span = plan.loop, plan.loop.span
    tiles = {s.dst for s in plan.stages}

    def in_buffer(access: Access) -> Access:
        return Access(access.obj, (ring.place, *access.index)) if access.obj in tiles else access

    later = op("ge", LoopVar(loop.var), op("add", loop.start, Const(loop.step)))
    first = plan.products[0].span
    return (
        MbarrierWait(ring.full, ring.place, ring.parity(0), span),
        *(map_accesses(s, in_buffer) for s in plan.asserts),
        MmaFence(first),
        *(map_accesses(s, in_buffer) for s in plan.products),
        MmaCommit(first),
        MmaWait(1, first),
        If(later, (MbarrierArrive(ring.empty, ring.previous, span),), (), span),
    )
