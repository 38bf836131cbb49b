"""Specifications as terms over instances `V0[...]`, one for each place of an output, and of bound variables.

Reductions have instances of their own, `V1[...]`, for the variables on which they depend, so equal reductions are the
same term.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product

from argus.ir.expr import Const, Elem, Expr, Op, Param, op, rewrite, walk
from argus.ir.nodes import Access, SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.spec_terms import elements_of, exact_indices, identity, renumbered, rounds_in, strip, uses
from argus.ir.types import boolean, float32
from argus.verify.model.formulas import Tuple, between, both
from argus.verify.model.isl import UnionMap, UnionSet
from argus.verify.model.resolving import loaded
from argus.verify.model.translator import NonAffine, identifier
from argus.verify.values.choices import Condition
from argus.verify.values.integers import element, image_of
from argus.verify.values.term_builder import TermBuilder
from argus.verify.values.terms import (
    Apply,
    Constant,
    Index,
    Load,
    Opaque,
    Parameter,
    Reduce,
    Term,
    Via,
    applied,
    constant_term,
    index_data,
    operation,
)

ROOT = "V0"
"""The name of the instances of a whole specification."""


class Place:
    """The position of a specified term: the name of its instances, and the axes that their dimensions stand for."""

    def __init__(self, name: str, axes: tuple[int, ...]) -> None:
        self.name, self.axes = name, axes
        self.dims = [f"v{i}" for i in range(len(axes))]
        self.coords = tuple(f"v{axes.index(a)}" if a in axes else "?" for a in range(max((*axes, -1)) + 1))

    @property
    def instance(self) -> Tuple:
        """The instance at the place's dimensions."""
        return Tuple(self.dims, self.name)


@dataclass(frozen=True)
class _Sum:
    """A reduction over the instances of `place`, and its operand, over the instances of `inside`."""

    place: Place
    inside: Place
    term: Reduce
    body: Term


class Stated:
    """Builds terms of specifications. Equal reductions are the same term, over instances of their own."""

    def __init__(self, builder: TermBuilder) -> None:
        self.builder, self.model = builder, builder.model
        self._loaded = loaded(builder.model.sites)
        self._places = {name: access for access, name in self._loaded.items()}
        self._own: dict[SpecTerm, _Sum] = {}
        self._whole: dict[tuple[SpecTerm, int], Term] = {}

    def of(self, spec: SpecTerm, rank: int, variables: UnionMap) -> Term:
        """Return the term of an output's specification over `V0[...]`. `variables`, {root -> place}, leads to these
        places.

        Raises `NonAffine`.
        """
        place = Place(ROOT, tuple(range(rank)))
        numbered = self._numbered(spec, place, variables)
        if (numbered, rank) not in self._whole:
            self._whole[numbered, rank] = self._term(numbered, place)
        return self._whole[numbered, rank]

    # ------------------------------------------------------------------ terms

    def _term(self, spec: SpecTerm, place: Place) -> Term:
        spec = strip(spec)
        match spec:
            case Const():
                return constant_term(spec)
            case Param(name=name, dtype=dtype) if name in self._places:
                return self._term(Elem(self._places[name].obj, self._places[name].index, dtype), place)
            case Param(name=name):
                return self.builder.parameter(name)
            case Elem():
                return Load(spec.obj, self._cells(spec, place))
            case SpecReduce(op="logaddexp", axis=axis, extent=extent, body=body):
                return Apply("log", (self._reduced(_weights(axis, extent, body), place),))
            case SpecReduce():
                return self._reduced(spec, place)
            case SpecSoftmax():
                return self._softmax(spec, place)
            case Op(op="where", args=(condition, a, b)) | SpecOp(op="where", args=(condition, a, b)):
                return self._choice(condition, self._term(a, place), self._term(b, place), place)
            case SpecOp():
                return self._applied(spec, place)
            case _ if exact_indices(spec) and (index := self._index(spec, place)) is not None:
                return index
            case Op():
                return self._applied(spec, place)
            case _:
                raise NonAffine("a specification names what no output has")

    def _index(self, spec: SpecTerm, place: Place) -> Index | None:
        """Return the term of an affine index expression, or None for any other expression."""
        assert not isinstance(spec, (SpecOp, SpecReduce, SpecSoftmax))
        try:
            return Index(self._map(place, Tuple((self.model.translator.integer(spec, place.coords),))))
        except NonAffine:
            return None

    def _applied(self, spec: Op | SpecOp, place: Place) -> Term:
        floats = spec.dtype == boolean and any(a.dtype.is_float for a in spec.args)
        if floats and rounds_in(spec):
            return Opaque("a choice by numbers that may be rounded")
        args = tuple(self._term(a, place) for a in spec.args)
        return applied(operation(spec.op, spec.args[0].dtype, spec.dtype), args)

    def _choice(self, condition: SpecTerm, yes: Term, no: Term, place: Place) -> Term:
        """Build a choice. Conditions on indices divide the instances; conditions on data become a `Choice`."""
        return Condition(condition, self._set(place, "true"), partial(self._split, place)).choice(yes, no)

    def _split(self, place: Place, condition: SpecTerm) -> tuple[UnionSet, list[Term]]:
        """Return the instances at which a condition on indices holds, or the term of a condition on data.

        A condition that is computed modulo 2^32, or by functions that sets do not have, is treated like a condition on
        data, because it is not known where it holds.
        """
        if not (isinstance(condition, (SpecOp, SpecReduce, SpecSoftmax)) or elements_of(condition)):
            with suppress(NonAffine):
                if not _modular(condition):
                    return self._set(place, self.model.translator.condition(condition, place.coords)), []
        return self._set(place, "true"), [self._term(condition, place)]

    # ------------------------------------------------------------------ reductions

    def _shared(self, spec: SpecReduce, place: Place) -> tuple[_Sum, list[str]]:
        """Return a reduction over its own instances, and the dimensions of the place that belong to these instances."""
        used = [i for i, axis in enumerate(place.axes) if uses(spec, axis)]
        own = renumbered(spec, {place.axes[i]: position for position, i in enumerate(used)})
        assert isinstance(own, SpecReduce)
        if own not in self._own:
            self._own[own] = self._reduction(own, self._place(tuple(range(len(used)))))
        return self._own[own], [place.dims[i] for i in used]

    def _reduced(self, spec: SpecReduce, place: Place) -> Via:
        found, dims = self._shared(spec, place)
        return Via(self._map(place, Tuple(dims, found.place.name)), found.term)

    def _softmax(self, spec: SpecSoftmax, place: Place) -> Apply:
        """Return the weight of one score divided by the sum of all weights."""
        total = _weights(spec.axis, spec.extent, spec.score)
        found, dims = self._shared(total, place)
        at = self.model.translator.integer(spec.at, place.coords)
        weight = Via(self._map(place, Tuple((*dims, at), found.inside.name)), found.body)
        return Apply(SHARE, (weight, self._reduced(total, place)))

    def _place(self, axes: tuple[int, ...]) -> Place:
        place = Place(f"V{len(self.builder.places) + 1}", axes)
        self.builder.places[place.name] = self._set(place, "true")
        return place

    def _reduction(self, spec: SpecReduce, place: Place) -> _Sum:
        inside = self._place((*place.axes, spec.axis))
        k, extent = inside.dims[-1], self.model.translator.integer(spec.extent, ())
        along = self.model.relation(place.instance, inside.instance, between(k, "0", extent)).to_union_map()
        count, body = self._term(spec.extent, place), self._term(spec.body, inside)
        known = count if isinstance(count, (Constant, Parameter)) and _repeats(spec.body, spec.axis) else None
        return _Sum(place, inside, Reduce(spec.op, Constant(float(identity(spec))), ((along, body),), known), body)

    # ------------------------------------------------------------------ relations

    def _map(self, place: Place, image: Tuple) -> UnionMap:
        return self.model.relation(place.instance, image).to_union_map()

    def _set(self, place: Place, condition: str) -> UnionSet:
        return self.model.points(place.instance, condition).to_union_set()

    def _cells(self, spec: Elem, place: Place) -> UnionMap:
        """Return {instance -> cell}. Cells reached through index tensors have the form of `DataFlow.indirect_cells`.

        If an index is a number that the block loads once, the cell to which the kernel's name of that number leads is
        another name of the same cell. So is the cell at the affine number that an index is in some places.
        """
        if all(self.model.translator.plain(e, place.coords) for e in spec.index):
            numbers = [self.model.translator.integer(e, place.coords) for e in spec.index]
            return self._map(place, self._cell(spec, numbers))
        found = reduce(UnionMap.range_product, (self._image(e, place) for e in spec.index))
        for named in product(*(self._names(e, place) for e in spec.index)):
            cell, conditions = self._cell(spec, [image for _, image in named]), [condition for condition, _ in named]
            found = found.union(self.model.relation(place.instance, cell, *conditions).to_union_map())
        return found

    def _cell(self, spec: Elem, numbers: list[str]) -> Tuple:
        return Tuple(numbers, identifier(spec.obj))

    def _names(self, index: Expr, place: Place) -> list[tuple[str, str]]:
        """Return where, and by which parameter, the kernel names an index that it loads. Elsewhere, return the index
        itself."""
        if not isinstance(index, Elem):
            translator = self.model.translator
            plain = translator.plain(index, place.coords)
            return [("true", translator.integer(index, place.coords))] if plain else self._in_parts(index, place)
        return [
            (self._equations(index, access, place), self.model.translator.integer(Param(name, index.dtype), ()))
            for access, name in self._loaded.items()
            if access.obj == index.obj and not any(map(elements_of, (*index.index, *access.index)))
        ]

    def _in_parts(self, index: Expr, place: Place) -> list[tuple[str, str]]:
        """Return where an index is affine, and its text there: each side of a choice, and a quotient or remainder by a
        size in the first period of the size and in those beside it."""
        translator = self.model.translator
        match index:
            case Op(op="floordiv" | "mod" as name, args=(a, Param() as size)) if translator.plain(a, place.coords):
                number, n = translator.integer(a, place.coords), translator.integer(size, ())
                return [
                    (f"({k} * {n} <= {number} and {number} < {k + 1} * {n})",
                     str(k) if name == "floordiv" else f"({number} - {k} * {n})")
                    for k in (-1, 0, 1)
                ]  # fmt: skip
            case Op(op="where", args=(condition, yes, no)):
                there = translator.condition(condition, place.coords)
                first = [(f"({there} and {known})", text) for known, text in self._names(yes, place)]
                return [*first, *((f"(not {there} and {known})", text) for known, text in self._names(no, place))]
            case _:
                return []

    def _equations(self, elem: Elem, access: Access, place: Place) -> str:
        """Return the condition that an element is the accessed one."""
        same = (op("eq", i, j) for i, j in zip(elem.index, access.index, strict=True))
        return both(self.model.translator.condition(each, place.coords) for each in same)

    def _image(self, index: Expr, place: Place) -> UnionMap:
        """Return {instance -> value of an index}, in the form of `image_of`."""

        def leaf(expr: Expr) -> UnionMap | None:
            if isinstance(expr, Elem):
                inner = [self.model.translator.integer(e, place.coords) for e in expr.index]
                return self._map(place, element(index_data(expr.obj), inner))
            if isinstance(expr, Op) and expr.op == "where":
                return chosen(expr)
            plain = self.model.translator.plain(expr, place.coords)
            return self._map(place, Tuple((self.model.translator.integer(expr, place.coords),))) if plain else None

        def chosen(expr: Op) -> UnionMap:
            """Return the image of a choice between integers by a condition on indices."""
            condition, yes, no = expr.args
            there = self._set(place, self.model.translator.condition(condition, place.coords))
            elsewhere = self._set(place, "true").subtract(there)
            return image_of(yes, leaf).intersect_domain(there).union(image_of(no, leaf).intersect_domain(elsewhere))

        return image_of(index, leaf)

    # ------------------------------------------------------------------ numbers that a block loads

    def _numbered(self, spec: SpecTerm, place: Place, variables: UnionMap) -> SpecTerm:
        """Return a specified term in which integers that the block loads once have the names that `resolved` gives
        them."""

        def number(e: Expr) -> Expr | None:
            if not isinstance(e, Elem) or not e.dtype.is_int:
                return None
            here = (p for p in self._loaded if p.obj == e.obj and not any(map(elements_of, e.index)))
            return next((Param(self._loaded[p], e.dtype) for p in here if self._is(e, p, place, variables)), None)

        def expression(e: Expr) -> Expr | None:
            match e:
                case Op(op="where", args=(condition, yes, no)):
                    return replace(e, args=(rewrite(condition, number), yes, no))
                case Elem(index=index):
                    return replace(e, index=tuple(rewrite(i, number) for i in index))
                case _:
                    return None

        def whole(spec: SpecTerm) -> SpecTerm:
            match spec:
                case SpecReduce(body=body):
                    return replace(spec, body=whole(body))
                case SpecSoftmax(at=at, score=score):
                    return replace(spec, at=rewrite(at, number), score=whole(score))
                case SpecOp(op="where", args=(condition, *rest)) if isinstance(condition, Op):
                    return replace(spec, args=(rewrite(condition, number), *map(whole, rest)))
                case SpecOp(args=args):
                    return replace(spec, args=tuple(map(whole, args)))
                case _:
                    return rewrite(spec, expression)

        return whole(spec) if self._loaded else spec

    def _is(self, elem: Elem, access: Access, place: Place, variables: UnionMap) -> bool:
        """Return True if an element is the accessed one for all places to which the variables lead."""
        bound = len(place.axes)
        if any(uses(i, axis) for i in elem.index for axis in range(bound, bound + _BOUND)):
            return False
        return bool(variables.range().is_subset(self._set(place, self._equations(elem, access, place))))


def _repeats(spec: SpecTerm, axis: int) -> bool:
    """Return True if a term may have a summand that is the same for all values of a bound variable."""
    spec = strip(spec)
    match spec:
        case Op(op="add" | "sub" | "neg", args=args) | SpecOp(op="add" | "sub" | "neg", args=args):
            return any(_repeats(a, axis) for a in args)
        case Op(op="where", args=(_, *args)) | SpecOp(op="where", args=(_, *args)):
            return any(_repeats(a, axis) for a in args)
        case Op(op="mul" | "truediv", args=args) | SpecOp(op="mul" | "truediv", args=args):
            return all(_repeats(a, axis) for a in args)
        case SpecReduce(op="add", body=body):
            return _repeats(body, axis)
        case _:
            return not uses(spec, axis)


def _weights(axis: int, extent: Expr, score: SpecTerm) -> SpecReduce:
    """Return the sum of the exponentials of the scores."""
    return SpecReduce("add", axis, extent, SpecOp("exp", (score,), float32), float32)


def _modular(condition: Expr) -> bool:
    return any(isinstance(e, Op) and e.dtype.modular for e in walk(condition))


SHARE = "share"
"""The operator of a softmax: a term of a sum of exponentials divided by that sum, or 0 where the sum is 0."""

_BOUND = 64
"""A number of bound variables that no specification reaches."""
