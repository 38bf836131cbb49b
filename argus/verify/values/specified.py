"""What a specification says of a softmax: scores by parts, masks, and the terms that are summed up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from argus.ir.expr import Const, Coord, Expr, Op, Param
from argus.ir.nodes import SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.spec_terms import renumbered, strip, uses
from argus.verify.model.isl import UnionMap, UnionSet
from argus.verify.model.relations import Model
from argus.verify.values.scope import Mismatch

Amount = tuple[float, tuple[str, ...], "SpecTerm | None"]
"""A factor, launch-time scalars, and the term that they multiply, or None."""


@dataclass(frozen=True)
class Part:
    """A score where `region` of V[...] holds (None: everywhere): a sum of amounts; -inf with `nothing`."""

    region: UnionSet | None
    terms: tuple[Amount, ...]
    nothing: bool = False


@dataclass(frozen=True)
class Share:
    """A specified sum over `axis` of exp(score) * factors; `at`: one place of it alone, for a softmax by itself."""

    axis: int
    extent: Expr
    score: SpecTerm
    factors: tuple[SpecTerm, ...] = ()
    factors_axis: int = 0
    at: Expr | None = None


@dataclass(frozen=True)
class Rows:
    """The scores of a share with their axes renumbered: those of V[...] that they use (by position), then k.

    `live`: {V[used] -> [k]}, the terms that are not masked.
    """

    used: tuple[int, ...]
    score: SpecTerm
    parts: tuple[Part, ...]
    live: UnionMap


def share_of(spec: SpecTerm) -> Share | None:
    """A softmax, or a sum of products with one at the sum's own variable."""
    match spec:
        case SpecSoftmax(axis=axis, extent=extent, at=at, score=score):
            return Share(axis, extent, score, at=at)
        case SpecReduce(op="add", axis=axis, extent=extent, body=body):
            factors = _product(body)
            weights = [f for f in factors if isinstance(f, SpecSoftmax) and f.at == Coord(axis)]
            if len(weights) != 1 or weights[0].extent != extent:
                return None
            rest = tuple(f for f in factors if f is not weights[0])
            return Share(weights[0].axis, extent, weights[0].score, rest, axis)
        case _:
            return None


def level_of(model: Model, spec: SpecTerm, dims: tuple[str, ...]) -> tuple[Share, tuple[Amount, ...]] | None:
    """The logarithm of a sum of exponentials, and what else is added up with it."""
    if not _adds_level(spec):
        return None
    parts = _linear(model, spec, dims)
    amounts = parts[0].terms
    levels = [core for factor, scalars, core in amounts if _is_level(core) and factor == 1.0 and not scalars]
    if len(parts) > 1 or parts[0].region is not None or len(levels) != 1:
        raise Mismatch("a sum with a logarithm of a sum, but not with one of them, once, and by no other choice")
    (level,) = levels
    assert isinstance(level, SpecReduce)
    return Share(level.axis, level.extent, level.body), tuple(a for a in amounts if a[2] is not level)


def _adds_level(spec: SpecTerm) -> bool:
    spec = strip(spec)
    return _is_level(spec) or (
        isinstance(spec, SpecOp) and spec.op in ("add", "sub", "neg") and any(map(_adds_level, spec.args))
    )


def _is_level(spec: SpecTerm | None) -> bool:
    return isinstance(spec, SpecReduce) and spec.op == "logaddexp"


def _product(spec: SpecTerm) -> list[SpecTerm]:
    spec = strip(spec)
    match spec:
        case Op(op="mul", args=(a, b)) | SpecOp(op="mul", args=(a, b)):
            return [*_product(a), *_product(b)]
        case _:
            return [spec]


def rows_of(model: Model, share: Share, axes: tuple[int, ...]) -> Rows:
    """The scores of a share, where `axes` are the dimensions of V[...]."""
    used = tuple(i for i, axis in enumerate(axes) if uses(share.score, axis))
    numbers = {axes[i]: position for position, i in enumerate(used)}
    score = renumbered(share.score, numbers | {share.axis: len(used)})
    names = [f"v{i}" for i in range(len(used))]
    parts = tuple(_linear(model, score, (*names, "k")))
    extent = model.translator.integer(share.extent, ())
    live = model.parse_map(f"{{ [V[{', '.join(names)}] -> [k]] -> V[{', '.join((*names, 'k'))}] }}")
    every = live.intersect_range(
        model.parse_set(f"{{ V[{', '.join((*names, 'k'))}] : 0 <= k < {extent} }}")
    ).to_union_map()
    for part in parts:
        if part.nothing:
            every = every.subtract_range(part.region) if part.region is not None else every.subtract(every)
    return Rows(used, score, parts, every.domain().unwrap().coalesce())


def _linear(model: Model, spec: SpecTerm, dims: tuple[str, ...]) -> list[Part]:
    """A specified score by parts, as `Exponents.linear` makes them of a kernel's; `Coord(i)` is `dims[i]`."""
    spec = strip(spec)
    match spec:
        case Const(value=value):
            if value == -math.inf:
                return [Part(None, (), True)]
            return [Part(None, ((float(value), (), None),) if value else ())]
        case Param(name=name):
            return [Part(None, ((1.0, (name,), None),))]
        case Op(op="where", args=(cond, a, b)) | SpecOp(op="where", args=(cond, a, b)):
            inside, outside = regions(model, cond, dims)
            yes, no = (_linear(model, x, dims) for x in (a, b))
            return [*(_limited(p, inside) for p in yes), *(_limited(p, outside) for p in no)]
        case Op(op="neg", args=(a,)) | SpecOp(op="neg", args=(a,)):
            return [_times(p, -1.0, ()) for p in _linear(model, a, dims)]
        case Op(op="add" | "sub", args=(a, b)) | SpecOp(op="add" | "sub", args=(a, b)):
            right = _linear(model, b, dims)
            if spec.op == "sub":
                right = [_times(p, -1.0, ()) for p in right]
            return [_plus(p, q) for p in _linear(model, a, dims) for q in right]
        case Op(op="mul", args=(a, b)) | SpecOp(op="mul", args=(a, b)):
            left, right = _linear(model, a, dims), _linear(model, b, dims)
            for these, those in ((left, right), (right, left)):
                if len(those) == 1 and len(those[0].terms) == 1 and those[0].terms[0][2] is None:
                    factor, scalars, _ = those[0].terms[0]
                    return [_times(p, factor, scalars) for p in these]
        case Op(op="truediv", args=(a, Const(value=value))) | SpecOp(op="truediv", args=(a, Const(value=value))):
            return [_times(p, 1 / float(value), ()) for p in _linear(model, a, dims)]
        case _:
            pass
    return [Part(None, ((1.0, (), spec),))]


def regions(model: Model, cond: SpecTerm, dims: tuple[str, ...]) -> tuple[UnionSet, UnionSet]:
    """Where in V[dims] a condition on indices holds, and where not."""
    if isinstance(cond, (SpecOp, SpecReduce, SpecSoftmax)):
        raise Mismatch("a mask that depends on data")
    text = model.translator.condition(cond, dims)
    space = f"V[{', '.join(dims)}]"
    inside, outside = (model.parse_set(f"{{ {space} : {c} }}") for c in (text, f"not ({text})"))
    return inside.to_union_set(), outside.to_union_set()


def _limited(part: Part, region: UnionSet) -> Part:
    return replace(part, region=region if part.region is None else part.region.intersect(region))


def _times(part: Part, factor: float, scalars: tuple[str, ...]) -> Part:
    if part.nothing and factor <= 0:
        raise Mismatch("a score of inf")
    terms = ((f * factor, tuple(sorted((*s, *scalars))), core) for f, s, core in part.terms)
    return replace(part, terms=tuple(terms))


def _plus(a: Part, b: Part) -> Part:
    region = a.region if b.region is None else b.region if a.region is None else a.region.intersect(b.region)
    return Part(region, (*a.terms, *b.terms), a.nothing or b.nothing)
