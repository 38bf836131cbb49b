"""Normal forms of specified terms: sums of products over the real numbers. Terms with equal forms are equal.

A product is a number times *atoms*: elements of tensors, functions and reductions, identified by their texts. A bound
variable is named after the reductions inside its own, so that its original name does not matter. Reductions by addition
are linear: factors that do not depend on their variable are moved outside. Conversions that at most round are ignored,
as in the proofs of kernels. Terms that may not be numbers (a quotient, a logarithm) never cancel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param
from argus.ir.nodes import SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.types import rounds_only

MOST_PRODUCTS = 256
"""Largest number of products in one normal form."""

_TOTAL = frozenset({"maximum", "where", "floordiv", "mod", "and", "or", "xor", "not", "shl", "shr"})
"""Operators that return numbers for numbers, in addition to those that return real numbers for real numbers."""


class TooLarge(Exception):
    """A normal form has too many products."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A factor, identified by its text, with the bound variables on which it depends.

    `total`: it is a number for all inputs. `binders`: the highest number of a variable that is bound inside it.
    """

    text: str
    names: frozenset[str] = frozenset()
    total: bool = True
    binders: int = 0


Product = tuple[Atom, ...]
Sum = dict[Product, Fraction]


def normal(term: SpecTerm, names: Mapping[int, str]) -> Sum:
    """Return the normal form of a term. `names` gives each free axis a name. Raises `TooLarge`."""
    match term:
        case Const(value=value) if not isinstance(value, float) or isfinite(value):
            return _kept({(): Fraction(value)})
        case Op(op="cast", args=(inner,)) | SpecOp(op="cast", args=(inner,)):
            form = normal(inner, names)
            return form if rounds_only(inner.dtype, term.dtype) else _atom(f"{term.dtype}({text(form)})", [form])
        case SpecReduce(op=op, extent=extent, body=body):
            bound = f"b{height(body) + 1}"
            forms = normal(extent, names), normal(body, {**names, term.axis: bound})
            plain = isinstance(extent, (Param, Const))  # a size, which is never negative
            return _summed(bound, *forms, plain) if op == "add" else _bound(op, bound, forms[0], forms[1])
        case SpecSoftmax(axis=axis, extent=extent, at=at, score=score):
            bound = f"b{height(score) + 1}"
            place = text(normal(at, names))
            found = _bound("softmax", bound, normal(extent, names), normal(score, {**names, axis: bound}))
            (atom,) = next(iter(found))
            free = atom.names | _names([normal(at, names)])
            return {(Atom(f"{atom.text}[{place}]", free, False, atom.binders),): Fraction(1)}
        case Op(op=op, args=args) | SpecOp(op=op, args=args):
            forms_ = [normal(a, names) for a in args]
            if term.dtype.modular:
                return _atom(f"{op}:{term.dtype}({', '.join(map(text, forms_))})", forms_)
            return _operation(op, forms_)
        case _:
            return _leaf(term, names)


def _leaf(term: Expr, names: Mapping[int, str]) -> Sum:
    match term:
        case Coord(axis=axis):
            return {(Atom(names[axis], frozenset({names[axis]})),): Fraction(1)}
        case Elem(obj=obj, index=index):
            places = [normal(e, names) for e in index]
            return _atom(f"{obj}[{', '.join(map(text, places))}]", places)
        case Param(name=name):
            return _atom(name, [])
        case LoopVar(name=name):
            return _atom(f"loop {name}", [])
        case _:
            return _atom(repr(getattr(term, "value", term)), [], False)


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
            return _scaled(a, 1 / number) if number else _multiplied(a, _atom(f"1/({text(b)})", [b], False))
        case (("gt" | "ge"), [a, b]):
            return _operation({"gt": "lt", "ge": "le"}[op], [b, a])
        case (("lt" | "le" | "eq" | "ne"), [a, b]):
            return _atom(f"{op}0({text(_added(a, b, -1))})", [a, b])
        case _:
            row, texts = OPERATORS[op], [text(a) for a in args]
            return _atom(
                f"{op}({', '.join(sorted(texts) if row.commutative else texts)})", args, row.real or op in _TOTAL
            )


# ---------------------------------------------------------------------------- reductions


def _summed(bound: str, extent: Sum, body: Sum, plain: bool) -> Sum:
    """Return the normal form of a sum over a bound variable. With `plain`, the extent is known not to be negative, so a
    constant summand is multiplied by it."""
    result: Sum = {}
    for product, factor in body.items():
        inside = tuple(a for a in product if bound in a.names)
        outside: Sum = {tuple(a for a in product if bound not in a.names): factor}
        counted = plain and not inside
        summed = (
            extent if counted else _bound("sum", bound, extent, {inside: Fraction(1)}, all(a.total for a in inside))
        )
        result = _added(result, _multiplied(outside, summed), 1)
    return result


def _bound(op: str, bound: str, extent: Sum, body: Sum, total: bool = False) -> Sum:
    """Return a reduction as an atom whose variable is named after the reductions inside it."""
    number = 1 + max((a.binders for product in body for a in product), default=0)
    name = f"b{number}"
    inner = {tuple(sorted((_renamed(a, bound, name) for a in p), key=_text)): factor for p, factor in body.items()}
    free = (_names([inner]) - {name}) | _names([extent])
    return {(Atom(f"{op}({name} < {text(extent)}: {text(inner)})", free, total, number),): Fraction(1)}


def _renamed(atom: Atom, old: str, new: str) -> Atom:
    if old == new or old not in atom.names:
        return atom
    names = (atom.names - {old}) | {new}
    return Atom(re.sub(rf"\b{old}\b", new, atom.text), names, atom.total, atom.binders)


def height(term: SpecTerm) -> int:
    """Return the nesting depth of reductions in a term."""
    match term:
        case SpecReduce(body=inner) | SpecSoftmax(score=inner):
            return height(inner) + 1
        case SpecOp(args=args):
            return max(map(height, args), default=0)
        case _:
            return 0


# ---------------------------------------------------------------------------- arithmetic


def _atom(written: str, parts: Sequence[Sum], total: bool = True) -> Sum:
    atoms = [atom for part in parts for product in part for atom in product]
    binders = max((a.binders for a in atoms), default=0)
    return {(Atom(written, _names(parts), total and all(a.total for a in atoms), binders),): Fraction(1)}


def _scaled(a: Sum, factor: Fraction) -> Sum:
    return _kept({product: number * factor for product, number in a.items()})


def _added(a: Sum, b: Sum, sign: int) -> Sum:
    return _kept({p: a.get(p, Fraction(0)) + sign * b.get(p, Fraction(0)) for p in {**a, **b}})


def _multiplied(a: Sum, b: Sum) -> Sum:
    if not a or not b:  # The product with 0 is no number where the other factor is none.
        return _kept({p: Fraction(0) for p in (*a, *b)})
    result: Sum = {}
    for left, x in a.items():
        for right, y in b.items():
            product = tuple(sorted((*left, *right), key=_text))
            result[product] = result.get(product, Fraction(0)) + x * y
    return _kept(result)


def _kept(a: Sum) -> Sum:
    """Return the products without those that are 0, except for products that may not be numbers."""
    found = {p: n for p, n in a.items() if n or not all(atom.total for atom in p)}
    if len(found) > MOST_PRODUCTS:
        raise TooLarge
    return found


def _names(parts: Sequence[Sum]) -> frozenset[str]:
    return frozenset(name for part in parts for product in part for atom in product for name in atom.names)


def _text(atom: Atom) -> str:
    return atom.text


def text(a: Sum) -> str:
    """Return a normal form as text. Equal forms have equal texts."""
    products = sorted((" * ".join(atom.text for atom in product), number) for product, number in a.items())
    return " + ".join(f"{number}" + (f" {product}" if product else "") for product, number in products) or "0"
