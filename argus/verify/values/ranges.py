"""Recognition of scans that are written out as statements: the elements of a tile that each statement combines.

Tiles have constant shapes, so the analysis follows the statements of a loop body or branch one by one, on tables. For
each element of a register tile, a table gives the run of elements of an earlier tile that it combines by one operator:
the first one, the last one and the step. The analysis assumes no particular form of scan.

    map p[c0] = x[4 * c0]; map q[c0] = p[c0] + x[4 * c0 + 1]    ->  q[c0]: the sum of x[4 * c0] to x[4 * c0 + 1]

If a statement combines all elements up to each one, or from each one on, or all elements, its term is a reduction over
them. The many intermediate terms are not built.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from argus.ir.access import Mode as Kind
from argus.ir.expr import Elem, Expr, Op, Thread, elements, walk
from argus.ir.instruction import INSTRUCTIONS, Order
from argus.ir.locality import cells, evaluate
from argus.ir.nodes import Access, Copy, For, Fragment, If, Map, Programs, Roles, Shared, ThreadCopy
from argus.layout import FragmentLayout, Mode
from argus.verify.model.formulas import numbered
from argus.verify.model.isl import UnionMap
from argus.verify.model.program import Site
from argus.verify.model.relations import Model
from argus.verify.model.translator import NonAffine

Table = NDArray[np.int64]

_COMBINING = frozenset({"add", "mul", "maximum", "minimum"})
_LARGEST = 1 << 16
"""The largest number of elements of a tile that is followed."""


@dataclass
class _Base:
    """A tile whose elements are not known to combine elements of other tiles. `reads`: the reads of its elements."""

    shape: tuple[int, ...]
    reads: list[tuple[Site, Elem, Table]] = field(default_factory=list)


@dataclass(frozen=True)
class _Tile:
    """The run of elements that each element of a tile combines: the base tile (-1: unknown), the first and the last of
    the base's elements, and the operator and step (`way`: an index into `Ranges.ways`; 0: a single element)."""

    base: Table
    first: Table
    last: Table
    way: Table

    def at(self, place: Table, known: NDArray[np.bool_]) -> _Tile:
        """Return the elements at some places; elements that are not `known` get the base -1."""
        return _Tile(np.where(known, self.base[place], -1), self.first[place], self.last[place], self.way[place])

    def where(self, test: NDArray[np.bool_], other: _Tile) -> _Tile:
        """Return these elements where a test holds, and those of another tile elsewhere."""
        mine, others = (self.base, self.first, self.last, self.way), (other.base, other.first, other.last, other.way)
        return _Tile(*(np.where(test, x, y) for x, y in zip(mine, others, strict=True)))


def _elements(base: int, places: Table) -> _Tile:
    return _Tile(np.full(places.shape, base), places, places, np.zeros(places.shape, dtype=np.int64))


@dataclass(frozen=True)
class Combined:
    """A reduction by `op` over elements of a tile. A part: {instance -> instance of a site}, the site, and its read."""

    op: str
    parts: tuple[tuple[UnionMap, Site, Elem], ...]


class Ranges:
    """Finds the reductions that a kernel's statements compute, by site. The first query follows all statements."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.ways: list[tuple[str, int]] = [("", 0)]
        self._found: dict[int, tuple[_Base, _Tile, FragmentLayout]] | None = None
        self._bases: list[_Base] = []
        self._tiles: dict[str, _Tile] = {}
        self._own: dict[str, int] = {}

    def of(self, site: Site) -> Combined | None:
        """Return the reduction over a tile's elements that a map completes; None if it is not recognised as one."""
        if self._found is None:
            self._found = {}
            if any(map(_displaced, self.model.sites)):
                self._follow()
        found = self._found.get(site.index)
        if found is None:
            return None
        base, tile, domain = found
        op, step = self.ways[int(tile.way.max())]
        bounds = _bounds(base, tile, domain, step)
        try:
            return None if bounds is None else self._combined(site, base, op, bounds)
        except NonAffine:
            return None

    # ------------------------------------------------------------------ following

    def _follow(self) -> None:
        block: object = None
        for site in self.model.sites:
            where = (site.role, site.loops, site.guards)
            if where != block:
                block, self._tiles, self._own = where, {}, {}
            match site.stmt:
                case Map(dst=dst, value=value, shape=shape) if np.prod(shape) <= _LARGEST:
                    domain = _box(shape)
                    made = self._value(site, value, domain)
                    self._write(dst.obj, _places(dst, self._shape(dst.obj), domain), made)
                    self._note(site, made, domain)
                case ThreadCopy(dst=dst, src=src, shape=shape, mask=None) if self._plain(site, site.stmt):
                    domain = _box(shape)
                    made = self._read(site, Elem(src.obj, src.index, self.model.kernel.object(src.obj).dtype), domain)
                    self._write(dst.obj, _places(dst, self._shape(dst.obj), domain), made)
                case For() | If() | Programs() | Roles():
                    pass
                case _:
                    for access in site.accesses:
                        if access.mode is not Kind.READ:
                            self._forget(access.obj)

    def _plain(self, site: Site, stmt: Copy) -> bool:
        """Return True for a synchronous copy between tiles of the block's own registers and shared memory."""
        objects = [self.model.kernel.object(a.obj) for a in (stmt.src, stmt.dst)]
        row = INSTRUCTIONS.get(stmt.instr or "")
        own = site.role is None and stmt.src.block is None and stmt.dst.block is None
        return (
            own
            and row is not None
            and row.order is Order.SYNC
            and all(isinstance(o, Fragment | Shared) for o in objects)
        )

    def _shape(self, obj: str) -> tuple[int, ...]:
        found = self.model.kernel.object(obj)
        return found.shape if isinstance(found, Fragment | Shared) else ()

    def _forget(self, obj: str) -> None:
        for name in (obj, *self.model.aliases(obj)):
            self._tiles.pop(name, None)
            self._own.pop(name, None)

    def _note(self, site: Site, made: _Tile, domain: FragmentLayout) -> None:
        assert self._found is not None
        numbers, ways = np.unique(made.base), np.unique(made.way[made.way > 0])
        if len(numbers) == 1 and numbers[0] >= 0 and len(ways) == 1:
            self._found[site.index] = (self._bases[int(numbers[0])], made, domain)

    def _new(self, obj: str) -> int:
        self._bases.append(_Base(self._shape(obj)))
        return len(self._bases) - 1

    def _held(self, obj: str) -> _Tile:
        """Return what a tile holds. A tile about which nothing is known becomes a new base."""
        if obj not in self._tiles:
            self._own[obj] = self._new(obj)
            self._tiles[obj] = _elements(self._own[obj], np.arange(int(np.prod(self._shape(obj)))))
        return self._tiles[obj]

    def _write(self, obj: str, where: Table | None, made: _Tile) -> None:
        for name in self.model.aliases(obj):
            self._tiles.pop(name, None)
            self._own.pop(name, None)
        held = self._held(obj)
        if where is None or bool((where < 0).any()) or len(np.unique(where)) != where.size:
            self._forget(obj)
            return
        self._own.pop(obj, None)
        written, source = np.zeros(held.base.shape, dtype=np.bool_), np.zeros(held.base.shape, dtype=np.int64)
        written[where], source[where] = True, np.arange(where.size)
        now = made.at(source, np.ones_like(written)).where(written, held)
        unknown = now.base < 0
        if unknown.any():  # from here on, they are elements of a new base
            number = self._new(obj)
            now = _elements(number, np.arange(unknown.size)).where(unknown, now)
            if unknown.all():
                self._own[obj] = number
        self._tiles[obj] = now

    # ------------------------------------------------------------------ values

    def _value(self, site: Site, expr: Expr, domain: FragmentLayout) -> _Tile:
        nothing = _elements(-1, np.full(domain.size, -1))
        match expr:
            case Elem(obj=obj) if isinstance(self.model.kernel.object(obj), Fragment):
                return self._read(site, expr, domain)
            case Op(op="where", args=(condition, yes, no)):
                chosen = None if _of_threads(condition) else evaluate(condition, domain)
                a, b = self._value(site, yes, domain), self._value(site, no, domain)
                if chosen is None:
                    return nothing
                return a.where(np.broadcast_to(np.asarray(chosen, dtype=np.bool_).reshape(-1), (domain.size,)), b)
            case Op(op=op, args=(x, y)) if op in _COMBINING and (expr.dtype.is_float or _wide(expr)):
                return self._joined(op, self._value(site, x, domain), self._value(site, y, domain))
            case _:
                return nothing

    def _read(self, site: Site, elem: Elem, domain: FragmentLayout) -> _Tile:
        held = self._held(elem.obj)
        where = None if any(map(_of_threads, elem.index)) else cells(elem.index, self._shape(elem.obj), domain)
        if where is None:
            return _elements(-1, np.full(domain.size, -1))
        at = np.broadcast_to(where.reshape(-1), (domain.size,))
        if elem.obj in self._own and isinstance(self.model.kernel.object(elem.obj), Fragment):
            self._bases[self._own[elem.obj]].reads.append((site, elem, at))
        return held.at(np.maximum(at, 0), at >= 0)

    def _joined(self, op: str, a: _Tile, b: _Tile) -> _Tile:
        """Join two runs into one, whichever comes first; unknown where base, operator or step do not fit."""
        forward = b.first > a.last
        first, last = np.where(forward, a.first, b.first), np.where(forward, b.last, a.last)
        apart = np.where(forward, b.first - a.last, a.first - b.last)
        known = (a.base == b.base) & (a.base >= 0) & (apart > 0)
        base, way = np.full(a.base.shape, -1), np.zeros(a.base.shape, dtype=np.int64)
        for step in np.unique(apart[known]):
            number = self._way(op, int(step))
            here = known & (apart == step) & np.isin(a.way, (0, number)) & np.isin(b.way, (0, number))
            base[here], way[here] = a.base[here], number
        return _Tile(base, first, last, way)

    def _way(self, op: str, step: int) -> int:
        if (op, step) not in self.ways:
            self.ways.append((op, step))
        return self.ways.index((op, step))

    # ------------------------------------------------------------------ relations

    def _combined(self, site: Site, base: _Base, op: str, bounds: Bounds) -> Combined | None:
        """Return reads that together cover each base element once, and the instances that each instance combines."""
        covered = np.zeros(int(np.prod(base.shape)), dtype=np.bool_)
        parts: list[tuple[UnionMap, Site, Elem]] = []
        for source, elem, at in base.reads:
            if source.index >= site.index or bool((at < 0).any()) or len(np.unique(at)) != at.size or covered[at].any():
                continue
            covered[at] = True
            parts.append((self._along(site, source, elem, bounds), source, elem))
        return Combined(op, tuple(parts)) if covered.all() else None

    def _along(self, site: Site, source: Site, elem: Elem, bounds: Bounds) -> UnionMap:
        """Return {instance -> instance of `source`} for the elements within `bounds`."""
        inner = numbered("e", len(source.shape))
        image = [self.model.translator.integer(e, inner) for e in elem.index]
        conditions = [f"{low} <= ({place}) <= {high}" for (low, high), place in zip(bounds, image, strict=True)]
        outer = self.model.instance(site, self.model.coords(len(site.shape)))
        along = self.model.relation(outer, self.model.instance(source, inner), *conditions)
        both = along.intersect_domain(self.model.domain(site)[0])
        return both.intersect_range(self.model.domain(source)[0]).to_union_map().coalesce()


def _wide(expr: Expr) -> bool:
    return expr.dtype.is_int and expr.dtype.bits >= 32 and not expr.dtype.modular


def _box(shape: tuple[int, ...]) -> FragmentLayout:
    """Return the layout of all elements of a shape in one thread, the last axis fastest."""
    return FragmentLayout(shape, (), tuple(Mode(n, axis) for axis, n in reversed(list(enumerate(shape)))))


def _places(access: Access, shape: tuple[int, ...], domain: FragmentLayout) -> Table | None:
    """Return the places that a statement writes, in the order of its own elements; None if they are unknown."""
    if any(map(_of_threads, access.index)):
        return None
    found = cells(access.index, shape, domain)
    return None if found is None else np.broadcast_to(found.reshape(-1), (domain.size,))


def _of_threads(expr: Expr) -> bool:
    return any(isinstance(e, Thread) for e in walk(expr))


def _displaced(site: Site) -> bool:
    """Return True if a map reads or writes elements at computed coordinates, as a part of a scan does."""
    if not isinstance(site.stmt, Map):
        return False
    indices = (*site.stmt.dst.index, *(i for e in elements(site.stmt.value) for i in e.index))
    return any(isinstance(e, Op) for e in indices)


Bounds = tuple[tuple[str, str], ...]
"""The least and the greatest place along each dimension, as isl text."""


def _bounds(base: _Base, tile: _Tile, domain: FragmentLayout, step: int) -> Bounds | None:
    """Return the bounds of a coordinate for each base dimension, by c0, c1, ...; None if they are unknown."""
    own = domain.coordinates().reshape(domain.size, len(domain.shape)).astype(np.int64)
    first, last = np.unravel_index(tile.first, base.shape), np.unravel_index(tile.last, base.shape)
    found: list[tuple[str, str]] = []
    for dim, (low, high, extent) in enumerate(zip(first, last, base.shape, strict=True)):
        along = int(np.prod(base.shape[dim + 1 :])) == step and extent > 1
        lower, upper = _coordinate(low, own), _coordinate(high, own)
        if along:
            lower = "0" if not low.any() else lower
            upper = str(extent - 1) if bool((high == extent - 1).all()) else upper
        if lower is None or upper is None or (not along and lower != upper):
            return None
        found.append((lower, upper))
    return tuple(found)


def _coordinate(table: Table, own: Table) -> str | None:
    """Return the constant, or the coordinate of the statement, that a table equals, as text; else None."""
    if bool((table == table[0]).all()):
        return str(int(table[0]))
    return next((f"c{axis}" for axis in range(own.shape[1]) if bool((own[:, axis] == table).all())), None)
