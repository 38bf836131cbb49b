"""Properties and rewritings of specification terms, independent of any kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from argus.ir.expr import REDUCTIONS, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, rewrite, walk
from argus.ir.nodes import SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.types import DType, boolean, float32, int32, rounds_only


def identity(spec: SpecReduce) -> int | float:
    """Return the neutral element of the reduction. Intermediate values of a specification may exceed the range of an
    8-bit dtype."""
    narrow = spec.dtype.is_int and spec.dtype.bits < 32 and not isinstance(strip(spec.body), Elem)
    return REDUCTIONS[spec.op](int32 if narrow else spec.dtype)


def strip(spec: SpecTerm) -> SpecTerm:
    """Return the term below casts that at most round. A number made of a truth value is a choice of 1 or 0."""
    while isinstance(spec, (Op, SpecOp)) and spec.op == "cast" and rounds_only(spec.args[0].dtype, spec.dtype):
        if (inner := spec.args[0]).dtype == boolean != spec.dtype:
            return applied("where", (inner, Const(1, spec.dtype), Const(0, spec.dtype)), spec.dtype)
        spec = inner
    return spec


def applied(op: str, args: tuple[SpecTerm, ...], dtype: DType) -> SpecTerm:
    """Return an operator applied to terms, which is an expression if all of them are."""
    exprs = tuple(a for a in args if not isinstance(a, (SpecOp, SpecReduce, SpecSoftmax)))
    return Op(op, exprs, dtype) if len(exprs) == len(args) else SpecOp(op, args, dtype)


def exact_indices(spec: SpecTerm) -> bool:
    """Return True if a term depends on an index and consists of exact arithmetic on indices and sizes.

    Integer arithmetic of 32 bits and more counts as exact.
    """
    if isinstance(spec, (SpecReduce, SpecSoftmax, SpecOp)):
        return False
    parts = list(walk(spec))
    wide = all(e.dtype.is_int and e.dtype.bits >= 32 and not isinstance(e, Elem) for e in parts)
    narrowed = (e.op == "cast" and e.args[0].dtype.bits > e.dtype.bits for e in parts if isinstance(e, Op))
    return wide and not any(narrowed) and any(isinstance(e, (Coord, ProgramId, LoopVar)) for e in parts)


def unrounded(spec: SpecTerm) -> bool:
    """Return True if no operation of the term rounds a float."""
    match spec:
        case Op(op=op, args=args) | SpecOp(op=op, args=args) if op in ("where", "cast", "sortable", "neg", "abs"):
            return all(unrounded(a) for a in args if a.dtype.is_float)
        case _:
            return not spec.dtype.is_float or isinstance(spec, (Elem, Const, Param))


def uses(spec: SpecTerm, axis: int) -> bool:
    """Return True if a specified term depends on `Coord(axis)`."""
    match spec:
        case SpecReduce(body=body):
            return uses(body, axis)
        case SpecSoftmax(at=at, score=score):
            return uses(at, axis) or uses(score, axis)
        case SpecOp(args=args):
            return any(uses(a, axis) for a in args)
        case _:
            expr: Expr = spec
            return any(isinstance(e, Coord) and e.axis == axis for e in walk(expr))


def renumbered(spec: SpecTerm, axes: dict[int, int]) -> SpecTerm:
    """Return a specified term with renumbered free axes. Bound axes are numbered after the free ones."""
    bound = max(axes.values(), default=-1) + 1
    match spec:
        case SpecReduce(axis=axis, body=body):
            return replace(spec, axis=bound, body=renumbered(body, axes | {axis: bound}))
        case SpecSoftmax(axis=axis, at=at, score=score):
            place = renumbered(at, axes)
            assert not isinstance(place, (SpecReduce, SpecSoftmax, SpecOp))
            return replace(spec, axis=bound, at=place, score=renumbered(score, axes | {axis: bound}))
        case SpecOp(args=args):
            return replace(spec, args=tuple(renumbered(a, axes) for a in args))
        case _:
            expr: Expr = spec
            return rewrite(expr, lambda e: replace(e, axis=axes[e.axis]) if isinstance(e, Coord) else None)


def elements_of(spec: SpecTerm) -> list[Elem]:
    """Return all elements that occur in a specified term."""
    match spec:
        case SpecReduce(body=body):
            return elements_of(body)
        case SpecSoftmax(score=score):
            return elements_of(score)
        case SpecOp(args=args):
            return [e for a in args for e in elements_of(a)]
        case _:
            expr: Expr = spec
            return [e for e in walk(expr) if isinstance(e, Elem)]


def of_floats(spec: SpecTerm) -> bool:
    """Return True if the term contains a number that may be rounded."""
    if spec.dtype.is_float:
        return not unrounded(spec)
    match spec:
        case SpecReduce(body=inner) | SpecSoftmax(score=inner):
            return of_floats(inner)
        case SpecOp(args=args) | Op(args=args):
            return any(of_floats(a) for a in args)
        case _:
            return False


def mapped(spec: SpecTerm, change: Callable[[Expr], Expr]) -> SpecTerm:
    """Return the term with `change` applied to each expression in it, extents and places included."""
    match spec:
        case SpecReduce(extent=extent, body=body):
            return replace(spec, extent=change(extent), body=mapped(body, change))
        case SpecSoftmax(extent=extent, at=at, score=score):
            return replace(spec, extent=change(extent), at=change(at), score=mapped(score, change))
        case SpecOp(args=args):
            return replace(spec, args=tuple(mapped(a, change) for a in args))
        case _:
            return change(spec)


def substituted(spec: SpecTerm, axis: int, place: Expr) -> SpecTerm:
    """Return a specified term with an expression in place of a free axis."""
    match spec:
        case SpecReduce(axis=bound) if bound == axis:
            return spec
        case SpecReduce(body=body):
            return replace(spec, body=substituted(body, axis, place))
        case SpecSoftmax(axis=bound, at=at, score=score):
            there = substituted(at, axis, place)
            assert not isinstance(there, (SpecReduce, SpecSoftmax, SpecOp))
            return replace(spec, at=there, score=score if bound == axis else substituted(score, axis, place))
        case SpecOp(args=args):
            return replace(spec, args=tuple(substituted(a, axis, place) for a in args))
        case _:
            expr: Expr = spec
            return rewrite(expr, lambda e: place if isinstance(e, Coord) and e.axis == axis else None)


def _narrower(source: DType, target: DType) -> bool:
    return target.is_float and target not in (source, float32)


def rounds_in(spec: SpecTerm) -> bool:
    """Return True if a term rounds some number to a type of fewer digits."""
    match spec:
        case SpecReduce(body=inner) | SpecSoftmax(score=inner):
            return rounds_in(inner)
        case SpecOp(args=args) | Op(args=args):
            here = spec.op == "cast" and _narrower(args[0].dtype, spec.dtype)
            return here or any(map(rounds_in, args))
        case _:
            return False


def recognised(spec: SpecTerm) -> SpecTerm:
    """Return a specified term in which a written-out softmax or log-sum-exp is replaced by its operator.

    The recognised forms are exp(s[j] - m) / sum_k exp(s[k] - m), weights that are summed with factors before the
    division, and log(sum_k exp(s[k])), for any real number `m`.
    """
    match spec:
        case SpecReduce(body=body):
            return replace(spec, body=recognised(body))
        case SpecOp(args=args) | Op(args=args):
            inner = SpecOp(spec.op, tuple(map(recognised, args)), spec.dtype)
            found = _written_out(inner)
            return found if found is not None else spec if inner.args == args else inner
        case _:
            return spec


def _written_out(spec: SpecOp) -> SpecTerm | None:
    match spec.op, tuple(map(strip, spec.args)):
        case "log", (SpecReduce(op="add", body=body) as total,) if (score := _exponent(body)) is not None:
            return SpecReduce("logaddexp", total.axis, total.extent, score, spec.dtype)
        case "truediv", (above, SpecReduce(op="add", body=body) as total) if (score := _exponent(body)) is not None:
            return _share(above, total, score)
    return None


def _share(above: SpecTerm, total: SpecReduce, score: SpecTerm) -> SpecTerm | None:
    """Return the softmax for the quotient of an exponential, or of a sum of products with exponentials, by the sum of
    these exponentials."""
    single = _exponent(above)
    if single is not None:
        return _softmax(single, total, score)
    if not isinstance(above, SpecReduce) or above.op != "add" or above.extent != total.extent:
        return None
    factors = _factors(above.body)
    for number, factor in enumerate(factors):
        exponent = _exponent(factor)
        weight = None if exponent is None else _softmax(exponent, total, score)
        if isinstance(weight, SpecSoftmax) and weight.at == Coord(above.axis):
            body: SpecTerm = weight
            for other in (*factors[:number], *factors[number + 1 :]):
                body = SpecOp("mul", (body, other), above.dtype)
            return replace(above, body=body)
    return None


def _softmax(exponent: SpecTerm, total: SpecReduce, score: SpecTerm) -> SpecSoftmax | None:
    every = {axis: axis for axis in range(_AXES)}
    wanted = renumbered(exponent, every)
    for axis in range(_AXES):
        if uses(exponent, axis) and renumbered(substituted(score, total.axis, Coord(axis)), every) == wanted:
            return SpecSoftmax(total.axis, total.extent, Coord(axis), _relative(score, total.axis), total.dtype)
    return None


def _relative(score: SpecTerm, axis: int) -> SpecTerm:
    """Return a score without the maximum that is subtracted from all scores."""
    match score:
        case Op(op="sub", args=(a, b)) | SpecOp(op="sub", args=(a, b)) if isinstance(strip(b), SpecReduce):
            top = strip(b)
            assert isinstance(top, SpecReduce)
            return a if top.op == "maximum" and not uses(top, axis) else score
        case _:
            return score


def _exponent(spec: SpecTerm) -> SpecTerm | None:
    match strip(spec):
        case Op(op="exp", args=(a,)) | SpecOp(op="exp", args=(a,)):
            return strip(a)
        case _:
            return None


def _factors(spec: SpecTerm) -> list[SpecTerm]:
    match strip(spec):
        case Op(op="mul", args=(a, b)) | SpecOp(op="mul", args=(a, b)):
            return _factors(a) + _factors(b)
        case other:
            return [other]


_AXES = 64
"""A number of axes that no specification reaches."""
