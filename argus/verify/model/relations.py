"""The integer relations of a kernel: who accesses what, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from argus.ir.access import Mode, Relation
from argus.ir.expr import Expr, Op, walk
from argus.ir.nodes import Kernel, Shared, Tensor
from argus.verify.model import formulas
from argus.verify.model.formulas import Tuple, between, numbered
from argus.verify.model.instances import Formula, Instances
from argus.verify.model.isl import Map, Set, isl
from argus.verify.model.program import Site
from argus.verify.model.resolving import differs_by_block
from argus.verify.model.rings import Rings
from argus.verify.model.schedule import times
from argus.verify.model.translator import NonAffine, counter, identifier
from argus.work import Work


@dataclass(frozen=True)
class Cells:
    """An access as a relation: instances -> cells of `relation.obj`; an over-approximation if not `exact`.

    `bare` holds for any value of the parameters. `map` is `bare` with the constraints of the context.
    """

    site: Site
    relation: Relation
    number: int
    bare: Map
    context: Set
    exact: bool
    reason: str

    @cached_property
    def map(self) -> Map:
        return self.bare.intersect_params(self.context)


class Model(Instances):
    """A kernel in relations: instance sets, schedules, accesses, and the context of its sizes."""

    def __init__(
        self, kernel: Kernel, definitions: Sequence[Expr] = (), *, lean: bool = False, work: Work | None = None
    ) -> None:
        """Build the sites, their times and the context; the arguments are those of `Instances`."""
        super().__init__(kernel, definitions, lean=lean, work=work)
        self.times_of = times(self.sites)
        self.depth = max(map(len, self.times_of.values()), default=1)
        self.rings = Rings(self)
        self._cells: dict[tuple[int, int], Cells] = {}
        self._touched: dict[tuple[int, int], Map] = {}
        self._clocks: dict[int, Map] = {}
        self._schedules: dict[int, Map] = {}
        self._iterations: dict[tuple[Formula, int], Set] = {}
        self._spans: dict[str, tuple[int, int]] = {}

    # ------------------------------------------------------------------ accesses

    def cells(self, site: Site, number: int) -> Cells:
        """Return the access `site.accesses[number]`, with instances named `S<site>`; tag reads are numbered after
        those."""
        key = (site.index, number)
        if key not in self._cells:
            self._cells[key] = self._make_cells(site, number)
        return self._cells[key]

    def _make_cells(self, site: Site, number: int) -> Cells:
        relation = (*site.accesses, *site.tag_reads)[number]
        domain, exact, reason = self.bare_domain(site)
        coords = self.coords(len(relation.shape))
        rank = len(relation.index)
        outputs: list[str] = []
        conditions: list[str] = []
        trip: Map | None = None
        if relation.obj in self.rings:
            trip = self.rings.trip_of_cells(site, relation, coords)
        for axis, index in enumerate(relation.index):
            if trip is not None and axis == 0:
                continue
            try:
                index = self.resolve(site, index)
                if any(isinstance(e, Op) and e.op == "where" for e in walk(index)):
                    conditions.append(self.translator.equals(f"x{axis}", index, coords))
                    outputs.append(f"x{axis}")
                else:
                    outputs.append(self.translator.integer(index, coords))
            except NonAffine as error:
                exact, reason = False, str(error)
                outputs.append(f"x{axis}")
                conditions.append(self._extent_text(relation.obj, axis))
        if relation.guard is not None:
            try:
                conditions.append(self.guard_text(site, relation.guard, coords))
            except NonAffine as error:
                exact, reason = False, str(error)
        assert len(outputs) == rank - (trip is not None)
        cells = self.relation(self.instance(site, coords), Tuple(outputs, identifier(relation.obj)), *conditions)
        if trip is not None:
            cells = trip.flat_range_product(cells).set_tuple_name(isl.dim_type.out, identifier(relation.obj))
        return Cells(site, relation, number, cells.intersect_domain(domain), self.context.set, exact, reason)

    def _extent_text(self, obj: str, axis: int) -> str:
        extent = self.kernel.object(obj).shape[axis]
        upper = str(extent) if isinstance(extent, int) else self.translator.integer(extent, ())
        return between(f"x{axis}", "0", upper)

    def accesses_of(self, obj: str, tags: bool = False) -> list[Cells]:
        """Return every access to a memory object, in program order; with `tags`, also the reads of tag statements."""
        return [
            self.cells(site, number)
            for site in self.sites
            for number, relation in enumerate((*site.accesses, *site.tag_reads) if tags else site.accesses)
            if relation.obj == obj
        ]

    def aliases(self, obj: str) -> list[str]:
        """Return the names of the other shared tiles whose bytes overlap those of `obj`."""
        if not self._spans:
            self._spans = {t.name: byte_span(t) for t in self.kernel.shared}
        if obj not in self._spans:
            return []
        low, high = self._spans[obj]
        return [n for n, (a, b) in self._spans.items() if n != obj and a < high and low < b]

    def clobbers(self, obj: str) -> list[Cells]:
        """Return the writes to tiles that share bytes with `obj`, as writes that may touch every cell of `obj`."""
        result = []
        if obj in self.rings and self.aliases(obj):
            raise NonAffine(f"'{obj}' is a ring of buffers, and other tiles share its bytes")
        rank = len(self.kernel.object(obj).shape)
        every, extents = Tuple(numbered("x", rank), identifier(obj)), [self._extent_text(obj, i) for i in range(rank)]
        for other in self.aliases(obj):
            for cells in self.accesses_of(other):
                if cells.relation.mode is Mode.READ:
                    continue
                anywhere = isl.Map.from_domain_and_range(cells.bare.domain(), self.points(every, *extents))
                result.append(replace(cells, bare=anywhere, exact=False, reason=f"'{other}' shares its bytes"))
        return result

    # ------------------------------------------------------------------ time

    def schedule(self, site: Site) -> Map:
        """Return {instance of a site -> time}; the elements of one iteration have the same time."""
        instances = self.clock(site).insert_dims(isl.dim_type.in_, len(site.loops), len(site.shape))
        return instances.set_tuple_name(isl.dim_type.in_, site.name)

    def iteration_schedule(self, site: Site) -> Map:
        """Return {S[loop counters] -> time} for the iterations that a site runs, in the context."""
        if site.index not in self._schedules:
            self._schedules[site.index] = self.clock(site).intersect_domain(self._ran(site))
        return self._schedules[site.index]

    def _ran(self, site: Site) -> Set:
        """Return the iterations S[loop counters] that a site runs.

        The set leaves out constraints that the context implies, and has only the parameters on which it depends. It is
        cached, since neighbouring statements share it.
        """
        bare, _, _ = self.bare_domain(site)
        key = (self._formulas[site.index], len(site.shape))
        if key not in self._iterations:
            iterations = bare.project_out(isl.dim_type.set, len(site.loops), len(site.shape))
            self._iterations[key] = self.context.simply(iterations)
        return self._iterations[key].set_tuple_name(site.name)

    def iteration_cells(self, cells: Cells) -> Map:
        """Return {S[loop counters] -> cell}: an access without its element coordinates, in the context.

        In a persistent kernel the programs of a block have different ids. So for the block's own memory these are the
        cells that any program touches.
        """
        site, key = cells.site, (cells.site.index, cells.number)
        own = self._cells.get(key) is cells
        if own and key in self._touched:
            return self._touched[key]
        moved = cells.bare
        if self.persistent and not isinstance(self.kernel.object(cells.relation.obj), Tensor):
            moved = self._of_any_program(cells)
        moved = moved.project_out(isl.dim_type.in_, len(site.loops), len(site.shape))
        moved = self.context.simply(moved.set_tuple_name(isl.dim_type.in_, site.name))
        if own:
            self._touched[key] = moved
        return moved

    def _of_any_program(self, cells: Cells) -> Map:
        """Project out the parameters that depend on the program: the cells that an access touches in any program."""
        if not self._by_program(cells.bare.drop_unused_params()):
            return cells.bare
        found = cells.map
        while positions := self._by_program(found):
            found = found.project_out(isl.dim_type.param, positions[0], 1)
        return found

    def _by_program(self, cells: Map) -> list[int]:
        """Return the positions of parameters that depend on the program."""
        parameters = self.translator.parameters.items()
        found = [cells.find_dim_by_name(isl.dim_type.param, n) for n, e in parameters if differs_by_block(e)]
        return [position for position in found if position >= 0]

    def clock(self, site: Site) -> Map:
        """Return {S[loop counters] -> time}, whether the iterations run or not."""
        if site.index not in self._clocks:
            time = [counter(p) if isinstance(p, str) else str(p) for p in self.times_of[site.index]]
            time += ["0"] * (self.depth - len(time))
            self._clocks[site.index] = formulas.relation(self.instance(site, ()), Tuple(time))
        return self._clocks[site.index]

    def times(self, site: Site) -> Set:
        """Return the set of times at which a site runs."""
        return self.iteration_schedule(site).range()

    def before(self, strict: bool = True) -> Map:
        """Return {time -> later time}."""
        space = isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, self.depth, self.depth)
        set_space = space.domain()
        return isl.Map.lex_lt(set_space) if strict else isl.Map.lex_le(set_space)

    def before_by_level(self) -> list[Map]:
        """Split `before` by the first dimension in which the two times differ, the last dimension first."""
        space, parts = isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, self.depth, self.depth), list[Map]()
        for level in range(self.depth):
            same = isl.Map.universe(space)
            for outer in range(level):
                same = same.equate(isl.dim_type.in_, outer, isl.dim_type.out, outer)
            parts.append(same.order_lt(isl.dim_type.in_, level, isl.dim_type.out, level))
        return parts[::-1]


def byte_span(tile: Shared) -> tuple[int, int]:
    """Return the range of bytes of the block's shared memory that a tile occupies, as (start, end), end excluded."""
    assert tile.layout is not None and tile.offset is not None
    return tile.offset, tile.offset + int(tile.layout.cosize()) * tile.dtype.bytes
