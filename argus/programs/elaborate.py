"""Translate the surface tree of a program to its IR: names, parts, buffers, streams, loops and conditions.

Scalar expressions, preconditions and specifications are elaborated by the frontend, as in kernels. Launches are in
`launches.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from argus.compile import programs
from argus.diagnostic import Diagnostic, SourceError
from argus.frontend import Options, calls, parse
from argus.frontend.checker import HANDLERS
from argus.frontend.context import Binding, CallSite, Context, Frame, Gone, Handler, Rejected, Wanted
from argus.frontend.expressions import evaluate, items_of
from argus.frontend.inline import inline
from argus.frontend.parameters import declare
from argus.frontend.statements import run as run_helper
from argus.frontend.statements import static_items
from argus.frontend.surface import (
    AssertStmt,
    Assign,
    Attribute,
    AugAssign,
    Binary,
    Call,
    Expression,
    ExprStmt,
    ForStmt,
    Function,
    IfStmt,
    Literal,
    Module,
    Name,
    PassStmt,
    ReturnStmt,
    Statement,
    Subscript,
    Target,
    TupleExpr,
    assigned,
)
from argus.frontend.tiles import as_tile, require_bool
from argus.frontend.values import Constant, Helper, Nothing, Poison, Range, StreamValue, Tile, Value, View, describe
from argus.frontend.views import non_negative
from argus.ir.expr import Expr, Param
from argus.ir.nodes import Spec, Tensor
from argus.ir.spec_terms import elements_of
from argus.ir.target import TARGETS
from argus.ir.types import int32
from argus.programs import launches
from argus.programs.ir import MAIN, For, If, Part, Program, Step, Use
from argus.programs.parts import part_of, subview
from argus.programs.resources import Resources, on_host
from argus.source import SourceFile, Span

_SHARED = (
    "cdiv", "next_power_of_2", "maximum", "minimum", "where", "abs", "requires", "in_range", "sorted", "distinct",
    "permutation", "offsets", "assume", "spec", "softmax", "logsumexp", "static_range",
)  # fmt: skip
"""Functions of the language that programs and kernels share."""


def elaborate(source: SourceFile, name: str, options: Options) -> Program:
    """Return program `name` of a file, with constexpr parameters fixed by `options` and its memory not planned.

    Raises `SourceError` with every error of the program, or of a kernel that it launches.
    """
    module = parse(source, name)
    function = module.function(name)
    if function is None or function.kind != "program":
        listed = f"its programs are {', '.join(programs(source))}" if programs(source) else "it has none"
        help = calls.did_you_mean(name, programs(source), listed)
        message = f"there is no program `{name}` in {source.path}"
        raise SourceError(Diagnostic("unknown-program", message, property="input", help=help))
    if options.target not in TARGETS:
        message, help = f"there is no target {options.target!r}", f"the targets are {', '.join(TARGETS)}"
        raise SourceError(Diagnostic("bad-option", message, function.span, "types", help=help))
    return _Elaboration(module, function, options).program()


def _inline(
    context: Context, helper: Helper, args: tuple[Value, ...], keywords: Mapping[str, Value], span: Span,
    wanted: Wanted | None,
) -> Value:  # fmt: skip
    return inline(context, helper, args, keywords, span, run_helper, wanted)


def _of_kernels(call: CallSite) -> Value:
    call.context.fail(
        "bad-program",
        f"`al.{call.name}` computes on a device, and this is a program, which runs on the host",
        call.span,
        "write it in a kernel, and launch the kernel here",
    )


class _Elaboration(Resources):
    """The state of one elaboration: the frontend's context, and the parts of the program made so far."""

    def __init__(self, module: Module, function: Function, options: Options) -> None:
        super().__init__()
        own: dict[str, Handler] = {
            "empty": self.empty,
            "stream": self.new_stream,
            "current_stream": self.current_stream,
            "collective": self.collective,
        }
        shared = {name: HANDLERS[name] for name in (*_SHARED, "once")}
        handlers = {**dict.fromkeys(HANDLERS, _of_kernels), **shared, **own}
        frame = Frame(function, 0)
        self.context = Context(
            module, options, TARGETS[options.target], 4, handlers, _inline, evaluate, frame, stack=(function,)
        )
        self.function = function
        self.uses: list[Use] = []

    def program(self) -> Program:
        """Return the whole program. Raises `SourceError`."""
        context, function = self.context, self.function
        for option in function.options:
            context.error("bad-decorator", f"`@argus.program` has no option `{option.name}`", option.span, "remove it")
        try:
            params, constexprs = declare(context, function)
        except Rejected:
            self._raise()
        context.taken |= {MAIN}
        self.run(function.body)
        specs = tuple(s for s in context.body if isinstance(s, Spec))
        for spec in specs:
            self._check_spec(spec, {p.name for p in params if isinstance(p, Tensor)})
        if context.diagnostics:
            self._raise()
        return Program(
            function.name, params, tuple(context.sizes), constexprs, tuple(context.preconditions), tuple(self.streams),
            tuple(self.buffers), tuple(self.uses), tuple(self.steps), specs, context.target.name, span=function.span,
        )  # fmt: skip

    def _raise(self) -> None:
        raise SourceError(*sorted(self.context.diagnostics, key=lambda d: (d.span.line, d.span.column)))

    def _check_spec(self, spec: Spec, params: set[str]) -> None:
        inner = next((e.obj for e in elements_of(spec.value) if e.obj not in params), None)
        if spec.output not in params or inner is not None:
            what = f"`{inner or spec.output}` is a buffer, which exists inside of the program only"
            help = "specify outputs of the program in terms of its inputs"
            self.context.error("bad-program", what, spec.span, help)

    # ------------------------------------------------------------------ statements

    def run(self, body: tuple[Statement, ...]) -> None:
        """Elaborate statements in order. At most one error is noted for each statement."""
        for statement in body:
            try:
                self.context.count(statement.span)
                self._statement(statement)
            except Rejected:
                for target in assigned((statement,)):
                    if target.id not in self.context.frame.sizes:
                        self._bind(target.id, Poison(), target.span)

    def _statement(self, statement: Statement) -> None:
        context = self.context
        match statement:
            case Assign():
                self._assign(statement)
            case AugAssign(target=target, op=op, value=value, span=span):
                old = Name(target.id, target.span)
                self._assign(Assign((target,), False, Binary(op, old, value, span), span))
            case ExprStmt(value=Literal(value=str())) | PassStmt():
                pass
            case ExprStmt(value=value):
                self._effect(value, statement.span)
            case ForStmt():
                self._for(statement)
            case IfStmt():
                self._if(statement)
            case AssertStmt():
                cond = evaluate(context, statement.cond)
                if cond != Constant(True):
                    help = "assert constants; write `al.requires(...)` for sizes"
                    context.fail("static-assert", "this assertion is not a constant that is true", statement.span, help)
            case ReturnStmt(value=None):
                pass
            case ReturnStmt():
                help = "write results to tensors that are parameters"
                context.fail("bad-program", "a program returns nothing", statement.span, help)

    def _bind(self, name: str, value: Value, span: Span) -> None:
        self.context.frame.names[name] = Binding(value, self.context.depth, span)

    def _assign(self, statement: Assign) -> None:
        context = self.context
        if not statement.unpack:
            target = statement.targets[0]
            self._name(target, self.value(statement.value, Wanted(target.id, None)))
            return
        node = statement.value
        items: tuple[Value, ...] | None
        if isinstance(node, TupleExpr) and len(node.items) == len(statement.targets):
            pairs = zip(statement.targets, node.items, strict=True)
            items = tuple(self.value(item, Wanted(target.id, None)) for target, item in pairs)
        else:
            items = items_of(self.value(node))
        if items is None or len(items) != len(statement.targets):
            message = f"{len(statement.targets)} names cannot be bound to this"
            context.fail("wrong-arguments", message, statement.span, "give one value a name")
        for target, item in zip(statement.targets, items, strict=True):
            self._name(target, item)

    def _name(self, target: Target, value: Value) -> None:
        """Bind a name. Inside a run-time block, an outer name keeps its meaning."""
        context = self.context
        if target.id in context.frame.sizes:
            same = isinstance(value, Tile) and isinstance(value.expr, Param) and value.expr.name == target.id
            if not same:
                what = f"`{target.id}` is the symbolic size of a tensor, and cannot mean anything else"
                context.fail("shadowed-size", what, target.span, "choose another name")
            return
        if isinstance(value, Nothing):
            context.fail("not-assignable", "this gives nothing to bind", target.span, "call it without a name")
        old = context.frame.names.get(target.id)
        if old is not None and old.depth < context.depth and old.value != value:
            what = f"`{target.id}` cannot change in this block, which may run any number of times"
            context.fail("bad-program", what, target.span, "use another name here; events alone are recorded again")
        if old is None or old.value != value:
            self._bind(target.id, value, target.span)

    def _effect(self, node: Expression, span: Span) -> None:
        """Elaborate a statement that has an effect: a launch, a wait, a precondition."""
        if isinstance(node, Call):
            if launches.launch(self, node, span):
                return
            if self.is_method(node, "wait"):
                self.wait(node, span)
                return
        value = self.value(node)
        if not isinstance(value, Nothing):
            message = f"this statement makes {describe(value)} and does nothing with it"
            self.context.fail("unused-value", message, span, "bind it to a name, or remove it")

    # ------------------------------------------------------------------ values

    def value(self, node: Expression, wanted: Wanted | None = None) -> Value:
        """Evaluate an expression. Parts of tensors and events are evaluated here, all other expressions in the
        frontend."""
        context = self.context
        match node:
            case Subscript(value=base) if isinstance(view := self.value(base), View):
                return subview(context, view, node, self.value)
            case Call() if self.is_method(node, "record"):
                return self.record(node, wanted)
            case Call() if isinstance(node.function, (Name, Attribute)) and launches.kernel_of(context, node.function):
                help = "write it as a statement of its own: kernels write to the tensors that they are given"
                context.fail("bad-program", "a launch has no value", node.span, help)
            case _:
                found = evaluate(context, node, wanted)
                if isinstance(found, Tile) and (found.shape or not on_host(found.expr)):
                    what = "a program computes with sizes and numbers, not with the contents of tensors"
                    context.fail("bad-program", what, node.span, "let a kernel compute it")
                return found

    def part(self, node: Expression) -> Part:
        """Evaluate an expression as a tensor, a buffer, or a part of one."""
        value = self.value(node)
        if not isinstance(value, View):
            what = f"this is {describe(value)}, and a tensor or a buffer stands here"
            self.context.fail("bad-launch", what, node.span, "pass a tensor, a buffer, or a part of one: `x[lo:hi]`")
        return part_of(value)

    def scalar(self, node: Expression, what: str) -> Expr:
        """Evaluate an int32 expression over sizes and numbers."""
        found = as_tile(self.context, self.value(node), node.span, int32)
        if found.shape or found.dtype is not int32:
            self.context.fail(
                "type-mismatch", f"{what} is an int32, and this is {describe(found)}", node.span, "use sizes"
            )
        return found.expr

    def stream(self, node: Expression | None) -> str:
        """Return the stream of a launch."""
        if node is None:
            return MAIN
        value = self.value(node)
        if not isinstance(value, StreamValue):
            self.context.fail(
                "bad-launch", f"`stream` is {describe(value)}", node.span, "pass what `al.stream()` gives"
            )
        return value.name

    # ------------------------------------------------------------------ blocks

    @contextmanager
    def _block(self, why: str) -> Iterator[list[Step]]:
        """Enter a run-time block: its steps go to the list, and the names that it binds end with it."""
        context, outer = self.context, self.steps
        names = dict(context.frame.names)
        self.steps = []
        try:
            with context.block():
                yield self.steps
        finally:
            self.steps = outer
            for name, binding in context.frame.names.items():
                if name not in names:
                    context.frame.gone[name] = Gone(why, binding.span)
            context.frame.names = names

    def _for(self, statement: ForStmt) -> None:
        context = self.context
        found = evaluate(context, statement.iterable)
        items = items_of(found)
        if items is None and isinstance(found, Range) and found.kind == "static":
            items = static_items(context, found, statement.iterable.span)
        if items is not None:
            for item in items:
                self._bind(statement.target.id, item, statement.target.span)
                self.run(statement.body)
            return
        if not isinstance(found, Range) or found.kind != "range":
            what = f"a loop of a program runs over a range, not {describe(found)}"
            context.fail("bad-loop", what, statement.iterable.span, "write `range(...)` or `al.static_range(...)`")
        start = calls.bound_expr(context, found.start, statement.iterable.span)
        stop = calls.bound_expr(context, found.stop, statement.iterable.span)
        counter = context.new_counter(statement.target.id, non_negative(context, start))
        with self._block("the loop that binds it may run zero times") as body:
            self._name(statement.target, Tile((), counter.dtype, counter))
            self.run(statement.body)
        self.steps.append(For(counter.name, start, stop, found.step, tuple(body), statement.span))

    def _if(self, statement: IfStmt) -> None:
        context = self.context
        cond = evaluate(context, statement.cond)
        if isinstance(cond, Constant):
            self.run(statement.then if cond.value else statement.orelse)
            return
        tile = as_tile(context, cond, statement.cond.span)
        require_bool(context, tile, statement.cond.span, "the condition of an `if`")
        if tile.shape or not on_host(tile.expr):
            what = "a program decides by sizes and numbers, not by the contents of tensors"
            context.fail("bad-condition", what, statement.cond.span, "let a kernel decide")
        branches: list[tuple[Step, ...]] = []
        for branch in (statement.then, statement.orelse):
            with self._block("only one branch of an `if` binds it") as body:
                self.run(branch)
            branches.append(tuple(body))
        self.steps.append(If(tile.expr, branches[0], branches[1], statement.span))
