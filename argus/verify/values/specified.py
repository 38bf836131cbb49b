"""Softmaxes in specifications: their scores by parts, their masks, and the terms that they sum up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from argus.ir.expr import Coord, Expr, Op
from argus.ir.nodes import SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.spec_terms import renumbered, strip, uses
from argus.verify.model.isl import UnionMap, UnionSet
from argus.verify.model.relations import Model
from argus.verify.values.products import Amount, Test, exponents
from argus.verify.values.scope import Mismatch


@dataclass(frozen=True)
class Part:
    """A score on `region`, a set of V[...] (None: everywhere): the sum of `terms`, or -inf if `nothing` is true."""

    region: UnionSet | None
    terms: tuple[Amount, ...]
    nothing: bool = False


@dataclass(frozen=True)
class Share:
    """A specified sum over `axis` of exp(score) * factors. `at`: the one place that a softmax outside a sum selects."""

    axis: int
    extent: Expr
    score: SpecTerm
    factors: tuple[SpecTerm, ...] = ()
    factors_axis: int = 0
    at: Expr | None = None


@dataclass(frozen=True)
class Rows:
    """The scores of a share over renumbered axes: the `used` dimensions of V[...] (by position), then k.

    `live`: {V[used] -> [k]}, the terms that are not masked. k is the variable that the share sums over.
    """

    used: tuple[int, ...]
    score: SpecTerm
    parts: tuple[Part, ...]
    live: UnionMap


def share_of(spec: SpecTerm) -> Share | None:
    """Return the share of a softmax, or of a sum of products with one softmax at the sum's variable; else None."""
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


@dataclass(frozen=True)
class Level:
    """`factor` times the logarithm of a sum of exponentials, `share`, plus other amounts."""

    share: Share
    factor: float
    others: tuple[Amount, ...]


def level_of(model: Model, spec: SpecTerm, dims: tuple[str, ...]) -> Level | None:
    """Return a specified sum that contains the logarithm of a sum of exponentials; None for any other term."""
    if not _adds_level(spec):
        return None
    parts = _linear(model, spec, dims)
    amounts = parts[0].terms
    levels = [(factor, core) for factor, scalars, core in amounts if _is_level(core) and factor and not scalars]
    if len(parts) > 1 or parts[0].region is not None or len(levels) != 1:
        raise Mismatch("a sum with a logarithm of a sum, but not with one of them, once, and by no other choice")
    ((factor, level),) = levels
    assert isinstance(level, SpecReduce)
    share = Share(level.axis, level.extent, level.body)
    return Level(share, factor, tuple(a for a in amounts if a[2] is not level))


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
    """Return the scores of a share, where `axes` are the dimensions of V[...]."""
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
    """Return a specified score by parts; `dims[i]` is the name of `Coord(i)`."""
    return [Part(region(model, e.tests, dims, dims) if e.tests else None, e.terms, e.nothing) for e in exponents(spec)]


def region(model: Model, tests: tuple[Test, ...], names: Sequence[str], coords: tuple[str, ...]) -> UnionSet:
    """Return the set of V[names] in which each test has its given truth value; `coords[i]` stands for `Coord(i)`."""
    texts = [model.translator.condition(test, coords) for test, _ in tests]
    every = [text if holds else f"not ({text})" for text, (_, holds) in zip(texts, tests, strict=True)]
    return model.parse_set(f"{{ V[{', '.join(names)}] : {' and '.join(every) or 'true'} }}").to_union_set()
