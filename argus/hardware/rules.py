"""Rules about addresses: what must lie together in memory, aligned and under one mask, in one execution of a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from argus.hardware.documents import MOVES, Move
from argus.hardware.numbers import Number, Point, Undecided, number
from argus.hardware.places import held, offset, registers, threads_of, values_of
from argus.ir.expr import Elem, Expr, elements
from argus.ir.nodes import Access, Accumulate, Copy, Fragment, Kernel, Map, Roles, Shared, Stmt, Tensor
from argus.ir.visit import walk


@dataclass(frozen=True, slots=True)
class Instance:
    """One execution of a statement by a thread of a block. `registers[name][thread][value]` are the numbers in the
    register tiles that the statement's places and mask read, threads counted as the tile's layout counts them."""

    params: Mapping[str, Number]
    block: tuple[int, ...]
    loops: Mapping[str, int]
    thread: int
    registers: Mapping[str, Sequence[Sequence[Number]]] = field(default_factory=dict)


def broken(kernel: Kernel, stmt: Stmt, code: str, instance: Instance) -> bool:
    """Return True if this execution breaks the rule `code` by the documents. False also stands for "undecided"."""
    try:
        if code == "register-not-held":
            return _not_held(kernel, stmt, instance)
        return isinstance(stmt, Copy) and code in set(_Moved(kernel, stmt, instance).faults())
    except (Undecided, IndexError, KeyError):
        return False


@dataclass(frozen=True, slots=True)
class _Cell:
    """An element's byte address in memory, and whether the execution moves it."""

    address: int
    moved: bool


class _Moved:
    """The cells of one execution of a copy, by thread and value."""

    def __init__(self, kernel: Kernel, stmt: Copy, instance: Instance) -> None:
        assert stmt.layout is not None
        self.kernel, self.stmt, self.instance, self.layout = kernel, stmt, instance, stmt.layout
        self.move = MOVES.get(stmt.instr or "", Move((), (), ()))
        self.thread = instance.thread - _first_thread(kernel, stmt)
        self.values = range(values_of(stmt.layout))
        self._first: dict[tuple[int, ...], tuple[int, int]] = {}

    def faults(self) -> Iterator[str]:
        for access in (self.stmt.src, self.stmt.dst):
            obj = self.kernel.object(access.obj)
            if isinstance(obj, Fragment):
                continue
            for cells in self._units(access, obj):
                yield from _faults_of(cells, *self._rule(obj))
            if isinstance(obj, Shared) and self.move.unit == "wave":
                yield from self._wave(access, obj)

    def _rule(self, obj: Tensor | Shared) -> tuple[int, int, int, str]:
        """Return an element's bytes, the alignment in bytes, the alignment of address 0, and where masks may cut."""
        item = obj.dtype.bits // 8
        base = obj.alignment if isinstance(obj, Tensor) else 1 << 16
        if self.move.unit in ("row", "column"):
            return item, 16, base, ""
        if self.move.cut and isinstance(obj, Tensor):
            return item, item, base, self.move.cut
        return item, item * self.stmt.vector, base, ""

    def _units(self, access: Access, obj: Tensor | Shared) -> Iterator[list[_Cell]]:
        """Yield the cells that have to lie together, in their order."""
        item = obj.dtype.bits // 8
        if self.move.unit in ("row", "column"):
            first = self.thread // 32 * 32
            for line in range(8):
                for matrix in range(len(self.values) * item // 4):
                    places = _row(line, matrix, item) if self.move.unit == "row" else _column(line, matrix)
                    yield [self._cell(access, obj, first + lane, value) for lane, value in places]
        elif self.stmt.vector > 1:
            for start in self.values[:: self.stmt.vector]:
                run = range(start, start + self.stmt.vector)
                yield [self._cell(access, obj, self.thread, value) for value in run]

    def _wave(self, access: Access, obj: Shared) -> Iterator[str]:
        """Lane l of a wave writes at 4 * l bytes after lane 0 (CDNA3 ISA, memory loads to LDS)."""
        first = self.thread // 64 * 64
        for start in self.values[:: self.stmt.vector]:
            cells = [self._cell(access, obj, first + lane, start) for lane in range(64)]
            if all(c.moved for c in cells) and any(
                c.address != cells[0].address + 4 * lane for lane, c in enumerate(cells)
            ):
                yield "lds-lane-order"

    def _cell(self, access: Access, obj: Tensor | Shared, thread: int, value: int) -> _Cell:
        at = self._point(thread, held(self.layout, thread, value))
        index = tuple(int(number(e, at)) for e in access.index)
        extents = [e if isinstance(e, int) else int(number(e, at)) for e in obj.shape]
        inside = all(0 <= i < extent for i, extent in zip(index, extents, strict=True))
        if isinstance(obj, Tensor):
            place = sum(i * int(number(s, at)) for i, s in zip(index, obj.strides, strict=True))
            return _Cell(place * (obj.dtype.bits // 8), inside and self._moves(access, at, thread, value))
        if not inside:
            return _Cell(0, False)
        assert obj.layout is not None
        place = (obj.offset or 0) + offset(obj.layout, index) * (obj.dtype.bits // 8)
        return _Cell(place, self._moves(access, at, thread, value))

    def _moves(self, access: Access, at: Point, thread: int, value: int) -> bool:
        """Return True if the mask leaves the element, or it is filled, and this register is the one that moves it."""
        stmt, target = self.stmt, self.kernel.object(self.stmt.dst.obj)
        filled = access is stmt.dst and stmt.other is not None and not isinstance(target, Tensor)
        if stmt.mask is not None and not filled and not number(stmt.mask, at):
            return False
        if isinstance(target, Fragment) or self.move.unit in ("row", "column"):
            return True
        return self._holder(held(self.layout, thread, value)) == (thread, value)

    def _holder(self, element: tuple[int, ...]) -> tuple[int, int]:
        """Return the register that moves an element to memory: the first value of the first thread that has it."""
        if not self._first:
            for register, place in registers(self.layout):
                self._first.setdefault(place, register)
        return self._first[element]

    def _point(self, thread: int, coords: tuple[int, ...]) -> Point:
        return _point(self.kernel, self.instance, thread, coords)


def _row(row: int, matrix: int, item: int) -> Iterator[tuple[int, int]]:
    """Yield (lane, value) of the elements of a row of 16 bytes: lane l has bytes 4 * (l % 4) of row l // 4."""
    each = 4 // item
    for lane in range(4 * row, 4 * row + 4):
        for part in range(each):
            yield lane, matrix * each + part


def _column(row: int, matrix: int) -> Iterator[tuple[int, int]]:
    """Yield (lane, value) of the 8 elements of a row. Lane l has rows 2 * (l % 4) and the next of column l // 4."""
    for column in range(8):
        yield 4 * column + row // 2, 2 * matrix + row % 2


def _faults_of(cells: Sequence[_Cell], item: int, alignment: int, base: int, cut: str) -> Iterator[str]:
    """Yield the rules that cells which one access moves together break."""
    moved = [cell.moved for cell in cells]
    begins = sum(now and not before for before, now in zip([False, *moved[:-1]], moved, strict=True))
    if not cut and any(moved) and not all(moved):
        yield "split-vector"
    if (cut and begins > 1) or (cut == "end" and begins and not moved[0]):
        yield "split-vector"
    if not all(moved):
        return
    if any(cell.address != cells[0].address + item * i for i, cell in enumerate(cells)):
        yield "scattered-vector"
    if cells[0].address % alignment or base % alignment:
        yield "misaligned-vector"


# ---------------------------------------------------------------------------- registers


def _first_thread(kernel: Kernel, stmt: Stmt) -> int:
    """Return the first thread of the role that a statement belongs to; 0 outside of roles."""
    for roles in kernel.body:
        for role in roles.roles if isinstance(roles, Roles) else ():
            if any(s is stmt for s in walk(role.body)):
                return role.first_warp * kernel.warp_size
    return 0


def _point(kernel: Kernel, instance: Instance, thread: int, coords: tuple[int, ...]) -> Point:
    def element(name: str, index: tuple[int, ...]) -> Number:
        tile = kernel.object(name)
        if not isinstance(tile, Fragment) or tile.layout is None or name not in instance.registers:
            raise Undecided(name)
        for value in range(values_of(tile.layout)):
            if held(tile.layout, thread, value) == index:
                return instance.registers[name][thread][value]
        raise Undecided(name)

    return Point(instance.params, instance.block, instance.loops, thread, coords, element)


def _not_held(kernel: Kernel, stmt: Stmt, instance: Instance) -> bool:
    """Return True if the thread names a register that neither it, nor its warp in a collective statement, holds."""
    layout = getattr(stmt, "layout", None)
    if layout is None or not isinstance(stmt, (Copy, Map, Accumulate)):
        return False
    thread = instance.thread - _first_thread(kernel, stmt)
    size = kernel.warp_size if getattr(stmt, "scope", None) == "warp" else 1
    group = range(thread // size * size, thread // size * size + size)
    for name, index in _named(stmt):
        tile = kernel.object(name)
        if not isinstance(tile, Fragment) or tile.layout is None:
            continue
        values = range(values_of(tile.layout))
        own = {held(tile.layout, t, v) for t in group if t < threads_of(tile.layout) for v in values}
        for value in range(values_of(layout)):
            at = _point(kernel, instance, thread, held(layout, thread, value))
            if tuple(int(number(e, at)) for e in index) not in own:
                return True
    return False


def _named(stmt: Copy | Map | Accumulate) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Yield the tiles that a statement names, with their places."""
    accesses = (stmt.src, stmt.dst) if isinstance(stmt, Copy) else (stmt.dst,)
    terms: list[Expr] = [e for access in accesses for e in access.index]
    terms += [stmt.value] if not isinstance(stmt, Copy) else []
    mask = getattr(stmt, "mask", None)
    terms += [mask] if mask is not None else []
    yield from ((access.obj, access.index) for access in accesses)
    yield from ((e.obj, e.index) for e in _elements(terms))


def _elements(terms: Iterable[Expr]) -> Iterator[Elem]:
    return (e for term in terms for e in elements(term))
