"""The surroundings of a statement that its rules need, and checks that several kinds of statements share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from argus.ir.expr import Coord, Elem, Expr, Op, Thread
from argus.ir.expr import walk as walk_expr
from argus.ir.nodes import Access, For, Kernel, Role, Stmt
from argus.ir.statement import Problem
from argus.ir.target import Target
from argus.ir.types import DType
from argus.ir.typing_rules import Scope, expr_problems, index_problems
from argus.source import Span


@dataclass(frozen=True, slots=True)
class Site:
    """The place of a statement.

    `scope` holds the names that its expressions may use, including those of the surrounding loops. `part` is the kernel
    as the threads that reach the statement see it: for a role, a kernel with the role's number of warps. `around` are
    the enclosing statements, outermost first; `counts` are the names of the part's running counts.
    """

    kernel: Kernel
    scope: Scope
    part: Kernel
    target: Target | None
    role: Role | None = None
    around: tuple[Stmt, ...] = ()
    counts: frozenset[str] = frozenset()

    @property
    def once(self) -> bool:
        """True if the statement runs once, because it is in no loop, branch or program of a persistent kernel."""
        return len(self.around) == (0 if self.role is None else 1)

    def inside(self, stmt: Stmt) -> Site:
        """Return the site of the statements in a block of `stmt`, where `stmt` is not a role."""
        loops = self.scope.loops.union(stmt.counters) if isinstance(stmt, For) else self.scope.loops
        return replace(self, scope=replace(self.scope, loops=loops), around=(*self.around, stmt))


def dtype_of(obj: str, scope: Scope) -> DType | None:
    """Return the type of a memory object's elements, or None if there is no such object."""
    target = scope.objects.get(obj)
    return None if target is None else target.dtype


def expressions(exprs: Iterable[Expr], scope: Scope, span: Span) -> Iterator[Problem]:
    """Yield the problems of expressions on their own."""
    for expr in exprs:
        for message in expr_problems(expr, scope):
            yield message, span


def has_type(what: str, expr: Expr, dtype: DType | None, span: Span) -> Iterator[Problem]:
    """Check that the expression has this type, if its type is known."""
    if dtype is not None and expr.dtype != dtype:
        yield f"{what} has type {expr.dtype}, not {dtype}", span


def typed(what: str, expr: Expr, dtype: DType, scope: Scope, span: Span) -> Iterator[Problem]:
    """Yield the problems of an expression that must have the type `dtype`."""
    yield from expressions((expr,), scope, span)
    yield from has_type(what, expr, dtype, span)


def counted(exprs: tuple[Expr, ...], scope: Scope, span: Span) -> Iterator[Problem]:
    """Yield the problems of expressions that host and device both compute, and that must have equal values on both."""
    yield from expressions(exprs, scope, span)
    if any(isinstance(e, Op) and e.dtype.is_float for expr in exprs for e in walk_expr(expr)):
        yield "an extent or a limit is computed in floats, which the host rounds otherwise than the device", span


def access(found: Access, scope: Scope, spaces: tuple[type, ...], span: Span) -> Iterator[Problem]:
    """Yield the problems of an access to an object in one of these spaces."""
    for message in index_problems(found.obj, found.index, scope):
        yield message, span
    target = scope.objects.get(found.obj)
    if target is not None and not isinstance(target, spaces):
        yield f"`{found.obj}` is a {type(target).__name__.lower()}, which cannot stand here", span
    yield from expressions(found.index, scope, span)


def mbarrier(name: str, index: Expr, site: Site, span: Span, parity: Expr | None = None) -> Iterator[Problem]:
    """Yield the problems of `name[index]` as an mbarrier, apart from the typing of its expressions."""
    if name not in site.scope.barriers:
        yield f"there is no mbarrier `{name}`", span
    for what, expr in (("index", index), ("parity", parity)):
        if expr is not None and (not expr.dtype.is_int or not uniform(expr)):
            yield f"the {what} of mbarrier `{name}` is not one integer for all threads", span


def uniform(expr: Expr) -> bool:
    """Return True if the expression has the same value for all threads of a role and all elements."""
    return not any(isinstance(e, Thread | Coord | Elem) for e in walk_expr(expr))
