"""Decide if a kernel's term equals a specified one. Both are sums of products, which are compared product by product.

Every product of one side is compared with those of the other side: the loads of an instance determine the specified
instance, and the other factors are compared there. At each specified instance, the factors of all arriving products add
up to the specified factor. Atoms are compared separately: elements by their cells, functions by their arguments,
choices by the terms that they compare. Integers are not rounded, so the same comparison is exact for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import isfinite, isnan

from argus.ir.expr import REDUCTIONS, conjuncts
from argus.ir.nodes import Assume, Requires
from argus.verify.model.isl import UnionMap, UnionSet, empty_set, explicit, merged
from argus.verify.model.translator import NonAffine
from argus.verify.values.atoms import Atoms
from argus.verify.values.bits import BITS, simplified
from argus.verify.values.elementwise import Leaves, Parted, elementwise
from argus.verify.values.functions import described
from argus.verify.values.linear import EmptyRow
from argus.verify.values.pointwise import equal
from argus.verify.values.products import Without
from argus.verify.values.rounding import rounds
from argus.verify.values.scope import MOST, Mismatch, Scope, close
from argus.verify.values.summands import Summand, hulls, tensors
from argus.verify.values.term_builder import TermBuilder
from argus.verify.values.terms import Apply, Cases, Constant, Index, Load, Opaque, Parameter, Reduce, Term, Via

_ASSOCIATIVE = (*REDUCTIONS, "and", "or", "xor")
"""Operators that may be applied to several operands in any order."""


@dataclass
class _Matched:
    """Pairs of instances at which two terms were found equal or different, with the reason for a difference."""

    equal: UnionSet = field(default_factory=empty_set)
    differing: tuple[UnionSet, Mismatch] | None = None


class Comparison(Atoms):
    """Compares terms, and remembers the result of each comparison."""

    def __init__(self, builder: TermBuilder) -> None:
        super().__init__(builder)
        self._odd: set[tuple[Term, Term]] = set()
        """Pairs of terms that are not known to be equal functions of elements."""
        stated = (p.cond for p in builder.model.kernel.preconditions if isinstance(p, (Requires, Assume)))
        self._facts = [fact for condition in stated for fact in conjuncts(condition)]
        """What preconditions say of scalars."""
        self._matched: dict[tuple[Term, Term, Without | None, bool], _Matched] = {}

    def match(self, mine: Term, wanted: Term, scope: Scope) -> None:
        """Raise `Mismatch` unless both terms are equal for every root."""
        if scope.roots.is_empty():
            return
        match wanted:
            case Via(along=along, term=inner):
                self.match(mine, inner, replace(scope, other=scope.other.apply_range(along)))
                return
            case Cases(parts=parts):
                for region, inner in parts:
                    self.match(mine, inner, scope.restricted(scope.other.intersect_range(region).domain()))
                return
        match mine:
            case Via(along=along, term=inner):
                path = scope.path.apply_range(along)
                self._require_written(scope.roots.subtract(path.domain()), scope)
                self.match(inner, wanted, replace(scope, path=path))
            case Cases(parts=parts):
                rest = scope.roots
                for region, inner in parts:
                    here = scope.path.intersect_range(region).domain()
                    self.match(inner, wanted, scope.restricted(here))
                    rest = rest.subtract(here)
                self._require_written(rest, scope)
            case Opaque(reason=reason):
                raise Mismatch(reason)
            case _:
                self._form(mine, wanted, scope)

    def _require_written(self, lost: UnionSet, scope: Scope) -> None:
        if not lost.is_empty():
            raise Mismatch("a value that nothing wrote takes part", scope.origins(lost))

    def _form(self, mine: Term, wanted: Term, scope: Scope) -> None:
        if any(isinstance(t, Apply) and t.op in BITS for t in (mine, wanted)):
            kernel = self.model.kernel
            simple = simplified(mine, scope.path, kernel), simplified(wanted, scope.other, kernel)
            if simple[0] is not mine or simple[1] is not wanted:
                self.match(*simple, scope)
                return
        match mine, wanted:
            case _, Opaque(reason=reason):
                raise Mismatch(reason)
            case Constant(value=value), Constant(value=number):
                rounded = isfinite(value) and isfinite(number) and close(value, number)
                if not (value == number or rounded or (isnan(value) and isnan(number))):
                    raise Mismatch(f"the constant {value} where the specification has {number}")
            case Parameter(name=name), Parameter(name=other):
                if name != other:
                    raise Mismatch(f"'{name}' where the specification has '{other}'")
            case Load(tensor=tensor, cells=cells), Load(tensor=other, cells=others):
                if tensor != other:
                    raise Mismatch(f"an element of '{tensor}' where the specification has one of '{other}'")
                self._same(cells, others, scope, f"an element of '{tensor}' at other coordinates than specified")
            case Index(values=values), Index(values=others):
                self._same(values, others, scope, "an index that is another number than specified")
            # A specified term has at most as many parts as its text.
            case _ if scope.walking and isinstance(mine, Apply):
                self._walk(mine, wanted, scope)
            case _:
                self.once(mine, wanted, scope)

    def _same(self, cells: UnionMap, others: UnionMap, scope: Scope, text: str) -> None:
        arrived, wanted = scope.path.apply_range(cells), scope.other.apply_range(others)
        wrong = scope.roots.subtract(explicit(arrived.intersect(wanted).domain()))  # Both paths lead to the same cell.
        if not wrong.is_empty():
            raise Mismatch(text, scope.origins(wrong))

    def once(self, mine: Term, wanted: Term, scope: Scope, without: Without | None = None) -> None:
        """Compare terms once for each pair of instances, because many roots share a sum."""
        decide = self._decide if without is None else partial(self._relative, without)
        if scope.given:
            decide(mine, wanted, scope)
            return
        asked = scope.path.range_product(scope.other)
        key = (mine, wanted, without, scope.walking)
        known = self._matched.setdefault(key, _Matched())
        pairs = explicit(asked.range().subtract(known.equal))
        possible = pairs.intersect_params(self.model.context.defined)
        if possible.is_empty():
            return
        if known.differing is not None and known.differing[0].is_subset(pairs):
            raise known.differing[1]
        whole = self._whole(mine, wanted, possible, scope, decide, hull=without is None)
        if whole is not None:
            known.equal = merged(known.equal.union(whole))
            return
        both = pairs.unwrap()
        trail = (*scope.trail, asked.reverse())
        try:
            decide(mine, wanted, Scope(both.domain_map(), both.range_map(), trail, (), scope.walking))
        except Mismatch as found:
            known.differing = pairs, found
            raise
        known.equal = merged(known.equal.union(pairs))

    def _whole(
        self, mine: Term, wanted: Term, pairs: UnionSet, scope: Scope, decide: Callable[..., None], hull: bool
    ) -> UnionSet | None:
        """Return the pairs of instances at which two terms are equal, if they include more than the requested pairs.

        A root often needs an irregular part of a term. The whole term has a simpler description, and other roots need
        it, too.
        """
        for where in islice(self._wider(mine, wanted, pairs, hull), MOST):
            try:
                decide(mine, wanted, Scope(where.domain().identity(), where, (), (), scope.walking))
                return where.wrap()
            except (Mismatch, NonAffine):
                continue
        return None

    def _wider(self, mine: Term, wanted: Term, pairs: UnionSet, hull: bool) -> Iterator[UnionMap]:
        """Yield candidates for {instance -> instance} that contain the given pairs: all pairs that load the same cells,
        and perhaps the hull of the pairs."""
        both = pairs.unwrap()
        every = UnionMap.from_domain_and_range(*(self.builder.instances(each) for each in (both, both.reverse())))
        for where in self._places.of_terms(mine, wanted, every):
            if pairs.is_subset(where.wrap()):
                yield where
        around = hulls(both) if hull else both
        if not around.is_subset(both) and around.is_single_valued():
            yield around

    def _decide(self, mine: Term, wanted: Term, scope: Scope) -> None:
        """Compare terms that have the same form, or otherwise compare them as sums of products."""
        try:
            self._walk(mine, wanted, replace(scope, walking=True))
        except Mismatch as straight:
            if scope.walking and not _sums(mine, wanted):
                raise
            try:
                self._normal(mine, wanted, replace(scope, walking=False))
            except (Mismatch, NonAffine) as found:
                if self._pointwise(mine, wanted, scope):
                    return
                if straight.roots is not None or not isinstance(found, Mismatch):
                    raise straight from None
                raise

    def _walk(self, mine: Term, wanted: Term, scope: Scope) -> None:
        """Compare the operands of two terms in their order, or otherwise in any order that the operator allows."""
        op = _operator(mine, wanted)
        if op is None or (op == "add" and isinstance(wanted, Apply)):
            self.alike(mine, wanted, scope)
            return
        try:
            self.alike(mine, wanted, scope)
        except Mismatch:
            if not scope.given and self.shapes.of(mine) != self.shapes.of(wanted):
                raise
            self.operands(op, mine, wanted, scope)

    def _normal(self, mine: Term, wanted: Term, scope: Scope) -> None:
        """Compare terms as sums of products, also counting a summand as often as a bound variable has values."""
        self._counted_too(partial(self._as_sums, mine, wanted, scope))

    def _pointwise(self, mine: Term, wanted: Term, scope: Scope) -> bool:
        """Return True if two terms are found to be equal functions of equal elements, case by case, or sums of such."""
        sums = isinstance(mine, Reduce) and isinstance(wanted, Reduce) and mine.op == wanted.op == "add"
        key = mine, wanted
        if scope.walking or key in self._odd or not (elementwise(mine) or elementwise(wanted)):
            return False
        self._odd.add(key)
        same = True
        try:
            if sums:
                self.account(*self.contributions_of("add", mine, wanted, scope, False), scope)
            else:
                self._by_parts(mine, wanted, scope)
        except (Mismatch, NonAffine):
            same = False
        finally:
            if same:  # Also if the limit of work ended the comparison: it may be asked again.
                self._odd.remove(key)
        return same

    def _by_parts(self, mine: Term, wanted: Term, scope: Scope) -> None:
        def same(a: Term, path: UnionMap, b: Term, other: UnionMap) -> bool:
            if tensors(a) != tensors(b):
                return False
            try:
                self.match(a, b, Scope(path, other, scope.trail))
            except (Mismatch, NonAffine):
                return False
            return True

        pending, count = [scope.roots], 0
        while pending:
            roots, count = pending.pop(), count + 1
            if count > MOST:
                raise Mismatch("a function of elements that is another one in too many parts")
            leaves = Leaves(same, lambda term: not rounds(self.builder, term))
            try:
                specified = leaves.specified(wanted, scope.other, roots)
                found = leaves.tree(mine, scope.path, roots)
            except Parted as parted:
                pending += [roots.intersect(parted.here), roots.subtract(parted.here)]
                continue
            equal(found, specified, leaves.variables, leaves.stated(self._facts))

    def _counted_too(self, attempt: Callable[[], None]) -> None:
        if self.exponentials.counting:
            attempt()
            return
        self.exponentials.counted = False
        try:
            attempt()
        except Mismatch as straight:
            if not self.exponentials.counted:
                raise
            self.exponentials.counting = True
            try:
                attempt()
            except Mismatch:
                raise straight from None
            finally:
                self.exponentials.counting = False

    def _as_sums(self, mine: Term, wanted: Term, scope: Scope) -> None:
        specified = self.exponentials.sum(wanted, scope.other)
        try:
            found = self.exponentials.sum(mine, scope.path)
        except EmptyRow as error:
            raise Mismatch(error.message, self._logarithms.masked(specified, scope)) from None
        if not (_itself(found, mine) and _itself(specified, wanted)):
            self.account(found, specified, scope)
            return
        op = _operator(mine, wanted)
        straight = self.alike if op is None else partial(self.operands, op)
        self.or_by_difference(straight, mine, wanted, scope)

    def _relative(self, without: Without, mine: Term, wanted: Term, scope: Scope) -> None:
        """Compare sums, or logarithms of sums, without the scale that was taken out of them."""
        match mine, wanted:
            case Apply(op="log", args=(a,)), Apply(op="log", args=(b,)):
                self._relative(without, a, b, scope)
            case (Apply(op="log"), _) | (_, Apply(op="log")):
                raise Mismatch(f"{described(mine)} where the specification has {described(wanted)}")
            case _:
                found, specified = self.exponentials.sum(mine, scope.path), self.exponentials.sum(wanted, scope.other)
                mine_without, wanted_without = without
                rest = self.exponentials.without
                self.account(rest(found, mine_without), rest(specified, wanted_without), scope)


def _operator(mine: Term, wanted: Term) -> str | None:
    """Return the associative operator by which both terms are made."""
    ops = [t.op if isinstance(t, (Apply, Reduce)) else None for t in (mine, wanted)]
    return ops[0] if ops[0] == ops[1] and ops[0] in _ASSOCIATIVE else None


def _sums(mine: Term, wanted: Term) -> bool:
    """Return True if both terms add up what a bound variable or a loop runs over, and perhaps further elements.

    A statement that adds a bias to its accumulator makes one sum of both, which a specification writes as two.
    """
    reduced = (isinstance(t, Reduce) and t.op == "add" for t in (mine, wanted))
    return any(reduced) and _sum(mine) and _sum(wanted)


def _sum(term: Term) -> bool:
    """Return True for a sum over instances, and for its multiples and sums with elements."""
    match term:
        case Reduce(op="add"):
            return True
        case Via(term=inner):
            return _sum(inner)
        case Cases(parts=parts):
            return all(_sum(inner) for _, inner in parts)
        case Apply(op="add" | "mul", args=args):
            return any(map(_sum, args)) and all(_sum(a) or _element(a) for a in args)
        case _:
            return False


def _element(term: Term) -> bool:
    match term:
        case Load() | Constant() | Parameter():
            return True
        case Via(term=inner):
            return _element(inner)
        case Cases(parts=parts):
            return all(_element(inner) for _, inner in parts)
        case _:
            return False


def _itself(found: list[Summand], term: Term) -> bool:
    """Return True if a sum of products consists only of the term from which it was made."""
    if len(found) != 1:
        return False
    (s,) = found
    return len(s.factors) == 1 and s.factors[0].ref.term is term and not (s.divisors or s.scores or s.levels or s.level)
