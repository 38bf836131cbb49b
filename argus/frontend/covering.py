"""`al.covers`: the part of an output that a kernel writes."""

from __future__ import annotations

from argus.frontend import arguments, tiles
from argus.frontend.context import CallSite, Context, Handler
from argus.frontend.expressions import evaluate
from argus.frontend.surface import Expression, Lambda, Name, TupleExpr
from argus.frontend.tagging import direct_extents, divided_extents, quantified
from argus.frontend.values import Nothing, Value, View, describe
from argus.ir.expr import Const, Elem, Expr, coords, walk
from argus.ir.nodes import Covers, Spec, Tensor
from argus.ir.types import int32


def covers(call: CallSite) -> Value:
    """Declare which elements of an output the kernel writes: those at `at(i, ...)`, for all integers `i, ...` for which
    `where(i, ...)` holds."""
    context, view = call.context, arguments.tensor_view(call, "output")
    context.require_top_level("what a kernel covers", call.span)
    tensor = view.obj
    if not view.whole or not isinstance(tensor, Tensor):
        what = f"a part is declared of a whole tensor, and this is {describe(view)}"
        context.fail("bad-covers", what, call.spans["output"], "name the output alone, and say which part by `where`")
    given = [n for n in ("where", "at") if arguments.given(call, n)]
    if not given:
        help = "write `al.covers(out, where=lambda i: i < n)`, or leave it out: a kernel covers its outputs whole"
        context.fail("bad-covers", "this says nothing about what is covered", call.span, help)
    if tensor.name in context.covers:
        context.fail("bad-covers", f"what is covered of `{tensor.name}` is said twice", call.span, "say it once")
    if any(isinstance(s, Spec) and s.output == tensor.name for s in context.body):
        help = "put `al.covers` first: its parameters are those of the specification"
        context.fail("bad-covers", f"`{tensor.name}` is specified before it is said what is covered", call.span, help)
    functions = {name: arguments.function(call, name).node for name in given}
    first = functions["at" if "at" in functions else "where"]
    for name, node in functions.items():
        if node.params != first.params:
            what = f"`{name}` has other parameters than `at`"
            context.fail("bad-covers", what, call.spans[name], "give both lambdas the same parameters")
    at, shape = _places(call, view, tensor, functions)
    where = _condition(context, functions["where"]) if "where" in functions else None
    _constant_contents(call, tensor, (*at, *([where] if where is not None else [])))
    context.covers[tensor.name] = Covers(tensor.name, first.params, shape, at, where, context.at(call.span))
    return Nothing()


def _places(
    call: CallSite, view: View, tensor: Tensor, functions: dict[str, Lambda]
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Return the indices of the covered elements, and the extents over which the parameters range."""
    context, node = call.context, functions.get("at")
    if node is None:
        node = functions["where"]
        if len(node.params) != len(tensor.shape):
            what = f"`where` has {len(node.params)} parameters, and `{tensor.name}` {len(tensor.shape)} dimensions"
            context.fail("bad-covers", what, node.span, "give it one parameter a dimension")
        return coords(len(tensor.shape)), tensor.shape
    items = node.body.items if isinstance(node.body, TupleExpr) else (node.body,)
    if len(items) != len(tensor.shape):
        what = f"`at` gives {len(items)} indices, and `{tensor.name}` has {len(tensor.shape)} dimensions"
        context.fail("bad-covers", what, node.body.span, "give one index a dimension: `at=lambda t, d: (slot[t], d)`")
    with quantified(context, node.params, node.span):
        at = tuple(_integer(context, item) for item in items)
        shape = tuple(_extent(context, p, items, functions, tensor) for p in node.params)
    return at, shape


def _integer(context: Context, node: Expression) -> Expr:
    found = tiles.as_tile(context, evaluate(context, node), node.span, int32)
    if found.shape or not found.dtype.is_int:
        context.fail("bad-covers", f"an index is one integer, and this is {describe(found)}", node.span, "use integers")
    return found.expr


def _condition(context: Context, node: Lambda) -> Expr:
    with quantified(context, node.params, node.span):
        found = tiles.as_tile(context, evaluate(context, node.body), node.body.span)
    tiles.require_bool(context, found, node.body.span, "`where`")
    return found.expr


def _extent(
    context: Context, param: str, items: tuple[Expression, ...], functions: dict[str, Lambda], tensor: Tensor
) -> Expr:
    """Return the extent over which a parameter ranges.

    If the parameter is an index of the output by itself, this is the extent of the output's dimension; otherwise it is
    the extent of the index tensor's dimension that the parameter indexes.
    """
    alone = [tensor.shape[axis] for axis, item in enumerate(items) if isinstance(item, Name) and item.id == param]
    found: list[int | Expr] = list(alone)
    for extents in (direct_extents, divided_extents):
        for function in functions.values() if not found else ():
            found += extents(context, function.body, param)
    found = list(dict.fromkeys(found))
    span = functions["at"].span
    if not found:
        help = f"let `{param}` be an index of the output, or index a tensor by `{param}` alone"
        context.fail("bad-covers", f"nothing says how far `{param}` ranges", span, help)
    if len(found) > 1:
        help = "give these dimensions the same symbolic size"
        context.fail("bad-covers", f"`{param}` ranges over dimensions of different extents", span, help)
    return Const(found[0]) if isinstance(found[0], int) else found[0]


def _constant_contents(call: CallSite, tensor: Tensor, exprs: tuple[Expr, ...]) -> None:
    """Check that the covered elements do not depend on the contents of the output."""
    if any(isinstance(e, Elem) and e.obj == tensor.name for expr in exprs for e in walk(expr)):
        what = f"what is covered of `{tensor.name}` depends on what it holds, which the kernel changes"
        call.context.fail("bad-covers", what, call.span, "let it depend on sizes, scalars and other tensors")


HANDLERS: dict[str, Handler] = {"covers": covers}
