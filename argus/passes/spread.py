"""Spread the copies of a pipelined iteration between its matrix products.

    wait; barrier                           ->  wait; barrier
    at <~ ...; bt <~ ...; commit                copy a = at[..]; copy b = bt[..]
    copy a = at[..]; copy b = bt[..]            at <~ ...
    mma acc += a * b                            mma acc += a * b
    copy a = at[..]; copy b = bt[..]            copy a = at[..]; copy b = bt[..]
    mma acc += a * b                            bt <~ ...; commit
                                                mma acc += a * b

All warps leave the barrier together. If the copies came first, the matrix units would wait until every warp has
computed the addresses. Copies of many rows are cut if that helps to spread them. Copies are only spread if at least two
groups are in flight: with one group, a copy issued late would be waited for at once.
"""

from __future__ import annotations

from dataclasses import replace

from argus.ir.expr import Const, Coord, Expr, op, rewrite
from argus.ir.instruction import INSTRUCTIONS, Order
from argus.ir.nodes import Access, AssertTags, Barrier, CommitGroup, For, Kernel, Map, Mma, Stmt, ThreadCopy, WaitGroup
from argus.ir.visit import rewrite_body
from argus.layout import FragmentLayout, Mode


def spread_copies(kernel: Kernel) -> Kernel:
    """Move the asynchronous copies that follow a loop's barrier to places between the products of the iteration."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(stmt, body=_spread(stmt.body)),) if isinstance(stmt, For) else None

    return replace(kernel, body=rewrite_body(kernel.body, change))


def _spread(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    match body:
        case (WaitGroup(pending=pending) as wait, Barrier() as barrier, *rest) if pending >= 1:
            pass
        case _:
            return body
    end = next((i for i, s in enumerate(rest) if not _asynchronous(s)), len(rest))
    copies = [s for s in rest[:end] if isinstance(s, ThreadCopy)]
    if not copies or end == len(rest) or not isinstance(rest[end], CommitGroup):
        return body
    commit, work = rest[end], rest[end + 1 :]
    products = _products(work)
    if len(products) < 2:
        return body
    parts = _cut(copies, len(products))
    result: list[Stmt] = [wait, barrier]
    done = 0
    for position, stmt in enumerate(work):
        if position in products:
            turn = products.index(position) + 1
            until = -(-len(parts) * turn // len(products))
            result += parts[done:until]
            result += [commit] if done < until == len(parts) else []
            done = until
        result.append(stmt)
    return tuple(result)


def _asynchronous(stmt: Stmt) -> bool:
    row = INSTRUCTIONS.get(stmt.instr or "") if isinstance(stmt, ThreadCopy) else None
    return row is not None and row.order is Order.ASYNC_GROUP


def _products(work: list[Stmt]) -> list[int]:
    """Return the positions of the products up to the first statement that copies must not pass."""
    result: list[int] = []
    for position, stmt in enumerate(work):
        match stmt:
            case Mma():
                result.append(position)
            case Map() | ThreadCopy() | AssertTags() if not _asynchronous(stmt):
                pass
            case _:
                break
    return result


def _cut(copies: list[ThreadCopy], slots: int) -> list[ThreadCopy]:
    """Split `copies` into about as many parts as there are slots, measured by the instructions that a thread issues."""
    counts = [s.layout.num_values // s.vector for s in copies if s.layout is not None]
    most = max(1, -(-sum(counts) // slots))
    result: list[ThreadCopy] = []
    for copy, count in zip(copies, counts, strict=True):
        result += _parts(copy, -(-count // most))
    return result


def _parts(copy: ThreadCopy, wanted: int) -> list[ThreadCopy]:
    """Split `copy` into at least `wanted` equal parts along its slowest register mode, or return it whole."""
    layout = copy.layout
    if layout is None or not layout.values or wanted < 2:
        return [copy]
    last = layout.values[-1]
    if last.dim is None or last.stride * last.extent != layout.shape[last.dim] or len(layout.values) < 2:
        return [copy]
    number = next((n for n in range(wanted, last.extent + 1) if last.extent % n == 0), 1)
    extent = layout.shape[last.dim] // number
    shape = tuple(extent if d == last.dim else e for d, e in enumerate(layout.shape))
    values = (*layout.values[:-1], Mode(last.extent // number, last.dim, last.stride))
    part = FragmentLayout(shape, layout.threads, values).simplify()
    return [replace(_shifted(copy, last.dim, j * extent), shape=shape, layout=part) for j in range(number)]


def _shifted(copy: ThreadCopy, axis: int, offset: int) -> ThreadCopy:
    place = op("add", Coord(axis), Const(offset))

    def one(expr: Expr) -> Expr:
        return rewrite(expr, lambda e: place if e == Coord(axis) else None)

    def moved(access: Access) -> Access:
        return replace(access, index=tuple(one(e) for e in access.index))

    mask = None if copy.mask is None else one(copy.mask)
    return replace(copy, dst=moved(copy.dst), src=moved(copy.src), mask=mask)
