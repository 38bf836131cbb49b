"""What a specification says of a softmax: scores by parts, masks, and the terms that are summed up."""

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


@dataclass(frozen=True)
class Level:
    """`factor` times the logarithm of a sum of exponentials, `share`, and what else is added to that."""

    share: Share
    factor: float
    others: tuple[Amount, ...]


def level_of(model: Model, spec: SpecTerm, dims: tuple[str, ...]) -> Level | None:
    """A specified sum with the logarithm of a sum of exponentials in it; None of any other term."""
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
    """A specified score by parts; `Coord(i)` is `dims[i]`."""
    return [Part(region(model, e.tests, dims, dims) if e.tests else None, e.terms, e.nothing) for e in exponents(spec)]


def region(model: Model, tests: tuple[Test, ...], names: Sequence[str], coords: tuple[str, ...]) -> UnionSet:
    """Where in V[names] conditions on indices come out as they should; `Coord(i)` is `coords[i]`."""
    texts = [model.translator.condition(test, coords) for test, _ in tests]
    every = [text if holds else f"not ({text})" for text, (_, holds) in zip(texts, tests, strict=True)]
    return model.parse_set(f"{{ V[{', '.join(names)}] : {' and '.join(every) or 'true'} }}").to_union_set()
