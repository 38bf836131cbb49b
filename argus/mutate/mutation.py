"""All kernels that differ from another by one small edit of the kind that mistakes are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from argus.ir.expr import Const, Thread, op
from argus.ir.nodes import (
    AssertTags,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BeginTurns,
    BulkCommit,
    BulkWait,
    CommitGroup,
    EndTurns,
    For,
    If,
    Kernel,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    MmaCommit,
    MmaFence,
    MmaWait,
    ProxyFence,
    Roles,
    Spec,
    Stmt,
    Tag,
    WaitCounts,
    WaitGroup,
    Watch,
    WaveBarrier,
)
from argus.ir.text import print_stmt
from argus.ir.visit import head, rewrite_blocks
from argus.mutate import edits, whole
from argus.mutate.kind import Kind
from argus.mutate.terms import Edit
from argus.source import Span

__all__ = ["Change", "Kind", "Mutation", "mutations"]

Block = tuple[Stmt, ...]
SYNCHRONISATION = (
    Barrier, CommitGroup, WaitGroup, MmaFence, MmaCommit, MmaWait, BulkCommit, BulkWait, ProxyFence,
    MbarrierExpect, MbarrierArrive, MbarrierWait, BarrierSync, BarrierArrive, WaitCounts, WaveBarrier,
    BeginTurns, EndTurns,
    MbarrierInit, MbarrierFence,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One edit. `name` is unique among the edits of a kernel or program. `before` and `after` are lines of the IR, and
    `span` is the source of these lines."""

    name: str
    kind: Kind
    span: Span
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Mutation(Change):
    """A kernel that differs from another by one edit."""

    kernel: Kernel


@dataclass(frozen=True, slots=True)
class _Edit:
    """A block in which `after` replaces `before`."""

    name: str
    kind: Kind
    before: Block
    after: Block
    block: Block


def mutations(kernel: Kernel) -> list[Mutation]:
    """Return every kernel that differs from the explicit `kernel` by one edit, without repetitions and in program
    order.

    Some are ill-formed: a mistake that `check_explicit` finds counts as found.
    """
    found: list[Mutation] = []
    seen = {kernel}
    names: Counter[str] = Counter()

    def add(mutation: Mutation) -> None:
        if mutation.kernel not in seen:
            seen.add(mutation.kernel)
            names[mutation.name] += 1
            number = names[mutation.name]
            found.append(mutation if number == 1 else replace(mutation, name=f"{mutation.name}, {number}"))

    first = 0
    for number, block in enumerate(_blocks(kernel)):
        for edit in _block_edits(block, first, [b.name for b in kernel.barriers]):
            changed = replace(kernel, body=_with_block(kernel, number, edit.block))
            before, after = _text(edit.before, kernel), _text(edit.after, kernel)
            add(Mutation(edit.name, edit.kind, edit.before[0].span, before, after, changed))
        first += len(block)
    for d in whole.edits(kernel):
        add(Mutation(d.name, d.kind, d.span, d.before, d.after, d.kernel))
    return found


def _blocks(kernel: Kernel) -> list[Block]:
    """Return all statement lists. Inner lists come before the lists that contain them."""
    blocks: list[Block] = []

    def note(block: Block) -> Block:
        blocks.append(block)
        return block

    rewrite_blocks(kernel.body, note)
    return blocks


def _with_block(kernel: Kernel, number: int, new: Block) -> Block:
    """Return the body in which block `number` of `_blocks` is replaced."""
    met = -1

    def change(block: Block) -> Block:
        nonlocal met
        met += 1
        return new if met == number else block

    return rewrite_blocks(kernel.body, change)


def _text(stmts: Block, kernel: Kernel) -> str:
    """Return the statements as lines; loops and branches give only their first line."""
    return "\n".join(print_stmt(head(s), kernel).split("\n", 1)[0] for s in stmts)


def _block_edits(block: Block, first: int, mbarriers: list[str]) -> Iterator[_Edit]:
    """Yield edits of one block, whose statements are numbered from `first`."""
    for i, stmt in enumerate(block):
        for name, kind, new in (*_statement_edits(stmt), *edits.other_barriers(stmt, mbarriers)):
            yield _Edit(f"{name} (statement {first + i})", kind, (stmt,), new, (*block[:i], *new, *block[i + 1 :]))
    for i in range(len(block) - 1):
        yield from _exchange(block, i, first)
    for i, stmt in enumerate(block):
        if isinstance(stmt, SYNCHRONISATION):
            yield from _moved_far(block, i, first)
        if isinstance(stmt, For):
            yield from _moved_out(block, i, stmt, first)


def _statement_edits(stmt: Stmt) -> Iterator[Edit]:
    if isinstance(stmt, SYNCHRONISATION):
        yield f"drop {edits.title(stmt)}", Kind.DROP, ()
        odd = op("eq", op("mod", Thread(), Const(2)), Const(1))
        yield f"every other thread only: {edits.title(stmt)}", Kind.SCOPE, (If(odd, (stmt,), span=stmt.span),)
    yield from edits.statement(stmt)


def _exchange(block: Block, i: int, first: int) -> Iterator[_Edit]:
    a, b = block[i], block[i + 1]
    if any(isinstance(s, Tag | AssertTags | Spec | Roles | Watch) for s in (a, b)):
        return
    synchronises = isinstance(a, SYNCHRONISATION) or isinstance(b, SYNCHRONISATION)
    name = f"exchange statements {first + i} and {first + i + 1}"
    new = (*block[:i], b, a, *block[i + 2 :])
    yield _Edit(name, Kind.MOVE if synchronises else Kind.ORDER, (a, b), (b, a), new)


def _moved_far(block: Block, i: int, first: int) -> Iterator[_Edit]:
    """Yield moves of statement `i` to either end of its block. A move by one place is left out, because it is an
    exchange."""
    stmt, rest = block[i], (*block[:i], *block[i + 1 :])
    where = f"{edits.title(stmt)} (statement {first + i})"
    if i > 1:
        yield _Edit(f"move to the start: {where}", Kind.MOVE, (stmt,), (stmt,), (stmt, *rest))
    if i < len(block) - 2:
        yield _Edit(f"move to the end: {where}", Kind.MOVE, (stmt,), (stmt,), (*rest, stmt))


def _moved_out(block: Block, i: int, loop: For, first: int) -> Iterator[_Edit]:
    for j, stmt in enumerate(loop.body):
        if isinstance(stmt, SYNCHRONISATION):
            left = replace(loop, body=(*loop.body[:j], *loop.body[j + 1 :]))
            where = f"out of the loop: {edits.title(stmt)} (statement {first + i}.{j})"
            for name, new in (("before", (stmt, left)), ("after", (left, stmt))):
                changed = (*block[:i], *new, *block[i + 1 :])
                yield _Edit(f"move {name} and {where}", Kind.MOVE, (stmt, loop), new, changed)
