"""Batch invariance: the bits of an output's rows do not depend on the rest of the batch.

`al.invariant(out, M)` promises that a row of `out` is the same in every launch that has this row. Two launches are
compared, the second with other values of `M`, of program ids and of everything that depends on them. The proof is by
induction over time. It shows for both launches:

- the same instances of the same statements compute an element of the row, so in the same order;
- each instance receives its operands from the same instances;
- each instance evaluates its index expressions and masks to the same values;
- each instance reads tensors of the batch in this row alone.

A promise that is not proved is tested: the simulator runs twice, on inputs that agree in some rows. Rows that differ in
a bit refute the promise, and the finding names both calls.
"""

from __future__ import annotations

from typing import TypeVar

from argus.ir.access import Mode
from argus.ir.expr import Elem, Expr, Op, Param, ProgramId, walk
from argus.ir.nodes import Accumulate, Copy, Fragment, Invariant, Map, Scalar, Tensor
from argus.verify.findings import Finding, unknown
from argus.verify.model.flow import sink_name
from argus.verify.model.formulas import Tuple, equal, facts
from argus.verify.model.isl import Map as Relation
from argus.verify.model.isl import Set, UnionMap, UnionSet, empty_map, empty_set, isl, map_parts, set_parts
from argus.verify.model.program import Site, turns
from argus.verify.model.relations import Cells
from argus.verify.model.resolving import BOUND, BOUND_OF_BLOCK, loaded
from argus.verify.model.translator import NonAffine, identifier
from argus.verify.values.data_flow import DataFlow

_HELP = (
    "each row must be computed by the same operations in the same order whatever the batch: no atomics on floats, no "
    "loop bounds, masks or splits of sums that depend on it, and no other rows"
)
_ROUNDS = 8
"""The most times that the set of needed rows of one site may grow."""
_WIDENED = 3
"""When a site's set of needed rows grows for this time or later, the set is extended to all iterations of the loops
around the site, because values that one iteration carries to the next are needed from the first iteration on."""
_OTHER = "_other"
"""The suffix of the names of the second launch's parameters."""


_Relation = TypeVar("_Relation", isl.Map, isl.Set)


def _alike(name: str) -> Set:
    """Return the parameters for which a number is the same in both launches."""
    return facts([equal(name, f"{name}{_OTHER}")], [name, f"{name}{_OTHER}"])


class _Differs(Exception):
    """Two launches may differ in the bits of a row; the message says why."""


def check(data: DataFlow) -> list[Finding]:
    """Return a finding with the reason for each promise of invariance that is not proved."""
    findings = []
    for promise in data.kernel.invariants:
        try:
            _Comparison(data, promise).run()
        except (_Differs, NonAffine) as error:
            text = f"rows of '{promise.tensor}' may depend on {' and '.join(promise.sizes)}: {error}"
            findings.append(unknown("invariance-unknown", "invariance", promise.span, text, _HELP))
    return findings


class _Comparison:
    """Two launches of a kernel and one promise."""

    def __init__(self, data: DataFlow, promise: Invariant) -> None:
        self.data, self.model, self.kernel = data, data.model, data.kernel
        self.promise = promise
        output = self.kernel.object(promise.tensor)
        assert isinstance(output, Tensor)
        self.axes = [axis for axis, extent in enumerate(output.shape) if extent in self._batch]
        self.extents = [output.shape[axis] for axis in self.axes]
        self.rows: dict[int, Relation] = {}
        """For each site, {instance -> rows for which it is needed}, in the first launch."""
        self._grown: dict[int, int] = {}

        self.kept = self._kept()

    @property
    def _batch(self) -> tuple[Param, ...]:
        return tuple(Param(size) for size in self.promise.sizes)

    def _kept(self) -> frozenset[str]:
        """Return the names of the sizes and arguments that both launches have in common: strides are not among them."""
        scalars = (p.name for p in self.kernel.params if isinstance(p, Scalar))
        return frozenset((*self.kernel.sizes, *scalars)).difference(self.promise.sizes)

    def run(self) -> None:
        """Raise `_Differs` or `NonAffine` unless rows are the same in both launches."""
        stores = [(c.site, c) for c in self.model.accesses_of(self.promise.tensor) if c.relation.mode is not Mode.READ]
        if not stores:
            raise _Differs("the kernel does not write it")
        if any(turns(site.role) > 1 for site in self.model.sites):
            raise _Differs("roles take turns with the programs of a block")
        if all(self.model.context.nothing(cells.bare) for _, cells in stores):
            return  # no launch has a row at all
        self._varies()
        self.common = self._stored_alike([cells for _, cells in stores])
        self._loaded_alike()
        self._bounds_alike()
        for site, cells in stores:
            self._need(site, self._of_rows(cells))
        self._follow([site for site, _ in stores])
        needed = [self.model.sites[index] for index in sorted(self.rows)]
        for site in needed:
            self._in_order(site)
        for site in needed:
            self._same_work(site)

    def _varies(self) -> None:
        """Raise `_Differs` if a size of the promise follows from others, which a promise takes as the same.

        Without this check, two names for the batch would make the promise one about equal launches.
        """
        possible = self.model.context.possible.intersect(self._other(self.model.context.possible))
        for name, expr in self.model.translator.parameters.items():
            if isinstance(expr, Param) and expr.name in self.promise.sizes:
                same = _alike(name)
                if possible.is_subset(same) and not self._constant(name):
                    raise _Differs(f"'{expr.name}' follows from sizes or arguments that the promise does not name")

    def _constant(self, name: str) -> bool:
        """Return True if the known facts leave one value of a parameter."""
        known = self.model.context.possible
        others = [n for n in self.model.translator.parameters if n != name]
        for other in others:
            at = known.find_dim_by_name(isl.dim_type.param, other)
            if at >= 0:
                known = known.project_out(isl.dim_type.param, at, 1)
        at = known.find_dim_by_name(isl.dim_type.param, name)
        return at >= 0 and bool(known.move_dims(isl.dim_type.set, 0, isl.dim_type.param, at, 1).is_singleton())

    # ------------------------------------------------------------------ two launches

    def _differing(self, expr: Expr) -> bool:
        """Return True if the expression may have another value in the second launch."""
        return any(isinstance(e, ProgramId) or (isinstance(e, Param) and e.name not in self.kept) for e in walk(expr))

    def _other(self, relation: _Relation) -> _Relation:
        """Rename the parameters of a relation of the first launch to those of the second."""
        for name, expr in self.model.translator.parameters.items():
            at = relation.find_dim_by_name(isl.dim_type.param, name)
            if at >= 0 and self._differing(expr):
                relation = relation.set_dim_name(isl.dim_type.param, at, name + _OTHER)
        return relation

    def _others(self, union: UnionMap) -> UnionMap:
        result = empty_map()
        for part in map_parts(union):
            result = result.union(self._other(part).to_union_map())
        return result

    def _stored_alike(self, stores: list[Cells]) -> Set:
        """Return the rows that both launches store, provided that each cell is stored by the same instance in both.

        The set is empty for parameters with which the two launches have no cell in common. So it restricts the
        comparison to programs that write the same part of the output.
        """
        first = empty_map()
        for cells in stores:
            first = first.union(self._plain(cells.map).to_union_map())
        second = self._others(first)
        both = first.range().intersect(second.range())
        if not first.intersect_range(both).is_equal(second.intersect_range(both)):
            raise _Differs("two launches may compute an element at other places of a tile, or by other statements")
        if both.is_empty():
            raise _Differs("no two launches have a row in common")
        (cells_of_both,) = set_parts(both)
        self.alike = cells_of_both.params()
        return self._projected(cells_of_both)

    def _loaded_alike(self) -> None:
        """Equate the numbers that both launches load once for the block from the same place.

        If the tensor belongs to the batch, the place must also be in the row. For all programs of both launches that
        store a common row, `self.alike` then has one value for the two numbers.
        """
        for place, name in loaded(self.model.sites).items():
            tensor = self.kernel.object(place.obj)
            if not isinstance(tensor, Tensor):
                continue
            same = True
            for index, extent in zip(place.index, tensor.shape, strict=True):
                value = self.model.points(Tuple((self.model.translator.integer(index, ()),)))
                one, two = value.intersect_params(self.alike), self._other(value).intersect_params(self.alike)
                same = same and bool(one.is_equal(two))
                if extent in self._batch:
                    row = self._only(isl.Map.from_range(self.common), self.extents.index(extent)).range()
                    same = same and bool(row.intersect_params(self.alike).is_subset(one))
            if same:
                self.alike = self.alike.intersect(_alike(identifier(name)))

    def _bounds_alike(self) -> None:
        """Equate the bounds of loops and branches that their definitions make the same number in both launches."""
        definitions = self.model.context.defined
        known = self.alike.intersect(definitions).intersect(self._other(definitions))
        for name, expr in self.model.translator.parameters.items():
            if isinstance(expr, Param) and expr.name.startswith((BOUND, BOUND_OF_BLOCK)):
                equal = _alike(name)
                if known.is_subset(equal):
                    self.alike = self.alike.intersect(equal)

    def _projected(self, cells: Set) -> Set:
        """Project cells of the output to rows: their coordinates along the batch's axes."""
        for axis in reversed(range(cells.dim(isl.dim_type.set))):
            if axis not in self.axes:
                cells = cells.project_out(isl.dim_type.set, axis, 1)
        return cells.reset_tuple_id()

    def _of_rows(self, cells: Cells) -> Relation:
        found = self._plain(cells.map)
        for axis in reversed(range(found.dim(isl.dim_type.out))):
            if axis not in self.axes:
                found = found.project_out(isl.dim_type.out, axis, 1)
        return found.reset_tuple_id(isl.dim_type.out)

    def _plain(self, relation: Relation) -> Relation:
        """Fix the program number of a persistent block to 0, since all programs take the same steps."""
        if self.model.persistent and relation.dim(isl.dim_type.in_):
            return relation.fix_val(isl.dim_type.in_, 0, isl.Val(0))
        return relation

    # ------------------------------------------------------------------ what a row needs

    def _need(self, site: Site, rows: Relation) -> bool:
        """Add rows for which instances of a site are needed; return True if any is new."""
        known = self.rows.get(site.index)
        if known is not None and rows.is_subset(known):
            return False
        self.rows[site.index] = (rows if known is None else known.union(rows)).coalesce()
        return True

    def _widen(self, site: Site) -> None:
        """Count that the set of a site has grown. A set that keeps growing is extended to all iterations.

        More rows than really needed may be added. Then the proof has to show more, and is still valid.
        """
        self._grown[site.index] = self._grown.get(site.index, 0) + 1
        if self._grown[site.index] > _ROUNDS:
            raise _Differs("an iteration mixes rows, and which ones could not be followed")
        if self._grown[site.index] >= _WIDENED:
            found = self.rows[site.index].eliminate(isl.dim_type.in_, 0, len(site.loops))
            self.rows[site.index] = self._plain(found.intersect_domain(self.model.domain(site)[0])).coalesce()

    def _follow(self, begin: list[Site]) -> None:
        """Find all instances that rows need, from the stores backwards. The last site comes first, so that a site is
        followed when most of what reads it is known."""
        todo = {site.index for site in begin}
        while todo:
            site = self.model.sites[max(todo)]
            todo.remove(site.index)
            self._widen(site)
            needed = self.rows[site.index]
            for number in self._operands(site):
                for source, along in self._sources(site, number):
                    if self._need(source, along.reverse().apply_range(needed)):
                        todo.add(source.index)

    def _operands(self, site: Site) -> list[int]:
        """Return the reads of a site. The target of an accumulation is not one: it counts where the sum is read."""
        return [number for number, access in enumerate(site.accesses) if access.mode is Mode.READ]

    def _sources(self, site: Site, number: int) -> list[tuple[Site, Relation]]:
        """Return the sites from which a read receives values, each with {reading instance -> writing instance}."""
        obj = site.accesses[number].obj
        if isinstance(self.kernel.object(obj), Tensor):
            if self.data.is_written(obj):
                raise _Differs(f"'{obj}' is read and written")
            return []
        flow = self.data.value_flow(obj)
        if not flow.written:
            raise NonAffine(flow.reason)
        if not self.model.cells(site, number).exact:
            # A mask on data is compared as an expression; a place in registers has to be known.
            names = self.model.coords(len(site.shape))
            for index in site.accesses[number].index:
                self.model.translator.integer(self.model.resolve(site, index), names)
        found = []
        for part in map_parts(flow.sources):
            if part.get_tuple_name(isl.dim_type.in_) == sink_name(site, number):
                source = self.model.sites[int(part.get_tuple_name(isl.dim_type.out)[1:])]
                found.append((source, self._plain(part.set_tuple_name(isl.dim_type.in_, site.name))))
        return found

    # ------------------------------------------------------------------ the same work for a row

    def _in_order(self, site: Site) -> None:
        """Raise `_Differs` for additions of floats in memory, which happen in any order. Extrema are not affected."""
        if not isinstance(site.stmt, Accumulate) or site.stmt.op in ("maximum", "minimum"):
            return
        target = self.kernel.object(site.stmt.dst.obj)
        if not isinstance(target, Fragment) and target.dtype.is_float:
            raise _Differs(f"{self._where(site)} adds to '{target.name}' atomically, in any order")

    def _same_work(self, site: Site) -> None:
        """Raise unless the instances of a site that a row needs do the same work in both launches."""
        first = self.rows[site.index].intersect_range(self.common)
        second = self._other(self.rows[site.index]).intersect_range(self.common)
        first, second = first.intersect_params(self.alike), second.intersect_params(self.alike)
        where = self._where(site)
        control = (*site.guards, *(e for loop in site.loops for e in (loop.start, loop.stop)))
        if any(isinstance(e, Elem) for expr in control for e in walk(self.model.resolve(site, expr))):
            raise NonAffine(f"{where} runs or not, depending on what data holds")
        if not first.is_equal(second):
            why = "because a loop, a branch or a mask depends on them"
            raise _Differs(f"{where} runs in other iterations for the same row, {why}")
        needed = first.domain()
        if needed.is_empty():
            return
        for number in self._operands(site):
            for source, along in self._sources(site, number):
                self._from_the_same(source, along, needed, where)
            self._of_the_row(site, number, first)
        for expr in self._evaluated(site):
            if not self._agrees(site, expr, needed.to_union_set()):
                raise _Differs(f"an index, a mask or a factor in {where} depends on them")

    def _where(self, site: Site) -> str:
        span = site.stmt.span
        return f"line {span.line}" if span.known else f"statement {site.index}"

    def _from_the_same(self, source: Site, along: Relation, needed: Set, where: str) -> None:
        """Raise unless operands come from the same instances in both launches."""
        first, second = along.intersect_domain(needed), self._other(along).intersect_domain(needed)
        if not first.is_equal(second):
            raise _Differs(f"{where} takes operands from other iterations of {self._where(source)} in another launch")

    def _of_the_row(self, site: Site, number: int, rows: Relation) -> None:
        """Raise if a tensor of the batch is read in a row other than the computed one."""
        tensor = self.kernel.object(site.accesses[number].obj)
        if not isinstance(tensor, Tensor):
            return
        for index, extent in zip(site.accesses[number].index, tensor.shape, strict=True):
            if extent in self._batch:
                own = self._only(rows, self.extents.index(extent))
                if not own.to_union_map().is_subset(self.data.integer(site, index)):
                    raise _Differs(f"{self._where(site)} reads other rows of '{tensor.name}'")

    def _only(self, relation: Relation, axis: int) -> Relation:
        """Return {instance -> one coordinate of its image}."""
        for other in reversed(range(relation.dim(isl.dim_type.out))):
            if other != axis:
                relation = relation.project_out(isl.dim_type.out, other, 1)
        return relation.reset_tuple_id(isl.dim_type.out)

    def _evaluated(self, site: Site) -> list[Expr]:
        """Return the expressions whose values decide what an instance computes."""
        found: list[Expr] = []
        for number in self._operands(site):
            access = site.accesses[number]
            if isinstance(self.kernel.object(access.obj), Tensor):
                found += access.index
            if access.guard is not None:
                found.append(access.guard)
        match site.stmt:
            case Map(value=value) | Accumulate(value=value):
                found.append(value)
            case _:
                pass
        if isinstance(site.stmt, Copy | Accumulate) and site.stmt.mask is not None:
            found.append(site.stmt.mask)
        return found

    def _agrees(self, site: Site, expr: Expr, needed: UnionSet) -> bool:
        """Return True if `expr` has the same value in both launches at the instances that are needed."""
        if not self._differing(expr):  # registers in it are operands, which are followed
            return True
        try:
            if self._equal(site, self.model.resolve(site, expr), needed):
                return True
        except NonAffine:
            pass
        return isinstance(expr, Op) and all(self._agrees(site, arg, needed) for arg in expr.args)

    def _equal(self, site: Site, expr: Expr, needed: UnionSet) -> bool:
        if expr.dtype.kind == "bool":
            holds = self.data.where(site, expr)
            other = empty_set()
            for part in set_parts(holds):
                other = other.union(self._other(part).to_union_set())
            return bool(holds.intersect(needed).is_equal(other.intersect(needed)))
        if not expr.dtype.is_int:
            return False
        values = self.data.integer(site, expr)
        return bool(values.intersect_domain(needed).is_equal(self._others(values).intersect_domain(needed)))
