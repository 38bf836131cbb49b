"""Let every role that copies load or compute, for itself, the indices at which its copies start.

    e = load(expert[b])                     role producer:
    for k in pipelined(0, K, step):             e1 = load(expert[b])
        stage bt <- w[e, .., k ..]      ->      for k in range(0, K, step): bt[i % S] <~ w[e1, .., k ..]
    store(out[b, ..], acc)                  role compute: e = load(expert[b]); ...

The kernel writes none of these tensors, so all roles read the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from argus.ir.access import Mode, relations
from argus.ir.expr import Expr, elements
from argus.ir.nodes import Accumulate, Copy, For, Kernel, Map, Stage, Stmt, Tensor
from argus.ir.visit import walk
from argus.passes.fresh import Fresh, renamed
from argus.passes.report import Unfit


def check_addresses(kernel: Kernel, loop: For) -> None:
    """Raise `Unfit` if the role that copies cannot compute where a copy starts, or how often the loop runs."""
    stages = [s for s in walk(kernel.body) if isinstance(s, Stage)]
    needed = _needed(kernel.body, loop, stages)
    direct = {s.id for s in (*kernel.body, *loop.body)}
    written = {r.obj for s in walk(kernel.body) for r in relations(s) if r.mode is not Mode.READ}
    for stmt in walk(kernel.body):
        if not needed & _writes(stmt):
            continue
        loads = isinstance(stmt, Copy) and isinstance(kernel.object(stmt.src.obj), Tensor)
        if not (loads or isinstance(stmt, Map)) or stmt.id not in direct:
            why = "where the copies start depends on registers that the producer cannot compute for itself"
            help = "let it depend on sizes, program ids, counters, and what is loaded by those outside of branches"
            raise Unfit(why, stmt.span, help)
        if isinstance(stmt, Copy) and stmt.src.obj in written:
            why = f"where the copies start is read from {stmt.src.obj}, which the kernel writes"
            raise Unfit(why, stmt.span, "write to another tensor")


def with_addresses(
    fresh: Fresh, body: tuple[Stmt, ...], loop: For, stages: Sequence[Stage]
) -> tuple[frozenset[int], dict[str, str]]:
    """Return, by `id`, the statements of `body` that compute the starts of `stages` and the loop's bounds; and the
    names of the registers in which a role keeps these values."""
    needed = _needed(body, loop, stages)
    tiles = [f for f in fresh.kernel.fragments if f.name in needed]
    names = {f.name: fresh.fragment(f.name, f.dtype, f.shape, f.layout) for f in tiles}
    return frozenset(s.id for s in walk(body) if needed & _writes(s)), names


def in_own_registers(body: tuple[Stmt, ...], names: dict[str, str]) -> tuple[Stmt, ...]:
    """Return a role's program with registers of its own."""
    return renamed(body, names) if names else body


def _needed(body: tuple[Stmt, ...], loop: For, stages: Iterable[Stage]) -> frozenset[str]:
    """Return the register tiles that the starts of `stages` and the loop's bounds depend on."""
    exprs: list[Expr] = [loop.start, loop.stop]
    for stage in stages:
        exprs += [*stage.src.index, *([stage.mask] if stage.mask is not None else [])]
    found = {e.obj for expr in exprs for e in elements(expr)}
    while True:
        more = {obj for s in walk(body) if found & _writes(s) for obj in _reads(s)}
        if more <= found:
            return frozenset(found)
        found |= more


def _writes(stmt: Stmt) -> set[str]:
    return {r.obj for r in relations(stmt) if r.mode is not Mode.READ}


def _reads(stmt: Stmt) -> Iterator[str]:
    """Yield the registers that a copy or a computation reads."""
    exprs: list[Expr] = []
    match stmt:
        case Copy(src=src, mask=mask):
            exprs += [*src.index, *([mask] if mask is not None else [])]
        case Map(value=value) | Accumulate(value=value):
            exprs.append(value)
        case _:
            pass
    yield from (e.obj for expr in exprs for e in elements(expr))
