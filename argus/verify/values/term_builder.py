"""The terms of a kernel's statements, built from the data-flow of its values.

A load is a relation to tensor cells, a reduction a relation to contributing instances. Casts that at most round are
left out."""

from __future__ import annotations

from functools import partial

from argus.ir.expr import APPROXIMATED, REDUCTIONS, Const, Elem, Expr, Op, Param
from argus.ir.nodes import Accumulate, Copy, Map, Mma, SpecOp, SpecReduce, SpecSoftmax, SpecTerm, Tensor
from argus.ir.spec_terms import exact_indices, rounds_in
from argus.ir.types import DType, boolean, float32, rounds_only
from argus.verify.model.flow import sink_name
from argus.verify.model.isl import UnionMap, UnionSet, empty_set, isl, map_parts, union_of_maps, union_of_sets
from argus.verify.model.program import Site
from argus.verify.model.translator import NonAffine, Translator
from argus.verify.values.choices import Condition
from argus.verify.values.conditions import Conditions
from argus.verify.values.data_flow import DataFlow, writes
from argus.verify.values.positive import bounds_of, positive_scalars
from argus.verify.values.ranges import Ranges
from argus.verify.values.results import Results
from argus.verify.values.terms import (
    Again,
    Apply,
    Cases,
    Constant,
    Index,
    Load,
    Opaque,
    Parameter,
    Recurrence,
    Reduce,
    Term,
    Via,
    applied,
    chosen,
    constant_term,
    operation,
)
from argus.verify.values.wrapping import Wrapping

_MODULAR = ("add", "sub", "mul", "neg", "and", "or", "xor", "not")
"""Integer operators for which, for every n, the low n bits of the result depend only on those of the operands."""


class TermBuilder:
    """Builds the term of each statement on demand and keeps it. It uses the data-flow of the tag data."""

    def __init__(
        self, data: DataFlow, unrounded: bool = False, positive: frozenset[str] = frozenset()
    ) -> None:
        """Create a builder. If `unrounded` is true, a conversion to floats that may round becomes `Opaque`.

        `positive`: sizes that are taken to be positive, besides those that are known to be.
        """
        self.data = data
        self._unrounded = unrounded
        self._ordered: TermBuilder | None = None
        self.model = data.model
        self.conditions = Conditions(self.model)
        self.positive = positive_scalars(self.model) | positive
        self._ranges = Ranges(self.model)
        self._wrapping = Wrapping(self.model.kernel)
        self._results = Results(data)
        self._terms: dict[int, Term] = {}
        self._parameters: dict[str, Parameter] = {}
        self._active: set[int] = set()
        self._recurrent: set[int] = set()
        self.places: dict[str, UnionSet] = {}
        """The instances of terms that no statement computes, by name."""

    def stored(self, site: Site, output: str) -> Term:
        """Return the term that a store writes. A signed result of 32 bits or more that may wrap around is `Opaque`."""
        dtype = self.model.kernel.object(output).dtype
        term = self.written(site)
        return self._wrapping.exact(term, dtype) if dtype.bits >= 32 else term

    def instances(self, path: UnionMap) -> UnionSet:
        """Return all instances of the statements that a path starts from."""
        return union_of_sets(self.domain(str(part.get_tuple_name(isl.dim_type.in_))) for part in map_parts(path))

    def domain(self, name: str) -> UnionSet:
        """Return all instances that have some name."""
        if name in self.places:
            return self.places[name]
        return self.model.domain(self.model.sites[int(name[1:])])[0].to_union_set()

    def written(self, site: Site) -> Term:
        """Return the term of the value that a statement writes or contributes, over its instances."""
        if site.index in self._terms:
            return self._terms[site.index]
        if site.index in self._active:
            self._recurrent.add(site.index)
            return Again(site.index)
        self._active.add(site.index)
        try:
            term = self._written(site)
        except NonAffine as error:
            term = Opaque(str(error))
        finally:
            self._active.discard(site.index)
        if site.index in self._recurrent:
            term = Recurrence(site.index, term)
        self._terms[site.index] = term
        return term

    def _written(self, site: Site) -> Term:
        stmt = site.stmt
        match stmt:
            case Copy():
                return self._copy(site, stmt)
            case Map(value=value):
                return self._combined(site, value.dtype) or self.of_expr(site, value)
            case Accumulate(value=value, op=op, mask=mask):
                term = self.of_expr(site, value) if op in _MODULAR else self._widened(site, value)
                return term if mask is None else Cases(((self.data.where(site, mask), term),))
            case Mma():
                dtype = self.model.kernel.object(stmt.a.obj).dtype  # the accumulator is wider
                return Apply("mul", tuple(self._wrapping.exact(self.read(site, n), dtype) for n in (0, 1)))
            case _:
                return Opaque("a statement without a value")

    def _combined(self, site: Site, dtype: DType) -> Term | None:
        """Return the reduction over the elements that a statement of a scan combines; None for other statements."""
        found = self._ranges.of(site)
        if found is None:
            return None
        parts = ((along, self.read(source, self.data.number(source, elem))) for along, source, elem in found.parts)
        return Reduce(found.op, Constant(float(REDUCTIONS[found.op](dtype))), tuple(parts))

    def _copy(self, site: Site, stmt: Copy) -> Term:
        number = self.data.source_number(site, stmt)
        if stmt.mask is None or stmt.other is None:
            return self.read(site, number)
        other = Constant(float(stmt.other.value))
        inside, tests = self._condition(site, stmt.mask).decided
        if not tests:
            term = self.read(site, number)
        elif isinstance(self.model.kernel.object(stmt.src.obj), Tensor) and not self.data.is_written(stmt.src.obj):
            term = Load(stmt.src.obj, self.data.indirect_cells(site, number, inside))
        else:
            return Opaque("a copy whose mask depends on data")
        term = chosen(tests, term, other)
        outside = self.model.domain(site)[0].to_union_set().subtract(inside)
        return Cases(((inside, term), (outside, other)))

    def _condition(self, site: Site, condition: Expr) -> Condition:
        """Return a condition at a statement, split into what sets decide and what data do."""
        return Condition(condition, self.model.domain(site)[0].to_union_set(), partial(self._split, site))

    def _split(self, site: Site, condition: SpecTerm) -> tuple[UnionSet, list[Term]]:
        assert not isinstance(condition, (SpecOp, SpecReduce, SpecSoftmax))
        try:
            return self.data.where(site, condition), []
        except NonAffine:
            every = self.model.domain(site)[0].to_union_set().identity()
            return self.conditions.decided(self.of_expr(site, condition), every)

    def of_expr(self, site: Site, expr: Expr) -> Term:
        """Return the term of a value expression."""
        match expr:
            case Const():
                return constant_term(expr)
            case Param(name=name):
                return self.parameter(name)
            case Elem():
                return self.read(site, self.data.number(site, expr))
            case Op(op="cast", args=(inner,), dtype=dtype) if inner.dtype == boolean != dtype:
                return self.of_expr(site, Op("where", (inner, Const(1, dtype), Const(0, dtype)), dtype))
            case Op(op="sortable", args=(inner,), dtype=dtype):
                return Apply(operation("sortable", inner.dtype, dtype), (self._exactly().of_expr(site, inner),))
            case Op(op="cast", args=(inner,), dtype=dtype) if self._unrounded and _rounds(inner.dtype, dtype):
                return Opaque("the order of numbers that a conversion has rounded")
            case Op(op="cast", args=(inner,), dtype=dtype) if rounds_only(inner.dtype, dtype):
                return self.of_expr(site, inner) if dtype == inner.dtype else self._widened(site, inner)
            case Op(op="where", args=(condition, a, b)):
                return self._condition(site, condition).choice(self.of_expr(site, a), self.of_expr(site, b))
            case Op() if exact_indices(expr) and (index := self._index(site, expr)) is not None:
                return index
            case Op(op=name, args=args, dtype=dtype):
                narrowing = name == "cast" and dtype.is_int and dtype.bits <= args[0].dtype.bits
                modular = name in _MODULAR or narrowing
                terms = (self.of_expr(site, a) if modular else self._widened(site, a) for a in args)
                operator = operation(APPROXIMATED.get(name, name), args[0].dtype, dtype)
                rounded = dtype == boolean and rounds_in(expr)
                return applied(f"{operator} of rounded numbers" if rounded else operator, tuple(terms))
            case _:
                return self._index(site, expr) or Opaque("a value computed from indices")

    def parameter(self, name: str) -> Parameter:
        """Return the term of a scalar or a size."""
        if name not in self._parameters:
            self._parameters[name] = Parameter(name, name in self.positive, bounds_of(self.model, name))
        return self._parameters[name]

    def _exactly(self) -> TermBuilder:
        """Return a builder of unrounded terms, for `sortable`: rounding may change the order of numbers."""
        if self._unrounded:
            return self
        if self._ordered is None:
            self._ordered = TermBuilder(self.data, True, self.positive)
        return self._ordered

    def _index(self, site: Site, expr: Expr) -> Index | None:
        """Return the term of an affine expression of indices; None for any other expression."""
        alone = Translator()
        try:
            alone.integer(expr, tuple(f"c{axis}" for axis in range(len(site.shape))))
            return None if alone.opaque else Index(self.data.integer(site, expr))
        except NonAffine:
            return None

    def _widened(self, site: Site, expr: Expr) -> Term:
        """Return the term of an expression whose full value is used: `Opaque` if the value may have wrapped around."""
        return self._wrapping.exact(self.of_expr(site, expr), expr.dtype)

    def read(self, site: Site, number: int) -> Term:
        """Return the term of the value that an access receives, over the instances of the reading site."""
        relation = (*site.accesses, *site.tag_reads)[number]
        obj = self.model.kernel.object(relation.obj)
        cells = self.model.cells(site, number)
        if isinstance(obj, Tensor) and not self.data.is_written(obj.name):
            return self._initial(site, number)
        flow = self.data.value_flow(obj.name)
        if not (flow.written and cells.exact):
            return Opaque(flow.reason or cells.reason)
        plain: list[tuple[UnionSet, Term]] = []
        rounded: list[tuple[UnionSet, Term]] = []
        collected: dict[str, list[tuple[UnionMap, Term]]] = {}
        covered = empty_set()
        own = (p for p in map_parts(flow.sources) if p.get_tuple_name(isl.dim_type.in_) == sink_name(site, number))
        for part in sorted(own, key=_source):  # in the order of the text, in which specifications have them, too
            along = part.set_tuple_name(isl.dim_type.in_, site.name).to_union_map()
            source = self.model.sites[_source(part)]
            if not writes(source, obj.name):
                return Opaque(f"'{obj.name}' was overwritten through a tile that shares its bytes")
            if isinstance(source.stmt, (Accumulate, Mma)):
                op = source.stmt.op if isinstance(source.stmt, Accumulate) else "add"
                if op == "add" and obj.dtype.modular:
                    return Opaque("a sum of many numbers modulo 2^32")
                collected.setdefault(op, []).append((along, self.written(source)))
            else:
                found = rounded if rounding(source) else plain
                found.append((along.domain(), Via(along, self._received(site, source, along))))
                covered = covered.union(along.domain())
        if isinstance(obj, Tensor):
            rest = cells.map.domain().to_union_set().subtract(covered)
            plain.append((rest, self._initial(site, number)))
        if not collected:
            return _cases([*_joined(plain), *rounded])
        plain += rounded
        if len(collected) > 1:
            return Opaque("reductions with different operators in one cell")
        ((op, parts),) = collected.items()
        reduced = union_of_sets(along.domain() for along, _ in parts)
        # A cell that nothing was added to since it was written is no reduction, unless it holds a plain number.
        alone = [(r.subtract(reduced), t) for r, t in plain if not _starts(t) and not r.is_subset(reduced)]
        if not alone:
            return Reduce(op, _cases(plain), tuple(parts))
        started = [(r if _starts(t) else r.intersect(reduced), t) for r, t in plain]
        started = [(r, t) for r, t in started if not r.is_empty()]
        return Cases((*alone, (union_of_sets(r for r, _ in started), Reduce(op, _cases(started), tuple(parts)))))

    def _received(self, reader: Site, source: Site, along: UnionMap) -> Term:
        """Return the term of what a statement wrote, over its instances: of the elements that hold it in the end, if a
        specification names these."""
        held = self._results.held(reader, source, along)
        if held is None:
            return self.written(source)
        inside, every = held.cells.domain(), along.range()
        if every.is_subset(inside):
            return held
        active = source.index in self._active
        rest = Opaque("a value that the kernel does not store") if active else self.written(source)
        return Cases(((inside, held), (every.subtract(inside), rest)))

    def _initial(self, site: Site, number: int) -> Term:
        cells = self.model.cells(site, number)
        relation = (*site.accesses, *site.tag_reads)[number]
        if self.data.plain(site, number):
            return Load(relation.obj, cells.map.to_union_map())
        indirect = self.data.indirect_cells(site, number)
        return Load(relation.obj, indirect)


def _source(part: isl.Map) -> int:
    """Return the number of the statement that a part of the data-flow comes from."""
    return int(part.get_tuple_name(isl.dim_type.out)[1:])


def rounding(site: Site) -> bool:
    """Return True if a statement rounds numbers to a type of fewer digits."""
    return isinstance(site.stmt, (Map, Accumulate)) and rounds_in(site.stmt.value)


def _joined(parts: list[tuple[UnionSet, Term]]) -> list[tuple[UnionSet, Term]]:
    """Merge the loads of each tensor into one part, and likewise equal padding: several copies often load one tile."""
    loads: dict[str, list[tuple[UnionSet, UnionMap]]] = {}
    padding: dict[float, list[UnionSet]] = {}
    rest: list[tuple[UnionSet, Term]] = []
    for region, term in parts:
        found = _loaded(term)
        if found is None:
            rest.append((region, term))
            continue
        for along, inner in found:
            if isinstance(inner, Load):
                loads.setdefault(inner.tensor, []).append((along.domain(), along.apply_range(inner.cells)))
            else:
                padding.setdefault(inner.value, []).append(along.domain())
    joined: list[tuple[UnionSet, Term]] = [
        (union_of_sets(r for r, _ in each).coalesce(), Load(tensor, union_of_maps(m for _, m in each).coalesce()))
        for tensor, each in loads.items()
    ]
    joined += [(union_of_sets(each).coalesce(), Constant(value)) for value, each in padding.items()]
    return [*((r, t) for r, t in joined if not r.is_empty()), *rest]


def _loaded(term: Term) -> list[tuple[UnionMap, Load | Constant]] | None:
    """Split a copied term into pairs of {instance -> instance} and a load or padding; None for any other term."""
    match term:
        case Via(along=along, term=Load() as load):
            return [(along, load)]
        case Via(along=along, term=Cases(parts=((inside, Load() as load), (outside, Constant() as other)))):
            return [(along.intersect_range(inside), load), (along.intersect_range(outside), other)]
        case _:
            return None


def _cases(parts: list[tuple[UnionSet, Term]]) -> Term:
    return parts[0][1] if len(parts) == 1 else Cases(tuple(parts))


def _rounds(of: DType, to: DType) -> bool:
    """Return True if a conversion to floats may change the number. Floats of 16 bits or fewer fit into float32."""
    return to.is_float and of != to and not (to == float32 and of.is_float and of.bits <= 16)


def _starts(term: Term) -> bool:
    """Return True if a term is a plain number, like the start value of a reduction."""
    return isinstance(term.term if isinstance(term, Via) else term, Constant)
