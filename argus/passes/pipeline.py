"""Pipeline loops in software: a `For(kind="pipelined")` with `Stage`s becomes a multi-buffered loop.

    for k in pipelined(lo, hi, step), stages S:        at[0] <~ a[.., lo + 0*step ..] if lo + 0*step < hi
        stage at <- a[.., k ..]                        commit                               (S - 1 times: prologue)
        mma acc += at * ...                      ->    for k in range(lo, hi, step):        i = (k - lo) // step
                                                           wait S - 2; barrier
                                                           ahead = k + (S-1)*step
                                                           at[(i + S-1) % S] <~ a[.., ahead ..] if ahead < hi
                                                           commit
                                                           mma acc += at[i % S] * ...
                                                       wait 0

The one barrier of an iteration makes the awaited tile visible to all threads. It also keeps the next copy out of the
buffer that other threads may still read in the previous iteration. Copies past the end of the loop write zeros to
buffers that no iteration reads, because a predicate costs less than a branch in the loop. The last wait is for these
copies. Tiles that cannot be copied asynchronously go through registers with two buffers: iteration i loads the tile for
iteration i + 1 at its beginning, and stores it to the other buffer at its end. On AMD this also happens past the end of
the loop, with zeros that no iteration reads. On AMD, waves count loads one by one, so a wait states how many loads of
the S - 2 later iterations may be open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.diagnostic import Diagnostic
from argus.ir.affine import Facts, facts
from argus.ir.expr import Const, Coord, Expr, LoopVar, Op, coords, op
from argus.ir.nodes import (
    Access,
    Accumulate,
    Barrier,
    Copy,
    For,
    If,
    Kernel,
    Map,
    Mma,
    Shared,
    Stage,
    Stmt,
    Tag,
    ThreadCopy,
)
from argus.ir.visit import map_accesses, map_exprs, numbered, rewrite_body, walk
from argus.passes.context import Enclosing, rewrite_in_context
from argus.passes.fresh import Fresh, names, whole
from argus.passes.moves import target_of
from argus.passes.report import LoweringError, problem
from argus.passes.stages import asynchronous_copy, awaited, committed, padded, plain_copy, reads
from argus.passes.tiles import staged
from argus.passes.turned import deposit, on_the_way


@dataclass(frozen=True, slots=True)
class Buffered:
    """A tile with `buffers` buffers, and the `register` tile through which it is loaded, or None if it is copied
    asynchronously.

    `turned` is the transposed register tile that is stored instead of `register`, if there is one.
    """

    stage: Stage
    buffers: int
    register: str | None
    turned: str | None = None


def pipeline(kernel: Kernel) -> Kernel:
    """Expand every pipelined loop. `Stage`s that cannot run ahead are left for `stage_tiles`."""
    kernel = numbered(kernel)
    fresh = Fresh(kernel)
    plans: dict[int, tuple[Buffered, ...]] = {}
    problems: list[Diagnostic] = []
    grown: dict[str, Shared] = {}
    known = facts(kernel)
    for loop in walk(kernel.body):
        if isinstance(loop, For) and loop.kind == "pipelined":
            stages = _ahead(kernel, loop) if loop.stages > 1 else ()
            problems += _misuse(kernel, loop, stages)
            plan = tuple(_plan(kernel, fresh, s, loop.stages, known) for s in stages)
            plans[loop.id] = plan
            grown |= {b.stage.dst: _grow(kernel, b) for b in plan}
    if problems:
        raise LoweringError(*problems)
    shared = tuple(grown.get(s.name, s) for s in kernel.shared)
    fresh.kernel = replace(kernel, shared=shared)

    def change(stmt: Stmt, context: Enclosing) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, For) or stmt.kind != "pipelined":
            return None
        plan = plans[stmt.id]
        if not plan:
            return (replace(stmt, kind="dynamic", stages=1, producer_warps=0),)
        if context.divergent:
            what = "a pipelined loop needs all threads of the block, but only some of them get here"
            help_text = "move the loop out of the branch"
            raise LoweringError(problem("barrier-in-divergent-branch", what, stmt.span, help_text))
        again: tuple[Stmt, ...] = (Barrier(span=stmt.span),) if context.loops else ()
        return (*again, *_expand(fresh.kernel, stmt, plan, known))

    return fresh.finish(rewrite_in_context(kernel.body, change))


def _ahead(kernel: Kernel, loop: For) -> tuple[Stage, ...]:
    """Return the stages of the loop whose copies may be issued in earlier iterations."""
    written: set[str] = set()
    for stmt in walk(loop.body):
        written |= _writes(stmt)
    mine = [s for s in loop.body if isinstance(s, Stage)]
    once = [s for s in mine if [t.dst for t in mine].count(s.dst) == 1]
    return tuple(
        padded(s, kernel) for s in once if s.src.obj not in written and not any(e.obj in written for e in reads(s))
    )


def _writes(stmt: Stmt) -> set[str]:
    match stmt:
        case Copy(dst=dst) | Map(dst=dst) | Accumulate(dst=dst) | Mma(d=dst):
            return {dst.obj}
        case _:
            return set()


def _misuse(kernel: Kernel, loop: For, stages: tuple[Stage, ...]) -> list[Diagnostic]:
    """Return problems for uses of the loop's tiles that buffering would break: uses outside the loop, and tags on a
    tile."""
    tiles = {s.dst for s in stages}
    inside = {s.id for s in walk(loop.body)}
    result: list[Diagnostic] = []
    for stmt in walk(kernel.body):
        if stmt.id not in inside and tiles & names(stmt):
            what = f"tile {min(tiles & names(stmt))} lives in buffers of a pipelined loop, but is used outside of it"
            help_text = "stage the tile again, or bind it with al.load in the loop"
            result.append(problem("staged-tile-escapes", what, stmt.span, help_text))
        if stmt.id in inside and isinstance(stmt, Tag) and stmt.obj in tiles:
            what = f"tile {stmt.obj} is one of several buffers: a tag on it would mark those of other iterations"
            result.append(problem("tag-on-buffer", what, stmt.span, "tag the tensor that the tile is staged from"))
    return result


def _plan(kernel: Kernel, fresh: Fresh, stage: Stage, stages: int, known: Facts) -> Buffered:
    rank = len(stage.shape)
    if asynchronous_copy(kernel, stage, whole(stage.dst, rank), known) is not None:
        return Buffered(stage, stages, None)
    return Buffered(stage, 2, *on_the_way(kernel, fresh, stage))


def _grow(kernel: Kernel, plan: Buffered) -> Shared:
    tile = kernel.object(plan.stage.dst)
    assert isinstance(tile, Shared) and tile.layout is not None
    return replace(tile, shape=(plan.buffers, *tile.shape), layout=staged(tile.layout, plan.buffers))


def _expand(kernel: Kernel, loop: For, plan: tuple[Buffered, ...], known: Facts) -> tuple[Stmt, ...]:
    """Return the prologue, the steady state and the drain of `loop`."""
    direct = [b for b in plan if b.register is None]
    through = [b for b in plan if b.register is not None]
    k = LoopVar(loop.var)
    iteration = op("floordiv", op("sub", k, loop.start), Const(loop.step))
    later = op("add", k, Const((loop.stages - 1) * loop.step))
    following = op("add", k, Const(loop.step))

    prologue: list[Stmt] = []
    for ahead in range(loop.stages - 1 if direct else 0):
        place = op("add", loop.start, Const(ahead * loop.step))
        prologue += [_issue(kernel, loop, b, place, Const(ahead), known) for b in direct]
        prologue += committed(kernel, loop.span)
    if through:
        first = [s for b in through for s in (_fetch(loop, b, loop.start), *_deposit(kernel, b, Const(0)))]
        prologue.append(_within(loop, loop.start, first))

    target = op("mod", op("add", iteration, Const(loop.stages - 1)), Const(loop.stages))
    group = [_issue(kernel, loop, b, later, target, known) for b in direct]
    top: list[Stmt] = [awaited(kernel, group, loop.stages - 2, loop.span)] if direct else []
    top.append(Barrier(span=loop.span))
    if direct:
        top += [*group, *committed(kernel, loop.span)]
    bottom: list[Stmt] = []
    if through:
        top += _ahead_of(kernel, loop, following, [_fetch(loop, b, following) for b in through])
        target = op("mod", op("add", iteration, Const(1)), Const(2))
        bottom += _if_any(kernel, loop, following, [s for b in through for s in _deposit(kernel, b, target)])

    copied = {s.id for s in loop.body if isinstance(s, Stage) and s.dst in {b.stage.dst for b in plan}}
    rest = tuple(s for s in loop.body if s.id not in copied)
    place_now = {b.stage.dst: op("mod", iteration, Const(b.buffers)) for b in plan}
    body = (*top, *_in_buffers(rest, place_now), *bottom)
    drain = (awaited(kernel, group, 0, loop.span),) if direct else ()
    return (*prologue, replace(loop, body=body, kind="dynamic", stages=1, producer_warps=0), *drain)


def _ahead_of(kernel: Kernel, loop: For, k: Expr, fetches: list[ThreadCopy]) -> list[Stmt]:
    """Return the loads of iteration `k`, if it exists. If it does not, waves load zeros, because a branch in the loop
    would keep the compiler from moving loads, products and stores past one another."""
    if target_of(kernel).vendor != "amd":
        return [_within(loop, k, [*fetches])]
    exists = op("lt", k, loop.stop)

    def masked(fetch: ThreadCopy) -> ThreadCopy:
        if fetch.mask is None or _implies(fetch.mask, k, loop.stop):
            return replace(_zeros(kernel, fetch), mask=exists if fetch.mask is None else fetch.mask)
        return replace(_zeros(kernel, fetch), mask=op("and", exists, fetch.mask))

    return [masked(f) for f in fetches]


def _implies(mask: Expr, k: Expr, stop: Expr) -> bool:
    """Return True if a mask asks whether `k`, plus a coordinate, is below `stop`."""
    match mask:
        case Op(op="and", args=(a, b)):
            return _implies(a, k, stop) or _implies(b, k, stop)
        case Op(op="lt", args=(Op(op="add", args=(start, Coord())), end)):
            return start == k and end == stop
        case _:
            return False


def _zeros(kernel: Kernel, fetch: ThreadCopy) -> ThreadCopy:
    dtype = kernel.object(fetch.src.obj).dtype
    return fetch if fetch.other is not None else replace(fetch, other=Const(0.0 if dtype.is_float else 0, dtype))


def _if_any(kernel: Kernel, loop: For, k: Expr, stores: list[Stmt]) -> list[Stmt]:
    """Return the stores of iteration `k`. If it does not exist, the stores of waves go to a buffer that no iteration
    reads."""
    return stores if target_of(kernel).vendor == "amd" else [_within(loop, k, stores)]


def _within(loop: For, k: Expr, body: list[Stmt]) -> Stmt:
    """Return `body` under the condition that iteration `k` exists."""
    return If(op("lt", k, loop.stop), tuple(body), (), span=loop.span)


def _at_iteration(loop: For, stage: Stage, k: Expr) -> Stage:
    def change(e: Expr) -> Expr | None:
        match e:
            case LoopVar(name=loop.var):
                return k
            case Op(op=name, args=args, dtype=dtype) if dtype.is_int and name != "cast":
                return op(name, *args)  # `op` folds constants
            case _:
                return None

    moved = map_exprs(stage, change)
    assert isinstance(moved, Stage)
    return moved


def _issue(kernel: Kernel, loop: For, plan: Buffered, k: Expr, buffer: Expr, known: Facts) -> ThreadCopy:
    place = Access(plan.stage.dst, (buffer, *coords(len(plan.stage.shape))))
    stage = _at_iteration(loop, plan.stage, k)
    exists = op("lt", k, loop.stop)
    stage = replace(stage, mask=exists if stage.mask is None else op("and", exists, stage.mask))
    copy = asynchronous_copy(kernel, padded(stage, kernel), place, known)
    assert copy is not None  # Buffers and whole steps keep the alignment of addresses.
    return copy


def _fetch(loop: For, plan: Buffered, k: Expr) -> ThreadCopy:
    assert plan.register is not None
    return plain_copy(_at_iteration(loop, plan.stage, k), whole(plan.register, len(plan.stage.shape)))


def _deposit(kernel: Kernel, plan: Buffered, buffer: Expr) -> tuple[Stmt, ...]:
    assert plan.register is not None
    stage, here = plan.stage, coords(len(plan.stage.shape))
    place = Access(stage.dst, (buffer, *here))
    return deposit(kernel, stage, place, plan.register, plan.turned)


def _in_buffers(body: tuple[Stmt, ...], buffers: dict[str, Expr]) -> tuple[Stmt, ...]:
    """Return `body` with every access to a staged tile directed to the buffer of this iteration."""

    def change(access: Access) -> Access:
        if access.obj not in buffers:
            return access
        return replace(access, index=(buffers[access.obj], *access.index))

    return rewrite_body(body, lambda stmt: (map_accesses(stmt, change),))
