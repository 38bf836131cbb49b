"""A kernel without what its author states of its data flow."""

from __future__ import annotations

from dataclasses import replace

from argus.ir.nodes import AssertTags, For, If, Kernel, Spec, Stmt, Tag
from argus.ir.visit import rewrite_body


def stripped(kernel: Kernel, *, tags: bool = True, specifications: bool = False) -> Kernel:
    """Return the kernel without tags and assertions, and, if asked for, without specifications.

    Loops and branches that are empty then go, too.
    """
    gone = ((Tag, AssertTags) if tags else ()) + ((Spec,) if specifications else ())

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        empty = (isinstance(stmt, For) and not stmt.body) or (isinstance(stmt, If) and not stmt.then + stmt.orelse)
        return () if empty or isinstance(stmt, gone) else None

    return replace(kernel, body=rewrite_body(kernel.body, change))
