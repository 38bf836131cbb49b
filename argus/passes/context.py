"""Rewrite statements with knowledge of their surroundings: loops and divergent branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from argus.ir.expr import Thread, walk
from argus.ir.nodes import Barrier, CommitGroup, For, If, Programs, Stmt, WaitCounts


@dataclass(frozen=True, slots=True)
class Enclosing:
    """The context of a statement: the loops around it, outermost first, and whether threads may have diverged.

    The loop over a persistent block's programs counts as a loop.
    """

    loops: tuple[For | Programs, ...] = ()
    divergent: bool = False

    @property
    def in_flight(self) -> bool:
        """True if an enclosing loop keeps asynchronous copies in flight from one iteration to the next."""
        return any(isinstance(s, CommitGroup | WaitCounts) for loop in self.loops for s in loop.body)

    @property
    def meets(self) -> bool:
        """True if all threads of the block meet in every iteration of the innermost loop, or if there is no loop.

        A statement may then reuse shared memory that it writes, makes visible by a barrier, and reads.
        """
        return not self.loops or any(isinstance(s, Barrier) for s in self.loops[-1].body)


def rewrite_bodies(
    body: tuple[Stmt, ...],
    change: Callable[[tuple[Stmt, ...], Enclosing], tuple[Stmt, ...]],
    context: Enclosing | None = None,
) -> tuple[Stmt, ...]:
    """Apply `change` to every list of statements, inner lists first. Each call receives the context of the list in the
    original body."""
    context = Enclosing() if context is None else context
    result: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For(body=inner) | Programs(body=inner):
                inside = replace(context, loops=(*context.loops, stmt))
                stmt = replace(stmt, body=rewrite_bodies(inner, change, inside))
            case If(then=then, orelse=orelse):
                inside = replace(context, divergent=context.divergent or reads_thread(stmt))
                stmt = replace(
                    stmt,
                    then=rewrite_bodies(then, change, inside),
                    orelse=rewrite_bodies(orelse, change, inside),
                )
            case _:
                pass
        result.append(stmt)
    return change(tuple(result), context)


def reads_thread(branch: If) -> bool:
    """Return True if threads of one block may take different sides of the branch."""
    return any(isinstance(e, Thread) for e in walk(branch.cond))


def rewrite_in_context(
    body: tuple[Stmt, ...], change: Callable[[Stmt, Enclosing], tuple[Stmt, ...] | None]
) -> tuple[Stmt, ...]:
    """Replace single statements, inner ones first: `change` returns the new statements, or None to keep a statement."""

    def every(statements: tuple[Stmt, ...], context: Enclosing) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        for stmt in statements:
            changed = change(stmt, context)
            result.extend((stmt,) if changed is None else changed)
        return tuple(result)

    return rewrite_bodies(body, every)
