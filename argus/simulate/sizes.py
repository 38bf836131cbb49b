"""Small sizes at which a kernel is tried: with tails, and with loops that run zero times and several times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import prod

from argus.ir.expr import Const, Coord, Elem, Expr, Op, Param, conjuncts, walk
from argus.ir.nodes import (
    Accumulate,
    Arranged,
    Assume,
    Copy,
    For,
    InRange,
    Kernel,
    Map,
    Programs,
    Requires,
    Scalar,
    Tensor,
)
from argus.ir.places import places
from argus.ir.rings import place_in_ring
from argus.ir.types import int32
from argus.ir.visit import walk as statements
from argus.simulate.index_contents import declared
from argus.simulate.launch import bind_shape, scalar, unmet
from argus.simulate.usage import handed_on

FLOAT = 0.5
"""The value of every float argument."""
_PROGRAMS = 4
"""The number of programs of a block after which its barriers are in their second round."""
_LARGE = (1 << 23) + 5
"""The value of a large integer argument."""
_LONG = 1024
"""Extents of tiles beyond which tails of tiles are not small sizes."""
_FEW = 4
"""The number of blocks that are not few."""
_TRIED = 64
"""Largest number of neighbours of a wanted size vector that are tried."""


# ---------------------------------------------------------------------------- what a kernel admits


def shape_of(tensor: Tensor, values: Mapping[str, int]) -> tuple[int, ...]:
    """Return the extents of a tensor at given sizes."""
    return tuple(values[e.name] if isinstance(e, Param) else int(scalar(e, values)) for e in tensor.shape)


def admissible(kernel: Kernel, values: Mapping[str, int]) -> bool:
    """Return True if sizes meet the kernel's preconditions and assumptions, and its contiguous tensors can have
    contents.

    `values`: every size and every integer scalar argument.
    """
    params: dict[str, int | float | bool] = dict(values)
    params.update({p.name: FLOAT for p in kernel.params if isinstance(p, Scalar) and p.dtype.is_float})
    for t in kernel.tensors:
        shape = shape_of(t, values)
        contiguous = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        held = declared(kernel, t, values)
        if bind_shape(t, shape, contiguous, params) or (held is not None and not held.possible(shape)):
            return False
    assumed = (c.cond for c in kernel.preconditions if isinstance(c, Assume))
    return not unmet(kernel, params) and all(bool(scalar(cond, params)) for cond in assumed)


# ---------------------------------------------------------------------------- sizes worth trying


@dataclass(frozen=True, slots=True)
class _Size:
    """A size: the extent of the tiles that cover it, its unit (the size must be a multiple of it), and whether a
    loop runs over it."""

    name: str
    tile: int
    unit: int
    looped: bool


def size_vectors(kernel: Kernel) -> tuple[dict[str, int], ...]:
    """Return up to eight admissible small values of all sizes and integer arguments, most of them with tails.

    Loops run zero times, once, twice, and five times, which is more than the number of stages; in persistent kernels
    also zero times in several programs. If tiles are long, there are also sizes of a few elements. If contents of index
    tensors are declared, there are also three programs.
    """
    sizes = [_describe(kernel, name) for name in integer_parameters(kernel)]
    wanted: tuple[dict[str, int], ...] = (
        {s.name: s.tile + s.unit for s in sizes},
        {s.name: 0 if s.looped else s.unit for s in sizes},
        {s.name: max(s.unit, s.tile - s.unit) if s.looped else s.tile for s in sizes},
        {s.name: 2 * s.tile for s in sizes},
        {s.name: 4 * s.tile + s.unit if s.looped else max(s.unit, s.tile - s.unit) for s in sizes},
    )
    if any(s.tile > _LONG for s in sizes):
        wanted = ({s.name: min(5 * s.unit, s.tile) for s in sizes}, *wanted)
    if kernel.persistent:
        several = {s.name: 0 if s.looped else 2 * s.tile for s in sizes}
        wanted = (*wanted[:-1], several, wanted[-1])
    if any(isinstance(p, (InRange, Arranged)) for p in kernel.preconditions):
        few = _single(kernel)  # segments need three neighbours, of which two may overlap
        wanted = (*wanted, {s.name: 3 if s.name in few else 2 * s.tile for s in sizes})
    units = {s.name: s.unit for s in sizes}
    found: list[dict[str, int]] = []
    for vector in wanted:
        tried = (_solved(kernel, v, units) for v in islice(_near(sizes, vector), _TRIED))
        near = next((v for v in tried if admissible(kernel, v)), None)
        if near is not None and near not in found:
            found.append(near)
    return tuple(found)


def large_arguments(kernel: Kernel, values: Mapping[str, int]) -> dict[str, int] | None:
    """Return admissible sizes in which the integer arguments that neither loops nor the grid depend on are large, or
    None if there are none. Such arguments are data, or bounds of masks."""
    sizes = [_describe(kernel, name) for name in integer_parameters(kernel)]
    scalars = {p.name for p in kernel.params if isinstance(p, Scalar)}
    counted = {s.name for s in sizes if s.looped or any(_mentions(e, s.name) for e in kernel.grid or ())}
    free = scalars.intersection(values) - counted
    return _raised(kernel, values, sizes, dict.fromkeys(free, _LARGE)) if free else None


def round_the_rings(kernel: Kernel, values: Mapping[str, int]) -> dict[str, int] | None:
    """Return admissible sizes at which loops go once round every ring of buffers and into a second round, or None.

    Only the sizes that loops run over are raised, and those that they determine.
    """
    sizes = [_describe(kernel, name) for name in integer_parameters(kernel)]
    least = _rounds(kernel) - 1
    return _raised(kernel, values, sizes, {s.name: least * s.tile + s.unit for s in sizes if s.looped})


def several_programs(kernel: Kernel, values: Mapping[str, int]) -> dict[str, int] | None:
    """Return admissible sizes at which a block of a persistent kernel runs several programs, or None if there are none.

    Loops have two iterations, both of whole tiles. A count of programs becomes at most 2. Where roles take turns, each
    gets as many programs as a block otherwise.
    """
    sizes = [_describe(kernel, name) for name in integer_parameters(kernel)]
    each = max(_PROGRAMS, _odd_wrap(kernel) + 2)
    least = each * max((s.turns for s in statements(kernel.body) if isinstance(s, Programs)), default=1)
    looped = {s.name: 2 * s.tile for s in sizes if s.looped}
    single = {s.name: 2 for s in sizes if s.name in _single(kernel)}
    counted = [s for s in sizes if any(_mentions(e, s.name) for e in kernel.grid or ())]
    tiled = [s for s in counted if not s.looped and s.name not in single]
    for tiles in range(each + 1):
        others = {s.name: tiles * s.tile + s.unit for s in tiled}
        found = _raised(kernel, values, sizes, looped | single | others)
        if found is not None and _number_of_programs(kernel, found) >= least:
            return found
    return None


def few_blocks(kernel: Kernel, values: Mapping[str, int]) -> list[tuple[int, ...]] | None:
    """Return the first two blocks of a large grid and its last one, or None if the whole grid has to run.

    That is so for small grids, and where one program reads what another one writes.
    """
    if kernel.grid is None or kernel.persistent or handed_on(kernel):
        return None
    grid = tuple(max(0, int(scalar(e, values))) for e in kernel.grid)
    if prod(grid) <= _FEW:
        return None
    second = tuple(int(axis == (grid[0] == 1)) for axis in range(len(grid)))
    chosen = ((0,) * len(grid), second, tuple(n - 1 for n in grid))
    return [block for block in dict.fromkeys(chosen) if all(i < n for i, n in zip(block, grid, strict=True))]


def _raised(
    kernel: Kernel, values: Mapping[str, int], sizes: list[_Size], least: Mapping[str, int]
) -> dict[str, int] | None:
    """Return admissible sizes of at least `least`, except for sizes that other sizes determine."""
    raised = {s.name: max(values[s.name], -(-least.get(s.name, 0) // s.unit) * s.unit) for s in sizes}
    found = _solved(kernel, raised, {s.name: s.unit for s in sizes})
    return found if admissible(kernel, found) else None


def _rounds(kernel: Kernel) -> int:
    """Return the number of iterations after which every ring of buffers is in its second round."""
    rings = [b.count for b in kernel.barriers] + [s.shape[0] for s in kernel.shared if len(s.shape) > 2]
    return max([*rings, _odd_wrap(kernel)], default=1) + 2


def _odd_wrap(kernel: Kernel) -> int:
    """Return the largest number at which a running count begins anew in the middle of two rounds of a ring, or 0."""
    loops = (s for s in statements(kernel.body) if isinstance(s, For))
    counters = {loop.counter for loop in loops if loop.counter is not None}
    rings = {place_in_ring(e) for s in statements(kernel.body) for e in places(s)} - {None}
    pairs = ((c, r) for c in counters for r in rings if r is not None and r.counter == c.name)
    return max((c.wrap for c, r in pairs if c.wrap % (2 * r.size)), default=0)


def _number_of_programs(kernel: Kernel, values: Mapping[str, int]) -> int:
    return prod(max(0, int(scalar(e, values))) for e in kernel.grid or ())


def integer_parameters(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of sizes and integer arguments."""
    return (*kernel.sizes, *(p.name for p in kernel.params if isinstance(p, Scalar) and not p.dtype.is_float))


def integer_arguments(kernel: Kernel) -> tuple[Param, ...]:
    """Return the extents as expressions mention them."""
    types = {p.name: p.dtype for p in kernel.params if isinstance(p, Scalar)}
    return tuple(Param(name, types.get(name, int32)) for name in integer_parameters(kernel))


def _near(sizes: list[_Size], wanted: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield `wanted`, and then sizes beside it that are whole multiples of vectors, units and tiles."""
    choices = []
    for s in sizes:
        value = wanted[s.name]
        up, down = -(-value // s.unit) * s.unit, value // s.unit * s.unit
        tiles, fewer = -(-value // s.tile) * s.tile, value // s.tile * s.tile
        choices.append(list(dict.fromkeys((value, up, down, tiles, fewer, s.tile))))
    for values in product(*choices):
        yield {s.name: value for s, value in zip(sizes, values, strict=True)}


def _describe(kernel: Kernel, name: str) -> _Size:
    loops = [s for s in statements(kernel.body) if isinstance(s, For) and _depends(kernel, s.stop, name)]
    tiles = [s.step for s in loops if s.step > 1]
    for stmt in statements(kernel.body):
        if isinstance(stmt, Copy | Accumulate) and stmt.mask is not None:
            tiles += _covered(stmt.mask, name, stmt.shape)
    for expr in (*(kernel.grid or ()), *(c.cond for c in kernel.preconditions if isinstance(c, Requires))):
        tiles += _divisors(expr, name)
    units = [
        max(1, t.alignment // t.dtype.bytes)
        for t in kernel.tensors
        for extent, stride in zip(t.shape, t.strides, strict=True)
        if extent == Param(name) and isinstance(stride, Const) and stride.value == 1
    ]
    unit = max(units, default=1)
    return _Size(name, max(tiles, default=1 if name in _single(kernel) else max(4, unit)), unit, bool(loops))


def _single(kernel: Kernel) -> frozenset[str]:
    """Return the sizes that count programs: plain extents of the grid, and the sizes from which these are computed."""
    names = {e.name for e in kernel.grid or () if isinstance(e, Param)}
    related = (e for size, other in _equalities(kernel) if size in names for e in walk(other))
    return frozenset(names | {e.name for e in related if isinstance(e, Param)})


def _stated(kernel: Kernel) -> Iterator[Expr]:
    """Yield the conditions that the preconditions are made of."""
    for condition in kernel.preconditions:
        if isinstance(condition, Requires):
            yield from conjuncts(condition.cond)


def _equalities(kernel: Kernel) -> list[tuple[str, Expr]]:
    """Return the sizes that a precondition gives as expressions of others."""
    found = []
    for condition in _stated(kernel):
        match condition:
            case Op(op="eq", args=(Param(name=name), other)) if not _mentions(other, name):
                found.append((name, other))
            case _:
                pass
    return found


def _solved(kernel: Kernel, values: dict[str, int], units: Mapping[str, int]) -> dict[str, int]:
    """Return `values` in which the sizes that preconditions determine are computed from the others.

    A size that is at most another one is reduced to that.
    """
    known = values
    for name, other in _equalities(kernel):
        if name in known:
            known = _determined(known, name, other, units[name])
    for condition in _stated(kernel):
        match condition:
            case Op(op="le", args=(Param(name=less), Param(name=more))) if less in known and more in known:
                known = known | {less: min(known[less], known[more])}
            case _:
                pass
    return known


def _determined(values: dict[str, int], name: str, other: Expr, unit: int) -> dict[str, int]:
    """Return `values` in which the size `name` is `other`. A size in `other` grows until `unit` divides it."""
    free = next((e.name for e in walk(other) if isinstance(e, Param) and e.name in values), None)
    grown = [values if free is None else values | {free: values[free] + more} for more in range(unit)]
    tried = [vector | {name: int(scalar(other, vector))} for vector in grown]
    return next((vector for vector in tried if vector[name] % unit == 0), tried[0])


def _depends(kernel: Kernel, expr: Expr, name: str, seen: frozenset[str] = frozenset()) -> bool:
    """Return True if an expression mentions a size, or registers that are computed from it."""
    registers = frozenset(e.obj for e in walk(expr) if isinstance(e, Elem)) - seen
    values = (s.value for s in statements(kernel.body) if isinstance(s, Map) and s.dst.obj in registers)
    return _mentions(expr, name) or any(_depends(kernel, value, name, seen | registers) for value in values)


def _mentions(expr: Expr, name: str) -> bool:
    return any(isinstance(e, Param) and e.name == name for e in walk(expr))


def _covered(mask: Expr, name: str, shape: tuple[int, ...]) -> list[int]:
    """Return the extents of the axes whose coordinates `mask` compares with the size."""
    return [
        shape[c.axis]
        for e in walk(mask)
        if isinstance(e, Op) and e.op in ("lt", "le", "gt", "ge") and _mentions(e, name)
        for c in walk(e)
        if isinstance(c, Coord)
    ]


def _divisors(expr: Expr, name: str) -> list[int]:
    return [
        int(e.args[1].value)
        for e in walk(expr)
        if isinstance(e, Op) and e.op in ("floordiv", "mod") and isinstance(e.args[1], Const) and _mentions(e, name)
    ]
