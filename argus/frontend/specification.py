"""`al.spec`: what a kernel computes, as one expression an output element."""

from __future__ import annotations

from argus.frontend import arguments, tiles
from argus.frontend.context import CallSite, Context, Handler
from argus.frontend.expressions import evaluate
from argus.frontend.surface import Attribute, Binary, Call, Expression, Lambda, Unary
from argus.frontend.tagging import direct_extents, is_call, quantified
from argus.frontend.tiles import BINARY
from argus.frontend.values import Builtin, Constant, Nothing, Value, View, describe
from argus.ir.expr import OPERATORS, Const, Expr, Op
from argus.ir.nodes import Spec, SpecOp, SpecReduce, SpecTerm
from argus.ir.types import DType, boolean, float32, int32
from argus.source import Span

_ELEMENTWISE = frozenset(o.name for o in OPERATORS.values() if o.symbol is None and o.name != "cast")
_REDUCE = {"sum": "add", "max": "maximum", "min": "minimum"}


def spec(call: CallSite) -> Value:
    """The specification of an output tensor."""
    context, view = call.context, arguments.tensor_view(call, "output")
    node = arguments.function(call, "function").node
    context.require_top_level("a specification", call.span)
    if not view.whole:
        context.fail("bad-tag", "a specification is of a whole tensor", call.spans["output"], "name the tensor alone")
    if len(node.params) != len(view.shape):
        context.fail(
            "bad-tag",
            f"this specification has {len(node.params)} parameters, and {describe(view)} {len(view.shape)} dimensions",
            node.span,
            "give it one parameter a dimension",
        )
    with quantified(context, node.params, node.span):
        value = _term(context, node.body, len(node.params))
    context.emit(Spec(view.obj.name, node.params, value), call.span)
    return Nothing()


def _term(context: Context, node: Expression, axes: int) -> SpecTerm:
    """A term of a specification; `axes` bound variables are in scope."""
    match node:
        case Binary(op=op, left=left, right=right) if op in BINARY:
            return _combine(context, BINARY[op], (left, right), axes, node.span)
        case Unary(op="-", operand=operand):
            return _combine(context, "neg", (operand,), axes, node.span)
        case Call(function=Attribute(value=value, name="to")):
            return _cast(context, node, _term(context, value, axes))
        case Call(args=(argument,), keywords=()) if isinstance(argument, Lambda):
            return _reduce(context, node, argument, axes)
        case Call(function=function, args=args, keywords=()):
            callee = evaluate(context, function)
            if isinstance(callee, Builtin) and callee.name in _ELEMENTWISE:
                return _combine(context, callee.name, args, axes, node.span)
        case _:
            pass
    return _leaf(context, node)


def _leaf(context: Context, node: Expression) -> Expr:
    value = evaluate(context, node)
    if isinstance(value, View):
        context.fail(
            "bad-tag", f"{describe(value)} is not one element", node.span, "index every dimension by an integer"
        )
    tile = tiles.as_tile(context, value, node.span)
    if tile.shape:
        context.fail(
            "bad-tag", f"{describe(tile)} is not one element", node.span, "index every dimension by an integer"
        )
    return tile.expr


def _combine(context: Context, operator: str, operands: tuple[Expression, ...], axes: int, span: Span) -> SpecTerm:
    """An operator over terms. Specifications are about values: mixed dtypes widen, as casts are transparent."""
    if len(operands) != OPERATORS[operator].arity:
        context.fail(
            "wrong-arguments", f"`{operator}` takes {OPERATORS[operator].arity} arguments", span, "give them all"
        )
    terms = [_term(context, operand, axes) for operand in operands]
    dtype = _widest([_dtype(t) for t in terms[1 if operator == "where" else 0 :]])
    tiles.check_kind(context, operator, operator, dtype, span)
    terms = [_literal(t, dtype) for t in terms]
    exprs = [t for t in terms if not isinstance(t, (SpecOp, SpecReduce))]
    if len(exprs) == len(terms) and len({e.dtype for e in exprs}) == 1:
        return tiles.make(operator, tuple(exprs))
    result = boolean if OPERATORS[operator].result == "bool" else dtype
    return SpecOp(operator, tuple(terms), result)


def _dtype(term: SpecTerm) -> DType:
    return term.dtype


def _widest(dtypes: list[DType]) -> DType:
    distinct = set(dtypes)
    if len(distinct) == 1:
        return dtypes[0]
    return float32 if any(d.is_float for d in distinct) else int32


def _literal(term: SpecTerm, dtype: DType) -> SpecTerm:
    if isinstance(term, Const) and term.dtype is not boolean:
        return Const(float(term.value) if dtype.is_float else term.value, dtype)
    return term


def _cast(context: Context, node: Call, term: SpecTerm) -> SpecTerm:
    target = evaluate(context, node.args[0]) if len(node.args) == 1 else None
    if not isinstance(target, Constant) or not isinstance(target.value, DType):
        context.fail("unknown-dtype", "`.to` takes a dtype", node.span, "write `x.to(al.float32)`")
    if isinstance(term, (SpecOp, SpecReduce)):
        return SpecOp("cast", (term,), target.value)
    return Op("cast", (term,), target.value)


def _reduce(context: Context, node: Call, body: Lambda, axes: int) -> SpecTerm:
    """`al.sum(lambda k: ...)` over the dimension that `k` indexes."""
    name = next((n for n in _REDUCE if is_call(context, node, n)), None)
    if name is None or len(body.params) != 1:
        context.fail(
            "bad-tag",
            "here a lambda of one parameter is what `al.sum`, `al.max` or `al.min` runs over",
            node.span,
            "write `al.sum(lambda k: a[m, k] * b[n, k])`",
        )
    with quantified(context, body.params, body.span, axes):
        extents = list(dict.fromkeys(direct_extents(context, body.body, body.params[0])))
        if not extents:
            context.fail(
                "bad-tag",
                f"nothing says how far `{body.params[0]}` ranges",
                body.span,
                f"index a tensor by `{body.params[0]}` alone",
            )
        if len(extents) > 1:
            context.fail(
                "bad-tag",
                f"`{body.params[0]}` indexes dimensions of different extents",
                body.span,
                "give these dimensions the same symbolic size",
            )
        term = _term(context, body.body, axes + 1)
    extent = Const(extents[0]) if isinstance(extents[0], int) else extents[0]
    return SpecReduce(_REDUCE[name], axes, extent, term, _dtype(term))


HANDLERS: dict[str, Handler] = {"spec": spec}
