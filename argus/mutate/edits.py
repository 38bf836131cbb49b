"""Edits of single statements: how each kind of statement changes when its author, or a pass, makes one mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import isinf

from argus.ir.expr import Const, Elem, Expr, Op, elements, rewrite
from argus.ir.instruction import MULTICASTS
from argus.ir.nodes import (
    Access,
    Accumulate,
    AssertTags,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BeginTurns,
    BulkCommit,
    BulkCopy,
    BulkWait,
    CommitGroup,
    Copy,
    EndTurns,
    For,
    If,
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
    Once,
    ProxyFence,
    Signal,
    Stmt,
    TagEqual,
    TagTerm,
    TagTuple,
    ThreadCopy,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
)
from argus.layout import FragmentLayout
from argus.mutate.kind import Kind
from argus.mutate.terms import Edit, one_changed, terms

_TITLES: dict[type, str] = {
    Barrier: "a barrier",
    CommitGroup: "a commit",
    WaitGroup: "a wait",
    MmaFence: "a fence of products",
    MmaCommit: "a commit of products",
    MmaWait: "a wait for products",
    BulkCommit: "a commit of bulk stores",
    BulkWait: "a wait for bulk stores",
    ProxyFence: "a proxy fence",
    WaitCounts: "a wait of waves",
    WaveBarrier: "a bare barrier",
    BeginTurns: "a beginning of turns",
    EndTurns: "an end of turns",
    MbarrierExpect: "an expectation of bytes",
    MbarrierArrive: "an arrival",
    MbarrierWait: "a wait for a phase",
    MbarrierInit: "an initialisation of mbarriers",
    MbarrierFence: "a fence of mbarriers",
    BarrierSync: "a meeting at a named barrier",
    BarrierArrive: "an arrival at a named barrier",
}
_OTHER_REDUCTION = {"add": "maximum", "mul": "add", "maximum": "minimum", "minimum": "maximum"}
_BYTES = 16
"""The smallest change of the number of bytes that an mbarrier expects."""
_WARP = 32
"""The smallest change of the number of threads that a named barrier counts."""


def title(stmt: Stmt) -> str:
    """Return the name of a statement that synchronises."""
    return _TITLES[type(stmt)]


def other_barriers(stmt: Stmt, names: Iterable[str]) -> Iterator[Edit]:
    """Yield the statement with each of the other mbarriers among `names` in place of its own."""
    match stmt:
        case MbarrierExpect(barrier=own) | MbarrierArrive(barrier=own) | MbarrierWait(barrier=own):
            yield from ((f"use {name}", Kind.INDEX, (replace(stmt, barrier=name),)) for name in names if name != own)
        case BulkCopy(signal=Signal(barrier=own, index=index)):
            others = (name for name in names if name != own)
            yield from ((f"signal {n}", Kind.INDEX, (replace(stmt, signal=Signal(n, index)),)) for n in others)
        case _:
            pass


def statement(stmt: Stmt) -> Iterator[Edit]:
    """Yield the edits of one statement. Removing and moving synchronising statements are separate edits."""
    match stmt:
        case WaitGroup(pending=pending) | MmaWait(pending=pending) | BulkWait(pending=pending):
            yield "wait for one group less", Kind.COUNT, (replace(stmt, pending=pending + 1),)
            if pending:
                yield "wait for one group more", Kind.COUNT, (replace(stmt, pending=pending - 1),)
            if isinstance(stmt, BulkWait):
                yield "wait for more or for less than the reads", Kind.COUNT, (replace(stmt, read=not stmt.read),)
        case Barrier(scope="cluster"):
            yield "meet in this block alone", Kind.SCOPE, (replace(stmt, scope="block"),)
        case MbarrierExpect() | MbarrierArrive() | MbarrierWait():
            yield from _mbarrier(stmt)
        case BarrierSync() | BarrierArrive():
            yield from _named_barrier(stmt)
        case WaitCounts():
            yield from _wait_counts(stmt)
        case Copy():
            yield from _copy(stmt)
        case Map():
            yield from _map(stmt)
        case Accumulate() | Mma():
            yield from _accumulation(stmt)
        case For():
            yield from _loop(stmt)
        case If(cond=cond, then=then, orelse=orelse):
            yield "always take a branch", Kind.MASK, then
            yield "never take a branch", Kind.MASK, orelse
            for name, changed in _comparisons(cond):
                yield f"{name} a condition", Kind.MASK, (replace(stmt, cond=changed),)
        case AssertTags():
            yield "assert a longer set", Kind.ASSERTION, (_longer(stmt),)
        case _:
            pass
    if isinstance(stmt, ThreadCopy | Map | Accumulate) and stmt.layout is not None:
        other = _other_threads(stmt.layout)
        if other is not None:
            yield "give elements to other threads", Kind.LAYOUT, (replace(stmt, layout=other),)
    yield from terms(stmt)
    if isinstance(stmt, Map | Accumulate) and stmt.scope is not None:
        scope = "warp" if stmt.scope == "thread" else "thread"
        yield f"combine within a {scope}", Kind.SCOPE, (replace(stmt, scope=scope),)


# ---------------------------------------------------------------------------- statements


def _mbarrier(stmt: MbarrierExpect | MbarrierArrive | MbarrierWait) -> Iterator[Edit]:
    def place(index: Expr) -> Stmt:
        return replace(stmt, index=index)

    yield from _indices("mbarrier", (stmt.index,), lambda index: place(index[0]))
    match stmt:
        case MbarrierExpect(bytes=count):
            yield "expect more bytes", Kind.COUNT, (replace(stmt, bytes=count + _BYTES),)
            yield "expect fewer bytes", Kind.COUNT, (replace(stmt, bytes=count - _BYTES),)
            yield "expect bytes twice", Kind.COUNT, (stmt, stmt)
        case MbarrierArrive():
            yield "arrive twice", Kind.COUNT, (stmt, stmt)
            if stmt.scope == "cluster":
                yield "arrive in this block alone", Kind.SCOPE, (replace(stmt, scope="block"),)
        case MbarrierWait(parity=parity):
            flipped = Op("mod", (_plus(parity, 1), Const(2, parity.dtype)), parity.dtype)
            yield "wait for the other parity", Kind.COUNT, (replace(stmt, parity=flipped),)
            for value in (0, 1):
                yield f"always wait for parity {value}", Kind.COUNT, (replace(stmt, parity=Const(value)),)
            match parity:
                case Op(op="mod", args=(turn, Const(value=2))):
                    yield "wait for a turn, not its parity", Kind.COUNT, (replace(stmt, parity=turn),)
                case _:
                    pass


def _named_barrier(stmt: BarrierSync | BarrierArrive) -> Iterator[Edit]:
    for other in (-1, 1):
        number, count = stmt.number + other, stmt.count + other * _WARP
        yield f"use barrier {number}", Kind.INDEX, (replace(stmt, number=number),)
        yield f"count {count} threads", Kind.COUNT, (replace(stmt, count=count),)
    yield "come to a named barrier twice", Kind.COUNT, (stmt, stmt)
    if isinstance(stmt, BarrierSync):
        yield "arrive without waiting", Kind.STATEMENT, (BarrierArrive(stmt.number, stmt.count, span=stmt.span),)
    else:
        yield "wait where others arrive", Kind.STATEMENT, (BarrierSync(stmt.number, stmt.count, span=stmt.span),)


def _wait_counts(stmt: WaitCounts) -> Iterator[Edit]:
    vm, lgkm = stmt.vm, stmt.lgkm
    if vm is not None:
        yield "wait for one load less", Kind.COUNT, (replace(stmt, vm=vm + 1),)
        if vm:
            yield "wait for one load more", Kind.COUNT, (replace(stmt, vm=vm - 1),)
    if vm is not None and lgkm is not None:
        yield "wait for no load", Kind.COUNT, (replace(stmt, vm=None),)
        yield "wait for no access to LDS", Kind.COUNT, (replace(stmt, lgkm=None),)
    if lgkm is not None:
        yield "wait for one access less", Kind.COUNT, (replace(stmt, lgkm=lgkm + 1),)


def _copy(stmt: Copy) -> Iterator[Edit]:
    yield "drop a copy", Kind.STATEMENT, ()
    if isinstance(stmt, BulkCopy) and stmt.instr in MULTICASTS:
        yield "copy to this block alone", Kind.SCOPE, (replace(stmt, instr="tma.load", among=None),)
    if isinstance(stmt, BulkCopy) and stmt.among is not None:
        yield "copy to the whole cluster", Kind.SCOPE, (replace(stmt, among=None),)
    yield from _indices("source", stmt.src.index, lambda index: replace(stmt, src=replace(stmt.src, index=index)))
    yield from _indices("target", stmt.dst.index, lambda index: replace(stmt, dst=replace(stmt.dst, index=index)))
    for number in (0, 1):
        block = Const(number)
        if stmt.src.block not in (None, block):
            yield f"read what block {number} has", Kind.INDEX, (replace(stmt, src=replace(stmt.src, block=block)),)
        if stmt.dst.block not in (None, block):
            yield f"write to block {number}", Kind.INDEX, (replace(stmt, dst=replace(stmt.dst, block=block)),)
    match stmt:
        case BulkCopy(signal=Signal(barrier=barrier, index=place)):
            yield from _indices("mbarrier", (place,), lambda index: replace(stmt, signal=Signal(barrier, index[0])))
    if stmt.mask is not None:
        yield "drop a mask", Kind.MASK, (replace(stmt, mask=None, other=None),)
        for name, mask in (*_conjuncts(stmt.mask), *_comparisons(stmt.mask)):
            yield f"{name} a mask", Kind.MASK, (replace(stmt, mask=mask),)
    if stmt.other is not None:
        yield "pad with another value", Kind.VALUE, (replace(stmt, other=_other_value(stmt.other)),)
        yield "pad with old values", Kind.VALUE, (replace(stmt, other=None),)


def _map(stmt: Map) -> Iterator[Edit]:
    if isinstance(stmt.value, Const):
        yield "drop an initial value", Kind.VALUE, ()
        yield "start from another value", Kind.VALUE, (replace(stmt, value=_other_value(stmt.value)),)
    else:
        yield "drop a computation", Kind.STATEMENT, ()
    yield from _indices("target", stmt.dst.index, lambda index: replace(stmt, dst=Access(stmt.dst.obj, index)))
    yield from _registers(stmt.value, lambda value: replace(stmt, value=value))
    for name, value in _comparisons(stmt.value):
        yield f"{name} a comparison", Kind.MASK, (replace(stmt, value=value),)


def _accumulation(stmt: Accumulate | Mma) -> Iterator[Edit]:
    yield "accumulate twice", Kind.REDUCTION, (stmt, stmt)
    yield "drop an accumulation", Kind.REDUCTION, ()
    if isinstance(stmt, Mma):
        for name, access in (("d", stmt.d), ("a", stmt.a), ("b", stmt.b)):
            yield from _indices(name, access.index, _operand(stmt, name, access.obj))
        return
    yield "reduce by another operator", Kind.REDUCTION, (replace(stmt, op=_OTHER_REDUCTION[stmt.op]),)
    yield from _indices("target", stmt.dst.index, lambda index: replace(stmt, dst=Access(stmt.dst.obj, index)))
    yield from _registers(stmt.value, lambda value: replace(stmt, value=value))
    if stmt.mask is not None:
        yield "drop a mask", Kind.MASK, (replace(stmt, mask=None),)
        for label, mask in (*_conjuncts(stmt.mask), *_comparisons(stmt.mask)):
            yield f"{label} a mask", Kind.MASK, (replace(stmt, mask=mask),)


def _operand(stmt: Mma, name: str, obj: str) -> Callable[[tuple[Expr, ...]], Stmt]:
    def changed(index: tuple[Expr, ...]) -> Stmt:
        access = Access(obj, index)
        match name:
            case "d":
                return replace(stmt, d=access)
            case "a":
                return replace(stmt, a=access)
            case _:
                return replace(stmt, b=access)

    return changed


def _loop(stmt: For) -> Iterator[Edit]:
    step = stmt.step
    yield "start one step later", Kind.LOOP, (replace(stmt, start=_plus(stmt.start, step)),)
    yield "stop one step earlier", Kind.LOOP, (replace(stmt, stop=_plus(stmt.stop, -step)),)
    yield "stop one step later", Kind.LOOP, (replace(stmt, stop=_plus(stmt.stop, step)),)
    yield "double the step", Kind.LOOP, (replace(stmt, step=2 * step),)
    if step % 2 == 0:
        yield "halve the step", Kind.LOOP, (replace(stmt, step=step // 2),)
    if stmt.counter is not None:
        for change in (1, -1):
            counter = replace(stmt.counter, wrap=stmt.counter.wrap + change)
            yield f"wrap the count at {counter.wrap}", Kind.COUNT, (replace(stmt, counter=counter),)


def _longer(stmt: AssertTags) -> AssertTags:
    def term(t: TagTerm) -> TagTerm:
        return replace(t, hi=_plus(t.hi, 1)) if isinstance(t, Once) else t

    def condition(c: TagEqual | TagTuple) -> TagEqual | TagTuple:
        if isinstance(c, TagEqual):
            return replace(c, left=term(c.left), right=term(c.right))
        return replace(c, terms=tuple(term(t) for t in c.terms))

    return replace(stmt, conditions=tuple(condition(c) for c in stmt.conditions))


def _other_threads(layout: FragmentLayout) -> FragmentLayout | None:
    """Return the layout with the two fastest digits of the thread exchanged, or None if the thread has only one digit.
    """
    if len(layout.threads) < 2:
        return None
    first, second, *rest = layout.threads
    return FragmentLayout(layout.shape, (second, first, *rest), layout.values)


# ---------------------------------------------------------------------------- indices


def _indices(what: str, index: tuple[Expr, ...], put: Callable[[tuple[Expr, ...]], Stmt]) -> Iterator[Edit]:
    """Yield edits of one access. `put` returns the statement with another index."""
    for axis, expr in enumerate(index):

        def one(new: Expr, axis: int = axis) -> tuple[Stmt, ...]:
            return (put((*index[:axis], new, *index[axis + 1 :])),)

        yield f"shift {what} index {axis}", Kind.INDEX, one(_plus(expr, 1))
        match expr:
            case Op(op="mod", args=(x, Const(value=value) as slots)) if value > 1:
                yield f"next slot of {what} index {axis}", Kind.COUNT, one(replace(expr, args=(_plus(x, 1), slots)))
                for step in (-1, 1):
                    other = replace(expr, args=(x, Const(value + step, slots.dtype)))
                    yield f"another modulus of {what} index {axis}", Kind.COUNT, one(other)
            case _:
                pass
    if len(index) > 1 and index[-1] != index[-2]:
        yield f"swap {what} indices", Kind.INDEX, (put((*index[:-2], index[-1], index[-2])),)


def _registers(value: Expr, put: Callable[[Expr], Stmt]) -> Iterator[Edit]:
    """Yield edits of the registers that a value reads."""
    for elem in dict.fromkeys(elements(value)):

        def replaced(index: tuple[Expr, ...], elem: Elem = elem) -> Stmt:
            new = replace(elem, index=index)
            return put(rewrite(value, lambda e: new if e == elem else None))

        yield from _indices(elem.obj, elem.index, replaced)


def _plus(expr: Expr, amount: int) -> Expr:
    name = "add" if amount >= 0 else "sub"
    return Op(name, (expr, Const(abs(amount), expr.dtype)), expr.dtype)


# ---------------------------------------------------------------------------- masks and values

_WEAKER = {"lt": "le", "gt": "ge"}
_STRONGER = {"le": "lt", "ge": "gt"}


def _comparisons(expr: Expr) -> Iterator[tuple[str, Expr]]:
    """Yield `expr` with one of its comparisons weakened or strengthened by one."""
    for changed in one_changed(expr, _weaker):
        yield "weaken", changed
    for changed in one_changed(expr, _stronger):
        yield "strengthen", changed


def _weaker(e: Expr) -> Expr | None:
    match e:
        case Op(op=name) if name in _WEAKER:
            return replace(e, op=_WEAKER[name])
        case Op(op="le", args=(x, y)):
            return replace(e, args=(x, _plus(y, 1)))
        case Op(op="ge", args=(x, y)):
            return replace(e, args=(x, _plus(y, -1)))
        case _:
            return None


def _stronger(e: Expr) -> Expr | None:
    match e:
        case Op(op=name) if name in _STRONGER:
            return replace(e, op=_STRONGER[name])
        case Op(op="lt", args=(x, y)):
            return replace(e, args=(x, _plus(y, -1)))
        case Op(op="gt", args=(x, y)):
            return replace(e, args=(x, _plus(y, 1)))
        case _:
            return None


def _conjuncts(mask: Expr) -> Iterator[tuple[str, Expr]]:
    """Yield `mask` without one side of a conjunction."""

    def side(number: int) -> Callable[[Expr], Expr | None]:
        return lambda e: e.args[number] if isinstance(e, Op) and e.op == "and" else None

    for number in (0, 1):
        for changed in one_changed(mask, side(number)):
            yield "drop a part of", changed


def _other_value(value: Const) -> Const:
    """Return another literal of the type: one more, or zero for an infinity."""
    number = value.value
    if value.dtype.is_float:
        return replace(value, value=0.0 if isinf(number) else float(number) + 1)
    return replace(value, value=not number if value.dtype.kind == "bool" else int(number) + 1)
