"""Functions of one element as trees: what arithmetic and choices make of values that are compared as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from argus.ir.expr import OPERATORS, Const, Expr, Op, Param
from argus.verify.model.isl import UnionMap, UnionSet
from argus.verify.values.rational import Variable
from argus.verify.values.scope import Mismatch
from argus.verify.values.signs import always_positive, always_real, never_negative
from argus.verify.values.terms import (
    Apply,
    Cases,
    Choice,
    Constant,
    Load,
    Opaque,
    Parameter,
    Reduce,
    Term,
    Via,
    comparison,
)

_ARITHMETIC = ("add", "sub", "mul", "neg", "truediv")
_SMOOTH = ("exp", "exp2", "log", "log2", "log1p", "expm1", "sigmoid", "tanh", "sqrt", "rsqrt")
_PIECEWISE = ("abs", "maximum", "minimum")
_LOGIC = ("and", "or", "not of truth values")


@dataclass(frozen=True)
class Node:
    """An operator of nodes. `value`: the number of a "constant", or which variable or condition a leaf is."""

    op: str
    args: tuple[Node, ...] = ()
    value: float = 0


@dataclass(frozen=True)
class Parted(Exception):
    """A difference between roots: those of `here` have another tree than the others."""

    here: UnionSet


@dataclass(frozen=True)
class _Leaf:
    """A value, or a condition, seen from roots, and its number. `specified`: the specification has it."""

    term: Term
    path: UnionMap
    number: int
    specified: bool


class Leaves:
    """Values that trees are made of, seen from the same roots: equal ones are one variable."""

    def __init__(
        self, equal: Callable[[Term, UnionMap, Term, UnionMap], bool], ordered: Callable[[Term], bool]
    ) -> None:
        """`equal`: whether a term is equal to a specified one at all roots. `ordered`: whether no rounding changes a
        term's order. The tree of what is specified comes first."""
        self._equal, self._ordered = equal, ordered
        self._values: list[_Leaf] = []
        self._tests: list[_Leaf] = []
        self.variables: list[Variable] = []
        self._specified = False

    def specified(self, term: Term, path: UnionMap, roots: UnionSet) -> Node:
        """Return the tree of a specified term."""
        self._specified = True
        try:
            return self.tree(term, path, roots)
        finally:
            self._specified = False

    def tree(self, term: Term, path: UnionMap, roots: UnionSet) -> Node:
        """Return the tree of a term at all of the roots. Raises `Parted` and `Mismatch`."""
        match term:
            case Via(along=along, term=inner):
                return self.tree(inner, path.apply_range(along), roots)
            case Cases(parts=parts):
                return self._part(parts, path, roots)
            case Constant(value=value):
                return Node("constant", value=value)
            case Choice(test=test, yes=yes, no=no):
                return Node("choice", (self._condition(test, path, roots), *self._each((yes, no), path, roots)))
            case Apply(op=op, args=args) if op in _ARITHMETIC or op in _SMOOTH or op in _PIECEWISE:
                return Node(op, self._each(args, path, roots))
            case Apply(op=op, args=(inner,)) if op in OPERATORS and OPERATORS[op].takes == "floats":
                return Node(op, self._each((inner,), path, roots))
            case Opaque(reason=reason):
                raise Mismatch(reason)
            case _:
                return Node("variable", value=self._variable(term, path, roots))

    def stated(self, facts: Iterable[Expr]) -> list[tuple[Node, bool]]:
        """Return what preconditions say of float scalars that occur here: differences that are at least 0, each with
        whether it is more than 0. Scalars are rounded before preconditions are checked, so comparisons are exact."""
        found = []
        for fact in facts:
            match fact:
                case Op(op="lt" | "le" | "gt" | "ge" as name, args=(a, b)) if a.dtype.is_float:
                    less, more = (a, b) if name in ("lt", "le") else (b, a)
                    sides = [self._scalar(more), self._scalar(less)]
                    if None not in sides:
                        found.append((Node("sub", tuple(n for n in sides if n is not None)), name in ("lt", "gt")))
                case _:
                    pass
        return found

    def _scalar(self, expr: Expr) -> Node | None:
        match expr:
            case Const(value=value):
                return Node("constant", value=float(value))
            case Param(name=name):
                own = (v.number for v in self._values if isinstance(v.term, Parameter) and v.term.name == name)
                number = next(own, None)
                return None if number is None else Node("variable", value=number)
            case _:
                return None

    def _each(self, terms: tuple[Term, ...], path: UnionMap, roots: UnionSet) -> tuple[Node, ...]:
        return tuple(self.tree(term, path, roots) for term in terms)

    def _part(self, parts: tuple[tuple[UnionSet, Term], ...], path: UnionMap, roots: UnionSet) -> Node:
        for region, inner in parts:
            here = path.intersect_range(region).domain().intersect(roots)
            if roots.is_subset(here):
                return self.tree(inner, path.intersect_range(region), roots)
            if not here.is_empty():
                raise Parted(here)
        raise Mismatch("a value that nothing wrote takes part")

    def _condition(self, test: Term, path: UnionMap, roots: UnionSet) -> Node:
        match test:
            case Via(along=along, term=inner):
                return self._condition(inner, path.apply_range(along), roots)
            case Apply(op=op, args=args) if op in _LOGIC:
                return Node(op, tuple(self._condition(a, path, roots) for a in args))
        found = comparison(test)
        if found is None:
            return Node("test", value=self._known(self._tests, test, path, roots, len(self._tests)))
        op, a, b = found
        if not (self._specified or (self._ordered(a) and self._ordered(b))):
            raise Mismatch("a choice by numbers that may be rounded")
        return Node(op, self._each((a, b), path, roots))

    def _variable(self, term: Term, path: UnionMap, roots: UnionSet) -> int:
        index = self._known(self._values, term, path, roots, len(self.variables))
        if index == len(self.variables):
            positive = term.positive if isinstance(term, Parameter) else always_positive(term)
            self.variables.append(Variable(positive, not always_real(term), never_negative(term)))
        return index

    def _known(self, known: list[_Leaf], term: Term, path: UnionMap, roots: UnionSet, index: int) -> int:
        path = path.intersect_domain(roots)
        if not roots.is_subset(path.domain()):
            raise Mismatch("a value that nothing wrote takes part")
        for leaf in known:
            if _same(term, path, leaf) or (leaf.specified and self._equal(term, path, leaf.term, leaf.path)):
                return leaf.number
        known.append(_Leaf(term, path, index, self._specified))
        return index


def _same(term: Term, path: UnionMap, leaf: _Leaf) -> bool:
    """Return True if a term is that of a leaf, by its form."""
    match term, leaf.term:
        case Parameter(name=name), Parameter(name=other):
            return name == other
        case Load(tensor=tensor, cells=cells), Load(tensor=other, cells=others) if tensor == other:
            return bool(path.apply_range(cells).is_equal(leaf.path.apply_range(others)))
        case _:
            return term is leaf.term and bool(path.is_equal(leaf.path))


def elementwise(term: Term) -> bool:
    """Return True if a term is a function of elements, or of sums of such functions, that is no polynomial."""
    match term:
        case Via(term=inner):
            return elementwise(inner)
        case Cases(parts=parts):
            return any(elementwise(inner) for _, inner in parts)
        case Reduce(op="add", parts=contributions):
            return any(elementwise(inner) for _, inner in contributions)
        case Choice():
            return True
        case Apply(op="truediv", args=(a, Constant())):
            return elementwise(a)
        case Apply(op=op, args=args) if op in _ARITHMETIC or op in _SMOOTH or op in _PIECEWISE:
            return op not in ("add", "sub", "mul", "neg") or any(map(elementwise, args))
        case _:
            return False
