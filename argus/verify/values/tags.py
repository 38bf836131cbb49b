"""Tag analysis: the tags that every read receives and every statement writes, by exact data-flow."""

from __future__ import annotations

from contextlib import suppress

from argus.ir.access import Holders, Mode, Relation
from argus.ir.expr import REDUCTIONS, Const, Coord, Elem, Expr, Op, coords, rewrite, walk
from argus.ir.instruction import Order
from argus.ir.nodes import (
    Accumulate,
    Copy,
    DataValue,
    Map,
    Mma,
    Once,
    Stmt,
    Tag,
    TagField,
    TagTerm,
    Tensor,
)
from argus.ir.rescaling import accumulators, rescaled
from argus.verify.model.flow import Flow, data_flow, sink_name
from argus.verify.model.isl import UnionMap, UnionSet, empty_map, empty_set, isl, map_parts
from argus.verify.model.program import Site, tagged_elements
from argus.verify.model.relations import Cells, Model
from argus.verify.model.translator import NonAffine, identifier
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

    def __init__(self, model: Model) -> None:
        self.model = model
        self.kernel = model.kernel
        self._flows: dict[str, Flow] = {}
        self._value_flows: dict[str, Flow] = {}
        self._values: dict[int, Value] = {}
        self._active: set[int] = set()
        self._accumulators = accumulators(model.kernel)
        self._relabelled = {obj for s in model.sites if (obj := self._in_place(s.stmt)) is not None}
        self._relabelled |= {s.stmt.obj for s in model.sites if isinstance(s.stmt, Tag)}
        self._tensor_tags = {
            s.stmt.obj: s.stmt
            for s in model.sites
            if isinstance(s.stmt, Tag) and isinstance(self.kernel.object(s.stmt.obj), Tensor)
        }

    # ------------------------------------------------------------------ reads

    def flow(self, obj: str) -> Flow:
        """Return the data-flow of one object's tags. A `Tag` counts as a write; rescaling in place does not."""
        if obj not in self._relabelled:
            return self.value_flow(obj)
        if obj not in self._flows:
            moves = self.model.accesses_of(obj, tags=True)
            cells = [c for c in moves if self._in_place(c.site.stmt) != obj]
            cells += [self._retag(s) for s in self.model.sites if isinstance(s.stmt, Tag) and s.stmt.obj == obj]
            self._flows[obj] = data_flow(self.model, cells, self.model.clobbers(obj))
        return self._flows[obj]

    def _in_place(self, stmt: Stmt) -> str | None:
        """Return the accumulator that a statement rescales in place, which keeps tags; None for other statements."""
        elem = rescaled(stmt, self._accumulators)
        return elem.obj if elem is not None and isinstance(stmt, Map) and stmt.dst.obj == elem.obj else None

    def value_flow(self, obj: str) -> Flow:
        """Return the data-flow of an object's values, in which a `Tag` is no write."""
        if obj not in self._value_flows:
            cells = self.model.accesses_of(obj, tags=obj not in self._relabelled)
            self._value_flows[obj] = data_flow(self.model, cells, self.model.clobbers(obj))
        return self._value_flows[obj]

    def indirect_cells(self, site: Site, number: int, within: UnionSet | None = None) -> UnionMap:
        """Return {instance -> cell} of an access through an index tensor; coordinates are integers or index data.

        The relation covers the instances at which the mask holds. Pass `within` instead if the mask depends on data.
        """
        relation = (*site.accesses, *site.tag_reads)[number]
        result: UnionMap | None = None
        for index in relation.index:
            image = self.image(site, index)
            result = image if result is None else result.range_product(image)
        if result is None:
            raise NonAffine("an access without an index")
        domain = self.model.domain(site)[0].to_union_set()
        if within is not None:
            domain = domain.intersect(within)
        elif relation.guard is not None:
            domain = domain.intersect(self.where(site, relation.guard))
        return result.intersect_domain(domain)

    def image(self, site: Site, index: Expr) -> UnionMap:
        """Return {instance -> value of an index}: an integer, index data, or a function of integers."""
        index = self.model.resolve(site, index)
        if any(isinstance(e, Elem) for e in walk(index)):
            return self.integer(site, index)
        coords = self.model.coords(len(site.shape))
        text = f"{{ {self.model.tuple_text(site, coords)} -> {self.model.translator.image(index, coords)} }}"
        return self.model.parse_map(text).intersect_domain(self.model.domain(site)[0]).to_union_map()

    def plain(self, site: Site, number: int) -> bool:
        """Return True if the cells of an access are known exactly, and no index is an uninterpreted function."""
        relation = (*site.accesses, *site.tag_reads)[number]
        coords = self.model.coords(len(relation.shape))
        indices = [self.model.resolve(site, index) for index in relation.index]
        return self.model.cells(site, number).exact and all(
            any(isinstance(e, Op) and e.op == "where" for e in walk(index))
            or not self.model.translator.image(index, coords).startswith("function_")
            for index in indices
        )

    def _retag(self, site: Site) -> Cells:
        stmt = site.stmt
        assert isinstance(stmt, Tag)
        whole = coords(len(site.shape))
        relation = Relation(stmt.obj, Mode.WRITE, site.shape, whole, None, None, Holders.ALL, Order.SYNC)
        domain, exact, reason = self.model.bare_domain(site)
        names = self.model.coords(len(site.shape))
        text = f"{{ {self.model.tuple_text(site, names)} -> {identifier(stmt.obj)}[{', '.join(names)}] }}"
        bare = self.model.parse_map(text).intersect_domain(domain)
        return Cells(site, relation, -1, bare, self.model.context.set, exact, reason)

    def read(self, site: Site, number: int) -> Value:
        """Return the tag value that a site's access `number` receives; tag reads are numbered after the accesses."""
        relation = (*site.accesses, *site.tag_reads)[number]
        obj = self.kernel.object(relation.obj)
        cells = self.model.cells(site, number)
        domain = self._reading(site, number)
        if isinstance(obj, Tensor) and not self.is_written(obj.name):
            return restrict(self._initial(site, obj, number), domain)
        flow = self.flow(obj.name)
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
        """Return the instances at which an access runs. For inexact cells they come from the domain and the mask: the
        relation to cells lacks instances at which the tensor's extent leaves no cell for index data to name."""
        relation, cells = (*site.accesses, *site.tag_reads)[number], self.model.cells(site, number)
        domain, exact, _ = self.model.domain(site)
        if not cells.exact and exact:
            with suppress(NonAffine):
                inside = self.where(site, relation.guard) if relation.guard is not None else None
                reading = domain.to_union_set()
                return reading if inside is None else reading.intersect(inside)
        return cells.map.domain().to_union_set()

    def is_written(self, name: str) -> bool:
        return any(a.obj == name and a.mode is not Mode.READ for s in self.model.sites for a in s.accesses)

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
                kept = rescaled(stmt, self._accumulators)
                return restrict(self.of_expr(site, value if kept is None else kept), domain)
            case Accumulate(value=value, mask=mask):
                inside = domain
                if mask is not None:
                    inside = inside.intersect(self.where(site, mask))
                return restrict(self.of_expr(site, value), inside)
            case Mma():
                return restrict(contract(self.read(site, 0), self.read(site, 1)), domain)
            case Tag():
                return self._tag(site, stmt, domain)
            case _:
                return NEUTRAL

    def _copy(self, site: Site, stmt: Copy, domain: UnionSet) -> Value:
        value = self.read(site, self.source_number(site, stmt))
        if stmt.mask is None or stmt.other is None:
            return restrict(value, domain)
        try:
            inside = self.where(site, stmt.mask)
        except NonAffine as error:
            return Value((), (), ((domain, str(error)),), False)
        padding = Value(((domain.subtract(inside), stmt.other),))
        return merge([restrict(value, domain.intersect(inside)), padding])

    def source_number(self, site: Site, stmt: Copy) -> int:
        """Return the position of a copy's source among the site's relations."""
        return next(
            i
            for i, a in enumerate(site.accesses)
            if a.obj == stmt.src.obj and a.mode is Mode.READ and a.index == stmt.src.index
        )

    def where(self, site: Site, mask: Expr) -> UnionSet:
        """Return the instances at which a mask holds."""
        coords = self.model.coords(len(site.shape))
        text = self.model.guard_text(site, mask, coords)
        return self.model.parse_set(f"{{ {self.model.tuple_text(site, coords)} : {text} }}").to_union_set()

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
                return self.read(site, self.number(site, expr))
            case Op(op="cast" | "neg", args=(inner,)):
                value = self.of_expr(site, inner)
                return value if expr.op == "cast" else Value((), value.tagged, value.mixed, value.exact)
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

    def number(self, site: Site, elem: Elem) -> int:
        """Return the position of a register read among the site's relations."""
        everything = (*site.accesses, *site.tag_reads)
        return next(
            i for i, a in enumerate(everything) if a.obj == elem.obj and a.index == elem.index and a.mode is Mode.READ
        )

    def term(self, site: Site, term: TagTerm) -> UnionMap:
        """Return {instance -> value} of a tag term: an integer, uninterpreted index data, or a field of a tag."""
        match term:
            case TagField(elem=elem, name=name):
                return self.field(site, elem, name)
            case DataValue(tensor=tensor, index=index):
                return self._data(site, tensor, index)
            case Once(lo=lo, hi=hi):
                return self.members(site, lo, hi)
            case Const() | Coord() | Op() | Elem():
                return self.integer(site, term)
            case _:
                return self.integer(site, term)

    def field(self, site: Site, elem: Elem, name: str | int) -> UnionMap:
        """Return {instance -> value} of an element's field, over the instances at which the element has that field."""
        number = len(site.accesses) + tagged_elements(site.stmt).index(elem)
        result = empty_map()
        for tagged in self.read(site, number).tagged:
            key = tagged.names[name] if isinstance(name, int) and name < len(tagged.names) else name
            if key in tagged.values:
                result = result.union(tagged.values[str(key)])
        return result

    def _data(self, site: Site, tensor: str, index: tuple[Expr, ...]) -> UnionMap:
        if any(c.relation.mode is not Mode.READ for c in self.model.accesses_of(tensor)):
            raise NonAffine(f"the kernel changes the index data of '{tensor}'")
        coords = self.model.coords(len(site.shape))
        texts = ", ".join(self.model.translator.integer(self.model.resolve(site, e), coords) for e in index)
        source = self.model.tuple_text(site, coords)
        domain = self.model.domain(site)[0]
        text = f"{{ {source} -> data_{identifier(tensor)}[{texts}] }}"
        return self.model.parse_map(text).intersect_domain(domain).to_union_map()

    def members(self, site: Site, lo: Expr, hi: Expr) -> UnionMap:
        """Return {instance -> [v] : lo <= v < hi}."""
        coords = self.model.coords(len(site.shape))
        low, high = (self.model.translator.integer(self.model.resolve(site, e), coords) for e in (lo, hi))
        text = f"{{ {self.model.tuple_text(site, coords)} -> [v] : {low} <= v < {high} }}"
        return self.model.parse_map(text).intersect_domain(self.model.domain(site)[0]).to_union_map()

    def integer(self, site: Site, expr: Expr) -> UnionMap:
        """Return {instance -> [v]} of an affine expression, or {instance -> data_t[c]} of a value loaded from `t`."""
        expr = self.model.resolve(site, expr)
        if isinstance(expr, Elem):
            return self._loaded(site, self.number(site, expr))
        coords = self.model.coords(len(site.shape))
        text = f"{{ {self.model.tuple_text(site, coords)} -> [{self.model.translator.integer(expr, coords)}] }}"
        return self.model.parse_map(text).intersect_domain(self.model.domain(site)[0]).to_union_map()

    def _loaded(self, site: Site, number: int) -> UnionMap:
        """Return the integers or index data that a register read receives."""
        relation = site.accesses[number]
        flow = self.flow(relation.obj)
        if not flow.written:
            raise NonAffine(flow.reason)
        result = empty_map()
        for part in map_parts(flow.sources):
            if part.get_tuple_name(isl.dim_type.in_) != sink_name(site, number):
                continue
            along = part.set_tuple_name(isl.dim_type.in_, site.name).to_union_map()
            source = self.model.sites[int(part.get_tuple_name(isl.dim_type.out)[1:])]
            result = result.union(along.apply_range(self._written_integer(source)))
        return result

    def _written_integer(self, source: Site) -> UnionMap:
        stmt = source.stmt
        if isinstance(stmt, Map):
            return self.integer(source, stmt.value)
        if isinstance(stmt, Copy) and isinstance(self.kernel.object(stmt.src.obj), Tensor):
            values = self._data(source, stmt.src.obj, stmt.src.index)
            if stmt.mask is None:
                return values
            inside = self.where(source, stmt.mask)
            domain = self.model.domain(source)[0].to_union_set()
            padding = empty_map()
            if stmt.other is not None:
                padding = self.integer(source, stmt.other).intersect_domain(domain.subtract(inside))
            return values.intersect_domain(inside).union(padding)
        if isinstance(stmt, Copy):
            return self._loaded(source, self.source_number(source, stmt))
        raise NonAffine("an index computed by other than loads and arithmetic")


def writes(site: Site, obj: str) -> bool:
    """Return True if a statement writes `obj` itself, or re-labels it."""
    if isinstance(site.stmt, Tag):
        return site.stmt.obj == obj
    return any(a.obj == obj and a.mode is not Mode.READ for a in site.accesses)


def _at(term: TagTerm, index: tuple[Expr, ...]) -> TagTerm:
    """Return a tag function's field at the coordinates `index`."""
    if isinstance(term, DataValue):
        return DataValue(term.tensor, tuple(_replace(e, index) for e in term.index))
    if isinstance(term, Once):
        return Once(_replace(term.lo, index), _replace(term.hi, index))
    return _replace(term, index)  # type: ignore[arg-type]


def _replace(expr: Expr, index: tuple[Expr, ...]) -> Expr:
    return rewrite(expr, lambda e: index[e.axis] if isinstance(e, Coord) else None)
