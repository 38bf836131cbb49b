"""The surface tree: a kernel file as its author wrote it, before names and types are resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from argus.source import Outer, SourceFile, Span, span_field

# ---------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Name:
    """A name that is read."""

    id: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, string, `True`, `False` or `None`."""

    value: int | float | bool | str | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class TupleExpr:
    """`a, b` or `(a, b)`."""

    items: tuple[Expression, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Attribute:
    """`value.name`."""

    value: Expression
    name: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Keyword:
    """`name=value` in a call."""

    name: str
    value: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Call:
    """`function(args, keywords)`."""

    function: Expression
    args: tuple[Expression, ...]
    keywords: tuple[Keyword, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Slice:
    """`lower:upper:step` in a subscript; a missing part is None."""

    lower: Expression | None
    upper: Expression | None
    step: Expression | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Subscript:
    """`value[items]`. A parenthesised tuple counts as several items, as in Python."""

    value: Expression
    items: tuple[Expression | Slice, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Unary:
    """`op operand`, where `op` is one of `- + ~ not`."""

    op: str
    operand: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right` for an arithmetic or bitwise operator."""

    op: str
    left: Expression
    right: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Logic:
    """`left and right`, `left or right`."""

    op: str
    left: Expression
    right: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Compare:
    """`first op0 rest0 op1 rest1 ...`, comparisons chained as in Python."""

    first: Expression
    ops: tuple[str, ...]
    rest: tuple[Expression, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Conditional:
    """`then if cond else orelse`."""

    cond: Expression
    then: Expression
    orelse: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Lambda:
    """`lambda params: body`, which may only be an argument of a call."""

    params: tuple[str, ...]
    body: Expression
    span: Span = span_field()


Expression = Union[
    Name,
    Literal,
    TupleExpr,
    Attribute,
    Call,
    Subscript,
    Unary,
    Binary,
    Logic,
    Compare,
    Conditional,
    Lambda,
]

# ---------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Target:
    """A name that is bound."""

    id: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Assign:
    """`a = value` or, with `unpack`, `a, b = value`."""

    targets: tuple[Target, ...]
    unpack: bool
    value: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class AugAssign:
    """`target op= value`."""

    target: Target
    op: str
    value: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ExprStmt:
    """An expression that is evaluated for its effect, or a docstring."""

    value: Expression
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ForStmt:
    """`for target in iterable:`; `span` is the header."""

    target: Target
    iterable: Expression
    body: tuple[Statement, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class IfStmt:
    """`if cond: ... else: ...`. An `elif` is an `IfStmt` alone in `orelse`. `span` is the header."""

    cond: Expression
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class AssertStmt:
    """`assert cond, message`."""

    cond: Expression
    message: Expression | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class PassStmt:
    """`pass`."""

    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ReturnStmt:
    """`return value`."""

    value: Expression | None
    span: Span = span_field()


Statement = Union[Assign, AugAssign, ExprStmt, ForStmt, IfStmt, AssertStmt, PassStmt, ReturnStmt]

# ---------------------------------------------------------------------------- a file


@dataclass(frozen=True, slots=True)
class Parameter:
    """`name: annotation = default`."""

    name: str
    annotation: Expression | None
    default: Expression | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Function:
    """A decorated function. `kind` is "kernel", "program" or "func"; `options` are the decorator's keywords."""

    name: str
    kind: str
    options: tuple[Keyword, ...]
    params: tuple[Parameter, ...]
    body: tuple[Statement, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ModuleConstant:
    """A module-level `name = value`. `value` is None if it is Python code that the language cannot read."""

    name: str
    value: Expression | None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Foreign:
    """Another top-level Python name, which a kernel cannot use. `what` names it: "a Python function", ..."""

    name: str
    what: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Module:
    """The parts of a kernel file that the language reads.

    `aliases` maps imported names to the paths that they stand for. `unread` lists name and kind of the file's functions
    that were not asked for. `around` holds the meanings of names that come from outside the file.
    """

    source: SourceFile
    functions: tuple[Function, ...]
    constants: tuple[ModuleConstant, ...]
    foreign: tuple[Foreign, ...]
    aliases: tuple[tuple[str, str], ...]
    unread: tuple[tuple[str, str], ...] = ()
    around: tuple[Outer, ...] = ()

    def outer(self, name: str) -> Outer | None:
        """Return the meaning of a name (or a name with attributes) that comes from outside the file, or None for
        others."""
        return next((outer for outer in self.around if outer.name == name), None)

    def function(self, name: str) -> Function | None:
        """Return the last function called `name`: Python, too, keeps the last definition."""
        return next((f for f in reversed(self.functions) if f.name == name), None)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the file's kernels, each once, in order."""
        return self._of_kind("kernel")

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the file's programs, each once, in order."""
        return self._of_kind("program")

    def _of_kind(self, wanted: str) -> tuple[str, ...]:
        found = [*((f.name, f.kind) for f in self.functions), *self.unread]
        return tuple(dict.fromkeys(name for name, kind in found if kind == wanted))


def assigned(body: tuple[Statement, ...]) -> Iterator[Target]:
    """Yield every name that `body` binds in program order, including loop counters."""
    for statement in body:
        match statement:
            case Assign(targets=targets):
                yield from targets
            case AugAssign(target=target):
                yield target
            case ForStmt(target=target, body=inner):
                yield target
                yield from assigned(inner)
            case IfStmt(then=then, orelse=orelse):
                yield from assigned(then)
                yield from assigned(orelse)
            case _:
                pass


def parts(expr: Expression | Slice) -> Iterator[Expression]:
    """Yield the direct sub-expressions."""
    match expr:
        case TupleExpr(items=items):
            yield from items
        case Attribute(value=value):
            yield value
        case Call(function=function, args=args, keywords=keywords):
            yield function
            yield from args
            yield from (k.value for k in keywords)
        case Slice(lower=lower, upper=upper, step=step):
            yield from (e for e in (lower, upper, step) if e is not None)
        case Subscript(value=value, items=items):
            yield value
            for item in items:
                if isinstance(item, Slice):
                    yield from parts(item)
                else:
                    yield item
        case Unary(operand=operand):
            yield operand
        case Binary(left=left, right=right) | Logic(left=left, right=right):
            yield left
            yield right
        case Compare(first=first, rest=rest):
            yield first
            yield from rest
        case Conditional(cond=cond, then=then, orelse=orelse):
            yield from (cond, then, orelse)
        case Lambda(body=body):
            yield body
        case Name() | Literal():
            pass


def names(expr: Expression) -> Iterator[str]:
    """Yield every name that `expr` reads, including parameters of its lambdas."""
    if isinstance(expr, Name):
        yield expr.id
    for part in parts(expr):
        yield from names(part)
