"""Normal forms of specified terms, as sums of products over the real numbers. Equal forms are equal terms.

A product is a number times *atoms*: elements of tensors, functions and reductions, by their texts. Bound variables are
called after the height of their reduction, so that their names do not count. Reductions by addition are linear:
factors that do not depend on their variable stand outside. Conversions that round at most are transparent, as in the
proofs of kernels. What may not be a number (a quotient, a logarithm) never cancels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param
from argus.ir.nodes import SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.types import rounds_only

MOST_PRODUCTS = 256
"""Products of one normal form."""


class TooLarge(Exception):
    """A normal form has too many products."""


@dataclass(frozen=True, slots=True, order=True)
class Atom:
    """A factor by its text, with the bound variables that it depends on. `total`: it is a number for all inputs."""

    text: str
    names: frozenset[str]
    total: bool


Product = tuple[Atom, ...]
Sum = dict[Product, Fraction]


def normal(term: SpecTerm, names: Mapping[int, str]) -> Sum:
    """The normal form of a term; `names` gives a name to each of its free axes. Raises `TooLarge`."""
    match term:
        case Const(value=value) if not isinstance(value, float) or isfinite(value):
            return _scaled({(): Fraction(1)}, Fraction(value))
        case Op(op="cast", args=(inner,)) | SpecOp(op="cast", args=(inner,)):
            if rounds_only(inner.dtype, term.dtype) or (inner.dtype.is_int and term.dtype.is_int):
                return normal(inner, names)
            return _single(f"{term.dtype}({text(normal(inner, names))})", _free([normal(inner, names)]), True)
        case SpecReduce():
            return _reduction(term, names)
        case SpecSoftmax(axis=axis, extent=extent, at=at, score=score):
            bound = f"b{height(score) + 1}"
            parts = [normal(extent, names), normal(at, names), normal(score, {**names, axis: bound})]
            free = _free(parts) - {bound} | _free(parts[:2])
            return _single(f"softmax({bound}: {', '.join(map(text, parts))})", free, False)
        case Op(op=op, args=args) | SpecOp(op=op, args=args) if not term.dtype.modular:
            return _operation(op, [normal(a, names) for a in args])
        case Op(op=op, args=args) | SpecOp(op=op, args=args):
            parts = [normal(a, names) for a in args]
            return _single(f"{op}:{term.dtype}({', '.join(map(text, parts))})", _free(parts), True)
        case _:
            return _leaf(term, names)


def _leaf(term: Expr, names: Mapping[int, str]) -> Sum:
    match term:
        case Coord(axis=axis):
            return _single(names[axis], frozenset({names[axis]}), True)
        case Elem(obj=obj, index=index):
            places = [normal(e, names) for e in index]
            return _single(f"{obj}[{', '.join(map(text, places))}]", _free(places), True)
        case Param(name=name):
            return _single(name, frozenset(), True)
        case LoopVar(name=name):
            return _single(f"loop {name}", frozenset(), True)
        case _:
            return _single(repr(getattr(term, "value", term)), frozenset(), False)


def _operation(op: str, args: list[Sum]) -> Sum:
    match op, args:
        case "add", [a, b]:
            return _added(a, b, 1)
        case "sub", [a, b]:
            return _added(a, b, -1)
        case "neg", [a]:
            return _scaled(a, Fraction(-1))
        case "mul", [a, b]:
            return _multiplied(a, b)
        case "truediv", [a, b]:
            number = b.get(()) if len(b) == 1 else None
            if number:
                return _scaled(a, 1 / number)
            return _multiplied(a, _single(f"1/({text(b)})", _free([b]), False))
        case (("lt" | "le" | "gt" | "ge" | "eq" | "ne"), [a, b]):
            if op in ("gt", "ge"):
                return _operation({"gt": "lt", "ge": "le"}[op], [b, a])
            return _single(f"{op}0({text(_added(a, b, -1))})", _free([a, b]), _total([a, b]))
        case _:
            texts = [text(a) for a in args]
            row = OPERATORS[op]
            texts = sorted(texts) if row.commutative else texts
            total = (row.real or op in ("maximum", "where", "floordiv", "mod", "and", "or", "not")) and _total(args)
            return _single(f"{op}({', '.join(texts)})", _free(args), total)


def _reduction(term: SpecReduce, names: Mapping[int, str]) -> Sum:
    bound = f"b{height(term.body) + 1}"
    extent, body = normal(term.extent, names), normal(term.body, {**names, term.axis: bound})
    if term.op != "add":
        inner = f"{term.op}({bound} < {text(extent)}: {text(body)})"
        return _single(inner, _free([extent, body]) - {bound}, False)
    result: Sum = {}
    for product, factor in body.items():
        inside = tuple(a for a in product if bound in a.names)
        outside: Sum = {tuple(a for a in product if bound not in a.names): factor}
        summed = f"sum({bound} < {text(extent)}: {text({inside: Fraction(1)})})"
        free = (_free([{inside: Fraction(1)}]) - {bound}) | _free([extent])
        total = all(a.total for a in inside)
        whole = _multiplied(outside, _single(summed, free, total) if inside else extent)
        result = _added(result, whole, 1)
    return result


def height(term: SpecTerm) -> int:
    """How deep reductions are nested in a term."""
    match term:
        case SpecReduce(body=inner) | SpecSoftmax(score=inner):
            return height(inner) + 1
        case SpecOp(args=args):
            return max(map(height, args), default=0)
        case _:
            return 0


# ---------------------------------------------------------------------------- arithmetic


def _single(written: str, names: frozenset[str], total: bool) -> Sum:
    return {(Atom(written, names, total),): Fraction(1)}


def _scaled(a: Sum, factor: Fraction) -> Sum:
    return _kept({product: number * factor for product, number in a.items()})


def _added(a: Sum, b: Sum, sign: int) -> Sum:
    return _kept({p: a.get(p, Fraction(0)) + sign * b.get(p, Fraction(0)) for p in {**a, **b}})


def _multiplied(a: Sum, b: Sum) -> Sum:
    result: Sum = {}
    for left, x in a.items():
        for right, y in b.items():
            product = tuple(sorted((*left, *right), key=lambda atom: atom.text))
            result[product] = result.get(product, Fraction(0)) + x * y
    return _kept(result)


def _kept(a: Sum) -> Sum:
    """Products without those that are 0, unless they may be no number."""
    found = {p: n for p, n in a.items() if n or not all(atom.total for atom in p)}
    if len(found) > MOST_PRODUCTS:
        raise TooLarge
    return found


def _free(parts: list[Sum]) -> frozenset[str]:
    return frozenset(name for part in parts for product in part for atom in product for name in atom.names)


def _total(parts: list[Sum]) -> bool:
    return all(atom.total for part in parts for product in part for atom in product)


def text(a: Sum) -> str:
    """A normal form as text; equal forms have equal texts."""
    products = sorted((" * ".join(atom.text for atom in product), number) for product, number in a.items())
    return " + ".join(f"{number}" + (f" {product}" if product else "") for product, number in products) or "0"
