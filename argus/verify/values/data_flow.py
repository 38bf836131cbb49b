"""Data-flow: which statements' values an access receives, and the integers and index data that statements compute."""

from __future__ import annotations

from functools import reduce

from argus.ir.access import Holders, Mode, Relation
from argus.ir.expr import Elem, Expr, Op, coords, walk
from argus.ir.instruction import Order
from argus.ir.nodes import Copy, Map, Stmt, Tag, Tensor
from argus.ir.rescaling import accumulators, rescaled
from argus.verify.model.flow import Flow, data_flow, sink_name
from argus.verify.model.formulas import Tuple, between
from argus.verify.model.isl import UnionMap, UnionSet, empty_map, isl, map_parts
from argus.verify.model.program import Site
from argus.verify.model.relations import Cells, Model
from argus.verify.model.translator import NonAffine, identifier
from argus.verify.values.integers import element, image_of
from argus.verify.values.terms import index_data


class DataFlow:
    """The data-flow of one kernel's objects, computed on demand and kept."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.kernel = model.kernel
        self.accumulators = accumulators(model.kernel)
        self._flows: dict[str, Flow] = {}
        self._value_flows: dict[str, Flow] = {}
        self._relabelled = {obj for s in model.sites if (obj := self._in_place(s.stmt)) is not None}
        self._relabelled |= {s.stmt.obj for s in model.sites if isinstance(s.stmt, Tag)}

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
        elem = rescaled(stmt, self.accumulators)
        return elem.obj if elem is not None and isinstance(stmt, Map) and stmt.dst.obj == elem.obj else None

    def _retag(self, site: Site) -> Cells:
        stmt = site.stmt
        assert isinstance(stmt, Tag)
        whole = coords(len(site.shape))
        relation = Relation(stmt.obj, Mode.WRITE, site.shape, whole, None, None, Holders.ALL, Order.SYNC)
        domain, exact, reason = self.model.bare_domain(site)
        names = self.model.coords(len(site.shape))
        same = self.model.relation(self.model.instance(site, names), Tuple(names, identifier(stmt.obj)))
        bare = same.intersect_domain(domain)
        return Cells(site, relation, -1, bare, self.model.context.set, exact, reason)

    def value_flow(self, obj: str) -> Flow:
        """Return the data-flow of an object's values, in which a `Tag` is no write."""
        if obj not in self._value_flows:
            cells = self.model.accesses_of(obj, tags=obj not in self._relabelled)
            self._value_flows[obj] = data_flow(self.model, cells, self.model.clobbers(obj))
        return self._value_flows[obj]

    def is_written(self, name: str) -> bool:
        """Return True if the kernel writes an object."""
        return any(a.obj == name and a.mode is not Mode.READ for s in self.model.sites for a in s.accesses)

    def number(self, site: Site, elem: Elem) -> int:
        """Return the position of a register read among the site's relations."""
        everything = (*site.accesses, *site.tag_reads)
        return next(
            i for i, a in enumerate(everything) if a.obj == elem.obj and a.index == elem.index and a.mode is Mode.READ
        )

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
        return self.model.points(self.model.instance(site, coords), text).to_union_set()

    def plain(self, site: Site, number: int) -> bool:
        """Return True if the cells of an access are known exactly, and no index is an uninterpreted function."""
        relation = (*site.accesses, *site.tag_reads)[number]
        coords = self.model.coords(len(relation.shape))
        indices = [self.model.resolve(site, index) for index in relation.index]
        return self.model.cells(site, number).exact and all(
            any(isinstance(e, Op) and e.op == "where" for e in walk(index))
            or self.model.translator.plain(index, coords)
            for index in indices
        )

    def indirect_cells(self, site: Site, number: int, within: UnionSet | None = None) -> UnionMap:
        """Return {instance -> cell} of an access through an index tensor: a tuple of images, unless all are integers.

        The relation covers the instances at which the mask holds. Pass `within` instead if the mask depends on data.
        """
        relation = (*site.accesses, *site.tag_reads)[number]
        if not relation.index:
            raise NonAffine("an access without an index")
        indices, coords = [self.model.resolve(site, i) for i in relation.index], self.model.coords(len(site.shape))
        translator = self.model.translator
        if all(translator.plain(i, coords) for i in indices):
            cell = Tuple([translator.integer(i, coords) for i in indices], identifier(relation.obj))
            result = self.model.relation(self.model.instance(site, coords), cell).to_union_map()
        else:
            result = reduce(UnionMap.range_product, (self.image(site, index) for index in relation.index))
        domain = self.model.domain(site)[0].to_union_set()
        if within is not None:
            domain = domain.intersect(within)
        elif relation.guard is not None:
            domain = domain.intersect(self.where(site, relation.guard))
        return result.intersect_domain(domain)

    def image(self, site: Site, index: Expr) -> UnionMap:
        """Return {instance -> value of an index}, in the form of `image_of`."""
        coords = self.model.coords(len(site.shape))

        def leaf(expr: Expr) -> UnionMap | None:
            if isinstance(expr, Elem):
                return self._loaded(site, self.number(site, expr))
            return self.integer(site, expr) if self.model.translator.plain(expr, coords) else None

        return image_of(self.model.resolve(site, index), leaf)

    def members(self, site: Site, lo: Expr, hi: Expr) -> UnionMap:
        """Return {instance -> [v] : lo <= v < hi}."""
        coords = self.model.coords(len(site.shape))
        low, high = (self.model.translator.integer(self.model.resolve(site, e), coords) for e in (lo, hi))
        found = self.model.relation(self.model.instance(site, coords), Tuple(("v",)), between("v", low, high))
        return found.intersect_domain(self.model.domain(site)[0]).to_union_map()

    def integer(self, site: Site, expr: Expr) -> UnionMap:
        """Return {instance -> [v]} of an affine expression, or the image of a register."""
        expr = self.model.resolve(site, expr)
        if isinstance(expr, Elem):
            return self._loaded(site, self.number(site, expr))
        coords = self.model.coords(len(site.shape))
        value = Tuple((self.model.translator.integer(expr, coords),))
        found = self.model.relation(self.model.instance(site, coords), value)
        return found.intersect_domain(self.model.domain(site)[0]).to_union_map()

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
            return self.image(source, stmt.value)
        if isinstance(stmt, Copy) and isinstance(self.kernel.object(stmt.src.obj), Tensor):
            values = self.data(source, stmt.src.obj, stmt.src.index)
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

    def data(self, site: Site, tensor: str, index: tuple[Expr, ...]) -> UnionMap:
        """Return {instance -> data_t[index, 0]}: an element of an index tensor, which the kernel must not change."""
        if any(c.relation.mode is not Mode.READ for c in self.model.accesses_of(tensor)):
            raise NonAffine(f"the kernel changes the index data of '{tensor}'")
        coords = self.model.coords(len(site.shape))
        texts = [self.model.translator.integer(self.model.resolve(site, e), coords) for e in index]
        found = self.model.relation(self.model.instance(site, coords), element(index_data(tensor), texts))
        return found.intersect_domain(self.model.domain(site)[0]).to_union_map()


def writes(site: Site, obj: str) -> bool:
    """Return True if a statement writes `obj` itself, or re-labels it."""
    if isinstance(site.stmt, Tag):
        return site.stmt.obj == obj
    return any(a.obj == obj and a.mode is not Mode.READ for a in site.accesses)
