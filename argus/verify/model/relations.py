"""The integer relations of a kernel: who accesses what, and when.

Statement instances are points `S3[k, c0, c1]` (loop counters, then element coordinates) over parameters (sizes,
program ids, integer arguments). `translator` writes the formulas about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from argus.ir.access import Mode, Relation
from argus.ir.expr import Expr, LoopVar, Op, ProgramId, Thread, op, rewrite, walk
from argus.ir.nodes import For, Kernel, Programs, Shared, Tensor
from argus.ir.rings import RingPlace, place_in_ring
from argus.verify.model.context import Known
from argus.verify.model.isl import IslError, Map, Set, first, involves, isl, point, without_last
from argus.verify.model.program import PROGRAM, Site, loops_by_trip, representatives, sites, turns
from argus.verify.model.resolving import block_bounds, definitions_of, differs_by_block, least, resolved
from argus.verify.model.schedule import times
from argus.verify.model.translator import NonAffine, Translator, counter, holder_condition, identifier
from argus.verify.model.uses import certain


@dataclass(frozen=True)
class Cells:
    """An access as a relation: instances -> cells of `relation.obj`; an over-approximation if not `exact`.

    `bare` holds for any value of the parameters. `map` is `bare` in the context, whose constraints isl then carries.
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


@dataclass
class Count:
    """A running count over nested loops. `trips` are the tuples of trip numbers [t0, t1, ...] that occur."""

    trips: Set
    _after: list[Map] = field(default_factory=list)

    def after(self, steps: int) -> Map:
        """{trip -> the trip `steps` later}; earlier if negative."""
        if steps < 0:
            return self.after(-steps).reverse()
        if not self._after:
            order = isl.Map.lex_lt(self.trips.get_space())
            order = order.intersect_domain(self.trips).intersect_range(self.trips)
            following = first(order)
            if not following.intersect(order.apply_range(order)).is_empty():
                raise IslError("isl_map_lexmin is not the first")
            self._after = [self.trips.identity(), following]
        while len(self._after) <= steps:
            self._after.append(self._after[-1].apply_range(self._after[1]).coalesce())
        return self._after[steps]

    def from_then_on(self, steps: int) -> Map:
        """{trip -> every trip at least `steps` later}."""
        later = isl.Map.lex_le(self.trips.get_space()).intersect_range(self.trips)
        return self.after(steps).apply_range(later)


class Model:
    """A kernel in relations: instance sets, schedules, accesses, and the context of its sizes."""

    def __init__(self, kernel: Kernel, definitions: Sequence[Expr] = (), *, lean: bool = False) -> None:
        """Build the sites, their times and the context.

        `definitions`: facts about scalars besides the preconditions, which are too complicated to be in every set.
        A `lean` model knows fewer facts about the sizes, and its sets have only the parameters that they depend on, in
        any order. A proof on it is valid, but a counterexample on it is not.
        """
        self.kernel, self.lean = kernel, lean
        self.sites = sites(kernel)
        self.like = representatives(self.sites)
        loops = [s.stmt for s in self.sites if isinstance(s.stmt, For)]
        counting = frozenset(loop.counter.name for loop in loops if loop.counter is not None)
        self.translator = Translator(counts=counting, trips=loops_by_trip(kernel), lean=lean)
        self.times_of = times(self.sites)
        self.depth = max(map(len, self.times_of.values()), default=1)
        self._bounds = block_bounds(self.sites) if lean else {}
        exactly = (*definitions, *definitions_of(self._bounds))
        self.context = Known(kernel, self.translator, exactly, lean, certain(kernel, self.sites))
        for fact in least(self._bounds):
            self.context.narrow(self.when(fact))
        self._bare: dict[int, tuple[Set, bool, str]] = {}
        self._domains: dict[int, tuple[Set, bool, str]] = {}
        self._parsed: dict[str, Set] = {}
        self._text: dict[int, str] = {}
        self._cells: dict[tuple[int, int], Cells] = {}
        self._touched: dict[tuple[int, int], Map] = {}
        self._clocks: dict[int, Map] = {}
        self._schedules: dict[int, Map] = {}
        self._iterations: dict[tuple[str, int], Set] = {}
        self._counts: dict[int, Count] = {}
        self._turning: dict[str, list[Count]] = {}
        self._early: set[str] = set()
        self._spans: dict[str, tuple[int, int]] = {}
        self.persistent = any(isinstance(s.stmt, Programs) for s in self.sites)
        self._rings = {obj: size for obj in (t.name for t in kernel.shared) if (size := self._ring_size(obj))}

    programs: int | None = None
    """The number of consecutive programs that are distinguished; None: any number, all of which take the same steps."""

    @property
    def ring_sizes(self) -> tuple[int, ...]:
        """The numbers of buffers of the shared tiles that are rings counted through nested loops."""
        return tuple(self._rings.values())

    @property
    def uneven(self) -> bool:
        """Return True if programs of a block may take different steps: a loop or branch depends on the program."""
        return self.persistent and any(
            differs_by_block(self.resolve(site, expr))
            for site in self.sites
            for expr in (*site.guards, *(e for loop in site.loops for e in (loop.start, loop.stop)))
        )

    # ------------------------------------------------------------------ sets

    def coords(self, rank: int) -> tuple[str, ...]:
        return tuple(f"c{axis}" for axis in range(rank))

    def varying(self, cells: Map) -> list[str]:
        """Return the parameters on which `cells` depends, other than program ids, that may differ from block to block.
        """
        parameters = self.translator.parameters.items()
        differ = [n for n, e in parameters if not isinstance(e, ProgramId) and differs_by_block(e)]
        return [name for name in differ if involves(cells, (name,))]

    def parse_set(self, text: str) -> Set:
        return self.translator.set(text)

    def parse_map(self, text: str) -> Map:
        return self.translator.map(text)

    def when(self, condition: Expr) -> Set:
        """Return the parameters for which a condition holds."""
        return self.parse_set(f"{{ : {self.translator.condition(condition, ())} }}")

    def where(self, site: Site, condition: Expr) -> Set:
        """Return the instances of a site at which a condition holds, whether they run or not."""
        coords = self.coords(len(site.shape))
        text = self.translator.condition(self.resolve(site, condition), coords)
        return self.parse_set(f"{{ {self.tuple_text(site, coords)} : {text} }}")

    def image(self, site: Site, exprs: Sequence[Expr], name: str = "", *, elements: bool = True) -> Map:
        """{instance of a site -> `name[exprs]`}, whether the instance runs or not; iterations if not `elements`."""
        coords = self.coords(len(site.shape)) if elements else ()
        values = ", ".join(self.translator.integer(self.resolve(site, e), coords) for e in exprs)
        return self.parse_map(f"{{ {self.tuple_text(site, coords)} -> {name}[{values}] }}")

    def iterations(self, site: Site) -> Map:
        """{instance of a site -> its iteration}."""
        rank = len(site.iterators) + len(site.shape)
        space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, rank)
        return without_last(space, site.name, len(site.shape))

    def domain(self, site: Site) -> tuple[Set, bool, str]:
        """Instances of a site under its loops and branches, as (set, exact, reason)."""
        if site.index not in self._domains:
            bare, exact, reason = self.bare_domain(site)
            self._domains[site.index] = (bare.intersect_params(self.context.set), exact, reason)
        return self._domains[site.index]

    def bare_domain(self, site: Site) -> tuple[Set, bool, str]:
        """Return `domain` without the context: for any value of the parameters."""
        if site.index not in self._bare:
            self._bare[site.index] = self._make_domain(site)
        return self._bare[site.index]

    def _make_domain(self, site: Site) -> tuple[Set, bool, str]:
        coords = self.coords(len(site.shape))
        conditions = [f"0 <= {c} < {n}" for c, n in zip(coords, site.shape, strict=True)]
        exact, reason = True, ""
        for loop in site.loops:
            try:
                conditions += self._loop_conditions(site, (loop,))
            except NonAffine as error:
                exact, reason = False, str(error)
        for guard in site.guards:
            try:
                conditions.append(self.guard_text(site, self.in_program(self.resolve(site, guard)), coords))
            except NonAffine as error:
                exact, reason = False, str(error)
        dims = self.tuple_text(site, coords, "")
        self._text[site.index] = f"{dims} : {conditions}"
        return self.instances(dims, conditions).set_tuple_name(site.name), exact, reason

    def in_program(self, expr: Expr) -> Expr:
        """Return the form in which the model uses a bound or a branch's condition; `window` overrides it."""
        return expr

    def instances(self, dims: str, conditions: Sequence[str]) -> Set:
        """Return the points of a tuple that satisfy some conditions; cached, since neighbouring statements share them.
        """
        text = f"{{ {dims} : {' and '.join(conditions) or 'true'} }}"
        if text not in self._parsed:
            self._parsed[text] = self.parse_set(text)
        return self._parsed[text]

    def _loop_conditions(self, site: Site, loops: tuple[For, ...]) -> list[str]:
        """Conditions that the counters of some loops around a site are in range, as isl text."""
        conditions = []
        for loop in loops:
            if loop.var == PROGRAM:  # no upper bound: a proof for any number of programs holds for the actual one
                conditions.append(f"0 <= {counter(PROGRAM)}")
                continue
            begin, stop = (self.in_program(self.resolve(site, e)) for e in (loop.start, loop.stop))
            conditions += [self.translator.condition(op("le", begin, LoopVar(loop.var)), ())]
            conditions += [self.translator.condition(op("lt", LoopVar(loop.var), stop), ())]
            var, start = (self.translator.integer(e, ()) for e in (LoopVar(loop.var), begin))
            if loop.step > 1 and loop.var not in self.translator.trips:
                conditions.append(f"({var} - {start}) mod {loop.step} = 0")
        return conditions

    def resolve(self, site: Site, expr: Expr) -> Expr:
        """Replace computed registers by their values, and bounds by names; see `resolved` and `block_bounds`."""
        return rewrite(resolved(self.sites, site, expr), self._bounds.get)

    # ------------------------------------------------------------------ rings

    def _nest(self, site: Site, name: str) -> tuple[For, ...]:
        """Return the loops around a site, down to the one that counts `name`."""
        for depth, loop in enumerate(site.loops):
            if loop.counter is not None and loop.counter.name == name:
                return site.loops[: depth + 1]
        raise NonAffine(f"the running count '{name}' is used outside of its loop")

    def ring_place(self, site: Site, index: Expr) -> RingPlace | None:
        """Return the place that an index names in a ring counted through nested loops, or None for other indices."""
        place = place_in_ring(index)
        if place is None or place.counter not in self.translator.counts:
            return None
        counting = self._nest(site, place.counter)[-1].counter
        if counting is None or counting.wrap % (2 * place.size):
            raise NonAffine(f"the count '{place.counter}' begins anew inside of two rounds of {place.size}")
        return place

    def count(self, site: Site, place: RingPlace) -> Count:
        """Return the trips over which the count of a ring runs."""
        return self.count_of(site, self._nest(site, place.counter))

    def count_of(self, site: Site, nest: tuple[For, ...]) -> Count:
        """Return the trips of the loops of `nest`, the outermost loops around a site. Raises `NonAffine` in a branch.
        """
        loop = next(s for s in self.sites if s.stmt is nest[-1] and s.role is site.role and s.loops == nest[:-1])
        if loop.index not in self._counts:
            if len(loop.guards) > int(turns(loop.role) > 1):
                raise NonAffine(f"the loop over '{nest[-1].var}', of which trips are counted, stands in a branch")
            conditions = self._loop_conditions(site, nest)
            names = ", ".join(counter(loop.var) for loop in nest)
            ran = self.context.simply(self.instances(f"[{names}]", conditions))
            trips = self.parse_map(f"{{ [{names}] -> [{', '.join(self._trip(site, nest))}] }}")
            self._counts[loop.index] = Count(ran.apply(trips))
        return self._counts[loop.index]

    def _trip(self, site: Site, nest: tuple[For, ...]) -> list[str]:
        """isl text of the trip number of each loop."""
        texts = []
        for loop in nest:
            start = self.translator.integer(self.resolve(site, loop.start), ())
            by_value = f"floor(({counter(loop.var)} - ({start})) / {loop.step})"
            texts.append(counter(loop.var) if loop.var in self.translator.trips else by_value)
        return texts

    def trips(self, site: Site, place: RingPlace, shift: int, coords: tuple[str, ...] = ()) -> Map:
        """Return the map from an instance of a site to the trip `shift` trips after the instance's own trip."""
        own = self.trip(site, self._nest(site, place.counter), coords).drop_unused_params()
        return own.apply_range(self.count(site, place).after(shift))

    def trip(self, site: Site, nest: tuple[For, ...], coords: tuple[str, ...] = ()) -> Map:
        """Return the map from an instance of a site to its trip numbers in the loops of `nest`."""
        return self.parse_map(f"{{ {self.tuple_text(site, coords)} -> [{', '.join(self._trip(site, nest))}] }}")

    def _ring_size(self, obj: str) -> int | None:
        """Return the number of buffers of a shared tile that is a ring counted through nested loops, or None for other
        tiles."""
        for site in self.sites:
            for relation in (*site.accesses, *site.tag_reads):
                place = self.ring_place(site, relation.index[0]) if relation.obj == obj and relation.index else None
                if place is not None:
                    return place.size
        return None

    def next_rounds(self, obj: str) -> Map | None:
        """{cell -> the same cell of a ring in every later round}; None for objects that are no such ring.

        In a ring counted through nested loops, cells are named by trips. So several cells are one place in memory.
        """
        if obj not in self._rings:
            return None
        size = self._rings[obj]
        uses = [c for c in self.accesses_of(obj) if c.relation.index]
        place = self.ring_place(uses[0].site, uses[0].relation.index[0])
        assert place is not None  # else its cells would not be exact
        count = self.count(uses[0].site, place)
        later = count.from_then_on(size)
        for before in range(1, size) if obj in self._early else ():
            there = count.after(before - size).domain()
            later = later.union(isl.Map.from_domain_and_range(_before_first(there, before), there))
        rest = len(self.kernel.object(obj).shape) - 1
        same = isl.Map.identity(isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, rest, rest))
        named = later.flat_product(same).set_tuple_name(isl.dim_type.in_, identifier(obj))
        return named.set_tuple_name(isl.dim_type.out, identifier(obj))

    def guard_text(self, site: Site, guard: Expr, coords: tuple[str, ...]) -> str:
        """Return a branch condition for an element, as isl text.

        A condition on the thread becomes a condition on the thread that holds the element.
        """
        guard = self.resolve(site, guard)
        text = self.translator.condition(guard, coords)
        if not any(isinstance(e, Thread) for e in walk(guard)):
            return text
        layout = getattr(site.stmt, "layout", None)
        if layout is None:
            raise NonAffine("the branch depends on the thread")
        if int(layout.counts().max()) > 1:
            raise NonAffine("the branch depends on the thread, and replicas of an element stand in several threads")
        return f"(exists thread: {holder_condition(layout, coords, 'thread')} and {text})"

    def tuple_text(self, site: Site, coords: tuple[str, ...], name: str | None = None) -> str:
        dims = ", ".join((*(counter(v) for v in site.iterators), *coords))
        return f"{site.name if name is None else name}[{dims}]"

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
        if relation.obj in self._rings:
            trip = self._ring_trip(site, relation, coords)
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
        text = f"{{ {self.tuple_text(site, coords)} -> {identifier(relation.obj)}[{', '.join(outputs)}]"
        text += f" : {' and '.join(conditions)} }}" if conditions else " }"
        cells = self.parse_map(text)
        if trip is not None:
            cells = trip.flat_range_product(cells).set_tuple_name(isl.dim_type.out, identifier(relation.obj))
        return Cells(site, relation, number, cells.intersect_domain(domain), self.context.set, exact, reason)

    def _ring_trip(self, site: Site, relation: Relation, coords: tuple[str, ...]) -> Map:
        """{instance -> the trip whose buffer it uses}."""
        size = self._rings[relation.obj]
        place = self.ring_place(site, relation.index[0])
        if place is None or place.size != size or size != self.kernel.object(relation.obj).shape[0]:
            raise NonAffine(f"'{relation.obj}' is used as a ring of buffers and otherwise too")
        count = self.count(site, place)
        turning = self._turning.setdefault(relation.obj, [count])
        if not any(known is count for known in turning):  # a trip names one buffer only if all counts are the same
            if not self.context.same(turning[0].after(0), count.after(0)):
                raise NonAffine(f"loops of other trips count the buffers of '{relation.obj}', too")
            turning.append(count)
        # The last trip up to now with that buffer. Later ones have not begun in the schedule, or `races` reports it.
        moved = place.shift % size
        trip = self.trips(site, place, moved - size if moved else 0, coords)
        if moved and not self.context.nothing(self.bare_domain(site)[0].subtract(trip.domain())):
            self._early.add(relation.obj)
            own = self.trip(site, self._nest(site, place.counter), coords)
            for rank in range(size - moved):  # trips so early that no trip has used the buffer yet
                here = count.after(-rank).domain().subtract(count.after(-rank - 1).domain())
                named = isl.Map.from_domain_and_range(here, _before_first(here, size - moved - rank))
                trip = trip.union(own.apply_range(named))
        return trip

    def _extent_text(self, obj: str, axis: int) -> str:
        extent = self.kernel.object(obj).shape[axis]
        upper = str(extent) if isinstance(extent, int) else self.translator.integer(extent, ())
        return f"0 <= x{axis} < {upper}"

    def accesses_of(self, obj: str, tags: bool = False) -> list[Cells]:
        """Return every access to a memory object, in program order; with `tags`, also the reads of tag statements."""
        return [
            self.cells(site, number)
            for site in self.sites
            for number, relation in enumerate((*site.accesses, *site.tag_reads) if tags else site.accesses)
            if relation.obj == obj
        ]

    def aliases(self, obj: str) -> list[str]:
        """Other shared tiles whose bytes overlap those of `obj`."""
        if not self._spans:
            self._spans = {t.name: byte_span(t) for t in self.kernel.shared}
        if obj not in self._spans:
            return []
        low, high = self._spans[obj]
        return [n for n, (a, b) in self._spans.items() if n != obj and a < high and low < b]

    def clobbers(self, obj: str) -> list[Cells]:
        """Return the writes to tiles that share bytes with `obj`, as writes that may touch every cell of `obj`."""
        result = []
        if obj in self._rings and self.aliases(obj):
            raise NonAffine(f"'{obj}' is a ring of buffers, and other tiles share its bytes")
        dims = ", ".join(f"x{axis}" for axis in range(len(self.kernel.object(obj).shape)))
        inside = " and ".join(self._extent_text(obj, axis) for axis in range(len(self.kernel.object(obj).shape)))
        for other in self.aliases(obj):
            for cells in self.accesses_of(other):
                if cells.relation.mode is Mode.READ:
                    continue
                everything = self.parse_set(f"{{ {identifier(obj)}[{dims}] : {inside or 'true'} }}")
                anywhere = isl.Map.from_domain_and_range(cells.bare.domain(), everything)
                result.append(replace(cells, bare=anywhere, exact=False, reason=f"'{other}' shares its bytes"))
        return result

    # ------------------------------------------------------------------ time

    def schedule(self, site: Site) -> Map:
        """{instance of a site -> time}; the elements of one iteration have the same time."""
        instances = self.clock(site).insert_dims(isl.dim_type.in_, len(site.loops), len(site.shape))
        return instances.set_tuple_name(isl.dim_type.in_, site.name)

    def iteration_schedule(self, site: Site) -> Map:
        """{S[loop counters] -> time} for the iterations that a site runs, in the context."""
        if site.index not in self._schedules:
            self._schedules[site.index] = self.clock(site).intersect_domain(self._ran(site))
        return self._schedules[site.index]

    def _ran(self, site: Site) -> Set:
        """Return the iterations S[loop counters] that a site runs.

        The set leaves out constraints that the context implies, and has only the parameters on which it depends. It is
        cached, since neighbouring statements share it.
        """
        bare, _, _ = self.bare_domain(site)
        key = (self._text[site.index], len(site.shape))
        if key not in self._iterations:
            iterations = bare.project_out(isl.dim_type.set, len(site.loops), len(site.shape))
            self._iterations[key] = self.context.simply(iterations)
        return self._iterations[key].set_tuple_name(site.name)

    def iteration_cells(self, cells: Cells) -> Map:
        """{S[loop counters] -> cell}: an access without its element coordinates, in the context.

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
        """{S[loop counters] -> time}, whether the iterations run or not."""
        if site.index not in self._clocks:
            time = [counter(p) if isinstance(p, str) else str(p) for p in self.times_of[site.index]]
            time += ["0"] * (self.depth - len(time))
            self._clocks[site.index] = isl.Map(f"{{ {self.tuple_text(site, ())} -> [{', '.join(time)}] }}")
        return self._clocks[site.index]

    def times(self, site: Site) -> Set:
        """Return the set of times at which a site runs."""
        return self.iteration_schedule(site).range()

    def before(self, strict: bool = True) -> Map:
        """{time -> later time}."""
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


def _before_first(trips: Set, number: int) -> Set:
    """Return a point that stands for the trip `number` before the first one of `trips`."""
    return point((-number, *[0] * (trips.dim(isl.dim_type.set) - 1)))


def byte_span(tile: Shared) -> tuple[int, int]:
    """Return the range of bytes of the block's shared memory that a tile occupies, as (start, end), end excluded."""
    assert tile.layout is not None and tile.offset is not None
    return tile.offset, tile.offset + int(tile.layout.cosize()) * tile.dtype.bytes
