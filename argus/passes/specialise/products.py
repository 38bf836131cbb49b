"""Make the computing role: products run asynchronously, and a wait for each comes just before a statement that uses its
registers.

    mma s += qt * kt                        wait full; mma_fence; mma s += qt * kt[i % S]; commit
    mma o += p * vt                   ->    wait full1; mma o += p * vt[i % S]; commit
    map w = exp2(s)                         mma_wait 1; arrive empty; map w = exp2(s)
    map o = o * f                           mma_wait 0; arrive empty1; map o = o * f
    share st <- w                           barrier; st <- w; proxy fence; barrier
    share st <- w, two buffers              st[i % 2] <- w; proxy fence; barrier
    copy w <- qt                            wait full2; w <- qt[i % S]; proxy fence; arrive empty2

A buffer is freed after the wait that covers the last product which reads it. A buffer that was filled before the loop,
and that nothing after the loop reads, is freed in the last iteration. Products that no statement of their iteration
waits for stay in flight in the next iteration, up to its end at most, and their buffers are freed then. Only as many
stay as the registers have room for, because their left operands may not change until then. The last iteration waits for
all of its own products. A tag assertion is postponed until its values have arrived, so it needs no
additional wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

from argus.ir.expr import Const, Expr, LoopVar, op
from argus.ir.nodes import (
    Access,
    AssertTags,
    Barrier,
    Copy,
    For,
    If,
    Kernel,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    ProxyFence,
    Share,
    Stage,
    Stmt,
    Tag,
)
from argus.ir.visit import map_accesses
from argus.ir.visit import walk as statements
from argus.passes.fresh import names, touches
from argus.passes.report import Unfit
from argus.passes.specialise.plan import RolePlan, loads
from argus.passes.specialise.rings import Ring, counted, tiles_of
from argus.passes.stages import shared_copy
from argus.source import Span

_OTHER_REGISTERS = 24  # of a thread, besides accumulators and left operands; ptxas serialises products that have fewer
_REGISTER = 4  # bytes of a register


@dataclass(frozen=True, slots=True)
class Flight:
    """A committed group of products: their accumulators, all of their registers, and the staged tiles that they read.

    `carried`: the group was issued in the previous iteration.
    """

    into: frozenset[str]
    registers: frozenset[str]
    tiles: frozenset[str]
    carried: bool = False


def computing(plan: RolePlan, body: tuple[Stmt, ...], registers: int) -> tuple[Stmt, ...]:
    """Return the statements of `body` as the computing role runs them, in so many `registers` a thread. Raises `Unfit`.
    """
    writer = _Writer(plan, tiles_of(plan.rings), _sizes(plan.kernel), registers - _OTHER_REGISTERS)
    writer.readers = {r.full: sum(_reads(s, r) for s in body) for r in plan.rings if r.empty and not r.looped}
    for stmt in body:
        writer.statement(stmt)
    writer.finish(plan.loop.span)
    return tuple(writer.done)


def _sizes(kernel: Kernel) -> dict[str, int]:
    """Return the registers of a thread that each fragment takes."""
    threads = kernel.num_warps * kernel.warp_size
    return {f.name: -(-prod(f.shape) * f.dtype.bytes // (threads * _REGISTER)) for f in kernel.fragments}


@dataclass
class _Writer:
    """Writes one block, statement by statement. `readers` counts, by the mbarrier `full` of each ring, the remaining
    products that read the ring before its buffer is freed. `late` are rings with a buffer of the previous iteration
    that is not freed yet. `lasting` are rings of one buffer that only, and all, iterations read. `sizes` are the
    registers of a thread that each fragment takes. A thread has `room` for accumulators and left operands."""

    plan: RolePlan
    rings: dict[str, Ring]
    sizes: Mapping[str, int]
    room: int
    arrived: set[str] = field(default_factory=set)
    readers: dict[str, int] = field(default_factory=dict)
    done: list[Stmt] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)
    claims: list[AssertTags] = field(default_factory=list)
    late: tuple[Ring, ...] = ()
    lasting: tuple[Ring, ...] = ()
    fenced: bool = False

    @property
    def registers(self) -> frozenset[str]:
        return frozenset(self.sizes)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Stage():
                pass
            case Share():
                self._share(stmt)
            case AssertTags():
                self.claims.append(stmt)
                self._claim()
            case Mma():
                self._product(stmt)
            case For() if stmt is self.plan.loop:
                self._loop(stmt)
            case If() if _has_products(stmt):
                self._branch(stmt)
            case Copy() if loads(stmt, self.rings):
                self._load(stmt)
            case _:
                self._ordinary(stmt)

    def finish(self, span: Span) -> None:
        """Wait until nothing is in flight."""
        if self.flights:
            self._wait(len(self.flights) - 1, span)
        if self.claims:
            raise _untimely(self.claims[0])

    # ---------------------------------------------------------------- statements

    def _product(self, stmt: Mma) -> None:
        self._prepare(stmt)
        if not self.fenced:
            self.done.append(MmaFence(span=stmt.span))
            self.fenced = True
        self.done += [map_accesses(stmt, self._within), MmaCommit(span=stmt.span)]
        self._issued((stmt,))

    def _share(self, stmt: Share) -> None:
        """Store registers to a tile that no product reads any more. Products read the tile through another proxy than
        the threads that write it.

        With two buffers, all warps have been at the barrier of the previous iteration since products read this one.
        """
        self._touch(stmt)
        self._free({f for f in self.flights if stmt.dst in f.tiles}, stmt.span)
        meet = Barrier(span=stmt.span)
        written = map_accesses(shared_copy(stmt), self._within)
        self.done += [*(() if stmt.dst in self.plan.twice else (meet,)), written, ProxyFence(span=stmt.span), meet]
        self.fenced = False

    def _load(self, stmt: Copy) -> None:
        """Load a tile to registers, and free its buffer after the last such load. The copy engine, which fills the
        buffer again, uses another proxy than the threads."""
        ring = self.rings[stmt.src.obj]
        self._touch(stmt)
        self._arrive(ring, stmt.span)
        self.done.append(map_accesses(stmt, self._within))
        self.fenced = False
        if ring.full in self.readers:
            self.readers[ring.full] -= 1
            if not self.readers[ring.full] and ring.empty:
                self.done.append(ProxyFence(span=stmt.span))
            self._hand_back(stmt.span)

    def _branch(self, stmt: If) -> None:
        """Emit a branch with products. Waits and arrivals are placed before it.

        Both sides of the branch commit a group. The group of the side without products is complete immediately.
        """
        work: list[Stmt] = []
        for inner in stmt.then:
            match inner:
                case Mma():
                    self._prepare(inner)
                    work += [MmaFence(span=inner.span), map_accesses(inner, self._within)]
                case AssertTags():
                    raise Unfit("a claim stands in a branch with products", inner.span, "state it outside")
                case _:
                    self._touch(inner)
                    work.append(inner)
        close = MmaCommit(span=stmt.span)
        self.done.append(replace(stmt, then=(*work, close), orelse=(close,)))
        products = tuple(s for s in stmt.then if isinstance(s, Mma))
        self._issued(products)
        self.fenced = False

    def _prepare(self, stmt: Mma) -> None:
        """Wait for the tiles that a product reads, and for the products in flight that use its registers."""
        for ring in self._rings_of(stmt):
            self._arrive(ring, stmt.span)
        used = frozenset({stmt.d.obj, stmt.a.obj} & self.registers)
        self._free({f for f in self.flights if f.registers & used and f.into != {stmt.d.obj}}, stmt.span)
        self._settle(used)

    def _issued(self, products: tuple[Mma, ...]) -> None:
        """Record that products are in flight, in one group."""
        objects = frozenset(o for p in products for o in (p.d.obj, p.a.obj, p.b.obj))
        into = frozenset(p.d.obj for p in products)
        self.flights.append(Flight(into, objects & self.registers, objects - self.registers))
        for ring in dict.fromkeys(r for p in products for r in self._rings_of(p)):
            if ring.full in self.readers:
                self.readers[ring.full] -= 1

    def _rings_of(self, stmt: Mma) -> list[Ring]:
        return list(dict.fromkeys(self.rings[a.obj] for a in (stmt.a, stmt.b) if a.obj in self.rings))

    def _touch(self, stmt: Stmt) -> frozenset[str]:
        """Return the registers that a statement uses, after waiting for the products in flight that use them."""
        used = frozenset().union(*(touches(s) for s in statements((stmt,)))) & self.registers
        self._free({f for f in self.flights if f.registers & used}, stmt.span)
        self._settle(used)
        return used

    def _ordinary(self, stmt: Stmt) -> None:
        used = self._touch(stmt)
        self.done.append(map_accesses(stmt, self._within))
        self.fenced = self.fenced and (not used or isinstance(stmt, Tag))

    def _loop(self, loop: For) -> None:
        """Write the pipelined loop. Products that one iteration leaves in flight are known to the next one."""
        for ring in self.plan.rings:
            if not ring.looped and _reads(loop, ring):
                self._arrive(ring, loop.span)
        if self.flights:
            self._wait(len(self.flights) - 1, loop.span)
        lasting = tuple(r for r in self.plan.rings if self.readers.get(r.full) == 1 and _reads(loop, r))
        inner = self._iteration(loop, lasting, [], ())
        inner.make_room(loop)
        if inner.flights:
            late = tuple(r for r in self.plan.rings if r.looped and r.full in inner.readers)
            inner = self._iteration(loop, lasting, [replace(f, carried=True) for f in inner.flights], late)
            inner.leave(loop)
        if inner.claims:
            raise _untimely(inner.claims[0])
        self.done.append(counted(loop, self.plan.turn, tuple(inner.done)))
        if inner.flights:  # ptxas serialises products in flight unless a wait is on every path to their registers.
            self.done.append(MmaWait(0, span=loop.span))
        self.fenced = False
        for ring in lasting:
            del self.readers[ring.full]
            never = op("le", loop.stop, loop.start)
            self.done.append(If(never, ring.hand_back(ring.place, loop.span), (), span=loop.span))
        for ring in self.plan.rings:
            if ring.full in self.readers and _reads(loop, ring):
                self.readers[ring.full] -= 1
        self._hand_back(loop.span)

    def _iteration(
        self, loop: For, lasting: tuple[Ring, ...], flights: list[Flight], late: tuple[Ring, ...]
    ) -> _Writer:
        """Return one iteration. `flights` are the products of the previous iteration that are still running; it frees
        their buffers of the rings `late`."""
        inner = _Writer(self.plan, self.rings, self.sizes, self.room, set(self.arrived), flights=flights)
        read = (r for r in self.plan.rings if r.looped or r in lasting)
        inner.readers = {r.full: sum(_reads(s, r) for s in loop.body) for r in read}
        inner.late, inner.lasting = late, lasting
        if flights and any(isinstance(s, If) and _has_products(s) for s in loop.body):
            # ptxas serialises products if a branch uses registers of a product that is in flight before the branch.
            inner._wait(len(flights) - 1, loop.span)
        for stmt in loop.body:
            inner.statement(stmt)
        return inner

    def leave(self, loop: For) -> None:
        """End an iteration: only its own products stay in flight, and none after the last iteration."""
        carried = [i for i, f in enumerate(self.flights) if f.carried]
        if carried:
            self._wait(carried[-1], next(s.span for s in loop.body if isinstance(s, Mma)))
        self.make_room(loop)
        span = loop.span
        mine = [r for r in self.plan.rings if r.full in self.readers]
        own = tuple(arrival for r in mine for arrival in r.hand_back(r.place, span))
        self.done.append(If(_is_last(loop), (MmaWait(0, span=span), *own), (), span=span))

    def make_room(self, loop: For) -> None:
        """Wait for the oldest products in flight whose left operands leave the next iteration too few registers."""
        sums = {s.d.obj for s in statements(loop.body) if isinstance(s, Mma)}
        free = self.room - sum(self.sizes[name] for name in sums)
        staying = 0
        for flight in reversed(self.flights):
            held = sum(self.sizes[name] for name in flight.registers - sums)
            if held > free:
                break
            free, staying = free - held, staying + 1
        if staying < len(self.flights):
            self._wait(len(self.flights) - staying - 1, loop.span)

    # ---------------------------------------------------------------- order

    def _arrive(self, ring: Ring, span: Span) -> None:
        """Wait for a ring's tiles when they are first read."""
        if ring.full not in self.arrived:
            self.arrived.add(ring.full)
            self.done.append(MbarrierWait(ring.full, ring.place, ring.parity(0), span=span))
            self._claim()

    def _free(self, flights: set[Flight], span: Span) -> None:
        """Wait for these products, and therefore for all products before the last of them."""
        if flights:
            self._wait(max(i for i, f in enumerate(self.flights) if f in flights), span)

    def _wait(self, last: int, span: Span) -> None:
        """Wait for all products up to the given one, and free the buffers that nothing reads any more."""
        self.done.append(MmaWait(len(self.flights) - 1 - last, span=span))
        self.flights = self.flights[last + 1 :]
        self._claim()
        before = tuple(r for r in self.late if not self._reads(r, carried=True))
        if before:
            loop = self.plan.loop
            self.late = tuple(r for r in self.late if r not in before)
            arrivals = tuple(arrival for r in before for arrival in r.hand_back(r.previous, loop.span))
            later = op("ge", LoopVar(loop.var), op("add", loop.start, Const(loop.step)))
            self.done.append(If(later, arrivals, (), span=loop.span))
        self._hand_back(span)

    def _hand_back(self, span: Span) -> None:
        """Give the producer the buffers of this turn that nothing reads any more."""
        for ring in self.plan.rings:
            if self.readers.get(ring.full) == 0 and ring.empty and not self._reads(ring, carried=False):
                for claim in self.claims:
                    if names(claim) & ring.tiles:
                        raise _untimely(claim)
                del self.readers[ring.full]
                arrivals = ring.hand_back(ring.place, span)
                self.done += (If(_is_last(self.plan.loop), arrivals, span=span),) if ring in self.lasting else arrivals

    def _reads(self, ring: Ring, carried: bool) -> bool:
        """Return True if products in flight read the ring's tiles: products of the previous iteration if `carried`,
        else of this one."""
        return any(f.tiles & ring.tiles for f in self.flights if f.carried == carried)

    def _settle(self, used: frozenset[str]) -> None:
        """Raise an error if a pending assertion names registers in `used`, because it must be checked before they
        change."""
        for claim in self.claims:
            if names(claim) & used:
                raise _untimely(claim)

    def _claim(self) -> None:
        """Emit the tag assertions whose tiles have arrived and whose registers no product in flight uses."""
        flying = frozenset().union(*(f.registers for f in self.flights))
        waiting: list[AssertTags] = []
        for claim in self.claims:
            spoken = names(claim)
            there = all(self.rings[n].full in self.arrived for n in spoken & self.rings.keys())
            if there and not spoken & flying:
                moved = map_accesses(claim, self._within)
                assert isinstance(moved, AssertTags)
                self.done.append(moved)
            else:
                waiting.append(claim)
        self.claims = waiting

    def _within(self, access: Access) -> Access:
        if access.obj in self.plan.twice:
            return replace(access, index=(op("mod", LoopVar(self.plan.turn), Const(2)), *access.index))
        ring = self.rings.get(access.obj)
        return access if ring is None else ring.within(access)


def _is_last(loop: For) -> Expr:
    """Return the condition that an iteration is the last one."""
    return op("ge", op("add", LoopVar(loop.var), Const(loop.step)), loop.stop)


def _reads(stmt: Stmt, ring: Ring) -> bool:
    """Return True if `stmt`, or a statement inside it, is a product or a load that reads the ring's tiles."""
    return any(
        {s.a.obj, s.b.obj} & ring.tiles if isinstance(s, Mma) else loads(s, ring.tiles) for s in statements((stmt,))
    )


def _has_products(stmt: If) -> bool:
    return any(isinstance(s, Mma) for s in stmt.then)


def _untimely(claim: AssertTags) -> Unfit:
    why = "a claim speaks of registers of products that are still in flight there"
    return Unfit(why, claim.span, "state it after the loop, or before the product")
