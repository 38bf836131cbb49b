"""The rules of named barriers: which there are, who may use them, and how many threads they may count."""

from __future__ import annotations

from collections.abc import Iterator

from argus.ir.instruction import BARRIERS
from argus.ir.nodes import BarrierArrive, BarrierSync, Kernel, Roles
from argus.ir.target import TARGETS
from argus.ir.visit import walk
from argus.source import Span

Problem = tuple[str, Span]


def named_barriers(kernel: Kernel) -> Iterator[Problem]:
    """Named barriers order roles: their numbers are not those that roles have for themselves."""
    roles = next((s for s in kernel.body if isinstance(s, Roles)), None)
    inside = {id(s) for role in (roles.roles if roles is not None else ()) for s in walk(role.body)}
    for stmt in walk(kernel.body):
        if not isinstance(stmt, BarrierSync | BarrierArrive):
            continue
        row = BARRIERS["bar.sync" if isinstance(stmt, BarrierSync) else "bar.arrive"]
        if roles is None or id(stmt) not in inside:
            yield "named barriers order roles, and stand in them", stmt.span
            return
        first = len(roles.roles) + 1
        if not first <= stmt.number < row.barriers:
            text = f"barrier {stmt.number} is not free: the block has 0, its roles have 1 to {first - 1}, and there are"
            yield f"{text} {row.barriers}", stmt.span
        if stmt.count % row.unit or not 0 < stmt.count <= kernel.num_threads:
            text = f"barrier {stmt.number} counts {stmt.count} threads: a multiple of {row.unit}, at most the block's"
            yield f"{text} {kernel.num_threads}", stmt.span
        target = TARGETS.get(kernel.target or "")
        if target is not None and not set(row.architectures) & set(target.architectures):
            yield f"{target.name} has no {row.name}", stmt.span
