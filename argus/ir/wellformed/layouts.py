"""Rules of layouts: how elements are spread over threads, and whose registers a statement accesses."""

from __future__ import annotations

from collections.abc import Iterator

from argus.ir.expr import Expr, elements
from argus.ir.locality import foreign
from argus.ir.nodes import Access, Accumulate, Fragment, Kernel, Map, ThreadCopy, Watch
from argus.ir.statement import Problem
from argus.layout import FragmentLayout
from argus.source import Span


def fits(what: str, layout: FragmentLayout, shape: tuple[int, ...], part: Kernel, span: Span) -> Iterator[Problem]:
    """Yield the problems of a layout of `shape` over the threads of `part`."""
    if layout.shape != shape:
        yield f"the layout {layout} of {what} does not have its shape {shape}", span
    if layout.num_threads != part.num_threads:
        yield f"the layout {layout} of {what} is for {layout.num_threads} threads, not {part.num_threads}", span
    if not layout.covers():
        yield f"the layout {layout} of {what} leaves elements to no thread", span


def domain(stmt: ThreadCopy | Map | Accumulate | Watch, part: Kernel) -> Iterator[Problem]:
    """Yield the problems of the layout that spreads a statement's elements over threads."""
    if stmt.layout is None:
        what = "copy" if isinstance(stmt, ThreadCopy) else type(stmt).__name__.lower()
        yield f"a {what} has no layout yet", stmt.span
    else:
        yield from fits("a domain", stmt.layout, stmt.shape, part, stmt.span)


def reads(exprs: list[Expr]) -> list[Access]:
    """Return the registers that expressions read."""
    return [Access(e.obj, e.index) for expr in exprs for e in elements(expr)]


def own(
    domain: FragmentLayout, accesses: list[Access], part: Kernel, span: Span, warp_size: int | None = None
) -> Iterator[Problem]:
    """Check that each thread (or warp) of `domain` holds the registers that it accesses."""
    whose = "its own" if warp_size is None else "its warp's"
    for access in accesses:
        layout = layout_of(access.obj, part)
        bad = None if layout is None else foreign(domain, access.index, layout, warp_size)
        if bad is not None:
            place = f"thread {bad[0]}, value {bad[1]}"
            yield f"`{access.obj}` is touched by {place} of the domain, in registers that are not {whose}", span


def layout_of(obj: str, part: Kernel) -> FragmentLayout | None:
    """Return the layout of a register tile, or None for any other object."""
    target = part.object(obj)
    return target.layout if isinstance(target, Fragment) else None
