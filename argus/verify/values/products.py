"""Specified terms as sums of products: constants folded, signs and quotients as factors, sums outermost.

A `Product` is `factor` * scalars * exp(exponent) * atoms / divisors, summed over its bound variables where its
conditions on indices hold. Equal products are added up, whatever their variables are called.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice, permutations

from argus.ir.expr import Const, Coord, Elem, Expr, Op, Param
from argus.ir.nodes import SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.spec_terms import elements_of, exact_indices, strip, substituted, uses
from argus.ir.types import boolean
from argus.verify.values.scope import Mismatch

Amount = tuple[float, tuple[str, ...], "SpecTerm | None"]
"""A factor, launch-time scalars, and the term that they multiply, or None."""

Test = tuple[Expr, bool]
"""A condition on indices, and whether it holds."""

_ORDERS = 24
"""The most orders of bound variables that are compared for the canonical form: enough for four variables."""


@dataclass(frozen=True)
class Exponent:
    """The sum of `terms` where all `tests` have their truth values; -inf if `nothing` is true, whatever the terms."""

    tests: tuple[Test, ...]
    terms: tuple[Amount, ...]
    nothing: bool = False


@dataclass(frozen=True)
class Product:
    """One product. `bound`: the axes and extents of the variables that it is summed over."""

    factor: float = 1.0
    scalars: tuple[str, ...] = ()
    bound: tuple[tuple[int, Expr], ...] = ()
    tests: tuple[Test, ...] = ()
    exponent: tuple[Amount, ...] = ()
    atoms: tuple[SpecTerm, ...] = ()
    divisors: tuple[SpecTerm, ...] = ()


@dataclass(frozen=True)
class Group:
    """Products that differ only in factors and conditions (`parts`); `body` has the factor 1 and no conditions."""

    body: Product
    parts: tuple[tuple[float, tuple[Test, ...]], ...]


def groups(spec: SpecTerm) -> list[Group]:
    """Return a specified term as a sum of products, equal ones grouped. Raise `Mismatch` if it has no such form."""
    return _grouped(_products(spec, count(FIRST)))


def added(amounts: Iterable[Amount]) -> list[Group]:
    """Return a sum of amounts as a sum of products, equal ones grouped."""
    fresh, found = count(FIRST), list[Product]()
    for factor, scalars, core in amounts:
        found += [_times(Product(factor, scalars), p) for p in (_products(core, fresh) if core else [Product()])]
    return _grouped(found)


def _grouped(products: Iterable[Product]) -> list[Group]:
    found: dict[Product, dict[tuple[Test, ...], float]] = {}
    for product in products:
        ordered = _canonical(product)
        parts = found.setdefault(replace(ordered, factor=1.0, tests=()), {})
        parts[ordered.tests] = parts.get(ordered.tests, 0.0) + ordered.factor
    for body, parts in found.items():
        if not all(parts.values()) and not total(body):
            raise Mismatch("a difference of equal terms that may be no numbers")
    kept = ((body, tuple((f, tests) for tests, f in parts.items() if f)) for body, parts in found.items())
    return [Group(body, parts) for body, parts in kept if parts]


def total(p: Product) -> bool:
    """Return True if a product has no divisors, and its atoms and exponents are inputs or indices: real numbers."""
    terms = (*p.atoms, *(core for _, _, core in p.exponent if core is not None))
    return not p.divisors and all(isinstance(term, Elem) or exact_indices(term) for term in terms)


FIRST = 32
"""The first axis number of bound variables. It exceeds the number of free variables."""


def _products(spec: SpecTerm, fresh: Iterator[int]) -> list[Product]:
    spec = strip(spec)
    if exact_indices(spec):
        return [Product(atoms=(spec,))]
    match spec:
        case Const(value=value) if spec.dtype != boolean and math.isfinite(value):
            return [Product(float(value))] if value else []
        case Param(name=name):
            return [Product(scalars=(name,))]
        case SpecReduce(op="add", axis=axis, extent=extent, body=body):
            bound = next(fresh)
            inner = _products(substituted(body, axis, Coord(bound)), fresh)
            return [_summed(product, bound, extent) for product in inner]
        case Op(op=op, args=args) | SpecOp(op=op, args=args) if spec.dtype.is_float:
            return _applied(spec, op, args, fresh)
        case _:
            return [Product(atoms=(spec,))]


def _applied(spec: SpecTerm, op: str, args: tuple[SpecTerm, ...], fresh: Iterator[int]) -> list[Product]:
    match op, args:
        case "neg", (a,):
            return [replace(p, factor=-p.factor) for p in _products(a, fresh)]
        case "add", (a, b):
            return _products(a, fresh) + _products(b, fresh)
        case "sub", (a, b):
            return _products(a, fresh) + [replace(p, factor=-p.factor) for p in _products(b, fresh)]
        case "mul", (a, b):
            left, right = _products(a, fresh), _products(b, fresh)
            if not (left and right) and not all(map(total, left + right)):
                return [Product(atoms=(spec,))]
            return [_times(p, q) for p in left for q in right]
        case "truediv", (a, b):
            over, left = _inverse(b, fresh), _products(a, fresh)
            return [_times(p, over) for p in left] if left else [Product(atoms=(spec,))]
        case "sigmoid", (a,):
            return [_inverse(sigmoid_divisor(a), fresh)]
        case "rsqrt", (a,):
            return [Product(divisors=(SpecOp("sqrt", (a,), spec.dtype),))]
        case "log2", (a,):
            return [Product(1 / math.log(2), atoms=(SpecOp("log", (a,), spec.dtype),))]
        case "exp" | "exp2", (a,):
            base = math.log(2) if op == "exp2" else 1.0
            forms = [form for form in exponents(a) if not form.nothing]
            return [Product(tests=f.tests, exponent=tuple((x * base, s, t) for x, s, t in f.terms)) for f in forms]
        case "where", (condition, a, b) if (test := on_indices(condition)) is not None:
            sides = ((a, True), (b, False))
            return [replace(p, tests=(*p.tests, (test, y))) for x, y in sides for p in _products(x, fresh)]
        case _:
            return [Product(atoms=(spec,))]


def sigmoid_divisor(a: SpecTerm) -> SpecTerm:
    """Return 1 + exp(-a), the reciprocal of a sigmoid."""
    negative = SpecOp("exp", (SpecOp("neg", (a,), a.dtype),), a.dtype)
    return SpecOp("add", (Const(1.0, a.dtype), negative), a.dtype)


def on_indices(condition: SpecTerm) -> Expr | None:
    """Return a condition if it is a plain expression that loads no element; None for any other condition."""
    if isinstance(condition, (SpecOp, SpecReduce, SpecSoftmax)) or elements_of(condition):
        return None
    return condition


def _inverse(spec: SpecTerm, fresh: Iterator[int]) -> Product:
    """Return one over a term. A single product is inverted factor by factor; a sum becomes one divisor."""
    found = _products(spec, fresh)
    if len(found) != 1 or found[0].bound or found[0].tests:
        return Product(divisors=(spec,))
    (p,) = found
    exponent = tuple((-f, s, core) for f, s, core in p.exponent)
    return Product(1 / p.factor, inverted(p.scalars), exponent=exponent, atoms=p.divisors, divisors=p.atoms)


def _times(a: Product, b: Product) -> Product:
    return Product(
        a.factor * b.factor,
        together(a.scalars, b.scalars),
        a.bound + b.bound,
        a.tests + b.tests,
        a.exponent + b.exponent,
        a.atoms + b.atoms,
        a.divisors + b.divisors,
    )


def _summed(p: Product, axis: int, extent: Expr) -> Product:
    """Return a product summed over a variable. If it does not depend on the variable, multiply it by the extent."""
    cores = [core for _, _, core in p.exponent if core is not None]
    if any(uses(each, axis) for each in (*p.atoms, *p.divisors, *cores, *(test for test, _ in p.tests))):
        return replace(p, bound=((axis, extent), *p.bound))
    match extent:
        case Const(value=value):
            return replace(p, factor=p.factor * value)
        case Param(name=name):
            return replace(p, scalars=together(p.scalars, (name,)))
        case _:
            return replace(p, bound=((axis, extent), *p.bound))


def _canonical(p: Product) -> Product:
    """Return the canonical form of a product: bound variables in the least order, numbered from `FIRST` on."""
    orders = islice(permutations(p.bound), _ORDERS)
    return min((_spelled(p, order) for order in orders), key=repr)


def _spelled(p: Product, order: tuple[tuple[int, Expr], ...]) -> Product:
    for position, (axis, _) in enumerate(order):  # first to negative numbers, which no variable has
        p = _renamed(p, axis, -1 - position)
    for position in range(len(order)):
        p = _renamed(p, -1 - position, FIRST + position)
    bound = tuple((FIRST + position, extent) for position, (_, extent) in enumerate(order))
    return replace(p, bound=bound, tests=_sorted(p.tests), exponent=_sorted(p.exponent), atoms=_sorted(p.atoms),
                   divisors=_sorted(p.divisors))  # fmt: skip


def _renamed(p: Product, axis: int, name: int) -> Product:
    def of(spec: SpecTerm) -> SpecTerm:
        return substituted(spec, axis, Coord(name))

    def on(test: Expr) -> Expr:
        found = of(test)
        assert not isinstance(found, (SpecOp, SpecReduce, SpecSoftmax))
        return found

    return replace(
        p,
        tests=tuple((on(test), holds) for test, holds in p.tests),
        exponent=tuple((f, s, None if core is None else of(core)) for f, s, core in p.exponent),
        atoms=tuple(map(of, p.atoms)),
        divisors=tuple(map(of, p.divisors)),
    )


def _sorted(items: Iterable) -> tuple:  # type: ignore[type-arg]
    return tuple(sorted(items, key=repr))


# ---------------------------------------------------------------------------- launch-time scalars


def together(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    """Return the product of launch-time scalars; "1/N" stands for the inverse of N, and cancels with it."""
    left = list(a)
    for name in b:
        opposite = inverted((name,))[0]
        if opposite in left:
            left.remove(opposite)
        else:
            left.append(name)
    return tuple(sorted(left))


def inverted(scalars: tuple[str, ...]) -> tuple[str, ...]:
    """Return one over a product of launch-time scalars."""
    return tuple(sorted(name[2:] if name.startswith("1/") else f"1/{name}" for name in scalars))


# ---------------------------------------------------------------------------- exponents


def exponents(spec: SpecTerm) -> list[Exponent]:
    """Return a specified exponent or score by parts, like `Exponents.linear` for a kernel's term."""
    spec = strip(spec)
    match spec:
        case _ if spec.dtype.modular:
            pass
        case Const(value=value):
            if value == -math.inf:
                return [Exponent((), (), True)]
            return [Exponent((), ((float(value), (), None),) if value else ())]
        case Param(name=name):
            return [Exponent((), ((1.0, (name,), None),))]
        case Op(op="where", args=(condition, a, b)) | SpecOp(op="where", args=(condition, a, b)):
            if isinstance(condition, (SpecOp, SpecReduce, SpecSoftmax)):
                raise Mismatch("a mask that depends on data")
            sides = ((a, True), (b, False))
            return [replace(e, tests=(*e.tests, (condition, y))) for x, y in sides for e in exponents(x)]
        case Op(op="neg", args=(a,)) | SpecOp(op="neg", args=(a,)):
            return [_scaled(e, -1.0, ()) for e in exponents(a)]
        case Op(op="add" | "sub" as op, args=(a, b)) | SpecOp(op="add" | "sub" as op, args=(a, b)):
            sign = 1.0 if op == "add" else -1.0
            right = [_scaled(e, sign, ()) for e in exponents(b)]
            return [_plus(d, e) for d in exponents(a) for e in right]
        case Op(op="mul", args=(a, b)) | SpecOp(op="mul", args=(a, b)):
            left, right = exponents(a), exponents(b)
            for these, those in ((left, right), (right, left)):
                if len(those) == 1 and len(those[0].terms) == 1 and those[0].terms[0][2] is None:
                    factor, scalars, _ = those[0].terms[0]
                    return [_scaled(e, factor, scalars) for e in these]
        case Op(op="truediv", args=(a, Const(value=value))) | SpecOp(op="truediv", args=(a, Const(value=value))):
            return [_scaled(e, 1 / float(value), ()) for e in exponents(a)]
        case _:
            pass
    return [Exponent((), ((1.0, (), spec),))]


def _scaled(e: Exponent, factor: float, scalars: tuple[str, ...]) -> Exponent:
    if e.nothing and factor <= 0:
        raise Mismatch("a score of inf")
    return replace(e, terms=tuple((f * factor, together(s, scalars), core) for f, s, core in e.terms))


def _plus(a: Exponent, b: Exponent) -> Exponent:
    return Exponent(a.tests + b.tests, a.terms + b.terms, a.nothing or b.nothing)
