"""Inline helpers where they are called: bind the parameters, elaborate the body, and return the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from argus.diagnostic import Note
from argus.frontend import calls
from argus.frontend.binding import check_name, settle
from argus.frontend.context import MAX_INLINE, Binding, Context, Frame, Wanted
from argus.frontend.expressions import evaluate
from argus.frontend.surface import Attribute, Name, Parameter, Statement, Target
from argus.frontend.values import Constant, Helper, Nothing, Tile, TupleValue, Value, describe
from argus.source import Span

Run = Callable[[Context, tuple[Statement, ...]], Value | None]


def inline(
    context: Context, helper: Helper, args: tuple[Value, ...], keywords: Mapping[str, Value], span: Span, run: Run,
    wanted: Wanted | None = None,
) -> Value:  # fmt: skip
    """Evaluate a call of an `@argus.func`. `run` elaborates its body; `wanted` is the destination of its result."""
    function = helper.function
    if context.running(function):
        context.fail(
            "recursive-function",
            f"`{function.name}` calls itself, and helpers are inlined",
            span,
            "write a loop",
            notes=(Note("it is defined here", function.span),),
        )
    if len(context.stack) > MAX_INLINE:
        context.fail("unrolled-too-far", f"helpers call helpers more than {MAX_INLINE} deep", span, "call fewer")
    given = bound(context, helper, args, keywords, span)
    frame = Frame(function, context.depth, wanted=wanted)
    before = set(context.fragments)
    with context.called(helper, frame, span):
        for parameter, value in given:
            target = Target(parameter.name, parameter.span)
            if not isinstance(value, Helper):
                check_name(context, target, value)
            borrowed = isinstance(value, Tile) and value.fragment is not None and not value.fresh
            held = value if borrowed or isinstance(value, Helper) else settle(context, value, parameter.name, span)
            frame.names[parameter.name] = Binding(held, context.depth, parameter.span, borrowed)
        result = run(context, function.body)
    own = {name for name in context.fragments if name not in before}
    return Nothing() if result is None else _adoptable(result, own)


def _adoptable(result: Value, own: set[str]) -> Value:
    """Mark fragments that the helper made as unowned, so that each may be adopted once."""
    if isinstance(result, Tile) and result.fragment in own:
        own.discard(result.fragment or "")
        return replace(result, fresh=True)
    if isinstance(result, TupleValue):
        return TupleValue(tuple(_adoptable(item, own) for item in result.items))
    return result


def bound(
    context: Context, helper: Helper, args: tuple[Value, ...], keywords: Mapping[str, Value], span: Span
) -> list[tuple[Parameter, Value]]:
    """Return each parameter of a helper with the value that a call gives it."""
    function = helper.function
    names = [p.name for p in function.params]
    form = f"its form is `{function.name}({', '.join(names)})`"
    note = (Note("it is defined here", function.span),)
    if len(args) > len(names):
        message = f"`{function.name}` takes {len(names)} arguments, and {len(args)} are given"
        context.fail("wrong-arguments", message, span, form, notes=note)
    given = dict(zip(names, args, strict=False))
    for name, value in keywords.items():
        if name not in names or name in given:
            what = "gets its argument twice:" if name in given else "has no argument"
            remedy = form if name in given else calls.did_you_mean(name, names, form)
            context.fail("wrong-arguments", f"`{function.name}` {what} `{name}`", span, remedy, notes=note)
        given[name] = value
    result: list[tuple[Parameter, Value]] = []
    for parameter in function.params:
        if parameter.name not in given and parameter.default is None:
            message = f"`{function.name}` lacks its argument `{parameter.name}`"
            context.fail("wrong-arguments", message, span, form, notes=note)
        result.append((parameter, _argument(context, helper, parameter, given, span)))
    return result


def _argument(context: Context, helper: Helper, parameter: Parameter, given: Mapping[str, Value], span: Span) -> Value:
    function = helper.function
    if parameter.name in given:
        value = given[parameter.name]
    else:
        assert parameter.default is not None
        with context.called(helper, Frame(function, context.depth), span):
            value = evaluate(context, parameter.default)
    constexpr = parameter.annotation is not None and _is_constexpr(context, helper, parameter)
    if constexpr and not isinstance(value, (Constant, Helper)):
        context.fail(
            "not-constant",
            f"`{parameter.name}` of `{function.name}` is a constant, and this is {describe(value)}",
            span,
            "pass a number or an `al.constexpr` parameter",
        )
    return value


def _is_constexpr(context: Context, helper: Helper, parameter: Parameter) -> bool:
    """Return True if a helper's parameter is annotated `al.constexpr`, the only annotation that helpers have."""
    aliases = dict(helper.module.aliases)
    match parameter.annotation:
        case Attribute(value=Name(id=module), name="constexpr") if aliases.get(module) == "argus.language":
            return True
        case Name(id=name) if aliases.get(name) == "argus.language.constexpr":
            return True
        case None:
            return False
        case annotation:
            context.fail(
                "bad-annotation",
                f"the parameter `{parameter.name}` of a helper has no such annotation",
                annotation.span,
                "leave it out, or write `al.constexpr`: a helper takes whatever its call gives",
            )
