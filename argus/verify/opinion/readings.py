"""Translation of Z3's formulas to sets of ISL, and evaluation of formulas at a point.

Products of two unknowns, and divisions by an unknown, have no meaning in ISL. Each becomes an unconstrained integer
(`Reading.loose`). So if the set is empty, the formulas have no model; if it is not empty, they may still have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from argus.verify.model.isl import Set, isl
from argus.verify.model.solver import z3


class Unreadable(Exception):
    """A formula has an operation that obligations do not use."""


class Reading:
    """A translation of formulas to sets over their common unknowns."""

    def __init__(self, formulas: Sequence[z3.BoolRef]) -> None:
        self.loose = False
        """True if some term became an integer about which nothing is known."""
        self._places: dict[int, int] = {}
        self._kept: list[z3.ExprRef] = []  # ids are those of living terms
        for formula in formulas:
            self._find(formula, set())
        space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, [f"v{i}" for i in range(len(self._places))])
        self._local = isl.LocalSpace.from_space(space)
        self.everything = Set.universe(space)
        self._sets: dict[int, Set] = {}
        self._terms: dict[int, isl.PwAff] = {}

    def _find(self, term: z3.ExprRef, seen: set[int]) -> None:
        """Number the unknowns of a term."""
        if term.get_id() in seen:
            return
        seen.add(term.get_id())
        if _unknown(term):
            self.loose |= term.num_args() > 0
            self._places.setdefault(term.get_id(), len(self._places))
            self._kept.append(term)
            return
        for child in term.children():
            self._find(child, seen)

    # ------------------------------------------------------------------ conditions

    def holds(self, formula: z3.BoolRef) -> Set:
        """Return the set of points at which a formula holds."""
        if formula.get_id() not in self._sets:
            self._kept.append(formula)
            self._sets[formula.get_id()] = self._condition(formula)
        return self._sets[formula.get_id()]

    def _condition(self, formula: z3.BoolRef) -> Set:
        children = formula.children()
        if formula.get_id() in self._places:
            return self._unknown(formula).ge_set(self._number(1))
        if _comparison(formula):
            return self._compared(formula.decl().kind(), *map(self._term, children))
        sets = [self.holds(child) for child in children]
        match formula.decl().kind():
            case z3.Z3_OP_TRUE:
                return self.everything
            case z3.Z3_OP_FALSE:
                return Set.empty(self.everything.get_space())
            case z3.Z3_OP_AND:
                return _intersection(sets, self.everything)
            case z3.Z3_OP_OR:
                return _union(sets, self.everything)
            case z3.Z3_OP_NOT:
                return sets[0].complement()
            case z3.Z3_OP_IMPLIES:
                return sets[0].complement().union(sets[1])
            case z3.Z3_OP_EQ | z3.Z3_OP_IFF:
                return sets[0].intersect(sets[1]).union(sets[0].union(sets[1]).complement())
            case z3.Z3_OP_XOR | z3.Z3_OP_DISTINCT if len(sets) == 2:
                return sets[0].subtract(sets[1]).union(sets[1].subtract(sets[0]))
            case z3.Z3_OP_ITE:
                return sets[0].intersect(sets[1]).union(sets[2].subtract(sets[0]))
            case _:
                raise Unreadable(str(formula.decl()))

    def _compared(self, kind: int, *sides: isl.PwAff) -> Set:
        match kind:
            case z3.Z3_OP_LE:
                return sides[0].le_set(sides[1])
            case z3.Z3_OP_LT:
                return sides[0].lt_set(sides[1])
            case z3.Z3_OP_GE:
                return sides[0].ge_set(sides[1])
            case z3.Z3_OP_GT:
                return sides[0].gt_set(sides[1])
            case z3.Z3_OP_EQ:
                return sides[0].eq_set(sides[1])
            case _ if len(sides) == 2:
                return sides[0].ne_set(sides[1])
            case _:
                raise Unreadable("distinct")

    # ------------------------------------------------------------------ integers

    def _term(self, term: z3.ArithRef) -> isl.PwAff:
        if term.get_id() not in self._terms:
            self._kept.append(term)
            self._terms[term.get_id()] = self._integer(term)
        return self._terms[term.get_id()]

    def _integer(self, term: z3.ArithRef) -> isl.PwAff:
        if term.get_id() in self._places:
            return self._unknown(term)
        if z3.is_int_value(term):
            return self._number(term.as_long())
        children = term.children()
        if term.decl().kind() == z3.Z3_OP_ITE:
            where, rest = self.holds(children[0]), self.holds(children[0]).complement()
            then, other = self._term(children[1]), self._term(children[2])
            return then.intersect_domain(where).union_add(other.intersect_domain(rest))
        parts = [self._term(child) for child in children]
        match term.decl().kind():
            case z3.Z3_OP_ADD:
                return _reduced(isl.PwAff.add, parts)
            case z3.Z3_OP_SUB:
                return _reduced(isl.PwAff.sub, parts)
            case z3.Z3_OP_UMINUS:
                return parts[0].neg()
            case z3.Z3_OP_MUL:
                return _reduced(isl.PwAff.mul, parts)
            case z3.Z3_OP_IDIV | z3.Z3_OP_MOD as kind:
                divisor = children[1].as_long()
                size = isl.Val.int_from_si(isl.DEFAULT_CONTEXT, abs(divisor))
                quotient = parts[0].scale_down_val(size).floor()
                if kind == z3.Z3_OP_IDIV:  # Z3's remainders are never negative
                    return quotient if divisor > 0 else quotient.neg()
                return parts[0].sub(quotient.scale_val(size))
            case _:
                raise Unreadable(str(term.decl()))

    def _number(self, value: int) -> isl.PwAff:
        return isl.PwAff.from_aff(isl.Aff.val_on_domain(self._local, isl.Val(str(value))))

    def _unknown(self, term: z3.ExprRef) -> isl.PwAff:
        place = self._places[term.get_id()]
        return isl.PwAff.from_aff(isl.Aff.var_on_domain(self._local, isl.dim_type.set, place))


def _reduced(combine: Callable[[isl.PwAff, isl.PwAff], isl.PwAff], parts: Sequence[isl.PwAff]) -> isl.PwAff:
    result = parts[0]
    for part in parts[1:]:
        result = combine(result, part)
    return result


def _intersection(sets: Sequence[Set], everything: Set) -> Set:
    for some in sets:
        everything = everything.intersect(some)
    return everything


def _union(sets: Sequence[Set], everything: Set) -> Set:
    found = Set.empty(everything.get_space())
    for some in sets:
        found = found.union(some)
    return found.coalesce()


def _comparison(term: z3.ExprRef) -> bool:
    kind = term.decl().kind()
    ordered = kind in (z3.Z3_OP_LE, z3.Z3_OP_LT, z3.Z3_OP_GE, z3.Z3_OP_GT)
    return ordered or (kind in (z3.Z3_OP_EQ, z3.Z3_OP_DISTINCT) and z3.is_int(term.arg(0)))


def _unknown(term: z3.ExprRef) -> bool:
    """Return True if a term is an unknown for ISL: an uninterpreted term, or a product or division of unknowns."""
    kind, children = term.decl().kind(), term.children()
    if kind == z3.Z3_OP_UNINTERPRETED:
        return True
    if kind == z3.Z3_OP_MUL:
        return sum(not _constant(child) for child in children) > 1
    return kind in (z3.Z3_OP_IDIV, z3.Z3_OP_MOD) and not (z3.is_int_value(children[1]) and children[1].as_long())


def _constant(term: z3.ExprRef) -> bool:
    return z3.is_int_value(term) or (z3.is_app(term) and bool(term.children()) and all(map(_constant, term.children())))


# ---------------------------------------------------------------------------- values


def value(term: z3.ExprRef, model: z3.ModelRef, known: dict[int, int]) -> int:
    """Evaluate a term in a model; truth values are 0 or 1, and constants that the model leaves open are 0.

    `known`: a cache of values by the ids of terms.
    """
    number = term.get_id()
    if number not in known:
        known[number] = _value(term, model, known)
    return known[number]


def _value(term: z3.ExprRef, model: z3.ModelRef, known: dict[int, int]) -> int:
    if z3.is_int_value(term):
        return int(term.as_long())
    kind = term.decl().kind()
    if kind == z3.Z3_OP_UNINTERPRETED and term.num_args() == 0:
        found = model[term.decl()]
        return 0 if found is None else int(found.as_long()) if z3.is_int_value(found) else int(z3.is_true(found))
    if kind == z3.Z3_OP_ITE:
        chosen = 1 if value(term.arg(0), model, known) else 2
        return value(term.arg(chosen), model, known)
    operation = _OPERATIONS.get(kind)
    if operation is None:
        raise Unreadable(str(term.decl()))
    return int(operation([value(child, model, known) for child in term.children()]))


def _divided(a: Sequence[int]) -> int:
    """Divide as Z3 does, with a remainder that is never negative."""
    if a[1] == 0:
        raise Unreadable("a division by zero, which may have any value")
    return a[0] // a[1] if a[1] > 0 else -(a[0] // -a[1])


def _product(a: Sequence[int]) -> int:
    result = 1
    for factor in a:
        result *= factor
    return result


_OPERATIONS: dict[int, Callable[[Sequence[int]], int | bool]] = {
    z3.Z3_OP_TRUE: lambda a: True,
    z3.Z3_OP_FALSE: lambda a: False,
    z3.Z3_OP_AND: all,
    z3.Z3_OP_OR: any,
    z3.Z3_OP_NOT: lambda a: not a[0],
    z3.Z3_OP_IMPLIES: lambda a: not a[0] or bool(a[1]),
    z3.Z3_OP_XOR: lambda a: a[0] != a[1],
    z3.Z3_OP_IFF: lambda a: a[0] == a[1],
    z3.Z3_OP_EQ: lambda a: a[0] == a[1],
    z3.Z3_OP_DISTINCT: lambda a: len(set(a)) == len(a),
    z3.Z3_OP_LE: lambda a: a[0] <= a[1],
    z3.Z3_OP_LT: lambda a: a[0] < a[1],
    z3.Z3_OP_GE: lambda a: a[0] >= a[1],
    z3.Z3_OP_GT: lambda a: a[0] > a[1],
    z3.Z3_OP_ADD: sum,
    z3.Z3_OP_SUB: lambda a: a[0] - sum(a[1:]),
    z3.Z3_OP_UMINUS: lambda a: -a[0],
    z3.Z3_OP_MUL: _product,
    z3.Z3_OP_IDIV: _divided,
    z3.Z3_OP_MOD: lambda a: a[0] - a[1] * _divided(a),
}
