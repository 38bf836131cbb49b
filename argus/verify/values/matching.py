"""Matching of a kernel's terms with a specification's.

The matcher walks both together. A load must come from the specified cell for every instance; a reduction must collect
every value of its bound variable exactly once, or at least once if repeats do not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import permutations, product
from math import isnan

from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, Op, Param, op, rewrite, walk
from argus.ir.nodes import SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.spec_terms import (
    described,
    elements_of,
    exact_indices,
    identity,
    nested,
    renumbered,
    rounds_in,
    strip,
    uses,
)
from argus.ir.types import boolean
from argus.verify.model.isl import UnionMap, UnionSet, empty_map, empty_set, isl
from argus.verify.model.program import loaded
from argus.verify.model.translator import NonAffine, identifier
from argus.verify.values.contributions import bounds, contributions, index_data
from argus.verify.values.numbers import Numbers
from argus.verify.values.rounding import rounds
from argus.verify.values.scope import Mismatch, Scope, append, first_that_holds
from argus.verify.values.terms import (
    FLIPPED,
    Again,
    Apply,
    Cases,
    Choice,
    Constant,
    Index,
    Load,
    Opaque,
    Parameter,
    Recurrence,
    Reduce,
    Term,
    TermBuilder,
    Via,
    operation,
)

IDEMPOTENT = ("maximum", "minimum")
"""Reductions whose value does not depend on how often a term contributes."""


class Matcher:
    """Walks a term and a specification together."""

    def __init__(self, builder: TermBuilder) -> None:
        self.builder = builder
        self.model = builder.model
        self.numbers = Numbers()
        self._loaded = loaded(builder.model.sites)
        self._kept: list[Term] = []
        self._matched: dict[tuple[int, SpecTerm], tuple[Term, UnionSet]] = {}
        """Known matches: (identity of a term, specification) -> (term, the [instance -> V[...]] that match)."""
        self._differing: dict[tuple[int, SpecTerm], tuple[Term, UnionSet, Mismatch]] = {}
        """Known mismatches, by the same keys: a set of [instance -> V[...]] that do not all match, and the reason."""

    def as_variables(self, cells: isl.Map) -> UnionMap:
        """Return {store instance -> V[output coordinates]}."""
        return cells.set_tuple_name(isl.dim_type.out, "V").to_union_map()

    # ------------------------------------------------------------------ terms

    def match(self, term: Term, spec: SpecTerm, scope: Scope) -> None:
        """Raise `Mismatch` unless the term equals the specification for every root."""
        if scope.roots.is_empty():
            return
        choice = self._by_indices(spec, scope)
        if choice is not None:
            inside, yes, no = choice
            self.match(term, yes, scope.restricted(inside))
            self.match(term, no, scope.restricted(scope.roots.subtract(inside)))
            return
        match term:
            case Via(along=along, term=inner):
                path = scope.path.apply_range(along)
                lost = scope.roots.subtract(path.domain())
                if not lost.is_empty():
                    raise Mismatch("a value that nothing wrote takes part", scope.origins(lost))
                self.match(inner, spec, replace(scope, path=path))
            case Cases(parts=parts):
                self._cases(parts, spec, scope)
            case Recurrence(term=inner):
                self.match(inner, spec, scope)
            case Again():
                raise Mismatch("a value carried from one iteration to the next by other than accumulation")
            case Opaque(reason=reason):
                raise Mismatch(reason)
            case _:
                self._form(term, spec, scope)

    def compare(self, term: Term, spec: SpecTerm, scope: Scope) -> None:
        """Match a term on its own, without regard to any match around it."""
        self.match(term, spec, scope)

    def numbered(self, spec: SpecTerm, scope: Scope) -> SpecTerm:
        """Apply `_numbered` to all conditions and indices in a specified term."""

        def expression(e: Expr) -> Expr | None:
            match e:
                case Op(op="where", args=(condition, yes, no)):
                    return replace(e, args=(self._numbered(condition, scope), yes, no))
                case Elem(index=index):
                    return replace(e, index=tuple(self._numbered(i, scope) for i in index))
                case _:
                    return None

        match spec:
            case SpecReduce(body=body):
                return replace(spec, body=self.numbered(body, scope))
            case SpecSoftmax(at=at, score=score):
                return replace(spec, at=self._numbered(at, scope), score=self.numbered(score, scope))
            case SpecOp(op="where", args=(condition, *rest)) if isinstance(condition, Op):
                chosen = self._numbered(condition, scope)
                return replace(spec, args=(chosen, *(self.numbered(a, scope) for a in rest)))
            case SpecOp(args=args):
                return replace(spec, args=tuple(self.numbered(a, scope) for a in args))
            case _:
                return rewrite(spec, expression)

    def _holding(self, condition: SpecTerm, scope: Scope) -> UnionSet:
        """Return the roots for which a condition on indices holds."""
        if isinstance(condition, (SpecOp, SpecReduce, SpecSoftmax)):
            raise Mismatch("a choice by a reduction")
        domain, coords = self._names(scope)
        text = self.model.translator.condition(condition, coords)
        holds = self.model.parse_set(f"{{ V[{domain}] : {text} }}").to_union_set()
        return scope.variables.intersect_range(holds).domain().intersect(scope.roots)

    def _by_indices(self, spec: SpecTerm, scope: Scope) -> tuple[UnionSet, SpecTerm, SpecTerm] | None:
        """Return, for a choice by a condition on indices, the roots where it holds and both sides; otherwise None.

        A condition that is computed modulo 2^32 is matched like one on data, because where it holds is unknown.
        """
        spec = strip(spec)
        if not isinstance(spec, (Op, SpecOp)) or spec.op != "where":
            return None
        condition, yes, no = spec.args
        if not isinstance(condition, (SpecOp, SpecReduce, SpecSoftmax)):
            condition = self._numbered(condition, scope)
        if elements_of(condition):
            return None
        if not isinstance(condition, (SpecOp, SpecReduce, SpecSoftmax)) and _modular(condition):
            return None
        return self._holding(condition, scope), yes, no

    def _numbered(self, expr: Expr, scope: Scope) -> Expr:
        """Replace each integer that the block loads once by the parameter that stands for it (`program.resolved`)."""
        if not self._loaded:
            return expr
        domain, coords = self._names(scope)

        def known(index: Expr) -> bool:
            """Return True if an index depends on no variable of a reduction within the term."""
            return all(e.axis < len(coords) for e in walk(index) if isinstance(e, Coord))

        def change(e: Expr) -> Expr | None:
            if not isinstance(e, Elem) or not e.dtype.is_int or not all(map(known, e.index)):
                return None
            for place, name in self._loaded.items():
                if place.obj == e.obj and not any(map(elements_of, e.index)):
                    same = (op("eq", i, j) for i, j in zip(e.index, place.index, strict=True))
                    text = " and ".join(self.model.translator.condition(each, coords) for each in same) or "true"
                    there = self.model.parse_set(f"{{ V[{domain}] : {text} }}").to_union_set()
                    if scope.roots.is_subset(scope.variables.intersect_range(there).domain()):
                        return Param(name, e.dtype)
            return None

        return rewrite(expr, change)

    def _cases(self, parts: tuple[tuple[UnionSet, Term], ...], spec: SpecTerm, scope: Scope) -> None:
        rest = scope.roots
        for region, inner in parts:
            here = scope.path.intersect_range(region).domain()
            self.match(inner, spec, scope.restricted(here))
            rest = rest.subtract(here)
        if not rest.is_empty():
            raise Mismatch("a value that nothing wrote takes part", scope.origins(rest))

    def _form(self, term: Term, spec: SpecTerm, scope: Scope) -> None:
        spec = strip(spec)
        match term, spec:
            case Load(), Elem():
                self._load(term, spec, scope)
            case Choice(), _:
                self._choice(term, spec, scope)
            case Index(), _ if exact_indices(spec):
                self._index(term, spec, scope)
            case Constant(value=value), Const(value=wanted):
                if value != wanted and not (isnan(value) and isnan(wanted)):
                    raise Mismatch(f"the constant {value} where the specification has {wanted}")
            case Parameter(name=name), Param(name=wanted_name):
                if name != wanted_name:
                    raise Mismatch(f"'{name}' where the specification has '{wanted_name}'")
            case Reduce(), SpecReduce():
                self._reduce(term, spec, scope)
            case Apply(), Op() | SpecOp():
                self._apply(term, spec, scope)
            case Apply(op=op), SpecReduce() if op == spec.op:
                self._together(term, spec, scope)
            case Reduce(op=op), Op() | SpecOp() if op == spec.op:
                self._accumulated(term, spec, scope)
            case _:
                raise Mismatch(f"{_describe(term)} where the specification has {described(spec)}")

    def _choice(self, term: Choice, spec: SpecTerm, scope: Scope) -> None:
        """Match a choice: its test is a given condition, or equals the specified one, or both of its sides match."""
        if any(self._same(term.test, condition, scope) for condition in scope.given):
            self.match(term.yes, spec, scope)
            return
        match spec:
            case Op(op="where", args=(condition, yes, no)) | SpecOp(op="where", args=(condition, yes, no)):
                self.match(term.test, condition, scope)
                self.match(term.yes, yes, replace(scope, given=(*scope.given, condition)))
                self.match(term.no, no, scope)
            case _:  # both sides must equal the specification
                self.match(term.yes, spec, scope)
                self.match(term.no, spec, scope)

    def _same(self, test: Term, condition: SpecTerm, scope: Scope) -> bool:
        try:
            self.match(test, condition, scope)
        except Mismatch:
            return False
        return True

    def _apply(self, term: Apply, spec: Op | SpecOp, scope: Scope) -> None:
        floats = spec.dtype == boolean and any(a.dtype.is_float for a in spec.args)
        if floats and (rounds_in(spec) or rounds(self.builder, term)):
            raise Mismatch("a choice by numbers that may be rounded")
        specified = operation(spec.op, spec.args[0].dtype, spec.dtype)
        operator, _, kind = specified.partition(" ")
        if f"{FLIPPED.get(operator)} {kind}".strip() == term.op != specified:
            term = Apply(specified, term.args[::-1])
        if term.op != specified or len(term.args) != len(spec.args):
            raise Mismatch(f"'{term.op}' where the specification has '{specified}'")
        try:
            for mine, wanted in zip(term.args, spec.args, strict=True):
                self.match(mine, wanted, scope)
        except Mismatch as straight:
            if not OPERATORS[spec.op].commutative:
                raise
            try:
                for mine, wanted in zip(reversed(term.args), spec.args, strict=True):
                    self.match(mine, wanted, scope)
            except Mismatch:
                raise straight from None

    def _accumulated(self, term: Reduce, spec: Op | SpecOp, scope: Scope) -> None:
        """Match `x += y`, run once for each element, with the operands of the specified operator in any order."""
        once: list[Via] = []
        rest: list[tuple[UnionMap, Term]] = []
        for along, inner in term.parts:
            reached = scope.path.apply_range(along)
            if reached.is_single_valued() and scope.roots.is_subset(reached.domain()):
                once.append(Via(along, inner))
            elif not reached.is_empty():
                rest.append((along, inner))
        mine = [Reduce(term.op, term.start, tuple(rest)) if rest else term.start, *once]
        wanted: list[SpecTerm] = [spec]
        while len(wanted) < len(mine) and isinstance(head := strip(wanted[0]), (Op, SpecOp)) and head.op == spec.op:
            wanted = [*head.args, *wanted[1:]]
        sums = [each for each in wanted if isinstance(each, SpecReduce) and each.op == term.op]
        if len(wanted) < len(mine) and len(sums) == 1:
            others = [each for each in wanted if each is not sums[0]]
            self._beside(term, (once, rest), (sums[0], others), scope)
            return
        if not once or len(wanted) != len(mine):
            raise Mismatch(f"a reduction by '{term.op}' of other terms than '{spec.op}' has in the specification")
        self._kept += mine  # keep the terms alive: results are stored by their `id`

        for each in mine:  # take the first operand that it equals: all operands that it equals are equal
            wanted.pop(self._place(each, wanted, scope))

    def _place(self, term: Term, wanted: list[SpecTerm], scope: Scope) -> int:
        """Return the first position in `wanted` at which the specified term equals this one."""

        def attempt(place: int) -> int:
            self.match(term, wanted[place], scope)
            return place

        return first_that_holds(range(len(wanted)), attempt)

    def _beside(
        self, term: Reduce, parts: tuple[list[Via], list[tuple[UnionMap, Term]]],
        wanted: tuple[SpecReduce, list[SpecTerm]], scope: Scope,
    ) -> None:  # fmt: skip
        """Match a specified reduction and its sibling operands: these are terms added once for each element."""
        once, rest = parts
        first: Mismatch | None = None
        for chosen in permutations(range(len(once)), len(wanted[1])):
            left = [(via.along, via.term) for number, via in enumerate(once) if number not in chosen]
            inner = Reduce(term.op, term.start, (*rest, *left))
            self._kept += [inner, *once]
            try:
                for number, other in zip(chosen, wanted[1], strict=True):
                    self.match(once[number], other, scope)
                self.match(inner, wanted[0], scope)
                return
            except Mismatch as mismatch:
                first = first or mismatch
        raise first or Mismatch(f"a reduction by '{term.op}' of fewer terms than the specification has")

    def _load(self, term: Load, spec: Elem, scope: Scope) -> None:
        if term.tensor != spec.obj:
            raise Mismatch(f"an element of '{term.tensor}' where the specification has one of '{spec.obj}'")
        arrived = scope.path.apply_range(term.cells)
        wanted = scope.variables.apply_range(self.index(spec, scope))
        wrong = arrived.subtract(wanted).domain().union(wanted.intersect_domain(scope.roots).subtract(arrived).domain())
        if not wrong.is_empty():
            raise Mismatch(f"an element of '{spec.obj}' at other coordinates than specified", scope.origins(wrong))

    def _index(self, term: Index, spec: SpecTerm, scope: Scope) -> None:
        assert not isinstance(spec, (SpecOp, SpecReduce, SpecSoftmax))
        domain, coords = self._names(scope)
        try:
            text = self.model.translator.integer(spec, coords)
        except NonAffine as error:
            raise Mismatch(f"an index of which {error}") from None
        values = self.model.parse_map(f"{{ V[{domain}] -> [{text}] }}").to_union_map()
        arrived, wanted = scope.path.apply_range(term.values), scope.variables.apply_range(values)
        wrong = arrived.subtract(wanted).domain().union(wanted.intersect_domain(scope.roots).subtract(arrived).domain())
        if not wrong.is_empty():
            raise Mismatch("an index that is another number than specified", scope.origins(wrong))

    def _names(self, scope: Scope) -> tuple[str, tuple[str, ...]]:
        """Return the names of the dimensions of V[...], and the name or number that stands for each coordinate."""
        names = {axis: f"v{position}" for position, axis in enumerate(scope.axes)}
        coords = tuple(names.get(axis, "0") for axis in range(max((*scope.axes, -1)) + 1))
        return ", ".join(names[axis] for axis in scope.axes), coords

    def index(self, spec: Elem, scope: Scope) -> UnionMap:
        """Return {V[...] -> cell} of a specified element."""
        domain, coords = self._names(scope)
        spec = replace(spec, index=tuple(self._numbered(e, scope) for e in spec.index))
        images = [None if isinstance(e, Elem) else self.model.translator.image(e, coords) for e in spec.index]
        if any(image is None or image.startswith("function_") for image in images):
            return self._indirect(spec, domain, coords)
        texts = ", ".join(self.model.translator.integer(e, coords) for e in spec.index)
        return self.model.parse_map(f"{{ V[{domain}] -> {identifier(spec.obj)}[{texts}] }}").to_union_map()

    def _indirect(self, spec: Elem, domain: str, coords: tuple[str, ...]) -> UnionMap:
        """Return {V[...] -> cell} through index tensors, in the form of `TagAnalysis.indirect_cells`."""
        result: UnionMap | None = None
        for index in spec.index:
            if isinstance(index, Elem):
                inner = ", ".join(self.model.translator.integer(e, coords) for e in index.index)
                image = f"{index_data(index.obj)}[{inner}]"
            else:
                image = self.model.translator.image(index, coords)
            part = self.model.parse_map(f"{{ V[{domain}] -> {image} }}").to_union_map()
            result = part if result is None else result.range_product(part)
        assert result is not None
        return result

    # ------------------------------------------------------------------ reductions

    def _reduce(self, term: Reduce, spec: SpecReduce, scope: Scope) -> None:
        def decide(spec: SpecTerm, scope: Scope) -> None:
            assert isinstance(spec, SpecReduce)
            counted = self.counted(term, spec, scope)
            self.exactly_once(counted, self._wanted(spec, scope), spec.op in IDEMPOTENT, scope)

        self.once(term, spec, scope, decide)

    def once(self, term: Term, spec: SpecTerm, scope: Scope, decide: Callable[[SpecTerm, Scope], None]) -> None:
        """Run `decide` once for each instance of the term and values of the variables that the specification uses,
        because many roots share a sum. `decide` raises `Mismatch` if they differ."""
        used = [i for i, axis in enumerate(scope.axes) if uses(spec, axis)]
        own = renumbered(spec, {scope.axes[i]: position for position, i in enumerate(used)})
        asked = scope.path.range_product(scope.variables.apply_range(_chosen(len(scope.axes), used)))
        key = (id(term), own)
        _, matched = self._matched.get(key, (term, empty_set()))
        roots = asked.range().subtract(matched)
        if roots.is_empty():
            return
        failed = self._differing.get(key)
        if failed is not None and failed[1].is_subset(roots):
            raise failed[2]
        pairs, origin = roots.unwrap(), asked.reverse().intersect_domain(roots).apply_range(scope.origin)
        try:
            decide(own, Scope(pairs.domain_map(), pairs.range_map(), tuple(range(len(used))), origin))
        except Mismatch as found:
            self._differing[key] = (term, roots, found)
            raise
        self._matched[key] = (term, matched.union(roots))

    def _together(self, term: Apply, spec: SpecReduce, scope: Scope) -> None:
        """Match an operator applied to partial reductions: each value of the bound variable must count in one part."""
        itself, start = scope.path.range().identity(), Constant(identity(nested(spec)[-1]))
        counted = empty_map()
        for part in _operands(term):
            more = self.counted(Reduce(spec.op, start, ((itself, part),)), spec, scope)
            twice = more.domain().intersect(counted.domain())
            if spec.op not in IDEMPOTENT and not twice.is_empty():
                roots = twice.unwrap().domain()
                raise Mismatch("a term of the reduction is in two of its parts", scope.origins(roots))
            counted = counted.union(more)
        self.exactly_once(counted, self._wanted(spec, scope), spec.op in IDEMPOTENT, scope)

    def _wanted(self, spec: SpecReduce, scope: Scope) -> UnionMap:
        """Return {root -> [k]} of the specified terms, without those that a choice replaces by the identity element."""
        every, sums = isl.UnionMap.from_domain_and_range(scope.roots, self.values(spec)), nested(spec)
        body = strip(sums[-1].body)
        if not (isinstance(body, (Op, SpecOp)) and body.op == "where"):
            return every
        variables = every.domain_map().apply_range(scope.variables)
        terms = append(variables, every.range_map(), len(scope.axes), len(sums))
        of_each = Scope(every.domain_map(), terms, (*scope.axes, *(s.axis for s in sums)), scope.origin)
        match self._by_indices(body, of_each):
            case holding, _, Const(value=value) if float(value) == identity(sums[-1]):
                return holding.unwrap()
            case _:
                return every

    def counted(self, term: Reduce, spec: SpecReduce, scope: Scope) -> UnionMap:
        """Return {[root -> k] -> contribution}: each contribution belongs to one value k of the bound variable.

        Nested sums count as one sum over all of their variables; k then stands for all of these, outermost first.
        """
        if term.op != spec.op:
            raise Mismatch(f"a reduction by '{term.op}' where the specification has '{spec.op}'")
        sums = nested(spec)
        axes = (*scope.axes, *(s.axis for s in sums))
        pieces = contributions(self.numbers, term, scope, identity(sums[-1]))
        counted = empty_map()  # {[root -> k] -> contribution}
        for leaf, up, inner in pieces:
            variables = up.apply_range(scope.variables)
            candidates = product(*(bounds(inner, sums[-1].body, s.axis, leaf) for s in sums))

            def attempt(
                each: tuple[UnionMap, ...], leaf: Scope = leaf, inner: Term = inner, variables: UnionMap = variables
            ) -> UnionMap:
                bound = reduce(UnionMap.flat_range_product, each)
                extended = append(variables, bound, len(scope.axes), len(sums))
                self.compare(inner, sums[-1].body, replace(leaf, variables=extended, axes=axes))
                return bound

            bound = first_that_holds(candidates, attempt)
            counted = counted.union(up.range_product(bound).reverse())
        return counted

    def exactly_once(self, counted: UnionMap, wanted: UnionMap, idempotent: bool, scope: Scope) -> None:
        """Raise `Mismatch` unless exactly the `wanted` {root -> [k]} contribute, each once unless `idempotent`.

        `counted`: {[root -> k] -> contribution}.
        """
        arrived = counted.domain().unwrap().coalesce() if not counted.is_empty() else empty_map()
        missing = wanted.subtract(arrived).domain()
        if not missing.is_empty():
            missing = missing.intersect_params(self.model.context.defined)
        if not missing.is_empty():
            raise Mismatch("a term of the reduction is missing", scope.origins(missing))
        extra = arrived.subtract(wanted).domain()
        if not extra.is_empty():
            raise Mismatch("the reduction has a term too many", scope.origins(extra))
        if not idempotent and not counted.is_single_valued():
            pairs = counted.reverse().apply_range(counted)
            distinct = pairs.subtract(pairs.domain().union(pairs.range()).identity())
            roots = distinct.domain().apply(counted.reverse()).unwrap().domain()
            raise Mismatch("a term of the reduction contributes more than once", scope.origins(roots))

    def values(self, spec: SpecReduce) -> UnionSet:
        """Return the set of all [k], the values of a bound variable; of nested sums, [k, ...] of all variables."""
        extents = {f"k{s.axis}": self.model.translator.integer(s.extent, ()) for s in nested(spec)}
        bounds = " and ".join(f"0 <= {name} < {extent}" for name, extent in extents.items())
        return self.model.parse_set(f"{{ [{', '.join(extents)}] : {bounds} }}").to_union_set()


def _chosen(count: int, used: list[int]) -> UnionMap:
    """Return {V[v0, ..., v(count - 1)] -> V[the used ones]}."""
    names = [f"v{i}" for i in range(count)]
    return isl.UnionMap(f"{{ V[{', '.join(names)}] -> V[{', '.join(names[i] for i in used)}] }}")


def _operands(term: Term, op: str | None = None) -> list[Term]:
    """Return the operands of an operator; nested uses of the same operator are flattened."""
    if isinstance(term, Apply) and term.op == (op or term.op):
        return [operand for arg in term.args for operand in _operands(arg, term.op)]
    return [term]


def _describe(term: Term) -> str:
    match term:
        case Load(tensor=tensor):
            return f"an element of '{tensor}'"
        case Constant(value=value):
            return f"the constant {value}"
        case Index():
            return "an index"
        case Parameter(name=name):
            return f"'{name}'"
        case Apply(op=op):
            return f"'{op}'"
        case Reduce(op=op):
            return f"a reduction by '{op}'"
        case _:
            return "a value without a term"


def _modular(condition: Expr) -> bool:
    return any(isinstance(e, Op) and e.dtype.modular for e in walk(condition))
