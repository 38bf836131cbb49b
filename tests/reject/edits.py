"""Mistakes in the lowered form, which no author writes: edits of the explicit IR of any kernel that they fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from argus.ir.expr import Const, Expr, LoopVar, Op, Thread, op, rewrite
from argus.ir.nodes import (
    Access,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BulkWait,
    CommitGroup,
    Copy,
    For,
    If,
    Kernel,
    Map,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    Mma,
    MmaWait,
    Roles,
    Shared,
    Stmt,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
)
from argus.ir.visit import rewrite_blocks, rewrite_body, walk
from argus.layout import AnyLayout, SwizzledLayout
from tests.reject.case import Edit

Changed = Callable[[Stmt], "tuple[Stmt, ...] | None"]
Chosen = Callable[[Stmt], bool]


def statements(change: Changed) -> Edit:
    """`change` gives what stands in a statement's place, or None to keep it."""
    return lambda kernel: replace(kernel, body=rewrite_body(kernel.body, change))


def drop(kind: type[Stmt], which: Chosen = lambda stmt: True) -> Edit:
    """Without the statements of one kind."""
    return statements(lambda s: () if isinstance(s, kind) and which(s) else None)


def of_ring(name: str) -> Chosen:
    """Statements on one array of mbarriers."""
    return lambda s: getattr(s, "barrier", "") == name


def drop_next_to(kind: type[Stmt], neighbour: type[Stmt]) -> Edit:
    """Without the statements of one kind that stand right before one of another."""

    def block(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        following = (*stmts[1:], None)
        return tuple(
            s
            for s, after in zip(stmts, following, strict=True)
            if not (isinstance(s, kind) and isinstance(after, neighbour))
        )

    return lambda kernel: replace(kernel, body=rewrite_blocks(kernel.body, block))


def only_if(kind: type[Stmt], cond: Expr) -> Edit:
    """The statements of one kind run under a condition."""
    return statements(lambda s: (If(cond, (s,), span=s.span),) if isinstance(s, kind) else None)


def one_more_pending(kind: type[WaitGroup] | type[MmaWait] | type[BulkWait]) -> Edit:
    """Waits that leave one group more unfinished; of those for bulk stores, the ones for reads."""

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        meant = isinstance(s, kind) and not (isinstance(s, BulkWait) and not s.read)
        return (replace(s, pending=s.pending + 1),) if meant else None

    return statements(change)


def one_more_load(kernel: Kernel) -> Kernel:
    """Waits of waves that leave one load to LDS more on its way."""

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(s, vm=s.vm + 1),) if isinstance(s, WaitCounts) and s.vm is not None else None

    return statements(change)(kernel)


def bare_barriers(kernel: Kernel) -> Kernel:
    """Barriers that meet, and wait for no access."""
    return statements(lambda s: (WaveBarrier(span=s.span),) if isinstance(s, Barrier) else None)(kernel)


# ---------------------------------------------------------------------------- mbarriers


def other_parity(ring: str) -> Edit:
    """Waits for the phase before the one that is meant."""

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(s, MbarrierWait) and s.barrier == ring:
            return (replace(s, parity=op("sub", Const(1), s.parity)),)
        return None

    return statements(change)


def parity_of_every_trip(ring: str, count: Expr) -> Edit:
    """Waits for parity `count % 2`, as if the ring had one slot."""

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(s, MbarrierWait) and s.barrier == ring:
            return (replace(s, parity=op("mod", count, Const(2))),)
        return None

    return statements(change)


def arrivals(ring: str, more: int) -> Edit:
    """Mbarriers that are initialised for more arrivals than come."""

    def change(kernel: Kernel) -> Kernel:
        rings = tuple(replace(b, arrivals=b.arrivals + more) if b.name == ring else b for b in kernel.barriers)
        return replace(kernel, barriers=rings)

    return change


def fewer_mbarriers(kernel: Kernel) -> Kernel:
    """One mbarrier less in every ring, and all that use them count round the shorter ring; the buffers stay."""

    def shorter(e: Expr) -> Expr | None:
        match e:
            case Op(op="mod", args=(count, Const(value=slots))) if slots == kernel.barriers[0].count:
                return op("mod", count, Const(slots - 1))
            case Op(op="floordiv", args=(count, Const(value=slots))) if slots == kernel.barriers[0].count:
                return op("floordiv", count, Const(slots - 1))
            case _:
                return None

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        match s:
            case MbarrierWait():
                return (replace(s, index=rewrite(s.index, shorter), parity=rewrite(s.parity, shorter)),)
            case MbarrierExpect() | MbarrierArrive():
                return (replace(s, index=rewrite(s.index, shorter)),)
            case Copy(signal=signal) if signal is not None:
                return (replace(s, signal=replace(signal, index=rewrite(signal.index, shorter))),)
            case _:
                return None

    rings = tuple(replace(b, count=b.count - 1) for b in kernel.barriers)
    return replace(statements(change)(kernel), barriers=rings)


def over_mbarriers(tile: str) -> Edit:
    """A shared tile whose bytes are those of the first mbarriers."""

    def change(kernel: Kernel) -> Kernel:
        offset = min(b.offset for b in kernel.barriers if b.offset is not None)
        return replace(kernel, shared=tuple(replace(s, offset=offset) if s.name == tile else s for s in kernel.shared))

    return change


def without_start(kind: type[Stmt]) -> Edit:
    """Without one step of the initialisation of mbarriers that the whole block waits for."""
    return lambda kernel: replace(kernel, body=tuple(s for s in kernel.body if not isinstance(s, kind)))


def started_by(role: str) -> Edit:
    """One of the roles initialises the mbarriers, and no other waits for it."""

    def edit(kernel: Kernel) -> Kernel:
        kinds = MbarrierInit | MbarrierFence | Barrier
        start = tuple(s for s in kernel.body if isinstance(s, kinds))
        body: list[Stmt] = []
        for s in kernel.body:
            if isinstance(s, Roles):
                roles = (replace(r, body=(*start, *r.body)) if r.name == role else r for r in s.roles)
                body.append(replace(s, roles=tuple(roles)))
            elif not isinstance(s, kinds):
                body.append(s)
        return replace(kernel, body=tuple(body))

    return edit


# ---------------------------------------------------------------------------- clusters


def within_the_block(kernel: Kernel) -> Kernel:
    """Buffers are given back to the own block alone, which counts on no more."""
    given = {s.barrier for s in walk(kernel.body) if isinstance(s, MbarrierArrive) and s.scope == "cluster"}

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(s, scope="block"),) if isinstance(s, MbarrierArrive) else None

    counts = (b.arrivals // kernel.cluster if b.name in given else b.arrivals for b in kernel.barriers)
    rings = tuple(replace(b, arrivals=n) for b, n in zip(kernel.barriers, counts, strict=True))
    return replace(statements(change)(kernel), barriers=rings)


# ---------------------------------------------------------------------------- named barriers


def named_barrier(role: str, change: Callable[[BarrierSync | BarrierArrive], tuple[Stmt, ...]]) -> Edit:
    """`change` gives what stands in the place of what a role does at named barriers."""

    def inside(s: Stmt) -> tuple[Stmt, ...] | None:
        return change(s) if isinstance(s, BarrierSync | BarrierArrive) else None

    def edit(kernel: Kernel) -> Kernel:
        def changed(s: Stmt) -> tuple[Stmt, ...] | None:
            if not isinstance(s, Roles):
                return None
            bodies = (rewrite_body(r.body, inside) if r.name == role else r.body for r in s.roles)
            roles = (replace(r, body=body) for r, body in zip(s.roles, bodies, strict=True))
            return (replace(s, roles=tuple(roles)),)

        return statements(changed)(kernel)

    return edit


def other_barrier(role: str, number: int, other: int) -> Edit:
    """A role uses another named barrier where it means `number`."""
    return named_barrier(role, lambda s: (replace(s, number=other),) if s.number == number else (s,))


def other_count(role: str, more: int) -> Edit:
    """A role counts more threads than there are at its named barriers, or fewer."""
    return named_barrier(role, lambda s: (replace(s, count=s.count + more),))


def without_turns(role: str) -> Edit:
    """A role takes no notice of whose turn it is: it comes to its named barriers, and does not wait."""
    return named_barrier(
        role, lambda s: (BarrierArrive(s.number, s.count, span=s.span),) if isinstance(s, BarrierSync) else (s,)
    )


# ---------------------------------------------------------------------------- shared memory


def placed_over(tile: str, other: str) -> Edit:
    """A shared tile that takes the bytes of another."""

    def change(kernel: Kernel) -> Kernel:
        offset = next(s.offset for s in kernel.shared if s.name == other)
        return replace(kernel, shared=tuple(replace(s, offset=offset) if s.name == tile else s for s in kernel.shared))

    return change


def swizzle(tile: str, bits: int) -> Edit:
    """Another swizzle of a shared tile, of fewer bits; 0: none."""

    def changed(layout: AnyLayout | None) -> AnyLayout:
        assert isinstance(layout, SwizzledLayout)
        return replace(layout, swizzle=replace(layout.swizzle, bits=bits)) if bits else layout.inner

    def change(kernel: Kernel) -> Kernel:
        tiles = (replace(s, layout=changed(s.layout)) if s.name == tile else s for s in kernel.shared)
        return replace(kernel, shared=tuple(tiles))

    return change


def read_without_swizzle(tile: str) -> Edit:
    """What reads a shared tile takes its bytes as if they had not been swizzled."""
    plain = f"{tile}_plain"

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(s, Copy) and s.src.obj == tile:
            return (replace(s, src=Access(plain, s.src.index)),)
        return None

    def edit(kernel: Kernel) -> Kernel:
        found = next(s for s in kernel.shared if s.name == tile)
        assert isinstance(found.layout, SwizzledLayout)
        alias = Shared(plain, found.dtype, found.shape, found.layout.inner, found.offset)
        return replace(statements(change)(kernel), shared=(*kernel.shared, alias))

    return edit


# ---------------------------------------------------------------------------- barriers and loops


def half_arrive(kernel: Kernel) -> Kernel:
    """Only one half of a role's threads reaches the role's barriers."""

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(s, Roles):
            return None
        roles = []
        for role in s.roles:
            cond = op("lt", Thread(), Const(role.num_warps * kernel.warp_size // 2))
            body = rewrite_body(
                role.body, lambda b, c=cond: (If(c, (b,), span=b.span),) if isinstance(b, Barrier) else None
            )
            roles.append(replace(role, body=body))
        return (replace(s, roles=tuple(roles)),)

    return statements(change)(kernel)


def barrier_after_copies(kernel: Kernel) -> Kernel:
    """The barrier at the head of every loop comes after the copies that refill a buffer, not before."""

    def block(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        first = next((i for i, s in enumerate(stmts) if isinstance(s, Barrier)), None)
        last = next((i for i, s in enumerate(stmts) if isinstance(s, If | CommitGroup) and i > (first or 0)), None)
        if first is None or last is None:
            return stmts
        return (*stmts[:first], *stmts[first + 1 : last + 1], stmts[first], *stmts[last + 1 :])

    return replace(kernel, body=rewrite_blocks(kernel.body, block))


def initialised_in_the_first_trip(fragment: str) -> Edit:
    """An accumulator gets its zeros in the first trip of the loop that adds to it: with no trip it has none."""

    def edit(kernel: Kernel) -> Kernel:
        zero = next(s for s in walk(kernel.body) if isinstance(s, Map) and s.dst.obj == fragment)

        def change(s: Stmt) -> tuple[Stmt, ...] | None:
            if s == zero:
                return ()
            if isinstance(s, For) and any(isinstance(x, Mma) and x.d.obj == fragment for x in walk(s.body)):
                first = op("eq", LoopVar(s.var), s.start)
                return (replace(s, body=(If(first, (zero,), span=zero.span), *s.body)),)
            return None

        return statements(change)(kernel)

    return edit
