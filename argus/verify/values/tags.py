"""Tag analysis: the tags that every read receives and every statement writes, by exact data-flow."""

from __future__ import annotations

from contextlib import suppress
from math import isfinite

from argus.ir.expr import REDUCTIONS, Const, Coord, Elem, Expr, Op, rewrite
from argus.ir.nodes import Accumulate, Copy, DataValue, Map, Mma, Once, Tag, TagField, TagTerm, Tensor
from argus.ir.rescaling import rescaled
from argus.verify.model.flow import sink_name
from argus.verify.model.isl import UnionMap, UnionSet, empty_map, empty_set, isl, map_parts
from argus.verify.model.program import Site, tagged_elements
from argus.verify.model.translator import NonAffine
from argus.verify.values.data_flow import DataFlow, writes
from argus.verify.values.tagvalue import (
    NEUTRAL,
    Contributions,
    Tagged,
    Value,
    accumulate,
    contract,
    join,
    merge,
    pull,
    restrict,
)

_TRANSPARENT_CONDITIONS = ("lt", "le", "gt", "ge", "eq", "ne")


class TagAnalysis:
    """Computes the tag value of each statement on demand and keeps it."""

    def __init__(self, data: DataFlow) -> None:
        self.data = data
        self.model = model = data.model
        self.kernel = model.kernel
        self._values: dict[int, Value] = {}
        self._active: set[int] = set()
        self._tensor_tags = {
            s.stmt.obj: s.stmt
            for s in model.sites
            if isinstance(s.stmt, Tag) and isinstance(self.kernel.object(s.stmt.obj), Tensor)
        }

    # ------------------------------------------------------------------ reads

    def read(self, site: Site, number: int) -> Value:
        """Return the tag value that a site's access `number` receives; tag reads are numbered after the accesses."""
        relation = (*site.accesses, *site.tag_reads)[number]
        obj = self.kernel.object(relation.obj)
        cells = self.model.cells(site, number)
        domain = self._reading(site, number)
        if isinstance(obj, Tensor) and not self.data.is_written(obj.name):
            return restrict(self._initial(site, obj, number), domain)
        flow = self.data.flow(obj.name)
        if not flow.exact or not cells.exact:
            reason = flow.reason or cells.reason
            return Value((), (), ((domain, f"the data-flow of '{obj.name}' is not known exactly: {reason}"),), False)
        name = sink_name(site, number)
        sources = [
            part.set_tuple_name(isl.dim_type.in_, site.name)
            for part in map_parts(flow.sources)
            if part.get_tuple_name(isl.dim_type.in_) == name
        ]
        plain, collected = [], []
        overwritten: list[tuple[UnionSet, str]] = []
        for part in sources:
            source = self.model.sites[int(part.get_tuple_name(isl.dim_type.out)[1:])]
            along = part.to_union_map()
            if not writes(source, obj.name):
                overwritten.append(
                    (along.domain(), f"'{obj.name}' was overwritten through a tile that shares its bytes")
                )
            elif isinstance(source.stmt, (Accumulate, Mma)):
                collected.append(self._contributions(source, along))
            else:
                plain.append(pull(self.value(source), along))
        covered = empty_set()
        for part in sources:
            covered = covered.union(part.domain().to_union_set())
        rest = domain.subtract(covered)
        if isinstance(obj, Tensor):
            plain.append(restrict(self._initial(site, obj, number), rest))
        elif not rest.is_empty():
            overwritten.append((rest, f"'{obj.name}' was never written"))
        base = merge([*plain, Value((), (), tuple(overwritten))])
        return accumulate(base, collected, domain) if collected else base

    def _reading(self, site: Site, number: int) -> UnionSet:
        """Return the instances at which an access runs: those that the relation to cells has, if it is exact.

        An inexact relation lacks instances whose index data names no cell within the tensor. Then the domain and the
        mask give the instances, if both are exact.
        """
        relation, cells = (*site.accesses, *site.tag_reads)[number], self.model.cells(site, number)
        domain, exact, _ = self.model.domain(site)
        if not cells.exact and exact:
            with suppress(NonAffine):
                inside = self.data.where(site, relation.guard) if relation.guard is not None else None
                reading = domain.to_union_set()
                return reading if inside is None else reading.intersect(inside)
        return cells.map.domain().to_union_set()

    def _contributions(self, source: Site, along: UnionMap) -> Contributions:
        stmt = source.stmt
        assert isinstance(stmt, (Accumulate, Mma))
        if isinstance(stmt, Mma):
            return Contributions(along, self.value(source), 0.0)
        return Contributions(along, self.value(source), float(REDUCTIONS[stmt.op](stmt.value.dtype)))

    def _initial(self, site: Site, tensor: Tensor, number: int) -> Value:
        """Return the tag value of a load from a tensor that still has its contents at launch: its tag function at the
        coordinates read."""
        tag = self._tensor_tags.get(tensor.name)
        if tag is None:
            return NEUTRAL
        relation = (*site.accesses, *site.tag_reads)[number]
        domain = self._reading(site, number)
        try:
            fields = {name: _at(term, relation.index) for name, term in tag.fields}
            return Value((), (self._tagged(site, domain, fields),), ())
        except NonAffine as error:
            return Value((), (), ((domain, str(error)),), False)

    def _tagged(self, site: Site, domain: UnionSet, fields: dict[str, TagTerm]) -> Tagged:
        """Return the tag of the instances `domain`. If a field is a set, each of its integers is one contribution."""
        values = {name: self.term(site, term).intersect_domain(domain) for name, term in fields.items()}
        sets = [name for name, term in fields.items() if isinstance(term, Once)]
        if not sets:
            return Tagged(domain, tuple(fields), values)
        if len(sets) > 1:
            raise NonAffine(f"a tag with two sets of contributions, {' and '.join(sets)}")
        members = values[sets[0]]  # {instance -> member}; [instance -> member] names a contribution
        back, of = members.domain_map(), members.range_map()
        id_values = {name: of if name == sets[0] else back.apply_range(image) for name, image in values.items()}
        return Tagged(domain, tuple(fields), values, back.reverse(), id_values)

    # ------------------------------------------------------------------ statements

    def value(self, site: Site) -> Value:
        """Return the tag value that a statement writes or contributes, over its instances."""
        if site.index in self._values:
            return self._values[site.index]
        domain = self.model.domain(site)[0].to_union_set()
        if site.index in self._active:
            return Value(
                (), (), ((domain, "a value carried from one iteration to the next by other than accumulation"),)
            )
        self._active.add(site.index)
        try:
            result = self._value(site, domain)
        finally:
            self._active.discard(site.index)
        self._values[site.index] = result
        return result

    def _value(self, site: Site, domain: UnionSet) -> Value:
        stmt = site.stmt
        match stmt:
            case Copy():
                return self._copy(site, stmt, domain)
            case Map(value=value):
                kept = rescaled(stmt, self.data.accumulators)
                return restrict(self.of_expr(site, value if kept is None else kept), domain)
            case Accumulate(value=value, mask=mask):
                inside = domain
                if mask is not None:
                    inside = inside.intersect(self.data.where(site, mask))
                return restrict(self.of_expr(site, value), inside)
            case Mma():
                return restrict(contract(self.read(site, 0), self.read(site, 1)), domain)
            case Tag():
                return self._tag(site, stmt, domain)
            case _:
                return NEUTRAL

    def _copy(self, site: Site, stmt: Copy, domain: UnionSet) -> Value:
        value = self.read(site, self.data.source_number(site, stmt))
        if stmt.mask is None or stmt.other is None:
            return restrict(value, domain)
        try:
            inside = self.data.where(site, stmt.mask)
        except NonAffine as error:
            return Value((), (), ((domain, str(error)),), False)
        padding = Value(((domain.subtract(inside), stmt.other),))
        return merge([restrict(value, domain.intersect(inside)), padding])

    def _tag(self, site: Site, stmt: Tag, domain: UnionSet) -> Value:
        try:
            covered = domain
            for _, term in stmt.fields:
                if not isinstance(term, Once):  # an empty set is a tag as well
                    covered = covered.intersect(self.term(site, term).intersect_domain(domain).domain())
            tagged = self._tagged(site, covered, dict(stmt.fields))
        except NonAffine as error:
            return Value((), (), ((domain, str(error)),), False)
        parts = ((domain.subtract(covered), "a tag rule that uses an element without a tag"),)
        return Value((), (tagged,), parts)

    # ------------------------------------------------------------------ expressions

    def of_expr(self, site: Site, expr: Expr) -> Value:
        """Return the tag value of an expression by rule 2: join all registers that it reads outside of conditions."""
        match expr:
            case Const():
                everything = self.model.domain(site)[0].to_union_set()
                return Value(((everything, expr),))
            case Elem():
                return self.read(site, self.data.number(site, expr))
            case Op(op="cast" | "neg", args=(inner,)):
                value = self.of_expr(site, inner)
                return value if expr.op == "cast" else Value((), value.tagged, value.mixed, value.exact)
            case Op(op="mul", args=(inner, Const(value=factor)) | (Const(value=factor), inner)) if isfinite(factor):
                value = self.of_expr(site, inner)
                zeros = tuple((s, c) for s, c in value.neutral if c is not None and c.value == 0)
                return Value(zeros, value.tagged, value.mixed, value.exact)
            case Op(op="where", args=(_, a, b)):
                return join(self.of_expr(site, a), self.of_expr(site, b))
            case Op(op=name) if name in _TRANSPARENT_CONDITIONS:
                return NEUTRAL
            case Op(args=args):
                result = NEUTRAL
                for arg in args:
                    result = join(result, self.of_expr(site, arg))
                return result
            case _:
                return NEUTRAL

    def term(self, site: Site, term: TagTerm) -> UnionMap:
        """Return {instance -> value} of a tag term: an integer, uninterpreted index data, or a field of a tag."""
        match term:
            case TagField(elem=elem, name=name):
                return self.field(site, elem, name)
            case DataValue(tensor=tensor, index=index):
                return self.data.data(site, tensor, index)
            case Once(lo=lo, hi=hi):
                return self.data.members(site, lo, hi)
            case Const() | Coord() | Op() | Elem():
                return self.data.integer(site, term)
            case _:
                return self.data.integer(site, term)

    def field(self, site: Site, elem: Elem, name: str | int) -> UnionMap:
        """Return {instance -> value} of an element's field, over the instances at which the element has that field."""
        number = len(site.accesses) + tagged_elements(site.stmt).index(elem)
        result = empty_map()
        for tagged in self.read(site, number).tagged:
            key = tagged.names[name] if isinstance(name, int) and name < len(tagged.names) else name
            if key in tagged.values:
                result = result.union(tagged.values[str(key)])
        return result


def _at(term: TagTerm, index: tuple[Expr, ...]) -> TagTerm:
    """Return a tag function's field at the coordinates `index`."""
    if isinstance(term, DataValue):
        return DataValue(term.tensor, tuple(_replace(e, index) for e in term.index))
    if isinstance(term, Once):
        return Once(_replace(term.lo, index), _replace(term.hi, index))
    return _replace(term, index)  # type: ignore[arg-type]


def _replace(expr: Expr, index: tuple[Expr, ...]) -> Expr:
    return rewrite(expr, lambda e: index[e.axis] if isinstance(e, Coord) else None)
