"""Matching of `al.softmax` and `al.logsumexp` with terms that are quotients or logarithms of sums of exponentials.
The kernel may use one pass or two, sum up in any order, and subtract any maxima.

The comparison is over the real numbers. It compares scores, factors, and how often each of them is summed up. In a row
in which every score is -inf, the sums are 0. The kernel must then divide by another number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations, product

from argus.ir.expr import Coord, Elem
from argus.ir.nodes import SpecTerm
from argus.ir.spec_terms import elements_of, renumbered, strip, uses
from argus.verify.model.isl import UnionMap, UnionSet, empty_map, empty_set, isl, map_parts
from argus.verify.values.contributions import Marker, marked, markers
from argus.verify.values.exponentials import Exponentials, Shift, alike, joined
from argus.verify.values.linear import EmptyRow, Exponents, Linear, Monomial, Ref, close
from argus.verify.values.matching import Matcher
from argus.verify.values.products import Amount
from argus.verify.values.scope import Mismatch, Scope, append, first_that_holds
from argus.verify.values.specified import Level, Part, Rows, Share, level_of, rows_of, share_of
from argus.verify.values.summands import Summand, one_image
from argus.verify.values.terms import (
    Apply,
    Cases,
    Choice,
    Constant,
    Load,
    Reduce,
    Term,
    TermBuilder,
    Via,
    compared_with,
)


@dataclass(frozen=True)
class _Summed:
    """A sum that matched. `rows`: {instance -> V[used]}, the rows that it serves. `shift`: what it is relative to."""

    rows: UnionMap
    shift: Shift | None


class SoftmaxMatcher(Matcher):
    """A matcher that also knows sums of exponentials."""

    def __init__(self, builder: TermBuilder) -> None:
        super().__init__(builder)
        self.exponentials = Exponentials(Exponents(builder))
        self._marked: dict[tuple[int, Marker], list[UnionMap]] = {}
        self._loaded_cells: dict[tuple[int, str], UnionMap | None] = {}
        self._leaves: dict[tuple[int, SpecTerm], UnionMap] = {}
        self._sums: dict[tuple[int, SpecTerm], list[_Summed]] = {}

    def match(self, term: Term, spec: SpecTerm, scope: Scope) -> None:
        """Match as `Matcher.match`, but a softmax, a sum weighted by one, and a logarithm of a sum each as a whole."""
        spec = strip(spec)
        if scope.roots.is_empty():
            return
        share, level = share_of(spec), level_of(self.model, spec, self._names(scope)[1])
        if level is not None:
            share = level.share
        if share is None:
            super().match(term, spec, scope)
            return
        rows = rows_of(self.model, share, scope.axes)
        try:
            if level is not None:
                self._match_level(term, rows, level, scope)
            else:
                self._match_share(term, share, rows, scope)
        except EmptyRow as error:
            some = self.model.parse_set(f"{{ : {self.model.translator.integer(share.extent, ())} > 0 }}")
            empty = self._empty(rows, scope).intersect_params(some)  # rows of keys that are masked, not of none
            raise Mismatch(error.message, empty.apply(scope.origin)) from None

    # ------------------------------------------------------------------ quotients

    def _match_share(self, term: Term, share: Share, rows: Rows, scope: Scope) -> None:
        for points, numerators, divisors in _fraction(term, scope.path):
            here = scope.restricted(points)
            divisor, guarded = _divisor(divisors)
            upper: list[Summand] | None = None
            for ref in numerators:
                each = self.exponentials.summands(ref.term, ref.path.intersect_domain(points))
                upper = each if upper is None else self.exponentials.product(upper, each)
            numerator = [self.exponentials.settled(s) for s in upper or []]
            if not guarded:
                self._require_live(rows, here)
            below = self._total(Ref(divisor.term, divisor.path.intersect_domain(points)), rows, here, "the divisor")
            _require_same(self.exponentials.shift(numerator), below)
            self._sum(numerator, share, rows, here, "what is divided")

    def _empty(self, rows: Rows, scope: Scope) -> UnionSet:
        """Return the roots for which every score is -inf."""
        return scope.roots.subtract(self._rows(rows, scope).apply_range(rows.live).domain())

    def _require_live(self, rows: Rows, scope: Scope) -> None:
        empty = self._empty(rows, scope)
        if not empty.is_empty():
            raise Mismatch(
                "0 / 0 where every score is masked: divide by `al.where(total == 0.0, 1.0, total)`",
                empty.apply(scope.origin),
            )

    # ------------------------------------------------------------------ logarithms

    def _match_level(self, term: Term, rows: Rows, level: Level, scope: Scope) -> None:
        """Match a number times the logarithm of a sum, plus other terms."""
        for form in self.exponentials.exponents.linear(term, scope.path):
            here = scope.restricted(form.points)
            if form.nothing:
                self.exactly_once(empty_map(), self._rows(rows, here).apply_range(rows.live), False, here)
                continue
            logarithm, inner = _logarithm(form, level.factor)
            shift = self._total(inner, rows, here, "the sum under the logarithm")
            if shift is not None:
                rest = [(t, False) for t in form.terms if not t.level and t is not logarithm]
                self._amounts(
                    rest, level.others, "what is added to the logarithm of the sum", partial(self._added, here)
                )
            self._undone([t for t in form.terms if t.level], shift, level.factor, form.points)

    def _added(self, scope: Scope, ref: Ref, _root: bool, spec: SpecTerm) -> None:
        self.compare(ref.term, spec, replace(scope, path=ref.path.intersect_domain(scope.roots)))

    def _undone(self, levels: list[Monomial], shift: Shift | None, factor: float, points: UnionSet) -> None:
        """Raise `Mismatch` unless the maximum that weights are relative to is added to the logarithm of their sum."""
        text = "the logarithm of a sum of weights lacks the maximum that they are relative to, or adds another"
        if shift is None or not (levels or shift.factor):
            return
        level = levels[0] if len(levels) == 1 else None
        if level is None or level.ref is None or not close(level.factor, -shift.factor * factor):
            raise Mismatch(text)
        exponents, summed = self.exponentials.exponents, shift.made.domain().intersect(points)
        made = exponents.instances(level.ref).intersect_domain(summed)
        if level.scalars != shift.scalars or not made.is_equal(shift.made.intersect_domain(points)):
            raise Mismatch(text)
        if not level.guarded and not summed.is_subset(exponents.finite(level.ref)):
            raise Mismatch("the maximum that is added to the logarithm may be -inf")

    # ------------------------------------------------------------------ sums

    def _total(self, ref: Ref, rows: Rows, scope: Scope, what: str) -> Shift | None:
        """Match a sum of weights where it is computed, once for all uses; return its level by root."""
        shifts = []
        for head in _heads(ref):
            back = head.path.reverse()
            mine = back.apply_range(self._rows(rows, scope)).coalesce()
            there = Scope(back.domain().identity(), mine, tuple(range(len(rows.used))), back.apply_range(scope.origin))
            shift = self._summed(head.term, rows, there, what)
            if shift is not None:
                shifts.append(replace(shift, made=head.path.apply_range(shift.made)))
        return joined(shifts)

    def _summed(self, term: Term, rows: Rows, scope: Scope, what: str) -> Shift | None:
        known = self._sums.setdefault((id(term), rows.score), [])
        for before in known:
            if scope.variables.is_subset(before.rows):
                return before.shift
        if not scope.variables.is_single_valued():
            raise Mismatch("one sum of weights serves several of the specified ones")
        axis = len(rows.used)
        alone = replace(rows, used=tuple(range(axis)))
        found = self.exponentials.summands(term, scope.path)
        shift = self.exponentials.shift(found)
        self._sum(found, Share(axis, Coord(axis), rows.score), alone, scope, what)
        known.append(_Summed(scope.variables, shift))
        return shift

    def _sum(self, summands: list[Summand], share: Share, rows: Rows, scope: Scope, what: str) -> None:
        """Raise `Mismatch` unless the summands are exactly the specified terms, each of them once."""
        counted = empty_map()  # {[root -> k] -> point}
        mine, axes = self._rows(rows, scope), tuple(range(len(rows.used) + 1))
        for s in summands:
            if not close(s.factor, 1.0) or s.scalars:
                raise Mismatch(f"{what} has weights that are multiplied by another number")
            up = (s.up if s.up is not None else s.points.identity()).intersect_domain(s.points)
            origin = up.apply_range(scope.origin)

            def attempt(bound: UnionMap, s: Summand = s, up: UnionMap = up, origin: UnionMap = origin) -> UnionMap:
                every = append(up.apply_range(mine), bound, len(rows.used))
                self._scores(s, rows.parts, Scope(s.points.identity(), every, axes, origin), what)
                self._factors(s, share, scope, up, bound, what)
                return bound

            bound = first_that_holds(self._places(s, rows), attempt)
            more = up.range_product(bound).reverse()
            again = counted.domain().intersect(more.domain())  # points of several summands may be the same instances
            if not again.is_empty():
                raise Mismatch(f"{what} has a term more than once", scope.origins(again.unwrap().domain()))
            counted = counted.union(more)
        wanted = mine.apply_range(rows.live)
        if share.at is not None:
            wanted = wanted.intersect(scope.variables.apply_range(self._at(share, scope)))
        self.exactly_once(counted, wanted, False, scope)

    def _rows(self, rows: Rows, scope: Scope) -> UnionMap:
        """Return {root -> V[used]}."""
        return self._project(scope, rows.used)

    def _project(self, scope: Scope, used: tuple[int, ...]) -> UnionMap:
        if used == tuple(range(len(scope.axes))):
            return scope.variables
        dims = ", ".join(f"v{i}" for i in range(len(scope.axes)))
        some = f"{{ V[{dims}] -> V[{', '.join(f'v{i}' for i in used)}] }}"
        return scope.variables.apply_range(isl.UnionMap(some))

    def _at(self, share: Share, scope: Scope) -> UnionMap:
        """Return {V[...] -> [place]}, the place that a softmax outside of a sum selects."""
        assert share.at is not None
        names = {axis: f"v{position}" for position, axis in enumerate(scope.axes)}
        coords = tuple(names.get(axis, "0") for axis in range(max((*scope.axes, -1)) + 1))
        place = self.model.translator.integer(share.at, coords)
        dims = ", ".join(names[axis] for axis in scope.axes)
        return self.model.parse_map(f"{{ V[{dims}] -> [{place}] }}").to_union_map()

    def _places(self, s: Summand, rows: Rows) -> list[UnionMap]:
        """Return candidates for {point -> [k]}, the specified term that a summand is, according to its loads."""
        some, places = False, []
        for elem in reversed(elements_of(rows.score)):
            for marker in markers(elem, len(rows.used)):
                for m, root in s.scores:
                    if m.ref is None:
                        continue
                    path = s.over(m.ref.path, root)
                    for there in self._marked_by(m.ref.term, marker, path):
                        found = path.apply_range(there)
                        if found.is_single_valued() and s.points.is_subset(found.domain()):
                            places.append(found)
                        some = some or not found.is_empty()
        if places:
            return places
        if some:
            raise Mismatch("some scores of a sum of exponentials load nothing, as sums over no terms do: "
                           "a size that is known to be above 0 (`al.requires`) excludes them")  # fmt: skip
        raise Mismatch("a sum of exponentials whose scores do not load through the bound variable")

    def _scores(self, s: Summand, parts: tuple[Part, ...], scope: Scope, what: str) -> None:
        for part in parts:
            here = scope
            if part.region is not None:
                here = scope.restricted(scope.variables.intersect_range(part.region).domain())
            if here.roots.is_empty():
                continue
            if part.nothing:
                raise Mismatch(
                    f"{what} sums up terms that the specification masks: the mask is another one",
                    here.roots.apply(scope.origin),
                )
            self._score(s, part, here, what)

    def _score(self, s: Summand, part: Part, scope: Scope, what: str) -> None:
        self._exponent(s, part.terms, scope, f"a score of {what}")

    def _exponent(self, s: Summand, amounts: tuple[Amount, ...], scope: Scope, what: str) -> None:
        """Raise `Mismatch` unless the exponent of a summand, without its levels, equals the specified one."""

        def leaf(ref: Ref, root: bool, spec: SpecTerm) -> None:
            self._leaf(ref, s.over(ref.path, root), spec, scope)

        self._amounts(s.scores, amounts, what, leaf)

    def _amounts(
        self,
        found: Sequence[tuple[Monomial, bool]],
        amounts: tuple[Amount, ...],
        what: str,
        leaf: Callable[[Ref, bool, SpecTerm], None],
    ) -> None:
        """Raise `Mismatch` unless a sum equals the specified one, term by term in some order; `leaf` compares terms."""
        mine = [(m, root) for m, root in found if m.ref is not None]
        wanted = [t for t in amounts if t[2] is not None]
        numbers = [m for m, _ in found if m.ref is None]
        offset = sum(m.factor for m in numbers) - sum(f for f, _, core in amounts if core is None)
        scaled = any(m.scalars for m in numbers) or any(x for _, x, core in amounts if core is None)
        if len(mine) != len(wanted) or scaled or not close(1.0 + offset, 1.0):
            raise Mismatch(f"{what} is another sum than specified")

        def attempt(order: tuple[tuple[Monomial, bool], ...]) -> None:
            for (m, root), (factor, scalars, core) in zip(order, wanted, strict=True):
                if m.scalars != scalars or not close(m.factor, factor):
                    numbers = f"{_number(m.factor, m.scalars)}, and not by {_number(factor, scalars)}"
                    raise Mismatch(f"{what} is multiplied by {numbers}")
                assert m.ref is not None and core is not None
                leaf(m.ref, root, core)

        first_that_holds(permutations(mine), attempt)

    def _factors(self, s: Summand, share: Share, scope: Scope, up: UnionMap, bound: UnionMap, what: str) -> None:
        if len(s.factors) != len(share.factors):
            raise Mismatch(f"{what} has terms of {len(s.factors)} factors besides weights, not {len(share.factors)}")
        if not share.factors:
            return
        used = tuple(i for i, axis in enumerate(scope.axes) if any(uses(f, axis) for f in share.factors))
        variables = append(up.apply_range(self._project(scope, used)), bound, len(used))
        axes = (*(scope.axes[i] for i in used), share.factors_axis)
        inner = Scope(s.points.identity(), variables, axes, up.apply_range(scope.origin))

        def attempt(order: tuple[tuple[Ref, bool], ...]) -> None:
            for (ref, root), wanted in zip(order, share.factors, strict=True):
                self._leaf(ref, s.over(ref.path, root), wanted, inner)

        first_that_holds(permutations([(p.ref, p.root) for p in s.factors]), attempt)

    # ------------------------------------------------------------------ leaves

    def _leaf(self, ref: Ref, path: UnionMap, spec: SpecTerm, scope: Scope) -> None:
        """Match a term once over its own instances; then compare its variables with those of the summand's points."""
        path, spec = path.intersect_domain(scope.roots), strip(spec)
        if isinstance(spec, Elem):
            mine = path.apply_range(self._cells(ref.term, spec.obj, path))
            wanted = scope.variables.apply_range(self.index(spec, scope))
        else:
            used = tuple(i for i, axis in enumerate(scope.axes) if uses(spec, axis))
            spec = renumbered(spec, {scope.axes[i]: position for position, i in enumerate(used)})
            wanted = self._project(scope, used)
            variables = self._variables(ref.term, path, spec, len(used))
            if variables is None:
                if not scope.roots.is_subset(path.domain()):
                    raise Mismatch("a weight or a value that is not known everywhere")
                here = Scope(path, wanted.coalesce(), tuple(range(len(used))), scope.origin)
                self.once(ref.term, spec, here, partial(self.compare, ref.term))
                return
            mine = path.apply_range(variables)
        wrong = wanted.intersect_domain(scope.roots).subtract(mine).domain()
        if not wrong.is_empty() or not mine.is_single_valued():
            raise Mismatch("a weight or a value is of another place than specified", wrong.apply(scope.origin))

    def _variables(self, term: Term, path: UnionMap, spec: SpecTerm, count: int) -> UnionMap | None:
        """Return {instance of a term -> V[...]}, the variables for which the specified term equals it.

        The variables follow from loads that the specification indexes by them, where the loads are inside of their
        tensors. Return None if there is no such load.
        """
        key = (id(term), spec)
        if key not in self._leaves:
            places = [[m for e in elements_of(spec) for m in markers(e, axis)] for axis in range(count)]
            read = [[found for m in each for found in self._marked_by(term, m, path)] for each in places]
            if not read or not all(read):
                return None

            def attempt(each: tuple[UnionMap, ...]) -> UnionMap:
                variables = each[0].apply_range(isl.UnionMap("{ [k] -> V[k] }"))
                for axis, found in enumerate(each[1:], 1):
                    variables = append(variables, found, axis)
                there = variables.domain()
                self.compare(term, spec, Scope(there.identity(), variables, tuple(range(count)), there.identity()))
                return variables

            self._leaves[key] = first_that_holds(product(*read), attempt)
        return self._leaves[key]

    def _marked_by(self, term: Term, marker: Marker, path: UnionMap) -> list[UnionMap]:
        """Return {instance -> [value of a variable]} for each load in a term that may be the marker's element."""
        key = (id(term), marker)
        if key not in self._marked:
            found = marked(term, marker, self._domain(path).identity())
            self._marked[key] = [each.coalesce() for each in found]
        return self._marked[key]

    def _cells(self, term: Term, tensor: str, path: UnionMap) -> UnionMap:
        """Return {instance of a term -> the cell of `tensor` that it holds}, where it holds one."""
        key = (id(term), tensor)
        if key not in self._loaded_cells:
            self._loaded_cells[key] = _loaded(term, tensor, self._domain(path).identity())
        found = self._loaded_cells[key]
        if found is None:
            raise Mismatch(f"a value that is not an element of '{tensor}' as specified")
        return found

    def _domain(self, path: UnionMap) -> UnionSet:
        """Return all instances of the statements that a path leads to."""
        domain = empty_set()
        for part in map_parts(path):
            site = self.model.sites[int(str(part.range().get_tuple_name())[1:])]
            domain = domain.union(self.model.domain(site)[0].to_union_set())
        return domain


# ---------------------------------------------------------------------------- terms


def _fraction(term: Term, path: UnionMap) -> list[tuple[UnionSet, list[Ref], list[Ref]]]:
    """Split a term into parts: the points of each, its factors, and its divisors."""
    match term:
        case Via(along=along, term=inner):
            return _fraction(inner, path.apply_range(along))
        case Cases(parts=parts):
            limited = [(path.intersect_range(region), inner) for region, inner in parts]
            return [found for p, inner in limited if not p.is_empty() for found in _fraction(inner, p)]
        case Constant(value=1):
            return [(path.domain(), [], [])]
        case Apply(op="mul" | "truediv" as op, args=(a, b)):
            found = []
            for points, up, down in _fraction(a, path):
                for others, over, under in _fraction(b, path):
                    both = points.intersect(others)
                    more, less = (over, under) if op == "mul" else (under, over)
                    if not both.is_empty():
                        found.append((both, up + more, down + less))
            return found
        case _:
            return [(path.domain(), [Ref(term, path)], [])]


def _divisor(divisors: list[Ref]) -> tuple[Ref, bool]:
    """Return the sum that is divided by, and whether another number replaces it where it is 0."""
    if len(divisors) != 1:
        text = "the weights are not divided by their sum" if not divisors else "there are several divisors"
        raise Mismatch(text)
    heads = _heads(divisors[0])
    if len(heads) != 1:
        return divisors[0], False
    match heads[0].term:
        case Choice(test=test, yes=yes, no=no):
            pass
        case _:
            return divisors[0], False
    match compared_with(test, 0.0):
        case ("eq" | "le", total):  # sums of weights are not negative
            empty, used = yes, no
        case ("ne" | "gt", total):
            empty, used = no, yes
        case _:
            return divisors[0], False
    if not isinstance(empty, Constant) or not empty.value or math.isnan(empty.value) or not _same_term(total, used):
        raise Mismatch("the divisor is not the sum of weights where that is not 0")
    return Ref(used, heads[0].path), True


def _heads(ref: Ref) -> list[Ref]:
    """Return the terms behind a reference, at the instances that compute them: follow `Via`, and split `Cases`."""
    match ref.term:
        case Via(along=along, term=inner):
            return _heads(Ref(inner, ref.path.apply_range(along)))
        case Cases(parts=parts):
            limited = [Ref(inner, ref.path.intersect_range(region)) for region, inner in parts]
            return [head for each in limited if not each.path.is_empty() for head in _heads(each)]
        case _:
            return [ref]


def _logarithm(form: Linear, factor: float) -> tuple[Monomial, Ref]:
    """Return the logarithm in a linear form, and its operand."""
    bases = {"log": 1.0, "log2": 1 / math.log(2)}
    for m in form.terms:
        match m.ref:
            case Ref(term=Apply(op=op, args=(inner,)), path=path) if op in bases and not m.scalars:
                if not close(m.factor * bases[op], factor):
                    raise Mismatch("the logarithm of the sum is multiplied by another factor than specified")
                return m, Ref(inner, path.intersect_domain(form.points))
            case _:
                pass
    raise Mismatch("what is specified is the logarithm of a sum of exponentials, and this is none")


def _require_same(above: Shift | None, below: Shift | None) -> None:
    if above is None or below is None:
        return
    same = one_image(above.made.union(below.made))
    if not same:
        both = above.made.domain().intersect(below.made.domain())
        same = above.made.intersect_domain(both).is_equal(below.made.intersect_domain(both))
    if not (alike(above, below) and same):
        raise Mismatch(
            "what is divided and the sum that it is divided by are relative to different maxima: "
            "one of them is not rescaled with the other"
        )


def _same_term(a: Term, b: Term) -> bool:
    """Return True if two terms have the same form over the same statement instances."""
    match a, b:
        case Via(), Via():
            return bool(a.along.is_equal(b.along)) and _same_term(a.term, b.term)
        case Cases(), Cases():
            return len(a.parts) == len(b.parts) and all(
                bool(r.is_equal(s)) and _same_term(t, u) for (r, t), (s, u) in zip(a.parts, b.parts, strict=True)
            )
        case Reduce(), Reduce():
            alike = a.op == b.op and len(a.parts) == len(b.parts) and _same_term(a.start, b.start)
            return alike and all(
                bool(m.is_equal(n)) and _same_term(t, u) for (m, t), (n, u) in zip(a.parts, b.parts, strict=True)
            )
        case Constant(), Constant():
            return a.value == b.value
        case Load(), Load():
            return a.tensor == b.tensor and bool(a.cells.is_equal(b.cells))
        case _:
            return a is b


def _loaded(term: Term, tensor: str, path: UnionMap) -> UnionMap | None:
    """Return {point -> cell of `tensor`} of a term that is its element, or padding, which is left out; else None."""
    match term:
        case Load(tensor=name, cells=cells) if name == tensor:
            return path.apply_range(cells)
        case Via(along=along, term=inner):
            return _loaded(inner, tensor, path.apply_range(along))
        case Cases(parts=parts):
            each = [_loaded(t, tensor, path.intersect_range(r)) for r, t in parts if not isinstance(t, Constant)]
            found = empty_map()
            for one in each:
                if one is None:
                    return None
                found = found.union(one)
            return found
        case _:
            return None


def _number(factor: float, scalars: tuple[str, ...]) -> str:
    return " * ".join([f"{factor:.6g}", *(f"'{name}'" for name in scalars)])
