"""The state of one elaboration: scopes, the emitted statements, and the errors found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn

from argus.diagnostic import Diagnostic, Note
from argus.frontend.options import Options
from argus.frontend.surface import Expression, Function, Module
from argus.frontend.values import Helper, Tile, Value, fragment_tile
from argus.ir.expr import Expr, LoopVar, Thread
from argus.ir.nodes import Covers, Fragment, If, Invariant, Mbarrier, Precondition, Role, Shared, Stmt
from argus.ir.target import Target
from argus.ir.types import DType
from argus.ir.visit import map_exprs
from argus.layout import AnyLayout, FragmentLayout
from argus.source import Outer, SourceFile, Span

MAX_ELEMENTS = 2**20
"""Largest number of elements of one tile."""

MAX_STATEMENTS = 20_000
"""Largest number of statements that unrolling and inlining may produce in one kernel."""

MAX_INLINE = 16
"""Deepest nesting of helper calls."""


class Rejected(Exception):
    """Raised for a statement whose error is already noted, and caught where statements are elaborated."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The value of a name, the number of run-time blocks around its binding (`depth`), and the binding's place.

    `borrowed`: the name is a helper's parameter that stands for the caller's fragment, which the helper must not
    change.
    """

    value: Value
    depth: int
    span: Span
    borrowed: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """A name that was bound earlier and is no longer usable, with the reason."""

    reason: str
    span: Span


@dataclass
class Frame:
    """The names of one function. Names in `sizes` cannot be rebound; `base` is the depth of the body; `wanted` is the
    destination of the returned value.

    `quantified` is true inside a tag function, assertion or specification, where a subscript is one element.
    """

    function: Function
    base: int
    names: dict[str, Binding] = field(default_factory=dict)
    gone: dict[str, Gone] = field(default_factory=dict)
    sizes: frozenset[str] = frozenset()
    quantified: bool = False
    wanted: Wanted | None = None


@dataclass(frozen=True)
class Wanted:
    """The destination of a call's result: the name that it is bound to, and the fragment that the name has now."""

    name: str
    fragment: str | None


@dataclass
class CallSite:
    """A call of a language function with its arguments evaluated (lambdas and defaults included)."""

    context: Context
    name: str
    args: Mapping[str, Value]
    spans: Mapping[str, Span]
    span: Span
    wanted: Wanted | None


Handler = Callable[[CallSite], Value]


@dataclass
class Context:
    """The state that elaborating one kernel reads and changes.

    `handlers` are the language's functions by name; `inline` elaborates a call of a helper, `evaluate` an expression.
    `module` is the file whose names are visible: the kernel's file or a helper's. `constants` holds the evaluated
    constants by file, by the names that the file takes from elsewhere, and by name.
    """

    module: Module
    options: Options
    target: Target
    num_warps: int
    handlers: Mapping[str, Handler]
    inline: Callable[[Context, Helper, tuple[Value, ...], Mapping[str, Value], Span, Wanted | None], Value]
    evaluate: Callable[[Context, Expression], Value]
    frame: Frame
    diagnostics: list[Diagnostic] = field(default_factory=list)
    fragments: dict[str, Fragment] = field(default_factory=dict)
    shared: dict[str, Shared] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    body: list[Stmt] = field(default_factory=list)
    depth: int = 0
    call: Span | None = None
    stack: tuple[Function, ...] = ()
    grid: tuple[Expr, ...] | None = None
    group: int = 1
    persistent: bool = False
    cluster: int = 1
    schedule: str = "cooperative"
    flat: bool = False
    roles: list[Role] = field(default_factory=list)
    in_role: bool = False
    named_barriers: list[Span] = field(default_factory=list)
    mbarriers: list[Mbarrier] = field(default_factory=list)
    preconditions: list[Precondition] = field(default_factory=list)
    invariants: list[Invariant] = field(default_factory=list)
    covers: dict[str, Covers] = field(default_factory=dict)
    natural: set[str] = field(default_factory=set)
    sizes: list[str] = field(default_factory=list)
    constants: dict[tuple[SourceFile, tuple[Outer, ...], str], Value | None] = field(default_factory=dict)
    elaborated: int = 0

    def running(self, function: Function) -> bool:
        """Return True inside the body of a helper, or inside a helper that it calls. Helpers with the same text in two
        files are different."""
        return any(outer == function and outer.span == function.span for outer in self.stack)

    # ------------------------------------------------------------------ errors

    def at(self, span: Span) -> Span:
        """Return `span` together with the call that led to it."""
        return span if self.call is None else replace(span, call=self.call)

    def error(
        self,
        code: str,
        message: str,
        span: Span,
        remedy: str,
        *,
        label: str = "",
        notes: tuple[Note, ...] = (),
    ) -> None:
        """Note an error. The same error is noted only once, however often its line is elaborated."""
        same = (code, message, span.line, span.column)
        if any((d.code, d.message, d.span.line, d.span.column) == same for d in self.diagnostics):
            return
        self.diagnostics.append(
            Diagnostic(code, message, self.at(span), "types", label=label, notes=notes, help=remedy)
        )

    def fail(
        self,
        code: str,
        message: str,
        span: Span,
        remedy: str,
        *,
        label: str = "",
        notes: tuple[Note, ...] = (),
    ) -> NoReturn:
        """Note an error and abandon the statement."""
        self.error(code, message, span, remedy, label=label, notes=notes)
        raise Rejected

    # ------------------------------------------------------------------ making statements and objects

    def emit(self, stmt: Stmt, span: Span) -> None:
        """Append a statement to the current block."""
        if not isinstance(stmt, If) and _reads_thread(stmt):
            self.fail(
                "thread-dependent",
                "`al.thread_id()` takes part in a tile, and a tile belongs to the whole block",
                span,
                "index by `al.arange(...)`, which is spread over the threads; `al.thread_id()` is for an `if`",
            )
        if self.roles and not self.depth:
            self.fail(
                "bad-role",
                "this comes after the roles, which are the last that a kernel does",
                span,
                "let a role do it; tags and specifications stand before the first role",
                notes=(Note("this is the first role", self.roles[0].span),),
            )
        self.body.append(replace(stmt, span=self.at(span)))

    def require_top_level(self, what: str, span: Span) -> None:
        """Reject a declaration inside a run-time block, because it holds for the whole kernel."""
        if self.depth:
            self.fail(
                "conditional-declaration",
                f"{what} holds for the whole kernel, and this block may not run",
                span,
                "move it out of the block, to the top of the kernel",
            )

    def count(self, span: Span) -> None:
        """Count one more elaborated statement. Too many statements end the elaboration."""
        self.elaborated += 1
        if self.elaborated == MAX_STATEMENTS:
            self.error(
                "unrolled-too-far",
                f"unrolling and inlining make more than {MAX_STATEMENTS} statements of this kernel",
                span,
                "write `range(...)` for a loop that stays a loop",
            )
        if self.elaborated >= MAX_STATEMENTS:
            raise Rejected

    def unique(self, name: str) -> str:
        """Reserve and return `name`, or `name_1`, `name_2`, ... if `name` is taken."""
        base = name.strip("_") or "value"
        found, number = base, 0
        while found in self.taken:
            number += 1
            found = f"{base}_{number}"
        self.taken.add(found)
        return found

    def new_fragment(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DType,
        span: Span,
        layout: FragmentLayout | None = None,
    ) -> Tile:
        """Declare a fragment and return it as a fresh tile."""
        unique = self.unique(name)
        self.fragments[unique] = Fragment(unique, dtype, shape, layout, self.at(span))
        return fragment_tile(unique, shape, dtype, fresh=True)

    def new_shared(
        self, name: str, shape: tuple[int, ...], dtype: DType, layout: AnyLayout | None, span: Span
    ) -> Shared:
        """Declare a shared tile and return it."""
        unique = self.unique(name)
        self.shared[unique] = Shared(unique, dtype, shape, layout, None, self.at(span))
        return self.shared[unique]

    def new_counter(self, name: str, natural: bool) -> LoopVar:
        """Return a new loop counter. `natural` states that the counter is never negative."""
        unique = self.unique("i" if name == "_" else name)
        if natural:
            self.natural.add(unique)
        return LoopVar(unique)

    # ------------------------------------------------------------------ blocks

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Enter a run-time block: statements emitted inside go to the list that the block yields."""
        outer, self.body = self.body, []
        self.depth += 1
        try:
            yield self.body
        finally:
            self.body = outer
            self.depth -= 1

    @contextmanager
    def called(self, helper: Helper, frame: Frame, span: Span) -> Iterator[None]:
        """Enter a helper's body that is called at `span`."""
        outer = (self.module, self.frame, self.call, self.stack)
        self.module, self.frame, self.call = helper.module, frame, self.at(span)
        self.stack = (*self.stack, frame.function)
        try:
            yield
        finally:
            self.module, self.frame, self.call, self.stack = outer


def _reads_thread(stmt: Stmt) -> bool:
    """Return True if an expression of the statement itself depends on the thread."""
    found: list[Expr] = []
    map_exprs(stmt, lambda e: found.append(e) if isinstance(e, Thread) else None)
    return bool(found)
