"""Evaluate expressions of the surface tree to values."""

from __future__ import annotations

from typing_extensions import assert_never

from argus import language
from argus.diagnostic import Note
from argus.frontend import barriers, calls, constants, habits, outside
from argus.frontend.blocks import of_language
from argus.frontend.calls import did_you_mean
from argus.frontend.constants import ConstantError
from argus.frontend.context import Context, Rejected, Wanted
from argus.frontend.surface import (
    Attribute,
    Binary,
    Call,
    Compare,
    Conditional,
    Expression,
    Lambda,
    Literal,
    Logic,
    Name,
    Slice,
    Subscript,
    TupleExpr,
    Unary,
)
from argus.frontend.tiles import BINARY, as_tile, binary, elementwise, make, require_bool
from argus.frontend.values import (
    Builtin,
    Constant,
    Helper,
    LambdaValue,
    MbarrierArray,
    MbarrierSlot,
    Method,
    ModuleValue,
    NamedBarrier,
    Poison,
    Tile,
    TupleValue,
    Value,
    View,
    describe,
)
from argus.frontend.views import Item, SliceValue, subscript
from argus.ir.instruction.tiled import TiledMma
from argus.ir.types import DType, boolean
from argus.source import Span


def evaluate(context: Context, node: Expression, wanted: Wanted | None = None) -> Value:
    """Evaluate `node` and emit the statements that it needs. Raises `Rejected` after noting an error.

    `wanted` tells where the value goes, for a call at the top of an assignment.
    """
    match node:
        case Name():
            return _name(context, node)
        case Literal(value=value):
            return Constant(value)
        case TupleExpr(items=items):
            made = tuple_value(tuple(evaluate(context, i) for i in items))
            if _items(made) > constants.MAX_ITEMS:
                message = f"this tuple has more than {constants.MAX_ITEMS} items, those of tuples inside included"
                context.fail("bad-constant", message, node.span, "use a smaller tuple")
            return made
        case Attribute():
            return _attribute(context, node)
        case Call(function=function):
            callee = evaluate(context, function)
            return calls.call(context, node, callee, lambda e: evaluate(context, e), wanted)
        case Subscript(value=value, span=span):
            return _subscript(context, evaluate(context, value), node, span)
        case Unary(op=op, operand=operand, span=span):
            return _unary(context, op, evaluate(context, operand), operand.span, span)
        case Binary(op=op, left=left, right=right, span=span):
            values = (evaluate(context, left), evaluate(context, right))
            return binary(context, op, values, (left.span, right.span), span)
        case Logic():
            return _logic(context, node)
        case Compare():
            return _compare(context, node)
        case Conditional(cond=cond, then=then, orelse=orelse):
            chosen = evaluate(context, cond)
            if isinstance(chosen, Constant):
                return evaluate(context, then if chosen.value else orelse)
            context.fail(
                "not-constant",
                "the condition of `if ... else` is not a constant",
                cond.span,
                "write `al.where(c, x, y)`",
            )
        case Lambda():
            return LambdaValue(node)
        case _:
            assert_never(node)


def tuple_value(items: tuple[Value, ...]) -> Value:
    """Evaluate a tuple. The result is constant if all items are."""
    if all(isinstance(i, Constant) for i in items):
        return Constant(tuple(i.value for i in items if isinstance(i, Constant)))
    return TupleValue(items)


def _items(value: Value) -> int:
    """Return the number of items in a value. Items of nested tuples are counted each time."""
    if isinstance(value, TupleValue):
        return sum(1 + _items(item) for item in value.items)
    return constants.items(value.value) if isinstance(value, Constant) and isinstance(value.value, tuple) else 0


def items_of(value: Value) -> tuple[Value, ...] | None:
    """Return the items of a tuple value, or None for any other value."""
    match value:
        case TupleValue(items=items):
            return items
        case Constant(value=tuple() as items):
            return tuple(Constant(i) for i in items)
        case _:
            return None


# ---------------------------------------------------------------------------- names


def _name(context: Context, node: Name) -> Value:
    binding = context.frame.names.get(node.id)
    if binding is not None:
        if isinstance(binding.value, Poison):
            raise Rejected
        return binding.value
    gone = context.frame.gone.get(node.id)
    if gone is not None:
        context.fail(
            "undefined-after-block",
            f"`{node.id}` is not defined here: {gone.reason}",
            node.span,
            f"bind `{node.id}` before the block, to a value of the same shape and dtype",
            notes=(Note("it was bound here", gone.span),),
        )
    return _global(context, node)


def _global(context: Context, node: Name) -> Value:
    name, module = node.id, context.module
    outer = module.outer(name)
    if outer is not None and outer.closest:
        return outside.meaning(context, outer, node.span)
    outside.insist_on_one_meaning(context, outer, node.span)
    function = module.function(name)
    if function is not None and function.kind == "func":
        return Helper(function, module)
    if function is not None:
        context.fail(
            "wrong-arguments", f"a kernel cannot call the kernel `{name}`", node.span, "make it an `@argus.func`"
        )
    if any(c.name == name for c in module.constants):
        return outside.constant(context, name, node.span)
    if outer is not None:
        return outside.meaning(context, outer, node.span)
    aliases = dict(module.aliases)
    if name in aliases and of_language(aliases[name]):
        return _path(context, aliases[name], node.span)
    if any(outer.name.startswith(f"{name}.") for outer in module.around):
        return ModuleValue(name)
    if name in (*constants.FUNCTIONS, "range"):
        return Builtin(f"builtins.{name}")
    foreign = next((f for f in module.foreign if f.name == name), None)
    if foreign is not None:
        context.fail(
            "unknown-name",
            f"`{name}` is {foreign.what}, which a kernel cannot use",
            node.span,
            "call the language's functions, such as `al.exp(x)`; put helpers of this file under `@argus.func`; pass "
            "constants as `al.constexpr` parameters",
            notes=(Note("it comes from here", foreign.span),),
        )
    if name in habits.PYTHON:
        message = f"Python's `{name}` is not in the language"
        context.fail("unknown-name", message, node.span, f"use {habits.PYTHON[name]}")
    known = [*context.frame.names, *(c.name for c in module.constants), *(f.name for f in module.functions)]
    known += [name for name, _ in module.unread]
    remedy = did_you_mean(name, known, "bind it before it is used")
    if name in habits.LIBRARIES:
        remedy = "a kernel calls functions of the language: `al.load(...)`, `al.exp(...)`"
    if name in habits.LANGUAGES:
        remedy = f"the language is imported as `al`: write `al.` for `{name}.`"
    if name in language.__all__:
        remedy = f"did you mean `al.{name}`?"
    stars = [path.removesuffix(".*") for alias, path in module.aliases if alias == "*"]
    if stars and name not in language.__all__:
        what = f"nothing says what `{name}` is: `from {stars[0]} import *` names nothing, and the file is not run"
        context.fail("unknown-import", what, node.span, f"name what is used: `from {stars[0]} import {name}`")
    context.fail("unknown-name", f"there is no name `{name}` here", node.span, remedy)


def _path(context: Context, path: str, span: Span) -> Value:
    """Return the value of a dotted path below `argus`."""
    if path in ("argus", "argus.language"):
        return ModuleValue(path)
    name = path.removeprefix("argus.language.")
    if name == path or "." in name:
        context.fail("unknown-name", f"a kernel cannot use `{path}`", span, "functions of the language are `al.name`")
    dtype = getattr(language, name, None)
    if isinstance(dtype, DType):
        return Constant(dtype)
    if calls.signature(name) is not None:
        return Builtin(name)
    hidden = name in ("Tensor", "constexpr")
    remedy = habits.FUNCTIONS.get(name) or did_you_mean(
        f"al.{name}", [f"al.{n}" for n in language.__all__], "see the language reference"
    )
    message = f"`al.{name}` is for annotations" if hidden else f"`al` has no `{name}`"
    context.fail("unknown-function", message, span, "annotate a parameter with it" if hidden else remedy)


# ---------------------------------------------------------------------------- attributes and subscripts


def _attribute(context: Context, node: Attribute) -> Value:
    value, name = evaluate(context, node.value), node.name
    match value:
        case ModuleValue(path=path) if not of_language(path):
            return outside.attribute(context, f"{path}.{name}", node.span)
        case ModuleValue(path=path):
            return _path(context, f"{path}.{name}", node.span)
        case View(shape=shape) if name == "shape":
            return tuple_value(tuple(Constant(n) if isinstance(n, int) else Tile((), n.dtype, n) for n in shape))
        case View(obj=obj) if name == "dtype":
            return Constant(obj.dtype)
        case View() if name == "stride":
            return Method(value, name)
        case NamedBarrier() | MbarrierSlot() if name in barriers.METHODS[type(value)]:
            return Method(value, name)
        case Tile(shape=shape) if name == "shape":
            return Constant(shape)
        case Tile(dtype=dtype) if name == "dtype":
            return Constant(dtype)
        case Tile() | Constant(value=bool() | int() | float()) if name == "to":
            return Method(value, name)
        case Constant(value=TiledMma() as tiled) if name in ("a", "b", "c"):
            return Constant(getattr(tiled, name))
        case View() if name == "to":
            context.fail(
                "unknown-attribute", f"{describe(value)} is not in registers", node.span, "`al.load(...)` it first"
            )
        case _:
            remedy = did_you_mean(name, ["shape", "dtype", "stride", "to"], "see the language reference")
            remedy = habits.ATTRIBUTES.get(name, remedy)
            if calls.signature(name) is not None:
                remedy = f"write `al.{name}(...)`"
            context.fail("unknown-attribute", f"{describe(value)} has no `.{name}`", node.span, remedy)


def _subscript(context: Context, value: Value, node: Subscript, span: Span) -> Value:
    items: list[Item] = []
    for item in node.items:
        if isinstance(item, Slice):
            parts = (item.lower, item.upper, item.step)
            items.append(SliceValue(*(None if p is None else evaluate(context, p) for p in parts)))
        else:
            items.append(evaluate(context, item))
    members = items_of(value)
    if isinstance(value, MbarrierArray):
        return barriers.slot(context, value, [i for i in items if not isinstance(i, SliceValue)], span)
    if members is None:
        return subscript(context, value, items, [i.span for i in node.items], span)
    index = items[0] if len(items) == 1 else None
    if not isinstance(index, Constant) or not isinstance(index.value, int):
        context.fail("bad-index", "a tuple is indexed by one constant integer", span, "use a constant")
    if not -len(members) <= index.value < len(members):
        of_shape = isinstance(node.value, Attribute) and node.value.name == "shape"
        remedy = 'the whole shape is one string: `al.Tensor[al.float32, "M N"]`' if of_shape else "count from 0"
        context.fail("bad-index", f"there is no item {index.value} in a tuple of {len(members)}", span, remedy)
    return members[index.value]


# ---------------------------------------------------------------------------- operators


def _unary(context: Context, op: str, value: Value, where: Span, span: Span) -> Value:
    if isinstance(value, Constant):
        try:
            return Constant(constants.unary(op, value.value))
        except ConstantError as error:
            context.fail("bad-constant", str(error), span, "check the operand")
    if op == "not":
        tile = _scalar_condition(context, value, where, "not", "~")
        return Tile((), boolean, make("not", (tile.expr,)))
    if op == "+":
        return as_tile(context, value, where)
    return elementwise(context, {"-": "neg", "~": "not"}[op], (value,), (where,), span)


def _scalar_condition(context: Context, value: Value, where: Span, word: str, symbol: str) -> Tile:
    tile = as_tile(context, value, where)
    if tile.shape:
        context.fail(
            "bad-condition", f"`{word}` decides once, and this is {describe(tile)}", where, f"write `{symbol}`"
        )
    require_bool(context, tile, where, f"an operand of `{word}`")
    return tile


def _logic(context: Context, node: Logic) -> Value:
    left = evaluate(context, node.left)
    if isinstance(left, Constant):
        if bool(left.value) is (node.op == "or"):
            return left
        return evaluate(context, node.right)
    symbol = "&" if node.op == "and" else "|"
    first = _scalar_condition(context, left, node.left.span, node.op, symbol)
    right = evaluate(context, node.right)
    if isinstance(right, Constant):
        right = Constant(bool(right.value))
    second = _scalar_condition(context, right, node.right.span, node.op, symbol)
    return Tile((), boolean, make(node.op, (first.expr, second.expr)))


def _compare(context: Context, node: Compare) -> Value:
    left, left_span = evaluate(context, node.first), node.first.span
    result: Value | None = None
    for op, operand in zip(node.ops, node.rest, strict=True):
        right = evaluate(context, operand)
        step = _compare_two(context, op, (left, right), (left_span, operand.span), node.span)
        if result is None:
            result = step
        elif isinstance(result, Constant) and isinstance(step, Constant):
            result = Constant(bool(result.value) and bool(step.value))
        else:
            result = elementwise(context, "and", (result, step), (node.span, node.span), node.span)
        left, left_span = right, operand.span
    assert result is not None
    return result


def _compare_two(context: Context, op: str, values: tuple[Value, Value], spans: tuple[Span, Span], span: Span) -> Value:
    left, right = values
    if op in ("is", "is not") and Constant(None) in values:
        return Constant((left == right) is (op == "is"))
    if isinstance(left, Constant) and isinstance(right, Constant):
        try:
            return Constant(constants.compare(op, left.value, right.value))
        except ConstantError as error:
            context.fail("bad-constant", str(error), span, "check both sides")
    if op not in BINARY:
        context.fail("not-constant", f"`{op}` compares constants", span, "write `==` or `!=`")
    return elementwise(context, BINARY[op], values, spans, span)
