"""Elaborate statements: bindings, accumulations, loops, branches."""

from __future__ import annotations

from typing_extensions import assert_never

from argus.diagnostic import Note
from argus.frontend import binding, tiles
from argus.frontend.accumulations import accumulate, accumulation, fragment_of
from argus.frontend.binding import bind, carry, leave, merge, settle
from argus.frontend.calls import bound_expr
from argus.frontend.context import Binding, Context, Gone, Rejected, Wanted
from argus.frontend.expressions import evaluate, items_of
from argus.frontend.liveness import Names, after, flow
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
    IfStmt,
    Literal,
    Name,
    PassStmt,
    ReturnStmt,
    Statement,
    Target,
    assigned,
)
from argus.frontend.values import (
    Builtin,
    Constant,
    Helper,
    Nothing,
    Poison,
    Range,
    Tile,
    TupleValue,
    Value,
    View,
    describe,
)
from argus.frontend.views import non_negative
from argus.ir.expr import elements
from argus.ir.nodes import For, If
from argus.source import Span

NONE: Names = frozenset()


def run(context: Context, body: tuple[Statement, ...], later: Names = NONE) -> Value | None:
    """Elaborate statements in order. Return the value of a `return`, or None. At most one error is noted for each
    statement.

    `later` holds the names that may be read after `body`.
    """
    for index, statement in enumerate(body):
        rest = body[index + 1 :]
        try:
            context.count(statement.span)
            match statement:
                case ReturnStmt():
                    return _return(context, statement, rest)
                case IfStmt():
                    result = _if(context, statement, after(rest, later))
                    if result is not None:
                        return result
                case ForStmt():
                    _for(context, statement, after(rest, later))
                case _:
                    _statement(context, statement)
        except Rejected:
            _poison(context, statement)
            if isinstance(statement, ReturnStmt):
                return Poison()
    return None


def _statement(context: Context, statement: Statement) -> None:
    match statement:
        case Assign():
            _assign(context, statement)
        case AugAssign():
            _augmented(context, statement)
        case ExprStmt():
            _expression(context, statement)
        case AssertStmt():
            _assert(context, statement)
        case PassStmt() | ForStmt() | IfStmt() | ReturnStmt():
            pass
        case _:
            assert_never(statement)


def _poison(context: Context, statement: Statement) -> None:
    """Poison the names that a statement with an error would have bound, so that their uses report no further errors."""
    for target in assigned((statement,)):
        if target.id not in context.frame.sizes:
            context.frame.names[target.id] = Binding(Poison(), context.depth, target.span)


# ---------------------------------------------------------------------------- bindings


def _assign(context: Context, statement: Assign) -> None:
    if not statement.unpack:
        target = statement.targets[0]
        operand = accumulation(context, target, statement.value)
        if operand is not None:
            accumulate(context, target, *operand, statement.span)
            return
        bind(context, target, evaluate(context, statement.value, _wanted(context, target)), statement.span)
        return
    value = evaluate(context, statement.value)
    items = items_of(value)
    count = len(statement.targets)
    if items is None or len(items) != count:
        found = f"{describe(value)}" if items is None else f"{len(items)} value{'s' * (len(items) != 1)}"
        context.fail(
            "wrong-arguments", f"{count} names cannot be bound to {found}", statement.span, "give one value a name"
        )
    targets = {fragment_of(context, t) for t in statement.targets} - {None}
    for target, item in zip(statement.targets, items, strict=True):
        if isinstance(item, Tile) and any(tiles.reads(item.expr, f) for f in targets if f is not None):
            item = tiles.materialise(context, item, target.id, statement.span)
            items = tuple(item if t is target else i for t, i in zip(statement.targets, items, strict=True))
    for target, item in zip(statement.targets, items, strict=True):
        bind(context, target, item, statement.span)


def _wanted(context: Context, target: Target) -> Wanted:
    held = context.frame.names.get(target.id)
    return Wanted(target.id, None if held is not None and held.borrowed else fragment_of(context, target))


def _augmented(context: Context, statement: AugAssign) -> None:
    target, op = statement.target, statement.op
    old = Name(target.id, target.span)
    value = Binary(op, old, statement.value, statement.span)
    _assign(context, Assign((target,), False, value, statement.span))


def _expression(context: Context, statement: ExprStmt) -> None:
    if isinstance(statement.value, Literal) and isinstance(statement.value.value, str):
        return
    value = evaluate(context, statement.value)
    allowed = isinstance(statement.value, Call) and _is_tag(context, statement.value)
    if not isinstance(value, Nothing) and not allowed:
        context.fail(
            "unused-value",
            f"this statement makes {describe(value)} and does nothing with it",
            statement.span,
            "bind it to a name, or remove it",
        )


def _is_tag(context: Context, node: Call) -> bool:
    """Return True if the call is `al.tag(...)` or `al.grid(...)`, whose results may stay unused."""
    callee = evaluate(context, node.function)
    return callee in (Builtin("tag"), Builtin("grid"))


def _assert(context: Context, statement: AssertStmt) -> None:
    cond = evaluate(context, statement.cond)
    if not isinstance(cond, Constant):
        context.fail(
            "not-constant",
            f"`assert` checks constants, and this is {describe(cond)}",
            statement.cond.span,
            "write `al.requires(...)` for sizes, `al.assert_tags(...)` for tags, `al.device_assert(...)` for values",
        )
    if not cond.value:
        message = evaluate(context, statement.message) if statement.message is not None else Constant("")
        text = f": {message.value}" if isinstance(message, Constant) and message.value else ""
        context.fail("static-assert", f"this assertion fails{text}", statement.span, "choose other constants")


def _return(context: Context, statement: ReturnStmt, rest: tuple[Statement, ...]) -> Value:
    frame = context.frame
    if context.depth != frame.base:
        context.fail(
            "return-not-last",
            "`return` stands inside a block that is decided at run time",
            statement.span,
            "bind the result in the block, and return it at the end",
        )
    if rest:
        context.error(
            "return-not-last", "nothing after this `return` is reached", statement.span, "remove what follows it"
        )
    if statement.value is None:
        return Nothing()
    if frame.function.kind == "kernel":
        context.fail(
            "return-not-last", "a kernel returns nothing", statement.span, "store results to tensors: `al.store(...)`"
        )
    return evaluate(context, statement.value, frame.wanted if _in_place(context, statement.value) else None)


def _in_place(context: Context, value: Expression) -> bool:
    """Return True for a product, or for a call of a helper that may return one. Its result is accumulated in place."""
    if not isinstance(value, Call) or not isinstance(value.function, (Name, Attribute)):
        return False
    function = evaluate(context, value.function)
    return isinstance(function, Helper) or function == Builtin("mma")


# ---------------------------------------------------------------------------- loops


def _for(context: Context, statement: ForStmt, later: Names) -> None:
    inside = later | flow(statement.body)[0]
    try:
        found = evaluate(context, statement.iterable)
        items = items_of(found)
        if items is not None:
            _unroll(context, statement, _before(context, statement, items), inside)
            return
        if not isinstance(found, Range):
            context.fail(
                "bad-loop",
                f"a loop runs over a range, not {describe(found)}",
                statement.iterable.span,
                "write `range(...)`, `al.static_range(...)` or `al.pipelined(...)`",
            )
        if found.kind == "static":
            _unroll(context, statement, static_items(context, found, statement.iterable.span), inside)
            return
        start = bound_expr(context, found.start, statement.iterable.span)
        stop = bound_expr(context, found.stop, statement.iterable.span)
        binding.check_name(context, statement.target, Constant(0))
    except Rejected:
        with context.block():
            context.frame.names[statement.target.id] = Binding(Poison(), context.depth, statement.target.span)
            run(context, statement.body)
        raise
    context.frame.names.pop(statement.target.id, None)
    outside = carry(context, tuple(assigned(statement.body)), inside)
    counter = context.new_counter(statement.target.id, non_negative(context, start))
    outside.enter(context)
    with context.block() as body:
        value = Tile((), counter.dtype, counter)
        context.frame.names[statement.target.id] = Binding(value, context.depth, statement.target.span)
        run(context, statement.body, inside)
    leave(context, outside, "the loop that binds it may run zero times")
    kind = "pipelined" if found.kind == "pipelined" else "dynamic"
    loop = For(counter.name, start, stop, found.step, tuple(body), kind, found.stages, found.producer_warps)
    context.emit(loop, statement.span)


def _before(context: Context, statement: ForStmt, items: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the items of a tuple with their values before the loop, because the loop's body may change registers that
    later items read."""
    bound = (context.frame.names.get(target.id) for target in assigned(statement.body))
    changed = {b.value.fragment for b in bound if b is not None and isinstance(b.value, Tile)}
    name, span = statement.target.id, statement.iterable.span
    later = (settle(context, i, name, span) if _registers(i) & changed else i for i in items[1:])
    return (*items[:1], *later)


def _registers(value: Value) -> set[str]:
    """Return the register tiles that a value reads."""
    match value:
        case Tile(expr=expr):
            return {e.obj for e in elements(expr)}
        case View(index=index):
            return {e.obj for expr in index for e in elements(expr)}
        case TupleValue(items=items):
            return {name for item in items for name in _registers(item)}
        case _:
            return set()


def static_items(context: Context, found: Range, span: Span) -> tuple[Value, ...]:
    """Return the numbers over which an unrolled loop runs."""
    bounds = []
    for bound in (found.start, found.stop):
        if not isinstance(bound, Constant) or not isinstance(bound.value, int):
            context.fail(
                "not-constant",
                f"an unrolled loop runs over constants, and this bound is {describe(bound)}",
                span,
                "write `range(...)` for a loop that stays a loop",
            )
        bounds.append(bound.value)
    numbers = range(bounds[0], bounds[1], found.step)
    if len(numbers) > 1024:
        context.fail(
            "unrolled-too-far", f"this loop would be unrolled {len(numbers)} times", span, "write `range(...)`"
        )
    return tuple(Constant(i) for i in numbers)


def _unroll(context: Context, statement: ForStmt, items: tuple[Value, ...], inside: Names) -> None:
    target = statement.target
    context.frame.names.pop(target.id, None)
    for item in items:
        bind(context, target, item, statement.span)
        if run(context, statement.body, inside) is not None:
            context.fail("return-not-last", "`return` stands inside a loop", statement.span, "return after the loop")
    context.frame.names.pop(target.id, None)
    context.frame.gone[target.id] = Gone("a loop's counter ends with the loop", target.span)


# ---------------------------------------------------------------------------- branches


def _if(context: Context, statement: IfStmt, later: Names) -> Value | None:
    """Elaborate a branch. A constant condition selects one side now, and a `return` in that side counts. Any other
    condition makes an `If`."""
    try:
        cond = evaluate(context, statement.cond)
        if isinstance(cond, Constant):
            return run(context, statement.then if cond.value else statement.orelse, later)
        tile = _condition(context, statement, cond)
    except Rejected:
        with context.block():
            run(context, statement.then)
            run(context, statement.orelse)
        raise
    targets = (*assigned(statement.then), *assigned(statement.orelse))
    outside = carry(context, targets, later | flow(statement.then)[0] | flow(statement.orelse)[0])
    bodies, introduced = [], []
    for branch in (statement.then, statement.orelse):
        outside.enter(context)
        with context.block() as body:
            run(context, branch, later)
        bodies.append(body)
        introduced.append({n: b for n, b in context.frame.names.items() if n not in outside.names})
        leave(context, outside, "only one branch of an `if` binds it")
    merge(context, (introduced[0], introduced[1]), (bodies[0], bodies[1]), statement.span)
    context.emit(If(tile.expr, tuple(bodies[0]), tuple(bodies[1])), statement.span)
    return None


def _condition(context: Context, statement: IfStmt, cond: Value) -> Tile:
    tile = tiles.as_tile(context, cond, statement.cond.span)
    if tile.shape:
        context.fail(
            "bad-condition",
            f"an `if` decides once, and its condition is {describe(tile)}",
            statement.cond.span,
            "choose element by element with `al.where(c, x, y)`",
            notes=(Note("for one decision, reduce it first", statement.cond.span),),
        )
    tiles.require_bool(context, tile, statement.cond.span, "the condition of an `if`")
    return tile
