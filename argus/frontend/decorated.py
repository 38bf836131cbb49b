"""Options in a kernel's decorator: the number of warps, and accepted findings."""

from __future__ import annotations

from argus.frontend.calls import did_you_mean
from argus.frontend.context import Context
from argus.frontend.expressions import evaluate
from argus.frontend.options import ACCEPTABLE, unacceptable
from argus.frontend.surface import Expression, Function, Keyword, Literal, TupleExpr
from argus.frontend.values import Constant, describe


def warps(context: Context, function: Function) -> int:
    """Return the number of warps: from the options, else from the decorator, else 4."""
    chosen, span = 4, function.span
    for keyword in function.options:
        if keyword.name == "accept" and function.kind == "kernel":
            _check_accepted(context, keyword)
            continue
        if keyword.name != "num_warps" or function.kind != "kernel":
            remedy = did_you_mean(keyword.name, ["num_warps", "accept"], "remove it")
            context.error("bad-decorator", f"`@argus.kernel` has no option `{keyword.name}`", keyword.span, remedy)
            continue
        value, span = evaluate(context, keyword.value), keyword.span
        if not isinstance(value, Constant) or not isinstance(value.value, int) or isinstance(value.value, bool):
            context.fail("bad-decorator", f"`num_warps` is an integer, not {describe(value)}", span, "write a number")
        chosen = value.value
    if context.options.num_warps is not None:
        chosen = context.options.num_warps
    most = context.target.max_threads // context.target.warp_size
    if type(chosen) is not int or not 1 <= chosen <= most:  # Options come from a call, so they may have any type.
        context.fail(
            "bad-option",
            f"a block on {context.target.name} has 1 to {most} warps, not {chosen}",
            span,
            "choose `num_warps` in that range",
        )
    return chosen


def accepted(function: Function) -> tuple[str, ...]:
    """Return the codes of findings that the decorator accepts with `accept=("spec-unknown",)`. Codes that cannot be
    accepted are errors."""
    values = [keyword.value for keyword in function.options if keyword.name == "accept"]
    return tuple(word for value in values for word in _accepted_words(value) or () if word in ACCEPTABLE)


def _accepted_words(value: Expression) -> tuple[str, ...] | None:
    """Return the strings of a tuple of strings, or None for any other value."""
    items = value.items if isinstance(value, TupleExpr) else ()
    words = tuple(item.value for item in items if isinstance(item, Literal) and isinstance(item.value, str))
    return words if isinstance(value, TupleExpr) and len(words) == len(items) else None


def _check_accepted(context: Context, keyword: Keyword) -> None:
    words = _accepted_words(keyword.value)
    if words is None:
        remedy = 'write accept=("spec-unknown",)'
        context.error("bad-decorator", "`accept` is a tuple of error codes", keyword.span, remedy)
        return
    for word in words:
        if word not in ACCEPTABLE:
            context.error("bad-decorator", unacceptable(word), keyword.span, f"remove it, and prove `{word}`")
