"""The statement instances of a kernel: sets of points `S3[k, c0, c1]` under loops and branches.

The points are loop counters, then element coordinates, over parameters (sizes, program ids, integer arguments).
`translator` writes the formulas about them.
"""

from __future__ import annotations

from collections.abc import Sequence

from argus.ir.expr import Expr, LoopVar, ProgramId, Thread, op, rewrite, walk
from argus.ir.instruction import Order
from argus.ir.nodes import For, Fragment, Kernel, Programs, Tensor, ThreadCopy
from argus.verify.model.context import Known
from argus.verify.model.formulas import Pair, Tuple, between, multiple, numbered
from argus.verify.model.isl import Map, Set, involves, isl, without_last
from argus.verify.model.program import PROGRAM, Site, loops_by_trip, representatives, sites
from argus.verify.model.resolving import block_bounds, definitions_of, differs_by_block, least, resolved
from argus.verify.model.translator import NonAffine, Translator, counter, holder_condition
from argus.verify.model.uses import certain
from argus.work import LIMIT_S, Work

Formula = tuple[tuple[str, ...], tuple[str, ...]]
"""The dimensions of a tuple, and conditions on them."""


class Instances:
    """The sites of a kernel, the sets of their instances, and the context of its sizes."""

    def __init__(
        self, kernel: Kernel, definitions: Sequence[Expr] = (), *, lean: bool = False, work: Work | None = None
    ) -> None:
        """Build the sites and the context. `work`: the steps for Z3's questions about the kernel.

        `definitions`: facts about scalars besides the preconditions, which are too complicated to be in every set.
        A `lean` model knows fewer facts about the sizes, and its sets have only the parameters that they depend on, in
        any order. A proof on it is valid, but a counterexample on it is not.
        """
        self.kernel, self.lean, self.work = kernel, lean, work or Work.of_seconds(LIMIT_S)
        self.sites = sites(kernel)
        self.like = representatives(self.sites)
        self.persistent = any(isinstance(s.stmt, Programs) for s in self.sites)
        loops = [s.stmt for s in self.sites if isinstance(s.stmt, For)]
        counting = frozenset(loop.counter.name for loop in loops if loop.counter is not None)
        self.translator = Translator(counts=counting, trips=loops_by_trip(kernel), lean=lean)
        self._bounds = block_bounds(self.sites) if lean else {}
        exactly = (*definitions, *definitions_of(self._bounds))
        self.context = Known(kernel, self.translator, exactly, lean, certain(kernel, self.sites))
        for fact in least(self._bounds):
            self.context.narrow(self.when(fact))
        self._bare: dict[int, tuple[Set, bool, str]] = {}
        self._domains: dict[int, tuple[Set, bool, str]] = {}
        self._sets: dict[Formula, Set] = {}
        self._formulas: dict[int, Formula] = {}

    programs: int | None = None
    """The number of consecutive programs that are distinguished; None: any number, all of which take the same steps."""

    @property
    def uneven(self) -> bool:
        """Return True if programs of a block may take different steps: a loop or branch depends on the program.

        Branches in which threads move data between registers and tensors do not count, because neither carries anything
        from one program to the next.
        """
        return self.persistent and any(
            differs_by_block(self.resolve(site, expr))
            for site in self.sites
            if not self._carries_nothing(site)
            for expr in (*site.guards, *(e for loop in site.loops for e in (loop.start, loop.stop)))
        )

    def _carries_nothing(self, site: Site) -> bool:
        """Return True if a statement moves data between registers and tensors, and is complete when it has run."""
        return isinstance(site.stmt, ThreadCopy) and all(
            a.order is Order.SYNC and isinstance(self.kernel.object(a.obj), Tensor | Fragment) for a in site.accesses
        )

    def coords(self, rank: int) -> tuple[str, ...]:
        return numbered("c", rank)

    def varying(self, cells: Map) -> list[str]:
        """Return the parameters on which `cells` depends, other than program ids, that may differ from block to block.
        """
        parameters = self.translator.parameters.items()
        differ = [n for n, e in parameters if not isinstance(e, ProgramId) and differs_by_block(e)]
        return [name for name in differ if involves(cells, (name,))]

    def points(self, at: Tuple | Pair, *conditions: str) -> Set:
        """Return the points `at` that satisfy all conditions."""
        return self.translator.points(at, *conditions)

    def relation(self, source: Tuple | Pair, image: Tuple | Pair, *conditions: str) -> Map:
        """Return {source -> image} where all conditions hold."""
        return self.translator.relation(source, image, *conditions)

    def facts(self, *conditions: str) -> Set:
        """Return the parameters that satisfy all conditions."""
        return self.translator.facts(*conditions)

    def when(self, condition: Expr) -> Set:
        """Return the parameters for which a condition holds."""
        return self.facts(self.translator.condition(condition, ()))

    def where(self, site: Site, condition: Expr) -> Set:
        """Return the instances of a site at which a condition holds, whether they run or not."""
        coords = self.coords(len(site.shape))
        text = self.translator.condition(self.resolve(site, condition), coords)
        return self.points(self.instance(site, coords), text)

    def image(self, site: Site, exprs: Sequence[Expr], name: str = "", *, elements: bool = True) -> Map:
        """Return {instance of a site -> `name[exprs]`}, whether the instance runs or not; iterations if not
        `elements`."""
        coords = self.coords(len(site.shape)) if elements else ()
        values = [self.translator.integer(self.resolve(site, e), coords) for e in exprs]
        return self.relation(self.instance(site, coords), Tuple(values, name))

    def iterations(self, site: Site) -> Map:
        """Return {instance of a site -> its iteration}."""
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
        conditions = [between(c, "0", str(n)) for c, n in zip(coords, site.shape, strict=True)]
        exact, reason = True, ""
        for loop in site.loops:
            try:
                conditions += self.loop_conditions(site, (loop,))
            except NonAffine as error:
                exact, reason = False, str(error)
        for guard in site.guards:
            try:
                conditions.append(self.guard_text(site, self.in_program(self.resolve(site, guard)), coords))
            except NonAffine as error:
                exact, reason = False, str(error)
        self._formulas[site.index] = tuple(self.instance(site, coords).terms), tuple(conditions)
        return self.instances(*self._formulas[site.index]).set_tuple_name(site.name), exact, reason

    def in_program(self, expr: Expr) -> Expr:
        """Return the form in which the model uses a bound or a branch's condition; `window` overrides it."""
        return expr

    def instances(self, dims: tuple[str, ...], conditions: tuple[str, ...]) -> Set:
        """Return the points of a tuple that satisfy some conditions; cached, since neighbouring statements share them.
        """
        if (dims, conditions) not in self._sets:
            self._sets[dims, conditions] = self.points(Tuple(dims), *conditions)
        return self._sets[dims, conditions]

    def loop_conditions(self, site: Site, loops: tuple[For, ...]) -> list[str]:
        """Return the conditions that the counters of some loops around a site are in range, as isl text."""
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
                conditions.append(multiple(f"{var} - {start}", loop.step))
        return conditions

    def resolve(self, site: Site, expr: Expr) -> Expr:
        """Replace computed registers by their values, and bounds by names; see `resolved` and `block_bounds`."""
        return rewrite(resolved(self.sites, site, expr), self._bounds.get)

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

    def instance(self, site: Site, coords: tuple[str, ...]) -> Tuple:
        """Return the instance of a site at its loop counters and an element's coordinates."""
        return Tuple((*(counter(v) for v in site.iterators), *coords), site.name)
