"""Coverage of parts of outputs, where index tensors determine the elements that must be written.

A part is written as `at(q)` for variables q in a box for which a condition holds. Both sides may load numbers: a block
loads `offsets[e]` of its own segment, and the part loads `offsets[q]` of every segment. To show that an element is
written, a block is found that loads from the same places, and so loads the same numbers.

A tensor may be one part, or a declaration of an index tensor may divide it into parts: the segments between offsets are
all rows, and so are the rows that a permutation names. The proof is here, once for all kernels: with t[0] = 0,
t[n] = T and t sorted, the last s with t[s] <= p has p < t[s + 1]; and n distinct values from 0 up to n are all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from argus.diagnostic import Verdict
from argus.ir.contents import arrangements, ranges
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Param, ProgramId, Thread, coords, op, rewrite, walk
from argus.ir.nodes import Arranged, Kernel, Tensor
from argus.verify.checks.launchable import launchable
from argus.verify.model.formulas import Tuple, both, either, equal
from argus.verify.model.isl import Map, Set, involves, isl
from argus.verify.model.relations import Cells, Model
from argus.verify.model.resolving import BOUND_OF_BLOCK, LOADED, differs_by_block
from argus.verify.model.solver import Solver, z3
from argus.verify.model.translator import NonAffine, counter
from argus.verify.model.uses import Instance, Use, Uses, facts, programs
from argus.work import STEPS_PER_SECOND

_DECLARED = "declared "
"""The prefix of the names of numbers that a declared part loads."""


_QUESTION = 2 * STEPS_PER_SECOND
"""The largest number of steps for one question to Z3."""


@dataclass(frozen=True, slots=True)
class Part:
    """The elements `at`, over `Coord`s in the box `shape`, where `where` holds."""

    shape: tuple[Expr, ...]
    at: tuple[Expr, ...]
    where: Expr | None = None


def whole(tensor: Tensor) -> Part:
    """Return the part that consists of all elements of a tensor."""
    return Part(tensor.shape, coords(len(tensor.shape)))


def declared(kernel: Kernel, tensor: Tensor) -> Part | None:
    """Return the part that the author declares by `al.covers`; None if there is no declaration."""
    covers = next((c for c in kernel.covers if c.output == tensor.name), None)
    return None if covers is None else Part(covers.shape, covers.at, covers.where)


def made_of(model: Model, tensor: Tensor) -> Iterator[Part]:
    """Yield the parts that equal the whole tensor according to declarations of index tensors."""
    kernel = model.kernel
    rank = len(tensor.shape)
    here, own = coords(rank), Coord(rank)
    for index in kernel.tensors:
        name = index.name
        for fact in arrangements(kernel, name):
            for axis, size in enumerate(tensor.shape):
                if fact.how == "offsets" and fact.total is not None and _equal(model, fact.total, size):
                    begin, end = (Elem(name, (place,), index.dtype) for place in (own, op("add", own, Const(1))))
                    inside = op("and", op("le", begin, here[axis]), op("lt", here[axis], end))
                    segments = op("sub", index.shape[0], Const(1))
                    yield Part((*tensor.shape, segments), here, inside)
                if _takes_all(model, fact, index, size):
                    place = Elem(name, (here[axis],), index.dtype)
                    yield Part(tensor.shape, (*here[:axis], place, *here[axis + 1 :]))


def _takes_all(model: Model, fact: Arranged, index: Tensor, size: Expr) -> bool:
    """Return True if the elements are all integers from 0 up to a size: n distinct ones of n."""
    if not (fact.how in ("permutation", "distinct") and len(index.shape) == 1 and _equal(model, index.shape[0], size)):
        return False
    zero = Const(0, size.dtype)
    return fact.how == "permutation" or any(
        _equal(model, each.lo, zero) and _equal(model, each.hi, size) for each in ranges(model.kernel, index.name)
    )


def _equal(model: Model, one: Expr, other: Expr) -> bool:
    """Return True if two sizes are known to be equal."""
    with suppress(NonAffine):
        return bool(model.context.sizes.is_subset(model.when(op("eq", one, other))))
    return False


def missing(model: Model, tensor: Tensor, part: Part, writes: list[Cells]) -> Set:
    """Return the variables of a part, and the sizes, for which no write was found. Raises `NonAffine`."""
    claim = _Claim(model, part)
    left = claim.points
    for cells in writes:
        left = left.subtract(claim.written_by(cells))
    return left


def outside(model: Model, part: Part, cells: Cells) -> Set:
    """Return the instances of a write that may write an element outside a part. Raises `NonAffine`."""
    return _Claim(model, part).beyond(cells)


def variables(model: Model, part: Part, cells: Cells) -> Map:
    """Return {instance of a write -> the variables of the part's element that it writes}.

    Raises `NonAffine` if the variables are not known, or may have several values.
    """
    claim, site = _Claim(model, part), cells.site
    found = claim.numbered(cells).intersect_params(model.context.set)
    rank = len(claim.names)
    pairs = Map.from_range(found)
    pairs = pairs.move_dims(isl.dim_type.in_, 0, isl.dim_type.out, rank, found.dim(isl.dim_type.set) - rank)
    pairs = pairs.set_tuple_name(isl.dim_type.in_, site.name)
    touched = cells.map.domain().intersect_params(model.context.contents).intersect_params(model.context.possible)
    every = not cells.exact or touched.is_subset(pairs.domain())
    if not (every and pairs.is_single_valued() and _once(model, claim)):
        raise NonAffine("an element of the declared part has no variables that are known, or several")
    return pairs


def _once(model: Model, claim: _Claim) -> bool:
    """Return True if no element of a part has two values of its variables."""
    solver, rank = Solver(model.work, _QUESTION), len(claim.names)

    def other(e: Expr) -> Expr | None:
        match e:
            case Coord(axis=axis):
                return Coord(axis + rank)
            case Param(name=name) if name.startswith(_DECLARED):
                return Param(f"{name} of the other", e.dtype)
            case _:
                return None

    for fact in launchable(model.kernel, solver):
        solver.assume(fact)
    ours = list(claim.uses.values())
    theirs = [Use(u.tensor, tuple(rewrite(i, other) for i in u.index), _number(rewrite(u.value, other))) for u in ours]
    known = (*claim.limits, *(rewrite(c, other) for c in claim.limits), *facts(model.kernel, [*ours, *theirs]))
    for condition in known:
        solver.assume(solver.condition(condition))
    for place in claim.at:
        solver.assume(solver.integer(place) == solver.integer(rewrite(place, other)))
    same = z3.And(*(solver.integer(Coord(n)) == solver.integer(Coord(n + rank)) for n in range(rank)))
    return solver.holds(same).verdict is Verdict.PROVED


def _number(expr: Expr) -> Param:
    assert isinstance(expr, Param)
    return expr


class _Claim:
    """A part whose variables are the dimensions q0, q1, ... of a set."""

    def __init__(self, model: Model, part: Part) -> None:
        self.model, self.part = model, part
        self.names = tuple(f"q{axis}" for axis in range(len(part.shape)))
        self.uses: dict[str, Use] = {}
        self.at = tuple(self._spelled(e) for e in part.at)
        conditions: list[Expr] = [] if part.where is None else [self._spelled(part.where)]
        box: list[tuple[Expr, Expr]] = [(Coord(axis), size) for axis, size in enumerate(part.shape)]
        for use in self.uses.values():
            index = model.kernel.object(use.tensor)
            assert isinstance(index, Tensor)
            box += zip(use.index, index.shape, strict=True)
        for place, size in box:
            conditions += [op("le", Const(0), place), op("lt", place, size)]
        self.limits = tuple(conditions)
        self.conditions = [model.translator.condition(c, self.names) for c in conditions]
        known = _known(model, facts(model.kernel, tuple(self.uses.values())), self.names)
        points = model.points(Tuple(self.names), *self.conditions, *known)
        self.points = points.intersect_params(model.context.sizes)

    def _spelled(self, expr: Expr) -> Expr:
        """Replace each element of an index tensor in an expression of the part by a number of its own."""

        def change(e: Expr) -> Expr | None:
            if not isinstance(e, Elem):
                return None
            name = f"{_DECLARED}{len(self.uses)}"
            known = next((u for u in self.uses.values() if (u.tensor, u.index) == (e.obj, e.index)), None)
            if known is None:
                known = self.uses[name] = Use(e.obj, e.index, Param(name, e.dtype))
            return known.value

        return rewrite(expr, change)

    def written_by(self, cells: Cells) -> Set:
        """Return the variables at which some block's access writes the part's element."""
        found, position = self._meetings(cells, links_of_blocks=True), len(self.names)
        found = found.project_out(isl.dim_type.set, position, found.dim(isl.dim_type.set) - position)
        return self._of_any(found, lambda e: isinstance(e, ProgramId) or _of_block(e))

    def numbered(self, cells: Cells) -> Set:
        """Return {[variables, instance]} in which the instance writes the element, for the numbers that the block
        loads."""
        found = self._meetings(cells, links_of_blocks=False)
        uses = Uses(self.model.kernel, self.model.sites)
        Instance(uses, cells.site, cells.relation)
        moving = {
            name
            for name, use in uses.found.items()
            if any(isinstance(part, Coord | LoopVar) for e in use.index for part in walk(e))
        }
        moving |= {use.value.name for use in self.uses.values()}
        return self._of_any(found, lambda e: isinstance(e, Param) and e.name in moving)

    def beyond(self, cells: Cells) -> Set:
        """Return the instances that write no element of the part."""
        model, site = self.model, cells.site
        found = self._meetings(cells, links_of_blocks=False)
        found = found.project_out(isl.dim_type.set, 0, len(self.names))
        found = self._of_any(found, lambda e: isinstance(e, Param) and e.name.startswith(_DECLARED))
        uses = Uses(model.kernel, model.sites)
        instance = Instance(uses, site, cells.relation)
        dims, places = self._dims(cells)
        exprs = [*instance.conditions, *programs(model.kernel)]
        texts = [model.translator.condition(c, places) for c in exprs]
        texts += _known(model, facts(model.kernel, tuple(uses.found.values())), places)
        every = model.points(Tuple(dims), *texts)
        return every.intersect_params(model.context.sizes).subtract(found)

    def _dims(self, cells: Cells) -> tuple[list[str], tuple[str, ...]]:
        """Return the dimensions of an access's instances, and the dimensions of its elements."""
        places = self.model.coords(len(cells.site.shape))
        return [*(counter(v) for v in cells.site.iterators), *places], places

    def _meetings(self, cells: Cells, *, links_of_blocks: bool) -> Set:
        """Return {[variables, instance]}: the instance writes the element of these variables, and loads the same
        numbers.

        With `links_of_blocks`, each number that the instance loads equals one of the part's numbers. Without it, each
        of the part's numbers equals one of the instance's.
        """
        model, translate = self.model, self.model.translator
        uses = Uses(model.kernel, model.sites)
        instance = Instance(uses, cells.site, cells.relation)
        dims, places = self._dims(cells)
        exprs = [*instance.conditions, *programs(model.kernel)]
        exprs += [u.mask for u in uses.found.values() if u.mask is not None]
        if any(isinstance(part, Thread) for expr in (*exprs, *instance.cell) for part in walk(expr)):
            raise NonAffine("what is written depends on the thread")
        texts = [*self.conditions, *(translate.condition(c, places) for c in exprs)]
        for own, other in zip(self.at, instance.cell, strict=True):
            texts.append(translate.equals(translate.integer(own, self.names), other, places))
        ours, theirs = list(self.uses.values()), list(uses.found.values())
        for one in theirs if links_of_blocks else ours:
            same = [
                self._same(mine, its, places)
                for mine, its in ([(m, one) for m in ours] if links_of_blocks else [(one, t) for t in theirs])
                if mine.tensor == its.tensor
            ]
            texts.append(either(same))
        found = model.points(Tuple((*self.names, *dims)), *texts)
        for name, expr in translate.parameters.items():
            if name in translate.opaque.values() and differs_by_block(expr) and involves(found, (name,)):
                raise NonAffine("an index is not affine in the program ids")
        return found

    def _same(self, mine: Use, its: Use, places: tuple[str, ...]) -> str:
        """isl text of "a number of the part and a number of an instance are loaded from one place, and are equal"."""
        translate = self.model.translator
        pairs = [*zip(mine.index, its.index, strict=True), (mine.value, its.value)]
        return f"({both(equal(translate.integer(i, self.names), translate.integer(j, places)) for i, j in pairs)})"

    def _of_any(self, found: Set, free: Callable[[Expr], bool]) -> Set:
        """Project the parameters `free` out of `found`: a point stays if it is in `found` for some values of them."""
        for name, expr in self.model.translator.parameters.items():
            position = found.find_dim_by_name(isl.dim_type.param, name)
            if position >= 0 and free(expr):
                found = found.project_out(isl.dim_type.param, position, 1)
        return found


def _of_block(expr: Expr) -> bool:
    """Return True if a parameter is a number that a block loads or computes."""
    return isinstance(expr, Param) and expr.name.startswith((LOADED, BOUND_OF_BLOCK))


def _known(model: Model, conditions: Iterator[Expr], places: tuple[str, ...]) -> list[str]:
    """Return isl text of those conditions that are affine and describe one basic set.

    Leaving out facts is sound. A fact with several cases would multiply the pieces of all sets.
    """
    texts = []
    for condition in conditions:
        with suppress(NonAffine):
            text = model.translator.condition(condition, places)
            if model.points(Tuple(places), text).n_basic_set() == 1:
                texts.append(text)
    return texts
