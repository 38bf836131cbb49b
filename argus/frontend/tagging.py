"""Elaborate tags and assertions: `al.tag`, `al.assert_tags`, `al.spec`. They emit no code."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from argus.diagnostic import Note
from argus.frontend import arguments, tiles
from argus.frontend.context import Binding, CallSite, Context, Frame, Handler, Rejected
from argus.frontend.expressions import evaluate
from argus.frontend.surface import (
    Attribute,
    Binary,
    Call,
    Compare,
    Expression,
    Lambda,
    Literal,
    Logic,
    Name,
    Slice,
    Subscript,
    TupleExpr,
    parts,
)
from argus.frontend.values import Builtin, Constant, Nothing, Tile, Value, View, describe, extents_of
from argus.ir.expr import Const, Coord, Elem, Expr, elements, op
from argus.ir.nodes import AssertTags, DataValue, Once, Tag, TagCondition, TagEqual, TagField, TagTerm, TagTuple, Tensor
from argus.ir.types import int32
from argus.source import Span


@contextmanager
def quantified(context: Context, params: tuple[str, ...], span: Span, first_axis: int = 0) -> Iterator[None]:
    """Enter a lambda: its parameters are `Coord`s numbered from `first_axis`, and a subscript is one element."""
    outer = context.frame
    frame = Frame(outer.function, outer.base, dict(outer.names), dict(outer.gone), outer.sizes, True)
    for axis, name in enumerate(params, first_axis):
        if name in outer.sizes:
            context.fail(
                "shadowed-size", f"`{name}` is the symbolic size of a tensor", span, "name the parameter differently"
            )
        frame.names[name] = Binding(Tile((), int32, Coord(axis)), context.depth, span)
    context.frame = frame
    try:
        yield
    finally:
        context.frame = outer


def is_call(context: Context, node: Expression, name: str) -> bool:
    """Return True if `node` calls the language's function `name`. Names that begin with `builtins.` are Python's."""
    if not isinstance(node, Call) or not isinstance(node.function, (Name, Attribute)):
        return False
    try:
        return evaluate(context, node.function) == Builtin(name)
    except Rejected:
        return False


# ---------------------------------------------------------------------------- al.tag


def tag(call: CallSite) -> Value:
    """Declare the tag function of a tensor, a shared tile or a register tile, and return that tile."""
    context, value, where = call.context, call.args["x"], call.spans["x"]
    node = arguments.function(call, "function").node
    if isinstance(value, View) and value.order is not None:
        obj = value.obj.name
        if isinstance(value.obj, Tensor):
            _once_for_all(context, obj, call.span)
        shape = tuple(Const(n) if isinstance(n, int) else n for n in extents_of(value.obj))
    elif isinstance(value, Tile) and value.fragment is not None and not value.fresh:
        obj = value.fragment
        shape = tuple(Const(n) for n in value.shape)
    else:
        context.fail(
            "bad-tag",
            f"tags are put on whole tensors, shared tiles and named tiles in registers, not on {describe(value)}",
            where,
            "name the tensor, or bind the tile to a name first",
        )
    if len(node.params) != len(shape):
        context.fail(
            "bad-tag",
            f"this tag function has {len(node.params)} parameters, and {describe(value)} {len(shape)} dimensions",
            node.span,
            "give it one parameter a dimension",
        )
    order = value.order if isinstance(value, View) else None
    params = node.params if order is None else tuple(node.params[axis] for axis in order)
    with quantified(context, params, node.span):
        fields = tuple((name, _term(context, e)) for name, e in _fields(context, node.body))
    for name, _ in fields:
        if [n for n, _ in fields].count(name) > 1:
            context.fail(
                "bad-tag", f"two fields are called `{name}`", node.body.span, "name them with `dict(f=..., g=...)`"
            )
    context.emit(Tag(obj, shape, fields), call.span)
    return value


def _once_for_all(context: Context, tensor: str, span: Span) -> None:
    """Check that a tensor is tagged once, and at the top level, because its tag holds for the whole kernel."""
    context.require_top_level("a tensor's tag", span)
    before = next((s for s in context.body if isinstance(s, Tag) and s.obj == tensor), None)
    if before is not None:
        context.fail(
            "bad-tag",
            f"`{tensor}` has a tag already: its elements carry one, from launch on",
            span,
            "tag it once, with all fields",
            notes=(Note("it is tagged here", before.span),),
        )


def _fields(context: Context, body: Expression) -> list[tuple[str, Expression]]:
    """Return the field names and expressions in the body of a tag function."""
    if isinstance(body, Call) and isinstance(body.function, Name) and body.function.id == "dict":
        if body.args:
            context.fail("bad-tag", "fields are named: `dict(row=..., col=...)`", body.args[0].span, "name this field")
        found = [(k.name, k.value) for k in body.keywords]
    else:
        found = []
        for item in body.items if isinstance(body, TupleExpr) else (body,):
            if not isinstance(item, Name):
                context.fail(
                    "bad-tag",
                    "this field has no name: only a bare name is its own",
                    item.span,
                    "write `dict(field=expression)`",
                )
            found.append((item.id, item))
    if not found:
        context.fail("bad-tag", "a tag has at least one field", body.span, "write `lambda i, j: (i, j)`")
    return found


# ---------------------------------------------------------------------------- terms


def _term(context: Context, node: Expression) -> TagTerm:
    """Evaluate a term of a tag: a tag field, a contribution set, a stored integer, or an integer expression."""
    if is_call(context, node, "once") and isinstance(node, Call):
        return _once(context, node)
    if isinstance(node, Attribute) and isinstance(node.value, Subscript):
        return TagField(_element(context, node.value), node.name)
    if isinstance(node, Subscript) and isinstance(node.value, Subscript):
        position = node.items[0] if len(node.items) == 1 else None
        if not isinstance(position, Literal) or not isinstance(position.value, int):
            context.fail("bad-tag", "a field is chosen by name or by number", node.span, "write `x[i, j].name`")
        return TagField(_element(context, node.value), position.value)
    value = tiles.as_tile(context, evaluate(context, node), node.span, int32)
    if isinstance(value.expr, Elem):
        return _stored(context, value.expr, node.span)
    if value.shape or not value.dtype.is_int:
        context.fail("bad-tag", f"a field is one integer, and this is {describe(value)}", node.span, "use integers")
    if any(True for _ in elements(value.expr)):
        context.fail(
            "bad-tag",
            "a stored value takes part in no arithmetic here",
            node.span,
            "compare `index[e]` alone with the other side, or carry it in a tag",
        )
    return value.expr


def _stored(context: Context, element: Elem, span: Span) -> TagTerm:
    """Evaluate `index[e]`, where `index` is an integer tensor."""
    tensor = element.obj not in context.fragments and element.obj not in context.shared
    if not tensor or not element.dtype.is_int:
        context.fail(
            "bad-tag",
            f"an element of `{element.obj}` is not a number here",
            span,
            "compare a field of its tag, `x[i, j].name`, or all of them, `x[i, j] == (m, n)`",
        )
    if any(True for e in element.index for _ in elements(e)):
        context.fail("bad-tag", "an index tensor is read at one place here", span, "do not nest index tensors")
    return DataValue(element.obj, element.index)


def _once(context: Context, node: Call) -> Once:
    if len(node.args) != 2 or node.keywords:
        context.fail("wrong-arguments", "`al.once` takes two arguments", node.span, "write `al.once(lo, hi)`")
    lo, hi = (tiles.as_tile(context, evaluate(context, a), a.span, int32) for a in node.args)
    for limit, arg in ((lo, node.args[0]), (hi, node.args[1])):
        if limit.shape or not limit.dtype.is_int or any(True for _ in elements(limit.expr)):
            context.fail(
                "bad-tag", f"a limit is one integer, not {describe(limit)}", arg.span, "use sizes and counters"
            )
    return Once(lo.expr, hi.expr)


def _element(context: Context, node: Subscript) -> Elem:
    """Evaluate `x[i, j]` where its tag is meant."""
    value = evaluate(context, node)
    if not isinstance(value, Tile) or not isinstance(value.expr, Elem):
        context.fail(
            "bad-tag",
            f"{describe(value)} carries no tag",
            node.span,
            "index a tensor, a shared tile, or a tile in registers, by integers",
        )
    return value.expr


# ---------------------------------------------------------------------------- al.assert_tags


def assert_tags(call: CallSite) -> Value:
    """Elaborate conditions over tags, for all values of the parameters that directly index a tile or tensor."""
    context, node = call.context, arguments.function(call, "condition").node
    with quantified(context, node.params, node.span):
        extents = [_extent(context, node, p) for p in node.params]
        conditions = tuple(_conditions(context, node.body))
    where: Expr | None = None
    if arguments.given(call, "where"):
        guard = arguments.function(call, "where").node
        if guard.params != node.params:
            context.fail(
                "bad-tag", "`where` has other parameters than the condition", guard.span, "give both lambdas the same"
            )
        with quantified(context, guard.params, guard.span):
            found = tiles.as_tile(context, evaluate(context, guard.body), guard.body.span)
        tiles.require_bool(context, found, guard.body.span, "`where`")
        where = found.expr
    context.emit(AssertTags(tuple(extents), node.params, conditions, where), call.span)
    return Nothing()


def _conditions(context: Context, node: Expression) -> Iterator[TagCondition]:
    if isinstance(node, Logic) and node.op == "and":
        yield from _conditions(context, node.left)
        yield from _conditions(context, node.right)
        return
    if not isinstance(node, Compare) or set(node.ops) != {"=="}:
        context.fail(
            "bad-tag", "an assertion is an equality, or several joined by `and`", node.span, "write `x[i].k == y[i].k`"
        )
    sides = (node.first, *node.rest)
    for left, right in itertools.pairwise(sides):
        yield _condition(context, left, right)


def _condition(context: Context, left: Expression, right: Expression) -> TagCondition:
    if isinstance(left, TupleExpr) and not isinstance(right, TupleExpr):
        left, right = right, left
    if isinstance(right, TupleExpr):
        if not isinstance(left, Subscript):
            context.fail("bad-tag", "a tuple is compared with a tag", left.span, "write `x[i, j] == (m, n)`")
        return TagTuple(_element(context, left), tuple(_term(context, e) for e in right.items))
    return TagEqual(_term(context, left), _term(context, right))


def _extent(context: Context, node: Lambda, param: str) -> int:
    """Return the smallest constant extent among the dimensions that `param` alone indexes."""
    found = [n for n in direct_extents(context, node.body, param) if isinstance(n, int)]
    if not found:
        context.fail(
            "bad-tag",
            f"nothing says how far `{param}` ranges",
            node.span,
            f"index a tile of constant extent by `{param}` alone: `x[{param}, ...]`",
        )
    return min(found)


def direct_extents(context: Context, node: Expression, param: str) -> Iterator[int | Expr]:
    """Return the extents of the dimensions that the bare name `param` indexes anywhere in `node`."""
    if isinstance(node, Lambda) and param in node.params:
        return
    if isinstance(node, Subscript):
        yield from _indexed(context, node, param)
    for part in parts(node):
        yield from direct_extents(context, part, param)


def divided_extents(context: Context, node: Expression, param: str) -> Iterator[int | Expr]:
    """Yield the extents of `param` that follow from indices `param // n` with a constant n: n times the dimension."""
    if isinstance(node, Lambda) and param in node.params:
        return
    if isinstance(node, Subscript):
        for item, extent in _items(context, node, lambda item: _divided(item, param) is not None):
            divisor = _divided(item, param)
            count = evaluate(context, divisor) if divisor is not None else None
            if isinstance(count, Constant) and isinstance(count.value, int) and count.value > 0:
                yield extent * count.value if isinstance(extent, int) else op("mul", extent, Const(count.value))
    for part in parts(node):
        yield from divided_extents(context, part, param)


def _divided(item: Expression | Slice, param: str) -> Expression | None:
    """Return the divisor of an index of the form `param // divisor`; None for any other index."""
    match item:
        case Binary(op="//", left=Name(id=name), right=divisor) if name == param:
            return divisor
        case _:
            return None


def _indexed(context: Context, node: Subscript, param: str) -> Iterator[int | Expr]:
    for _, extent in _items(context, node, lambda item: isinstance(item, Name) and item.id == param):
        yield extent


def _items(
    context: Context, node: Subscript, wanted: Callable[[Expression | Slice], bool]
) -> Iterator[tuple[Expression | Slice, int | Expr]]:
    """Yield the indices in `wanted` of a tensor or tile, each with the extent of the dimension that it indexes."""
    if isinstance(node.value, Subscript) or not any(map(wanted, node.items)):
        return
    if is_call(context, node.value, "softmax"):
        return  # The inner lambda's own parameter of this name determines its range.
    value = evaluate(context, node.value)
    if isinstance(value, (Tile, View)) and len(value.shape) == len(node.items):
        yield from (pair for pair in zip(node.items, value.shape, strict=True) if wanted(pair[0]))


HANDLERS: dict[str, Handler] = {"tag": tag, "assert_tags": assert_tags}
