"""Decide whether a function of pairs is associative over the real numbers: f(f(a, b), c) = f(a, f(b, c)).

Both sides are brought into a normal form. Numbers are polynomials. A maximum or minimum is the set of its operands,
with sums moved inside. Every combination of outcomes of the conditions is compared. Any other operation is an unknown
function. If the normal forms differ, small numbers are tried: they can show that the function is not associative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Union

from argus.ir.expr import Const, Elem, Expr, Op, rewrite

_MOST_CHOICES = 8
_TRIALS = 200

Atom = tuple[object, ...]
Monomial = tuple[tuple[Atom, int], ...]
Polynomial = frozenset[tuple[Monomial, Fraction]]
Number = Union[Fraction, bool]


@dataclass(frozen=True, slots=True)
class Finding:
    """`associative`: the function is proved associative. If not, only an `example` shows that it is not associative."""

    associative: bool
    example: str = ""


def associativity(left: Sequence[Elem], right: Sequence[Elem], made: Sequence[Expr]) -> Finding:
    """Decide whether the combination `made` of `left` and `right`, one expression per element, is associative."""
    a, b, c = ([Elem(f"{name}{n}", (), e.dtype) for n, e in enumerate(left)] for name in "abc")

    def apply(first: Sequence[Expr], second: Sequence[Expr]) -> list[Expr]:
        known: dict[Expr, Expr] = dict(zip((*left, *right), (*first, *second), strict=True))
        return [rewrite(e, known.get) for e in made]

    one, other = apply(apply(a, b), c), apply(a, apply(b, c))
    if all(_alike(x, y, {}) for x, y in zip(one, other, strict=True)):
        return Finding(True)
    return Finding(False, _example([*a, *b, *c], one, other))


# ---------------------------------------------------------------------------- normal forms


class _Undecided(Exception):
    """A condition whose outcomes must both be examined."""

    def __init__(self, condition: Atom) -> None:
        self.condition = condition


def _alike(x: Expr, y: Expr, chosen: Mapping[Atom, bool]) -> bool:
    """Return True if both have the same normal form for all outcomes of the conditions that are not in `chosen`."""
    try:
        form = _truth if x.dtype.kind == "bool" else _number
        return form(x, chosen) == form(y, chosen)
    except _Undecided as found:
        if len(chosen) >= _MOST_CHOICES:
            return False
        return all(_alike(x, y, {**chosen, found.condition: outcome}) for outcome in (True, False))


def _number(expr: Expr, chosen: Mapping[Atom, bool]) -> Polynomial:
    match expr:
        case Const(value=value) if value in (float("inf"), float("-inf")) or value != value:
            return _atom(("constant", float(value)))
        case Const(value=value):
            return _sum({(): Fraction(value)})
        case Op(op="add" | "sub" | "mul" as name, args=(x, y)):
            return _arithmetic(name, _number(x, chosen), _number(y, chosen))
        case Op(op="neg", args=(x,)):
            return _arithmetic("sub", frozenset(), _number(x, chosen))
        case Op(op="maximum" | "minimum" as name, args=args):
            return _extremum(name, [_number(a, chosen) for a in args])
        case Op(op="where", args=(Op(op="lt" | "le" | "gt" | "ge" as name, args=(x, y)), yes, no)) if {x, y} == {
            yes,
            no,
        }:
            larger = (name in ("gt", "ge")) == (x == yes)
            return _extremum("maximum" if larger else "minimum", [_number(x, chosen), _number(y, chosen)])
        case Op(op="where", args=(condition, yes, no)):
            return _number(yes if _truth(condition, chosen) else no, chosen)
        case Op(op="and" | "or" as name, args=args):
            return _atom((name, frozenset().union(*(_members(name, _number(a, chosen)) for a in args))))
        case Op(op="xor", args=(x, y)):
            return _atom(("xor", _members("xor", _number(x, chosen)) ^ _members("xor", _number(y, chosen))))
        case Op(op=name, args=args, dtype=dtype):
            forms = tuple(_truth(a, chosen) if a.dtype.kind == "bool" else _number(a, chosen) for a in args)
            return _atom((name, dtype.name, forms))
        case Elem(obj=obj):
            return _atom(("element", obj))
        case _:
            return _atom(("unknown", expr))


def _truth(expr: Expr, chosen: Mapping[Atom, bool]) -> bool:
    match expr:
        case Const(value=value):
            return bool(value)
        case Op(op="not", args=(x,)):
            return not _truth(x, chosen)
        case Op(op="and" | "or" | "xor" as name, args=(x, y)):
            one, other = _truth(x, chosen), _truth(y, chosen)
            return {"and": one and other, "or": one or other, "xor": one != other}[name]
        case Op(op="where", args=(condition, yes, no)):
            return _truth(yes if _truth(condition, chosen) else no, chosen)
        case Op(op="eq" | "ne" | "lt" | "le" | "gt" | "ge" as name, args=(x, y)):
            if name == "ne" and y == Const(0, y.dtype) and isinstance(x, Op) and x.op == "or":
                return any(_truth(Op("ne", (each, y), expr.dtype), chosen) for each in x.args)
            if x.dtype.kind == "bool":
                return (_truth(x, chosen) == _truth(y, chosen)) == (name == "eq")
            return _compared(name, _number(x, chosen), _number(y, chosen), chosen)
        case Elem(obj=obj):
            return _outcome(("element", obj), chosen)
        case _:
            return _outcome(("unknown", expr), chosen)


def _outcome(condition: Atom, chosen: Mapping[Atom, bool]) -> bool:
    if condition not in chosen:
        raise _Undecided(condition)
    return chosen[condition]


def _compared(name: str, x: Polynomial, y: Polynomial, chosen: Mapping[Atom, bool]) -> bool:
    """Evaluate a comparison. It asks only whether a difference is less than 0 or equal to 0."""
    if name in ("eq", "ne"):
        sides = frozenset((_arithmetic("sub", x, y), _arithmetic("sub", y, x)))
        return (len(sides) == 1 or _outcome(("eq", sides), chosen)) == (name == "eq")
    if name in ("gt", "le"):
        x, y = y, x
    less = x != y and _outcome(("lt", _arithmetic("sub", x, y)), chosen)
    return less == (name in ("lt", "gt"))


def _sum(terms: Mapping[Monomial, Fraction]) -> Polynomial:
    return frozenset((m, c) for m, c in terms.items() if c)


def _atom(atom: Atom) -> Polynomial:
    return _sum({((atom, 1),): Fraction(1)})


def _arithmetic(name: str, x: Polynomial, y: Polynomial) -> Polynomial:
    result: dict[Monomial, Fraction] = {}
    if name == "mul":
        for one, c in x:
            for other, d in y:
                powers: dict[Atom, int] = dict(one)
                for atom, power in other:
                    powers[atom] = powers.get(atom, 0) + power
                both = tuple(sorted(powers.items(), key=repr))
                result[both] = result.get(both, Fraction(0)) + c * d
        return _sum(result)
    for monomial, c in x:
        result[monomial] = c
    for monomial, c in y:
        result[monomial] = result.get(monomial, Fraction(0)) + (c if name == "add" else -c)
    return _sum(result)


def _members(name: str, form: Polynomial) -> frozenset[object]:
    """Return the operands of operator `name`, nested ones included; `form` itself if it is not a result of `name`."""
    match list(form):
        case [(((((str() as found), frozenset() as inside), 1),), Fraction(numerator=1, denominator=1))] if (
            found == name
        ):
            return inside
        case _:
            return frozenset((form,))


def _extremum(name: str, forms: Sequence[Polynomial]) -> Polynomial:
    """Return max(p + max(q, r), s) as the set of p + q, p + r and s."""
    flat: set[Polynomial] = set()
    for form in forms:
        nested = next(((m, c) for m, c in form if c == 1 and len(m) == 1 and m[0][1] == 1 and m[0][0][0] == name), None)
        if nested is None:
            flat.add(form)
            continue
        rest = form - {nested}
        inside = nested[0][0][0][1]
        assert isinstance(inside, frozenset)
        flat |= {_arithmetic("add", rest, each) for each in inside}
    if len(flat) == 1:
        return flat.pop()
    return _atom((name, frozenset(flat)))


# ---------------------------------------------------------------------------- examples


def _example(elements: Sequence[Elem], one: Sequence[Expr], other: Sequence[Expr]) -> str:
    """Find small numbers for which both sides differ, and return them as a text; "" if none were found."""
    random = Random(1)
    for _ in range(_TRIALS):
        numbers: dict[str, Number] = {}
        for e in elements:
            numbers[e.obj] = random.random() < 0.5 if e.dtype.kind == "bool" else Fraction(random.randint(-3, 3))
        try:
            left, right = ([_value(x, numbers) for x in side] for side in (one, other))
        except (ArithmeticError, NotImplementedError):
            continue
        if left != right:
            count = len(elements) // 3
            a, b, c = (_tuple([numbers[e.obj] for e in elements[n * count : (n + 1) * count]]) for n in range(3))
            return (f"of a = {a}, b = {b} and c = {c}, a and b combined first give {_tuple(left)}, "
                    f"b and c combined first give {_tuple(right)}")  # fmt: skip
    return ""


def _tuple(values: Sequence[Number]) -> str:
    return str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"


def _value(expr: Expr, numbers: Mapping[str, Number]) -> Number:
    match expr:
        case Const(value=bool() as value):
            return value
        case Const(value=value):
            return Fraction(value)
        case Elem(obj=obj):
            return numbers[obj]
        case Op(op="where", args=(condition, yes, no)):
            return _value(yes if _value(condition, numbers) else no, numbers)
        case Op(op="not", args=(x,)) if x.dtype.kind == "bool":
            return not _value(x, numbers)
        case Op(op="neg" | "abs" as name, args=(x,)):
            number = Fraction(_value(x, numbers))
            return -number if name == "neg" else abs(number)
        case Op(op=name, args=(x, y)):
            return _binary(name, _value(x, numbers), _value(y, numbers))
        case _:
            raise NotImplementedError


def _binary(name: str, x: Number, y: Number) -> Number:
    if isinstance(x, bool) and isinstance(y, bool) and name in ("and", "or", "xor"):
        return {"and": x and y, "or": x or y, "xor": x != y}[name]
    match name:
        case "add":
            return Fraction(x + y)
        case "sub":
            return Fraction(x - y)
        case "mul":
            return Fraction(x * y)
        case "truediv":
            return Fraction(x) / Fraction(y)
        case "maximum":
            return max(x, y)
        case "minimum":
            return min(x, y)
        case "eq" | "ne":
            return (x == y) == (name == "eq")
        case "lt" | "ge":
            return (x < y) == (name == "lt")
        case "gt" | "le":
            return (x > y) == (name == "gt")
        case _:
            raise NotImplementedError
