"""Elaborate scans: `cumsum`, `cumprod` and `associative_scan`. The combining function becomes expressions of single
elements."""

from __future__ import annotations

from argus.diagnostic import Note
from argus.frontend import arguments, tiles
from argus.frontend.associativity import Finding, associativity
from argus.frontend.context import CallSite, Context, Handler, Rejected
from argus.frontend.values import Helper, Poison, Tile, TupleValue, Value, describe, shape_text
from argus.ir.expr import Elem, Expr, Op, coords, elements, rewrite
from argus.ir.nodes import Access, Map, Scan, Scanned
from argus.ir.types import boolean
from argus.source import Span

_OPERATORS = {"cumsum": "add", "cumprod": "mul"}


def cumulative(call: CallSite) -> Value:
    """Emit `cumsum` or `cumprod`."""
    x = arguments.tile(call, "x")
    _check(call, x, call.spans["x"])
    if x.dtype is boolean or x.dtype.bits < 16:
        call.context.fail(
            "type-mismatch",
            f"`al.{call.name}` does not combine {x.dtype}",
            call.spans["x"],
            "convert first: `x.to(al.int32)` or `x.to(al.float32)`",
        )
    left, right = Elem("left", (), x.dtype), Elem("right", (), x.dtype)
    return _scan(call, [x], [left], [right], [Op(_OPERATORS[call.name], (left, right), x.dtype)])[0]


def associative_scan(call: CallSite) -> Value:
    """Scan one tile, or a tuple of tiles together, with an `@argus.func`."""
    context, given = call.context, call.args["x"]
    several = given.items if isinstance(given, TupleValue) else (given,)
    if not several:
        context.fail("wrong-arguments", "a scan of no tile", call.spans["x"], "give a tile, or a tuple of tiles")
    xs = [tiles.as_tile(context, each, call.spans["x"]) for each in several]
    for x in xs:
        _check(call, x, call.spans["x"])
        if x.shape != xs[0].shape:
            context.fail(
                "shape-mismatch",
                f"tiles of {shape_text(xs[0].shape)} and {shape_text(x.shape)} are not scanned together",
                call.spans["x"],
                "give all of them the same shape",
            )
    combine = call.args["combine"]
    if not isinstance(combine, Helper):
        context.fail(
            "wrong-arguments",
            f"`combine` of `al.associative_scan` is an `@argus.func`, and this is {describe(combine)}",
            call.spans["combine"],
            "define `@argus.func` with two parameters for each tile: what comes before, then what comes next",
        )
    left = [Elem(f"left{n}", (), x.dtype) for n, x in enumerate(xs)]
    right = [Elem(f"right{n}", (), x.dtype) for n, x in enumerate(xs)]
    made = _combination(call, combine, left, right)
    if not arguments.flag(call, "associative"):
        _insist(call, combine, associativity(left, right, made))
    result = _scan(call, xs, left, right, made)
    return TupleValue(tuple(result)) if isinstance(given, TupleValue) else result[0]


def _check(call: CallSite, x: Tile, span: Span) -> None:
    if not x.shape:
        call.context.fail("bad-shape", f"`al.{call.name}` runs along a dimension of a tile", span, "give a tile")


def _insist(call: CallSite, combine: Helper, finding: Finding) -> None:
    """Reject a function that is not known to be associative. The error shows numbers that refute associativity, if some
    were found."""
    if finding.associative:
        return
    name = combine.function.name
    note = (Note("it is defined here", combine.function.span),)
    remedy = (
        "a scan combines parts in any grouping: write the recurrence as an associative function of pairs, or a loop"
    )
    if finding.example:
        text = f"`{name}` is not associative: {finding.example}"
        call.context.fail("not-associative", text, call.spans["combine"], remedy, notes=note)
    call.context.fail(
        "not-associative",
        f"it cannot be decided whether `{name}` is associative",
        call.spans["combine"],
        "it can for sums, products, extrema and choices of numbers; if it is, say so by `associative=True`",
        notes=note,
    )


def _scan(call: CallSite, xs: list[Tile], left: list[Elem], right: list[Elem], made: list[Expr]) -> list[Value]:
    """Emit the scan of tiles by the expressions `made` of single elements."""
    context, shape = call.context, xs[0].shape
    (axis,) = arguments.axes(call, "axis", len(shape))
    whole = coords(len(shape))
    name = call.wanted.name if call.wanted is not None else call.name
    operands: list[Tile] = []
    for x in xs:
        again = x.fragment is None or any(x.fragment == other.fragment for other in operands)
        operands.append(tiles.materialise(context, x, f"{call.name}_of", call.span) if again else x)
    results = [context.new_fragment(name, shape, x.dtype, call.span) for x in xs]
    known: dict[Expr, Expr] = {}
    for operand, result, first, second in zip(operands, results, left, right, strict=True):
        assert operand.fragment is not None and result.fragment is not None
        known[first] = Elem(result.fragment, whole, first.dtype)
        known[second] = Elem(operand.fragment, whole, second.dtype)
    parts = [
        Scanned(Access(operand.fragment or "", whole), Access(result.fragment or "", whole), rewrite(e, known.get))
        for operand, result, e in zip(operands, results, made, strict=True)
    ]
    context.emit(Scan(axis, shape, arguments.flag(call, "reverse"), None, tuple(parts)), call.span)
    return list(results)


# ---------------------------------------------------------------------------- the function as expressions


def _combination(call: CallSite, combine: Helper, left: list[Elem], right: list[Elem]) -> list[Expr]:
    """Return the results of a function of single elements, as expressions of these elements."""
    context = call.context
    given = tuple(Tile((), e.dtype, e) for e in (*left, *right))
    before = set(context.fragments)
    with context.block() as body:
        result = context.inline(context, combine, given, {}, call.span, None)
    own = {name: context.fragments.pop(name) for name in list(context.fragments) if name not in before}
    context.taken -= own.keys()
    known: dict[str, Expr] = {}

    def value(expr: Expr) -> Expr:
        return rewrite(expr, lambda e: known.get(e.obj) if isinstance(e, Elem) else None)

    for stmt in body:
        if not isinstance(stmt, Map) or stmt.shape or stmt.scope is not None:
            context.fail(
                "wrong-arguments",
                f"`{combine.function.name}` does more than compute single elements from single elements",
                call.spans["combine"],
                "leave loads, stores, loops and reductions out of it",
                notes=(Note("it is defined here", combine.function.span),),
            )
        known[stmt.dst.obj] = value(stmt.value)
    items = result.items if isinstance(result, TupleValue) else (result,)
    if any(isinstance(item, Poison) for item in items):
        raise Rejected
    found = [tiles.as_tile(context, item, call.span, e.dtype) for item, e in zip(items, left, strict=False)]
    if len(items) != len(left) or any(t.shape or t.dtype is not e.dtype for t, e in zip(found, left, strict=True)):
        wanted = ", ".join(str(e.dtype) for e in left)
        context.fail(
            "type-mismatch",
            f"`{combine.function.name}` gives back {', '.join(map(describe, items))}, and the scan is of {wanted}",
            call.spans["combine"],
            "return one number for each tile, in their order and of their types",
            notes=(Note("it is defined here", combine.function.span),),
        )
    exprs = [value(t.expr) for t in found]
    _only(context, call, combine, exprs, {e.obj for e in (*left, *right)})
    return exprs


def _only(context: Context, call: CallSite, combine: Helper, exprs: list[Expr], names: set[str]) -> None:
    """Reject a combination that reads registers other than the elements that it combines."""
    if any(e.obj not in names for expr in exprs for e in elements(expr)):
        context.fail(
            "wrong-arguments",
            f"`{combine.function.name}` reads a tile besides the elements that it combines",
            call.spans["combine"],
            "give the tile to the scan, in a tuple",
        )


HANDLERS: dict[str, Handler] = {
    "cumsum": cumulative,
    "cumprod": cumulative,
    "associative_scan": associative_scan,
}
