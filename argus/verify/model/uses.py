"""Numbers that a kernel loads from index tensors, and the declared facts about them.

Each use `t[e]` is a number of its own, and equal places hold equal numbers. The declarations about the tensor's
contents are stated for the numbers that occur, and for pairs of them. That decides the questions in which the numbers
occur (Ackermann).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from argus.ir.access import Mode, Relation
from argus.ir.contents import extent, is_distinct, is_sorted, offsets_of, ranges
from argus.ir.expr import (
    Const,
    Coord,
    Elem,
    Expr,
    LoopVar,
    Param,
    conjunction,
    coords,
    op,
    rewrite,
    substitute_coords,
    walk,
)
from argus.ir.nodes import Assume, Copy, Kernel, Map, Requires, Tensor
from argus.ir.text import print_expr
from argus.verify.model.program import PROGRAM, Site, in_each, turns
from argus.verify.model.resolving import BOUND_OF_BLOCK, LOADED, is_of_others, loaded, only_writer


@dataclass(frozen=True, slots=True)
class Use:
    """A loaded number: `value` stands for `tensor[index]` where `mask` holds, and for `other` elsewhere."""

    tensor: str
    index: tuple[Expr, ...]
    value: Param
    mask: Expr | None = None
    other: Const | None = None


@dataclass
class Uses:
    """The loaded numbers that occur in expressions of a kernel's sites."""

    kernel: Kernel
    sites: tuple[Site, ...]
    found: dict[str, Use] = field(default_factory=dict)
    """The loaded numbers by the names of their values."""

    def __post_init__(self) -> None:
        accesses = (a for site in self.sites for a in site.accesses)
        self._written = {a.obj for a in accesses if a.mode is not Mode.READ}

    def spelled(self, site: Site, expr: Expr) -> Expr:
        """Replace registers in `expr` by the loaded or computed integers that they hold when the site evaluates it.

        Registers that have other writers, or are written in other iterations, stay.
        """
        return rewrite(expr, lambda e: self._held(site, e) if isinstance(e, Elem) and not e.dtype.is_float else None)

    def _held(self, site: Site, elem: Elem) -> Expr | None:
        writer = only_writer(self.sites, site, elem.obj)
        match writer.stmt if writer is not None else None:
            case Map(dst=dst, value=value, shape=shape) if writer is not None and dst.index == coords(len(shape)):
                if is_of_others(site, value):
                    return None
                return self.spelled(writer, substitute_coords(value, elem.index))
            case Copy(dst=dst, shape=shape) as stmt if writer is not None and dst.index == coords(len(shape)):
                return self._loaded(writer, stmt, elem)
            case _:
                return None

    def _loaded(self, writer: Site, stmt: Copy, elem: Elem) -> Param | None:
        source = self.kernel.object(stmt.src.obj)
        if not isinstance(source, Tensor) or source.name in self._written:
            return None
        if stmt.mask is not None and stmt.other is None:
            return None
        index = tuple(self.spelled(writer, substitute_coords(e, elem.index)) for e in stmt.src.index)
        mask = None if stmt.mask is None else self.spelled(writer, substitute_coords(stmt.mask, elem.index))
        name = f"{LOADED}{source.name}[{', '.join(map(print_expr, index))}]"
        if mask is not None and stmt.other is not None:
            name += f" if {print_expr(mask)} else {stmt.other.value}"
        value = Param(name, elem.dtype)
        self.found.setdefault(name, Use(source.name, index, value, mask, stmt.other))
        return value


def certain(kernel: Kernel, sites: tuple[Site, ...]) -> tuple[Use, ...]:
    """Return the numbers that every program loads once, unconditionally. `bounds` checks that their places exist."""
    most = max((turns(site.role) for site in sites), default=1)
    found = [loaded(tuple(s for s in sites if in_each(s, turn)), sites) for turn in range(most)]
    return tuple(
        Use(place.obj, place.index, Param(name, kernel.object(place.obj).dtype))
        for place, name in found[0].items()
        if kernel.object(place.obj).dtype.is_int and all(place in other for other in found)
    )


class Instance:
    """An instance of an access: its `cell`, and the `conditions` of the loops, branches and elements around it.

    In a persistent block one program number stands for all programs.
    """

    def __init__(self, uses: Uses, site: Site, relation: Relation) -> None:
        self.cell = tuple(uses.spelled(site, e) for e in relation.index)
        self.conditions: list[Expr] = []
        for loop in site.loops:
            if loop.var == PROGRAM:  # no upper bound: the block has any number of programs
                self.conditions.append(op("le", Const(0), LoopVar(PROGRAM)))
                continue
            var, start, stop = LoopVar(loop.var), *(uses.spelled(site, e) for e in (loop.start, loop.stop))
            self.conditions += [op("le", start, var), op("lt", var, stop)]
            if loop.step > 1:
                trips = op("mod", op("sub", var, start), Const(loop.step))
                self.conditions.append(op("eq", trips, Const(0)))
        self.conditions += [uses.spelled(site, guard) for guard in site.guards]
        if relation.guard is not None:
            self.conditions.append(uses.spelled(site, relation.guard))
        for axis, size in enumerate(site.shape):
            self.conditions += [op("le", Const(0), Coord(axis)), op("lt", Coord(axis), Const(size))]


def programs(kernel: Kernel) -> Iterator[Expr]:
    """Facts about a block: the ranges of its program ids, and preconditions about bounds computed from them."""
    for own in kernel.program_ids:
        grid = kernel.grid or ()
        size = grid[own.axis] if own.axis < len(grid) else Const(1)
        yield from (op("le", Const(0), own), op("lt", own, size))
    for p in kernel.preconditions:
        if isinstance(p, Requires | Assume):
            names = (e.name for e in walk(p.cond) if isinstance(e, Param))
            yield from (p.cond,) if any(name.startswith(BOUND_OF_BLOCK) for name in names) else ()


def facts(kernel: Kernel, uses: Sequence[Use]) -> Iterator[Expr]:
    """Yield the declared facts about index tensors, stated for the numbers that are used."""
    for use in uses:
        yield from (_where((use,), fact) for fact in alone(kernel, use))
        if use.mask is not None and use.other is not None:
            yield op("or", use.mask, op("eq", use.value, use.other))
    for one, other in combinations(uses, 2):
        if one.tensor == other.tensor:
            yield from (_where((one, other), fact) for fact in _together(kernel, one, other))


def _where(uses: Sequence[Use], fact: Expr) -> Expr:
    """Restrict a fact to the elements where all its numbers are loaded."""
    mask = conjunction([u.mask for u in uses if u.mask is not None])
    return fact if mask is None else op("or", op("not", mask), fact)


def alone(kernel: Kernel, use: Use) -> Iterator[Expr]:
    """Yield the facts about one number."""
    for each in ranges(kernel, use.tensor):
        yield op("and", op("le", each.lo, use.value), op("lt", use.value, each.hi))
    offsets = offsets_of(kernel, use.tensor)
    if offsets is not None and offsets.total is not None:
        (place,) = use.index
        last = op("sub", extent(kernel, use.tensor), Const(1))
        for end, number in ((Const(0), Const(0)), (last, offsets.total)):
            yield op("or", op("ne", place, end), op("eq", use.value, number))


def _together(kernel: Kernel, one: Use, other: Use) -> Iterator[Expr]:
    """Yield the facts about two numbers of one tensor."""
    same = conjunction([op("eq", i, j) for i, j in zip(one.index, other.index, strict=True)])
    equal = op("eq", one.value, other.value)
    yield equal if same is None else op("or", op("not", same), equal)
    if same is not None and is_distinct(kernel, one.tensor):
        yield op("or", same, op("not", equal))
    if not is_sorted(kernel, one.tensor):
        return
    in_row = conjunction([op("eq", i, j) for i, j in zip(one.index[:-1], other.index[:-1], strict=True)])
    offsets = offsets_of(kernel, one.tensor)
    for first, second in ((one, other), (other, one)):
        before = op("le", first.index[-1], second.index[-1])
        before = before if in_row is None else op("and", in_row, before)
        yield op("or", op("not", before), op("le", first.value, second.value))
        if offsets is not None and offsets.longest is not None:
            next_to = op("eq", op("add", first.index[-1], Const(1)), second.index[-1])
            within = op("le", op("sub", second.value, first.value), offsets.longest)
            yield op("or", op("not", next_to), within)
