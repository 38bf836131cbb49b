"""Rings of buffers: tiles that are consumed together, and the mbarriers that pass them between roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from argus.ir.cluster import MULTICAST, number_among, reached, that_share
from argus.ir.expr import Const, Coord, Expr, LoopVar, Op, coords, elements, op, rewrite
from argus.ir.instruction import LOAD, LOAD_PIXELS
from argus.ir.instruction.limits import ROW_BYTES, SWIZZLE_ATOM, row_bytes
from argus.ir.nodes import (
    Access,
    Among,
    BulkCopy,
    Counter,
    For,
    Kernel,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Shared,
    Signal,
    Stage,
    Stmt,
)
from argus.ir.pixels import column_of
from argus.ir.types import int32
from argus.layout import Layout, Swizzle, SwizzledLayout, row_major
from argus.passes.fresh import Fresh
from argus.passes.stages import padded
from argus.source import Span

_ATOM_ROWS = SWIZZLE_ATOM // ROW_BYTES


@dataclass(frozen=True, slots=True)
class Ring:
    """The buffers of `stages` and the mbarriers that pass them between roles: `full` to the products, `empty` to the
    copies.

    The copy engine loads the tiles, except for those in `loaded`, which threads load. A ring of a loop (`looped`)
    advances once in each iteration. Tiles that are staged outside of loops have one buffer, which is filled once for
    each program. `turn` is the count of uses of the ring. If the ring is used only once, `turn` and `empty` are None. A
    tile that is the same in several `blocks` of a cluster (`alike`) is `shared` if the copy engine loads it: each of
    these blocks loads its share of the rows for all of them, and frees its buffers for all blocks whose shares it
    receives.
    """

    stages: tuple[Stage, ...]
    buffers: int
    full: str
    empty: str | None
    turn: str | None
    looped: bool
    span: Span
    alike: tuple[tuple[str, Among], ...] = ()
    blocks: int = 1
    loaded: frozenset[str] = frozenset()

    @property
    def tiles(self) -> frozenset[str]:
        """The tiles for which the ring has buffers."""
        return frozenset(s.dst for s in self.stages)

    @property
    def by_engine(self) -> tuple[Stage, ...]:
        """The tiles that the copy engine loads."""
        return tuple(s for s in self.stages if s.dst not in self.loaded)

    @property
    def by_threads(self) -> tuple[Stage, ...]:
        """The tiles that threads load."""
        return tuple(s for s in self.stages if s.dst in self.loaded)

    @property
    def shared(self) -> Mapping[str, Among]:
        """The tiles that blocks of a cluster load for one another, by name, with these blocks."""
        return {name: among for name, among in self.alike if name not in self.loaded}

    @property
    def place(self) -> Expr:
        """The buffer of this turn."""
        return self._place(0)

    @property
    def previous(self) -> Expr:
        """The buffer of the previous turn."""
        return self._place(self.buffers - 1)

    def _place(self, ahead: int) -> Expr:
        if self.turn is None:
            return Const(0)
        return op("mod", op("add", LoopVar(self.turn), Const(ahead)), Const(self.buffers))

    def parity(self, ahead: int) -> Expr:
        """Return the parity of the phase that belongs to this round of the ring, `ahead` rounds later."""
        if self.turn is None:
            return Const(ahead)
        # Also written for a divisor of 1, because other passes recognise the form.
        round_ = Op("floordiv", (LoopVar(self.turn), Const(self.buffers)), int32)
        return op("mod", op("add", round_, Const(ahead)), Const(2))

    def within(self, access: Access) -> Access:
        """Return `access` directed to the buffer of this turn."""
        if not self.looped or access.obj not in self.tiles:
            return access
        return replace(access, index=(self.place, *access.index))

    def barriers(self, loaders: int, consumers: int) -> tuple[Mbarrier, ...]:
        """Return the ring's mbarriers for `loaders` warps that fill buffers and `consumers` that free them."""
        filling = bool(self.by_engine) + (loaders if self.by_threads else 0)
        full = Mbarrier(self.full, self.buffers, filling, span=self.span)
        if self.empty is None:
            return (full,)
        consumers *= len(reached(self._groups, 0, self.blocks)) if self.shared else 1
        return full, Mbarrier(self.empty, self.buffers, consumers, span=self.span)

    def hand_back(self, place: Expr, span: Span) -> tuple[MbarrierArrive, ...]:
        """Return the arrival that frees a buffer, or nothing if no role waits for it."""
        scope = "cluster" if self.shared else "block"
        return () if self.empty is None else (MbarrierArrive(self.empty, place, scope, self._groups, span=span),)

    @property
    def _groups(self) -> tuple[Among, ...]:
        """The groups of blocks that share a tile, or () if the whole cluster shares it."""
        groups = tuple(dict.fromkeys(self.shared.values()))
        return () if any(among.count == self.blocks for among in groups) else groups


def counted(loop: For, turn: str, body: tuple[Stmt, ...]) -> For:
    """Return the loop around `body` as a role runs it. The loop counts its turns, and the count determines the places
    in the rings."""
    return replace(loop, body=body, kind="dynamic", stages=1, producer_warps=0, counter=Counter(turn, 2 * loop.stages))


def once_a_program(kernel: Kernel, turn: str, body: tuple[Stmt, ...], span: Span) -> tuple[Stmt, ...]:
    """Return `body` in a loop of one iteration that counts the programs."""
    var = Fresh(kernel).name("once")
    return (For(var, Const(0), Const(1), 1, body, counter=Counter(turn, 2), span=span),)


# ---------------------------------------------------------------------------- buffers


def buffers(tile: Shared, ring: Ring) -> Shared:
    """Return the ring's copies of a tile in panels."""
    return in_panels(tile, (ring.buffers, *tile.shape) if ring.looped else tile.shape)


def in_panels(tile: Shared, shape: tuple[int, ...]) -> Shared:
    """Return the tile of `shape`, or several buffers of it, in panels as wide as the swizzle of the copy engine."""
    width, row = _panel(tile), tile.shape[-1]
    if not _has_panels(tile):
        return replace(tile, shape=shape, layout=row_major(shape))
    rows, count = tile.shape[-2], row // width
    leading = [prod(shape[d + 1 :]) for d in range(len(shape) - 2)]
    last = (width, 1) if count == 1 else ((width, count), (1, rows * width))
    wide, size = width * tile.dtype.bytes, tile.dtype.bytes
    swizzle = Swizzle((wide // 16).bit_length() - 1, (16 // size).bit_length() - 1, 3)
    inner = Layout((*shape[:-1], last[0]), (*leading, width, last[1]))
    return replace(tile, shape=shape, layout=SwizzledLayout(swizzle, 0, inner))


def _panel(tile: Shared) -> int:
    """Return the number of columns of a panel: the columns in one row of the swizzle."""
    return row_bytes(tile.shape[-1], tile.dtype.bytes) // tile.dtype.bytes


def _has_panels(tile: Shared) -> bool:
    return len(tile.shape) >= 2 and tile.shape[-1] % _panel(tile) == 0


# ---------------------------------------------------------------------------- copies


def fill(kernel: Kernel, ring: Ring) -> tuple[Stmt, ...]:
    """Return the copy engine's statements for one turn of the ring: wait for the buffers, announce the bytes, copy."""
    if not ring.by_engine:
        return ()
    tiles = {s.name: s for s in kernel.shared}
    total = sum(prod(s.shape) * tiles[s.dst].dtype.bytes for s in ring.by_engine)
    copies = [c for s in ring.by_engine for c in _copies(padded(s, kernel), tiles[s.dst], ring)]
    return (*ready(ring), MbarrierExpect(ring.full, ring.place, total, span=ring.span), *copies)


def ready(ring: Ring) -> tuple[Stmt, ...]:
    """Return the wait until the buffers of this turn may be filled."""
    # Round 0 finds every buffer empty: a wait for parity 1 of a new mbarrier returns immediately.
    return () if ring.empty is None else (MbarrierWait(ring.empty, ring.place, ring.parity(1), span=ring.span),)


def _copies(stage: Stage, tile: Shared, ring: Ring) -> list[BulkCopy]:
    """Return one bulk copy for each panel of the tile, or of this block's share of the tile. Boxes and columns of
    pixels have instructions of their own."""
    axis = len(stage.shape) - 1
    instr = LOAD if column_of(stage.src.index) is None else LOAD_PIXELS
    width = _panel(tile) if _has_panels(tile) else stage.shape[-1]
    here, done = coords(len(stage.shape)), Signal(ring.full, ring.place)
    result: list[BulkCopy] = []
    for start in range(0, stage.shape[-1], width):
        column: Expr = op("add", Coord(axis), Const(start))
        mask = None if stage.mask is None else moved(stage.mask, axis, start)
        copy = BulkCopy(
            Access(stage.dst, (*here[:-1], column)),
            Access(stage.src.obj, tuple(moved(e, axis, start) for e in stage.src.index)),
            (*stage.shape[:-1], width),
            mask,
            stage.other,
            instr=instr,
            signal=done,
            once=stage.once,
            span=stage.span,
        )
        among = ring.shared.get(stage.dst)
        parts = (copy,) if among is None else _shares(copy, among, ring.blocks)
        result += (replace(part, dst=ring.within(part.dst)) for part in parts)
    return result


def _shares(copy: BulkCopy, among: Among, cluster: int) -> tuple[BulkCopy, ...]:
    """Cut a copy into the rows that this block loads for all blocks `among` it, and the remaining rows.

    The remaining rows do not divide into equal shares. Each block loads them for itself.
    """
    rows = copy.shape[0] // (among.count * _ATOM_ROWS) * _ATOM_ROWS
    share = _part(copy, op("mul", number_among(among, cluster), Const(rows)), rows)
    share = replace(share, instr=MULTICAST, among=None if among.count == cluster else among)
    left = copy.shape[0] - among.count * rows
    return (share, _part(copy, Const(among.count * rows), left)) if left else (share,)


def _part(copy: BulkCopy, start: Expr, rows: int) -> BulkCopy:
    """Return `rows` rows of the box from `start` on."""
    return replace(
        copy,
        dst=Access(copy.dst.obj, (op("add", start, Coord(0)), *copy.dst.index[1:])),
        src=Access(copy.src.obj, tuple(moved(e, 0, start) for e in copy.src.index)),
        shape=(rows, *copy.shape[1:]),
        mask=None if copy.mask is None else moved(copy.mask, 0, start),
    )


def alike(stage: Stage, cluster: int) -> Among | None:
    """Return the blocks of a cluster that stage the same tile, or None if no two do, or if the tile has too few rows to
    be shared: a tile of one dimension is one row."""
    exprs = [*stage.src.index, *([stage.mask] if stage.mask is not None else [])]
    if any(True for e in exprs for _ in elements(e)):
        return None  # The blocks load different tiles.
    if column_of(stage.src.index) is not None:
        return None  # A column of pixels has no parts that begin at multiples of rows.
    among = that_share(exprs, cluster)
    rows = stage.shape[0] if len(stage.shape) > 1 else 1
    return None if among is None or rows < among.count * _ATOM_ROWS else among


def moved(expr: Expr, axis: int, start: Expr | int) -> Expr:
    """Return `expr` at `start` plus the coordinate of `axis`. The start is added to the term to which the coordinate is
    added."""
    return rewrite(expr, moving(axis, Const(start) if isinstance(start, int) else start))


def moving(axis: int, start: Expr) -> Callable[[Expr], Expr | None]:
    """Return the bottom-up rewriting rule of `moved`."""
    there = op("add", start, Coord(axis))

    def change(e: Expr) -> Expr | None:
        match e:
            case Coord(axis=found) if found == axis:
                return there
            case Op(op="add", args=(x, y)) if y == there != Coord(axis):
                return op("add", op("add", x, start), Coord(axis))
            case _:
                return None

    return change


def tiles_of(rings: Sequence[Ring]) -> dict[str, Ring]:
    """Return the ring of every staged tile."""
    return {s.dst: ring for ring in rings for s in ring.stages}
