"""`al.spec`: the specified result of a kernel, as one expression for each output element.

Reductions are in `specified_reductions`, single elements in `specified_elements`.
"""

from __future__ import annotations

from collections.abc import Mapping

from argus.frontend import arguments, tiles
from argus.frontend.arithmetic import check_sortable
from argus.frontend.context import Binding, CallSite, Context, Frame, Handler
from argus.frontend.expressions import evaluate, items_of
from argus.frontend.inline import bound
from argus.frontend.specified_elements import dtype_of, leaf, literal
from argus.frontend.specified_reductions import cumulative, ranked, reduction, scan_of, softmax
from argus.frontend.statements import static_items
from argus.frontend.surface import (
    Assign,
    Attribute,
    Binary,
    Call,
    Compare,
    Conditional,
    Expression,
    ExprStmt,
    ForStmt,
    IfStmt,
    Lambda,
    Literal,
    Name,
    ReturnStmt,
    Statement,
    Subscript,
    Unary,
    parts,
)
from argus.frontend.tagging import direct_extents, divided_extents, is_call, quantified
from argus.frontend.tiles import BINARY
from argus.frontend.values import Builtin, Constant, Helper, Nothing, Range, Specified, Tile, Value, describe
from argus.ir.expr import OPERATORS, Const, Coord, Expr, Op, Param, walk
from argus.ir.nodes import Spec, SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.promise import PROMISES
from argus.ir.spec_terms import applied
from argus.ir.types import DType, boolean, float32, int32, int64, uint32
from argus.source import Span

_ELEMENTWISE = frozenset(o.name for o in OPERATORS.values() if o.symbol is None and o.result != "given")


def spec(call: CallSite) -> Value:
    """Declare the specification of an output tensor."""
    context, view = call.context, arguments.tensor_view(call, "output")
    node = arguments.function(call, "function").node
    context.require_top_level("a specification", call.span)
    if view.order is None:
        context.fail("bad-tag", "a specification is of a whole tensor", call.spans["output"], "name the tensor alone")
    covers = context.covers.get(view.obj.name)
    if covers is not None and len(node.params) != len(covers.names):
        context.fail(
            "bad-tag",
            f"this specification has {len(node.params)} parameters, and what the kernel covers {len(covers.names)}",
            node.span,
            f"give it those of `al.covers`: {', '.join(covers.names)}",
        )
    if covers is None and len(node.params) != len(view.shape):
        context.fail(
            "bad-tag",
            f"this specification has {len(node.params)} parameters, and {describe(view)} {len(view.shape)} dimensions",
            node.span,
            "give it one parameter a dimension",
        )
    params = node.params if covers is not None else tuple(node.params[axis] for axis in view.order)
    with quantified(context, params, node.span):
        value = _term(context, node.body, len(params))
    context.emit(Spec(view.obj.name, params, value), call.span)
    return Nothing()


def _term(context: Context, node: Expression, axes: int) -> SpecTerm:
    """Evaluate a term of a specification; `axes` bound variables are in scope."""
    match node:
        case Binary(op=op, left=left, right=right) if op in BINARY:
            return _combine(context, BINARY[op], (left, right), axes, node.span)
        case Unary(op="-", operand=operand):
            term = _combine(context, "neg", (operand,), axes, node.span)
            match term:
                case Op(op="neg", args=(Const(value=value, dtype=dtype),)):  # Readers treat -inf as a number.
                    return Const(-value, dtype)
            return term
        case Unary(op="~", operand=operand) if _specified(context, (operand,)):
            return _combine(context, "not", (operand,), axes, node.span)
        case Compare(first=first, ops=(op,), rest=(right,)) if op in BINARY and _specified(context, (first, right)):
            return _combine(context, BINARY[op], (first, right), axes, node.span)
        case Conditional(cond=cond, then=then, orelse=orelse):
            chosen = evaluate(context, cond)
            if isinstance(chosen, Constant):
                return _term(context, then if chosen.value else orelse, axes)
        case Subscript(value=Subscript(value=Call(args=(Lambda(), _)) as call, items=(which,)), items=(at,)):
            if is_call(context, call, "topk"):
                return ranked(context, call, which, at, axes, _bound)
        case Subscript(value=Call(args=(Lambda() as body,)) as call, items=(at,)) if scan_of(context, call):
            return cumulative(context, call, body, at, axes, _bound)
        case Subscript(value=Call(args=(Lambda() as score,), keywords=()) as call, items=(at,)):
            return softmax(context, call, score, at, axes, _bound)
        case Call(function=Attribute(value=value, name="to")):
            return _cast(context, node, _term(context, value, axes))
        case Call(args=(Lambda() as body,), keywords=()):
            return reduction(context, node, body, None, axes, _bound)
        case Call(args=(Lambda() as body, extent), keywords=()):
            return reduction(context, node, body, extent, axes, _bound)
        case Call(function=function, args=args, keywords=()):
            callee = evaluate(context, function)
            if isinstance(callee, Builtin) and callee.name == "sortable" and len(args) == 2:
                return _sortable(context, args, axes, node.span)
            if isinstance(callee, Builtin) and callee.name in _ELEMENTWISE:
                return _combine(context, callee.name, args, axes, node.span)
            if isinstance(callee, Helper):
                return _helper(context, callee, args, axes, node.span)
        case _:
            pass
    return leaf(context, node, axes)


def _combine(context: Context, operator: str, operands: tuple[Expression, ...], axes: int, span: Span) -> SpecTerm:
    """Apply an operator to terms. Operands of different dtypes are widened, because casts do not change a
    specification's value."""
    if len(operands) != OPERATORS[operator].arity:
        context.fail(
            "wrong-arguments", f"`{operator}` takes {OPERATORS[operator].arity} arguments", span, "give them all"
        )
    terms = [_term(context, operand, axes) for operand in operands]
    dtype = _common(context, operator, terms[1 if operator == "where" else 0 :], span)
    tiles.check_kind(context, operator, operator, dtype, span)
    terms = [literal(t, dtype) for t in terms]
    if operator in PROMISES:
        context.fail("bad-tag", "a specification says nothing about NaN", span, f"leave `al.{operator}` out here")
    exprs = [t for t in terms if not isinstance(t, (SpecOp, SpecReduce, SpecSoftmax))]
    if len(exprs) == len(terms) and len({e.dtype for e in exprs}) == 1:
        return tiles.make(operator, tuple(exprs))
    result = boolean if OPERATORS[operator].result == "bool" else dtype
    return SpecOp(operator, tuple(terms), result)


def _common(context: Context, operator: str, terms: list[SpecTerm], span: Span) -> DType:
    """Return the widest dtype of the terms, in which they are combined. uint32, whose arithmetic is modulo 2^32,
    combines with constants alone."""
    if not any(dtype_of(t).modular for t in terms):
        return _widest([dtype_of(t) for t in terms])
    others = [t for t in terms if not (dtype_of(t).modular or isinstance(t, Const))]
    wrong = [t.value for t in terms if isinstance(t, Const) and not 0 <= t.value < 2**32]
    if others or wrong:
        text = f"`{operator}` mixes uint32 and {dtype_of(others[0]) if others else wrong[0]}"
        remedy = "arithmetic of uint32 is modulo 2^32: convert one side, `.to(al.uint32)` or `.to(al.int64)`"
        context.fail("type-mismatch", text, span, remedy)
    return uint32


def _widest(dtypes: list[DType]) -> DType:
    distinct = set(dtypes)
    if len(distinct) == 1:
        return dtypes[0]
    return float32 if any(d.is_float for d in distinct) else int64 if int64 in distinct else int32


def _cast(context: Context, node: Call, term: SpecTerm) -> SpecTerm:
    target = evaluate(context, node.args[0]) if len(node.args) == 1 else None
    if not isinstance(target, Constant) or not isinstance(target.value, DType):
        context.fail("unknown-dtype", "`.to` takes a dtype", node.span, "write `x.to(al.float32)`")
    return applied("cast", (term,), target.value)


def _sortable(context: Context, args: tuple[Expression, ...], axes: int, span: Span) -> SpecTerm:
    """Evaluate `al.sortable(x, dtype)`."""
    term, target = _term(context, args[0], axes), evaluate(context, args[1])
    if not isinstance(target, Constant) or not isinstance(target.value, DType):
        context.fail("unknown-dtype", "`al.sortable` takes a dtype", span, "write `al.sortable(x, al.int32)`")
    check_sortable(context, term, target.value, span)
    return applied("sortable", (term,), target.value)


def _bound(context: Context, body: Lambda, axes: int, stated: Expression | None = None) -> tuple[Expr, SpecTerm]:
    """Return the extent of a lambda's parameter, which becomes `Coord(axes)`, and the lambda's body.

    The extent is `stated`, or else that of the dimensions that the parameter indexes.
    """
    if stated is not None:
        extent = _extent(context, stated, axes)
        with quantified(context, body.params, body.span, axes):
            return extent, _term(context, body.body, axes + 1)
    with quantified(context, body.params, body.span, axes):
        extents = list(dict.fromkeys(direct_extents(context, body.body, body.params[0])))
        extents = extents or list(dict.fromkeys(divided_extents(context, body.body, body.params[0])))
        extents = extents or list(dict.fromkeys(_extents_in_helpers(context, body.body, body.params[0], axes + 1)))
        if not extents:
            context.fail(
                "bad-tag",
                f"nothing says how far `{body.params[0]}` ranges",
                body.span,
                f"index a tensor by `{body.params[0]}` alone, or by it divided by a constant, "
                "and choose a part of it by `al.where`",
            )
        if len(extents) > 1:
            context.fail(
                "bad-tag",
                f"`{body.params[0]}` indexes dimensions of different extents",
                body.span,
                "give these dimensions the same symbolic size",
            )
        term = _term(context, body.body, axes + 1)
    return Const(extents[0]) if isinstance(extents[0], int) else extents[0], term


def _extent(context: Context, node: Expression, axes: int) -> Expr:
    """Return a stated extent, which is an integer of sizes and constants."""
    extent = leaf(context, node, axes)
    sizes = not isinstance(extent, (SpecOp, SpecReduce, SpecSoftmax)) and all(
        isinstance(e, (Const, Param, Op)) for e in walk(extent)
    )
    if not sizes or not extent.dtype.is_int:
        context.fail(
            "bad-tag",
            "the extent of a bound variable is no integer of sizes",
            node.span,
            "write a size, as `E` or `E + 1`",
        )
    assert not isinstance(extent, (SpecOp, SpecReduce, SpecSoftmax))
    return extent


# ---------------------------------------------------------------------------- helpers


def _specified(context: Context, operands: tuple[Expression, ...]) -> bool:
    """Return True if the operands must be evaluated as terms: they name terms of a specification, contain reductions,
    or call helpers."""
    for operand in operands:
        match operand:
            case Lambda():
                return True
            case Name(id=name):
                binding = context.frame.names.get(name)
                if binding is not None and isinstance(binding.value, Specified):
                    return True
            case Call(function=Name() as function) if isinstance(evaluate(context, function), Helper):
                return True
        if _specified(context, tuple(parts(operand))):
            return True
    return False


def _helper(context: Context, helper: Helper, args: tuple[Expression, ...], axes: int, span: Span) -> SpecTerm:
    """Return the value of an `@argus.func` applied to single elements, such as the epilogue that the kernel calls."""
    return _returned(context, helper, tuple(_value(context, a, axes) for a in args), {}, axes, span)


def number(
    context: Context, helper: Helper, args: tuple[Value, ...], keywords: Mapping[str, Value], span: Span
) -> Tile:
    """Return the number that an `@argus.func` gives inside an index, where it is computed from single elements."""
    given = (*args, *keywords.values())
    used = (e.axis for a in given if isinstance(a, Tile) for e in walk(a.expr) if isinstance(e, Coord))
    named = any(isinstance(a, Specified) for a in given)
    term = None if named else _returned(context, helper, args, keywords, max(used, default=-1) + 1, span)
    if term is None or isinstance(term, (SpecOp, SpecReduce, SpecSoftmax)):
        text = f"`{helper.function.name}` is called in an index, and computes it from sums or from several dtypes"
        context.fail("bad-index", text, span, "compute an index from elements and sizes of one integer dtype")
    return Tile((), term.dtype, term)


def _returned(
    context: Context, helper: Helper, args: tuple[Value, ...], keywords: Mapping[str, Value], axes: int, span: Span
) -> SpecTerm:
    """Return the term that a helper's body returns, given its arguments; `axes` bound variables are in scope."""
    function = helper.function
    if context.running(function):
        context.fail("recursive-function", f"`{function.name}` calls itself", span, "write it without")
    given = bound(context, helper, args, keywords, span)
    frame = Frame(function, context.depth, sizes=context.frame.sizes, quantified=True)
    with context.called(helper, frame, span):
        for parameter, value in given:
            frame.names[parameter.name] = Binding(value, context.depth, parameter.span)
        result = _body(context, function.body, axes)
    if result is None:
        context.fail("bad-tag", f"`{function.name}` gives nothing back", span, "end it by `return`")
    return result


def _extents_in_helpers(context: Context, node: Expression, param: str, axes: int) -> list[int | Expr]:
    """Return the extents of the dimensions that `param` indexes inside helpers that are called with it."""
    if isinstance(node, Lambda):
        with quantified(context, node.params, node.span, axes):
            inside = axes + len(node.params)
            return [] if param in node.params else _extents_in_helpers(context, node.body, param, inside)
    found = [e for part in parts(node) for e in _extents_in_helpers(context, part, param, axes)]
    if not isinstance(node, Call) or not isinstance(node.function, Name):
        return found
    helper = evaluate(context, node.function)
    if not isinstance(helper, Helper) or helper.function in context.stack:
        return found
    given = bound(context, helper, tuple(_value(context, a, axes) for a in node.args), {}, node.span)
    names = [p.name for (p, _), a in zip(given, node.args, strict=False) if isinstance(a, Name) and a.id == param]
    frame = Frame(helper.function, context.depth, sizes=context.frame.sizes, quantified=True)
    with context.called(helper, frame, node.span):
        for parameter, value in given:
            frame.names[parameter.name] = Binding(value, context.depth, parameter.span)
        for stmt in helper.function.body:
            if isinstance(stmt, ReturnStmt) and stmt.value is not None:
                for name in names:
                    found += [*direct_extents(context, stmt.value, name)] or divided_extents(context, stmt.value, name)
                found += [e for name in names for e in _extents_in_helpers(context, stmt.value, name, axes)]
    return found


def _value(context: Context, node: Expression, axes: int) -> Value:
    """Return the value of an argument: a term, or the value of a name, which may be more than a single element."""
    match node:
        case Name() | Literal():
            return evaluate(context, node)
        case _:
            term = _term(context, node, axes)
            if isinstance(term, (SpecOp, SpecReduce, SpecSoftmax)):
                return Specified(term)
            return Tile((), term.dtype, term)


def _body(context: Context, body: tuple[Statement, ...], axes: int) -> SpecTerm | None:
    """Return the term that a helper's body returns, or None if it does not return one."""
    for stmt in body:
        match stmt:
            case ExprStmt(value=Literal()):
                continue
            case Assign(targets=(target,), unpack=False, value=value):
                context.frame.names[target.id] = Binding(_value(context, value, axes), context.depth, target.span)
            case IfStmt(cond=cond, then=then, orelse=orelse) if isinstance(chosen := evaluate(context, cond), Constant):
                found = _body(context, then if chosen.value else orelse, axes)
                if found is not None:
                    return found
            case ForStmt(target=target, iterable=iterable, body=inner):
                for item in _items(context, iterable):
                    context.frame.names[target.id] = Binding(item, context.depth, target.span)
                    if _body(context, inner, axes) is not None:
                        context.fail("return-not-last", "`return` stands inside a loop", stmt.span, "return after it")
            case ReturnStmt(value=value) if value is not None:
                return _term(context, value, axes)
            case _:
                context.fail(
                    "bad-tag",
                    "this statement cannot stand in a specification",
                    stmt.span,
                    "call helpers of assignments, constant branches, unrolled loops and a `return`",
                )
    return None


def _items(context: Context, iterable: Expression) -> tuple[Value, ...]:
    """Return the values over which an unrolled loop of a specification runs."""
    found = evaluate(context, iterable)
    items = items_of(found)
    if items is None and isinstance(found, Range) and found.kind == "static":
        items = static_items(context, found, iterable.span)
    if items is None:
        text, help = "a loop in a specification is unrolled", "write `al.static_range(...)`, or run over a tuple"
        context.fail("bad-tag", text, iterable.span, help)
    return items


HANDLERS: dict[str, Handler] = {"spec": spec}
