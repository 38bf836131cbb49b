"""Elaborate calls: find the function, match arguments to parameters, and return the result."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from functools import cache

from argus import language
from argus.diagnostic import Note
from argus.frontend import constants, habits
from argus.frontend.barriers import come_to
from argus.frontend.constants import ConstantError
from argus.frontend.context import CallSite, Context, Rejected, Wanted
from argus.frontend.surface import Call, Expression, Keyword
from argus.frontend.tiles import as_tile, cast
from argus.frontend.values import (
    Builtin,
    Constant,
    Helper,
    MbarrierSlot,
    Method,
    NamedBarrier,
    Poison,
    Range,
    Tile,
    TupleValue,
    Value,
    View,
    describe,
)
from argus.ir.expr import Const, Expr
from argus.ir.nodes import Tensor
from argus.ir.types import DType, int32
from argus.source import Span

Evaluate = Callable[[Expression], Value]


@cache
def signature(name: str) -> inspect.Signature | None:
    """Return the signature of a function of the language, or None if there is no such function."""
    function = getattr(language, name, None)
    return inspect.signature(function) if inspect.isfunction(function) and not name.startswith("_") else None


def did_you_mean(name: str, names: Sequence[str], fallback: str) -> str:
    """Return a remedy that names the closest of `names`, if one is close enough to be a typing error."""
    short = [n.removeprefix("al.") for n in names]
    found = difflib.get_close_matches(name.removeprefix("al."), short, 1, cutoff=0.74)
    near = [n for n in names if found and n.removeprefix("al.") == found[0]]
    return f"did you mean `{near[0]}`?" if near else fallback


def call(context: Context, node: Call, function: Value, evaluate: Evaluate, wanted: Wanted | None) -> Value:
    """Evaluate a call. The function is already evaluated; the arguments are not."""
    match function:
        case Builtin(name=name) if name.startswith("builtins."):
            return _python_function(context, name.removeprefix("builtins."), node, evaluate)
        case Builtin(name=name):
            return _language_function(context, name, node, evaluate, wanted)
        case Helper():
            args = tuple(evaluate(a) for a in node.args)
            keywords = {k.name: evaluate(k.value) for k in node.keywords}
            result = context.inline(context, function, args, keywords, node.span, wanted)
            if isinstance(result, Poison):
                raise Rejected
            return result
        case Method(receiver=receiver, name=name):
            return _method(context, receiver, name, node, evaluate)
        case Constant(value=DType() as dtype):
            remedy = f"convert a value with `x.to(al.{dtype})`"
            context.fail("wrong-arguments", f"{describe(function)} cannot be called", node.span, remedy)
        case _:
            context.fail(
                "wrong-arguments", f"{describe(function)} cannot be called", node.span, "call a function of `al`"
            )


# ---------------------------------------------------------------------------- functions of the language


def _language_function(context: Context, name: str, node: Call, evaluate: Evaluate, wanted: Wanted | None) -> Value:
    found = signature(name)
    assert found is not None
    bound = _bind(context, f"al.{name}", found, node)
    args: dict[str, Value] = {}
    spans: dict[str, Span] = {}
    for parameter in found.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            places = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in found.parameters.values())
            args[parameter.name] = TupleValue(tuple(evaluate(a) for a in node.args[places:]))
            spans[parameter.name] = node.span
            continue
        given = bound.get(parameter.name)
        args[parameter.name] = Constant(parameter.default) if given is None else evaluate(given)
        spans[parameter.name] = node.span if given is None else given.span
    return context.handlers[name](CallSite(context, name, args, spans, node.span, wanted))


def _bind(context: Context, name: str, found: inspect.Signature, node: Call) -> dict[str, Expression]:
    """Match argument expressions to parameters by name."""
    names = [n for n, p in found.parameters.items() if p.kind is not p.VAR_POSITIONAL]
    places = [n for n, p in found.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in found.parameters.values())
    text = f"{name}{_signature_text(found)}"
    if len(node.args) > len(places) and not variadic:
        context.fail(
            "wrong-arguments",
            f"`{name}` takes {len(places)} argument{'s' * (len(places) != 1)}, and {len(node.args)} are given",
            node.args[len(places)].span,
            f"its form is `{text}`",
        )
    bound = dict(zip(places, node.args, strict=False))
    for keyword in node.keywords:
        _check_keyword(context, name, keyword, names, bound, text)
        bound[keyword.name] = keyword.value
    missing = [n for n in names if found.parameters[n].default is inspect.Parameter.empty and n not in bound]
    if missing:
        context.fail(
            "wrong-arguments",
            f"`{name}` lacks its argument{'s' * (len(missing) != 1)} {', '.join(f'`{m}`' for m in missing)}",
            node.span,
            f"its form is `{text}`",
        )
    return bound


def _check_keyword(
    context: Context, name: str, keyword: Keyword, names: list[str], bound: dict[str, Expression], text: str
) -> None:
    if keyword.name not in names:
        context.fail(
            "wrong-arguments",
            f"`{name}` has no argument `{keyword.name}`",
            keyword.span,
            habits.KEYWORDS.get(keyword.name) or did_you_mean(keyword.name, names, f"its form is `{text}`"),
        )
    if keyword.name in bound:
        context.fail(
            "wrong-arguments",
            f"`{name}` gets its argument `{keyword.name}` twice",
            keyword.span,
            "give it once",
            notes=(Note("the first time here", bound[keyword.name].span),),
        )


def _signature_text(found: inspect.Signature) -> str:
    parts = [
        f"*{n}" if p.kind is p.VAR_POSITIONAL else n if p.default is p.empty else f"{n}={p.default!r}"
        for n, p in found.parameters.items()
    ]
    keyword_only = [i for i, p in enumerate(found.parameters.values()) if p.kind is p.KEYWORD_ONLY]
    if keyword_only:
        parts.insert(keyword_only[0], "*")
    return f"({', '.join(parts)})"


# ---------------------------------------------------------------------------- Python's functions, and methods


def _python_function(context: Context, name: str, node: Call, evaluate: Evaluate) -> Value:
    """Evaluate a Python builtin: `range` of any values, or `min`, `len` and the like of constants."""
    if node.keywords:
        context.fail("wrong-arguments", f"`{name}` takes no keywords", node.keywords[0].span, "leave the keyword out")
    values = [evaluate(a) for a in node.args]
    if name == "range":
        return make_range(context, "range", values, node.span)
    if name == "len" and len(values) == 1 and isinstance(values[0], TupleValue):
        return Constant(len(values[0].items))
    for value, arg in zip(values, node.args, strict=True):
        if not isinstance(value, Constant):
            remedy = habits.OF_CONSTANTS.get(name, "convert with `x.to(al.float32)` or `x.to(al.int32)`")
            context.fail(
                "not-constant",
                f"`{name}` takes constants, and this is {describe(value)}",
                arg.span,
                remedy,
            )
    try:
        return Constant(constants.function(name, tuple(v.value for v in values if isinstance(v, Constant))))
    except ConstantError as error:
        context.fail("bad-constant", str(error), node.span, "check the arguments")


def make_range(
    context: Context, kind: str, values: Sequence[Value], span: Span, stages: int = 1, producer_warps: int = 0
) -> Range:
    """Evaluate `range(stop)`, `range(start, stop)` or `range(start, stop, step)`."""
    given = [v for v in values if v != Constant(None)]
    if not 1 <= len(given) <= 3:
        context.fail("bad-loop", "a range takes one to three bounds", span, "write `range(start, stop, step)`")
    start, stop = (Constant(0), given[0]) if len(given) == 1 else (given[0], given[1])
    step = given[2] if len(given) == 3 else Constant(1)
    if not isinstance(step, Constant) or not isinstance(step.value, int) or isinstance(step.value, bool):
        context.fail("bad-loop", "the step of a loop is a constant integer", span, "use a constexpr for it")
    if step.value < 1:
        context.fail(
            "bad-loop",
            f"the step of a loop is positive, not {step.value}",
            span,
            "count upward, and mirror the counter",
        )
    return Range(kind, start, stop, step.value, stages, producer_warps)


def bound_expr(context: Context, value: Value, span: Span) -> Expr:
    """Evaluate a loop bound as an int32 scalar."""
    if isinstance(value, Constant) and isinstance(value.value, int):
        return as_tile(context, value, span, int32).expr
    if isinstance(value, Tile) and not value.shape and value.dtype is int32:
        return value.expr
    context.fail(
        "bad-loop",
        f"a loop's bound is a scalar of int32, not {describe(value)}",
        span,
        "use sizes, constants or scalars",
    )


def _method(context: Context, receiver: Value, name: str, node: Call, evaluate: Evaluate) -> Value:
    values = [evaluate(a) for a in (*node.args, *(k.value for k in node.keywords))]
    if isinstance(receiver, NamedBarrier | MbarrierSlot):
        return come_to(context, receiver, name, values, node.span)
    if len(values) != 1:
        context.fail("wrong-arguments", f"`.{name}` takes one argument", node.span, f"write `x.{name}(...)`")
    argument = values[0]
    if name == "stride":
        return _stride(context, receiver, argument, node.span)
    if not isinstance(argument, Constant) or not isinstance(argument.value, DType):
        context.fail(
            "unknown-dtype",
            f"`.to` takes a dtype, and this is {describe(argument)}",
            node.span,
            "write `x.to(al.float32)`",
        )
    return cast(as_tile(context, receiver, node.span), argument.value)


def _stride(context: Context, receiver: Value, axis: Value, span: Span) -> Value:
    if not isinstance(receiver, View) or not isinstance(receiver.obj, Tensor) or not receiver.whole:
        context.fail("unknown-attribute", f"{describe(receiver)} has no strides", span, "ask a tensor parameter")
    rank = len(receiver.obj.strides)
    if not isinstance(axis, Constant) or not isinstance(axis.value, int) or not -rank <= axis.value < rank:
        context.fail("bad-shape", f"`.stride` takes a dimension, 0 to {rank - 1}", span, "count from 0")
    stride = receiver.obj.strides[axis.value]
    return Constant(int(stride.value)) if isinstance(stride, Const) else Tile((), stride.dtype, stride)
