"""The vocabulary of repairs: every kernel that differs by one edit, in the direction from a mistake to its remedy.

`argus.mutate` defines the mistakes. The edits here are their inverses, and those mutations that are their own inverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from argus.agents.bounds import bounded, bounds, padded, without_constants
from argus.ir.access import relations
from argus.ir.expr import Const, Expr, Op, conjunction, conjuncts, op
from argus.ir.nodes import (
    Accumulate,
    AssertTags,
    Barrier,
    BulkWait,
    CommitGroup,
    Copy,
    For,
    Kernel,
    Map,
    MmaCommit,
    MmaFence,
    MmaWait,
    ProxyFence,
    Spec,
    Stmt,
    Tag,
    WaitGroup,
)
from argus.ir.visit import map_exprs, rewrite_blocks, rewrite_body, walk
from argus.mutate import Kind, edits

Block = tuple[Stmt, ...]


class Group(Enum):
    """The kind of change that an edit makes. The value is its name in reports."""

    ORDER = "add synchronisation"
    CONSTANT = "leave out a constant"
    COUNT = "counts and parities"
    INDEX = "indices"
    MASK = "masks and conditions"
    VALUE = "initial and other values"
    REDUCTION = "reductions"
    LOOP = "loops"
    SCOPE = "scopes"
    LAYOUT = "threads"
    EXCHANGE = "order of statements"
    GRID = "grid"


_GROUPS = {
    Kind.COUNT: Group.COUNT, Kind.INDEX: Group.INDEX, Kind.MASK: Group.MASK, Kind.VALUE: Group.VALUE,
    Kind.REDUCTION: Group.REDUCTION, Kind.LOOP: Group.LOOP, Kind.SCOPE: Group.SCOPE, Kind.LAYOUT: Group.LAYOUT,
}  # fmt: skip
"""Edits of `argus.mutate` that may be remedies. Leaving out a copy or a computation never is one."""


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit: `new[id]` replaces the statement with that `id`, or `grid` replaces the grid. `at` is the statement to
    which the edit belongs."""

    title: str
    group: Group
    at: int
    new: Mapping[int, Block]
    grid: tuple[Expr, ...] | None = None

    def apply(self, kernel: Kernel) -> Kernel:
        """Return the numbered `kernel` after the edit."""
        if self.grid is not None:
            return replace(kernel, grid=self.grid)
        return replace(kernel, body=rewrite_body(kernel.body, lambda s: self.new.get(s.id)))


def vocabulary(kernel: Kernel) -> list[Edit]:
    """Return every edit of the numbered `kernel` in program order. The edits of the grid come last."""
    found: list[Edit] = []
    orders = _orders(kernel)

    def note(block: Block) -> Block:
        for i, stmt in enumerate(block):
            following = block[i + 1] if i + 1 < len(block) else None
            found.extend(_inserted(stmt, orders))
            if not isinstance(stmt, Tag | AssertTags | Spec):
                found.extend(_changed(stmt, kernel))
                found.extend(_neighbours(stmt, following))
        return block

    rewrite_blocks(kernel.body, note)
    return [*found, *_grids(kernel)]


def _orders(kernel: Kernel) -> list[tuple[str, Block]]:
    """List the synchronisation, of the kinds that kernel and target have, that may be missing between two accesses."""
    found: list[tuple[str, Block]] = [("a barrier", (Barrier(),))]
    instructions = {s.instr for s in walk(kernel.body) if isinstance(s, Copy)}
    if "cp.async" in instructions:
        waits = sorted({s.pending for s in walk(kernel.body) if isinstance(s, WaitGroup)} | {0}, reverse=True)
        found.append(("a commit", (CommitGroup(),)))
        found.extend((f"a wait ({n} pending)", (WaitGroup(n),)) for n in waits)
        found.extend((f"a wait ({n} pending) and a barrier", (WaitGroup(n), Barrier())) for n in waits)
    if kernel.target == "sm_90a":
        found += [("a proxy fence", (ProxyFence(),)), ("a proxy fence and a barrier", (ProxyFence(), Barrier())),
                  ("a fence of products", (MmaFence(),)), ("a commit of products", (MmaCommit(),)),
                  ("a wait for products", (MmaWait(0),)), ("a wait for bulk stores", (BulkWait(0),))]  # fmt: skip
    return found


def _inserted(stmt: Stmt, orders: list[tuple[str, Block]]) -> Iterator[Edit]:
    for title, new in orders:
        yield Edit(f"add {title} before", Group.ORDER, stmt.id, {stmt.id: (*new, stmt)})
        yield Edit(f"add {title} after", Group.ORDER, stmt.id, {stmt.id: (stmt, *new)})


def _changed(stmt: Stmt, kernel: Kernel) -> Iterator[Edit]:
    """Yield edits of one statement, but not of the statements inside a loop or a branch."""

    def edit(title: str, group: Group, *new: Stmt) -> Edit:
        return Edit(title, group, stmt.id, {stmt.id: new})

    for changed in _without_constants(stmt):
        yield edit("leave out a constant", Group.CONSTANT, changed)
    for changed in _masked(stmt, kernel):
        yield edit("mask by the bounds of the tensor", Group.MASK, changed)
    yield from (edit("another value", Group.VALUE, changed) for changed in _values(stmt, kernel))
    if isinstance(stmt, Accumulate):
        for name in ("add", "mul", "maximum", "minimum"):
            if name != stmt.op:
                yield edit(f"reduce by {name}", Group.REDUCTION, replace(stmt, op=name))
    for title, kind, new in edits.statement(stmt):
        if kind in _GROUPS and new != (stmt, stmt) and (new or not isinstance(stmt, Copy | Map | Accumulate)):
            yield Edit(title, _GROUPS[kind], stmt.id, {stmt.id: new})


def _without_constants(stmt: Stmt) -> Iterator[Stmt]:
    """Yield the statement with the constant left out of one sum or difference in one of its expressions."""
    sums: dict[Expr, None] = {}

    def note(expr: Expr) -> None:
        if isinstance(expr, Op) and expr.op in ("add", "sub") and any(isinstance(a, Const) for a in expr.args):
            sums[expr] = None

    map_exprs(stmt, note)
    for found in sums:
        for rest in without_constants(found):
            yield map_exprs(stmt, lambda e, old=found, new=rest: new if e == old else None)  # type: ignore[misc]
            break


def _masked(stmt: Stmt, kernel: Kernel) -> Iterator[Stmt]:
    """Yield the statement with the bounds added to its mask, and with the bounds in place of the comparisons of the
    same indices."""
    if not isinstance(stmt, Copy | Accumulate):
        return
    exact = bounds(stmt, kernel)
    if not set(exact) <= set(conjuncts(stmt.mask)):
        yield bounded(stmt, kernel)
    if stmt.mask is None:
        return
    compared = {b.args[0] for b in exact if isinstance(b, Op)}
    others = [c for c in conjuncts(stmt.mask) if not (isinstance(c, Op) and c.args[0] in compared)]
    if exact:
        yield replace(stmt, mask=conjunction([*exact, *others]))


def _values(stmt: Stmt, kernel: Kernel) -> Iterator[Stmt]:
    """Yield the statement with the neutral element of another reduction, if it writes a constant or pads with a
    constant."""
    match stmt:
        case Map(value=Const(dtype=dtype) as value):
            for number in (0, 1, *((float("-inf"), float("inf")) if dtype.is_float else ())):
                new = Const(float(number) if dtype.is_float else int(number), dtype)
                if new != value:
                    yield replace(stmt, value=new)
        case Copy() if stmt.mask is not None:
            floats = kernel.object(stmt.dst.obj).dtype.is_float
            for number in (0, *((float("-inf"),) if floats else ())):
                changed = padded(stmt, kernel, number)
                if changed != stmt:
                    yield changed
        case _:
            pass


def _neighbours(stmt: Stmt, following: Stmt | None) -> Iterator[Edit]:
    if following is None or isinstance(following, Tag | AssertTags | Spec):
        return
    if following == stmt:
        yield Edit("leave out the second of two equal statements", Group.REDUCTION, stmt.id, {following.id: ()})
    elif not isinstance(stmt, For) or not isinstance(following, For):
        both = {stmt.id: (), following.id: (following, stmt)}
        yield Edit("exchange with the next statement", Group.EXCHANGE, stmt.id, both)


def _grids(kernel: Kernel) -> Iterator[Edit]:
    for axis, extent in enumerate(kernel.grid or ()):
        new = [("leave out a constant of", e) for e in without_constants(extent)]
        match extent:
            case Op(op="floordiv", args=(size, Const(value=tile))) if int(tile) > 1:
                covering = op("floordiv", op("add", size, Const(int(tile) - 1)), Const(int(tile)))
                new.append(("round up", covering))
            case _:
                pass
        for title, expr in new:
            grid = (*(kernel.grid or ())[:axis], expr, *(kernel.grid or ())[axis + 1 :])
            yield Edit(f"{title} the grid along axis {axis}", Group.GRID, -1, {}, grid)


def touched(stmt: Stmt) -> set[str]:
    """Return the memory objects that a statement accesses."""
    return {a.obj for a in relations(stmt)}
