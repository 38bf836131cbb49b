"""Random kernels that compute: element types, operators, vectors, orders of digits in a layout, masks of both ends.

They are right but for slips, such as indices that overflow. What they compute is told twice, by the simulator and by
the emitted text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, conjunction, coords, op
from argus.ir.nodes import (
    Access,
    Accumulate,
    Barrier,
    For,
    Fragment,
    If,
    Kernel,
    Map,
    Scalar,
    Shared,
    Stmt,
    Tensor,
    ThreadCopy,
)
from argus.ir.types import DTYPES, DType, bfloat16, boolean, float16, float32, int8, int32, int64, uint8
from argus.ir.wellformed import check_explicit
from argus.layout import AnyLayout, FragmentLayout, Mode, Swizzle, SwizzledLayout, row_major

_COMPUTED = (float32, float16, bfloat16, int8, uint8, int32, int64)
_STORED = tuple(d for d in DTYPES.values() if d.is_float and d not in _COMPUTED)
"""What is loaded, stored and converted, and nothing else."""
_TYPES = (*_COMPUTED, boolean, *_STORED)
_TARGETS = (("sm_80", 32, "ld.global", "st.global", "ld.shared", "st.shared", "red.global"),
            ("gfx942", 64, "buffer_load", "buffer_store", "ds_read", "ds_write", "global_atomic"))  # fmt: skip


@dataclass(frozen=True)
class Tile:
    """The domain of all statements: its layout, how many elements of a row a vector may have, the machine."""

    layout: FragmentLayout
    run: int
    warps: int
    target: tuple[str, int, str, str, str, str, str]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape


@dataclass
class Parts:
    """What has been drawn of a kernel; `readable` are the register tiles of the domain's layout that hold values."""

    tile: Tile
    objects: list[Tensor | Scalar] = field(default_factory=list)
    fragments: list[Fragment] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)
    readable: dict[str, DType] = field(default_factory=dict)
    loops: tuple[str, ...] = ()

    def fragment(self, dtype: DType, layout: FragmentLayout | None = None) -> str:
        layout = layout or self.tile.layout
        self.fragments.append(Fragment(f"r{len(self.fragments)}", dtype, layout.shape, layout))
        return self.fragments[-1].name


@st.composite
def computations(draw: st.DrawFn) -> Kernel:
    """A tile or two are loaded, computed with, exchanged, reduced, and stored."""
    parts = Parts(draw(_tiles()))
    for name, dtype in (("f", float32), ("i", int32), ("j", int64), ("K", int32)):
        parts.objects.append(Scalar(name, dtype))
    body = [_load(draw, parts) for _ in range(draw(st.integers(1, 3)))]
    body += [s for _ in range(draw(st.integers(1, 4))) for s in _steps(draw, parts)]
    chosen = draw(st.lists(st.sampled_from(sorted(parts.readable)), min_size=1, max_size=2, unique=True))
    body += [_store(draw, parts, name) for name in chosen]
    two = len(parts.tile.shape) == 2
    rows, columns = parts.tile.shape if two else (1, *parts.tile.shape)
    along = op("floordiv", op("add", Param("N"), Const(columns - 1)), Const(columns))
    grid = (op("floordiv", op("add", Param("M"), Const(rows - 1)), Const(rows)), along) if two else (along,)
    machine = parts.tile.target
    return Kernel(
        "computations", tuple(parts.objects), ("M", "N") if two else ("N",), (), grid, parts.tile.warps,
        machine[1], (), tuple(parts.shared), tuple(parts.fragments), tuple(body), target=machine[0],
        group=draw(st.sampled_from([1, 1, 3])) if two else 1,
    )  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> tuple[Kernel, list[dict[str, int]]]:
    """One without a slip, and sizes to run it at."""
    kernel = draw(computations().filter(lambda kernel: not check_explicit(kernel)))
    return kernel, draw(st.lists(small_sizes(kernel), min_size=1, max_size=2))


@st.composite
def small_sizes(draw: st.DrawFn, kernel: Kernel) -> dict[str, int]:
    """Few blocks, the last of them whole or not; sizes of 0 and 1, too."""
    tile = kernel.fragments[0].shape
    sizes = {"K": draw(st.integers(0, 9)), "i": draw(st.integers(0, 90)), "j": draw(st.integers(0, 90))}
    for name, extent in zip(reversed(kernel.sizes), reversed(tile), strict=True):
        unit = max(t.alignment // t.dtype.bytes for t in kernel.tensors) if name == "N" else 1
        size = draw(
            st.sampled_from([0, 1, 1 + extent // 2, extent - 1, extent, extent + 1, 2 * extent, 2 * extent + 3])
        )
        sizes[name] = -(-size // unit) * unit
    return sizes


@st.composite
def _tiles(draw: st.DrawFn) -> Tile:
    """The bits of the coordinates, and now and then a three, in any order among threads and values; the lowest bits of
    a row are values."""
    target = draw(st.sampled_from((_TARGETS[0], _TARGETS[0], _TARGETS[1])))
    warps, run = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 4, 8, 16]))
    columns = max(run, draw(st.sampled_from([4, 8, 16, 32, 64])))
    rows = draw(st.sampled_from([0, 1, 2, 4, 8]))
    dim = 1 if rows else 0
    free = [Mode(2, dim, 1 << b) for b in range(run.bit_length() - 1, columns.bit_length() - 1)]
    free += [Mode(2, 0, 1 << b) for b in range(rows.bit_length() - 1)] if rows else []
    odd = draw(st.sampled_from([1, 1, 1, 3]))
    values = [Mode(run, dim, 1)] if run > 1 else []
    count = (target[1] * warps).bit_length() - 1
    free = draw(st.permutations(free))
    threads = free[:count]
    threads += [Mode(2, None)] * (count - len(threads))
    threads = draw(st.permutations(threads))
    values += free[count:]
    if odd > 1:
        values.insert(draw(st.integers(min(1, run - 1), len(values))), Mode(odd, dim, columns))
    shape = (rows, columns * odd) if rows else (columns * odd,)
    return Tile(FragmentLayout(shape, tuple(threads), tuple(values)), run, warps, target)


# ---------------------------------------------------------------------------- loads and stores


def _place(parts: Parts) -> tuple[Expr, ...]:
    """The tensor's element that belongs to an element of the tile."""
    shape = parts.tile.shape
    return tuple(op("add", op("mul", ProgramId(d), Const(n)), Coord(d)) for d, n in enumerate(shape))


def _sizes(parts: Parts) -> tuple[Expr, ...]:
    return (Param("M"), Param("N")) if len(parts.tile.shape) == 2 else (Param("N"),)


def _tensor(draw: st.DrawFn, parts: Parts, dtype: DType, vector: int) -> Tensor:
    """A tensor of the grid's extents, whose rows begin at multiples of the vector."""
    name = f"t{len(parts.objects)}"
    alignment = max(dtype.bytes * vector, dtype.bytes)
    strides: tuple[Expr, ...] = (Param(f"{name}.row", int64), Const(1, int64))
    return Tensor(name, dtype, _sizes(parts), strides[-len(parts.tile.shape) :], alignment)


def _inside(place: tuple[Expr, ...], parts: Parts) -> Expr:
    mask = conjunction([op("lt", at, size) for at, size in zip(place, _sizes(parts), strict=True)])
    assert mask is not None
    return mask


def _mask(draw: st.DrawFn, parts: Parts, place: tuple[Expr, ...], cut: bool) -> Expr:
    """Inside of the tensor, and where it may be cut, from some column on and up to another."""
    kind = draw(st.sampled_from(["inside", "start", "end", "rest"]))
    *rows, column = place
    outer = [op("lt", at, size) for at, size in zip(rows, _sizes(parts), strict=False)]
    if kind == "rest":
        outer.append(draw(st.sampled_from([op("lt", ProgramId(0), Param("K")), op("gt", Param("i"), Const(2))])))
    end = op("minimum", Param("N"), Param("K")) if cut and kind == "end" else _sizes(parts)[-1]
    begin = [op("le", draw(st.sampled_from([Const(3), Param("K")])), column)] if cut and kind == "start" else []
    mask = conjunction([*outer, *begin, op("lt", column, end)])
    assert mask is not None
    return mask


def _vector(draw: st.DrawFn, parts: Parts, dtype: DType) -> int:
    return draw(st.sampled_from([v for v in (1, 2, 4, 8, 16) if v <= parts.tile.run and v * dtype.bytes <= 16]))


def _load(draw: st.DrawFn, parts: Parts) -> Stmt:
    dtype = draw(st.sampled_from(_TYPES))
    plain, whole = parts.tile.target[2], 16 // dtype.bytes
    instr, vector, aligned = plain, _vector(draw, parts, dtype), True
    if plain == "ld.global" and whole <= parts.tile.run and dtype.bits < 64 and draw(st.booleans()):
        instr, vector, aligned = draw(st.sampled_from(["ld.global.cut", "ld.global.unaligned"])), whole, False
    place = _place(parts)
    mask = _mask(draw, parts, place, instr == "ld.global.cut")
    tensor = _tensor(draw, parts, dtype, vector if aligned else 1)
    parts.objects.append(tensor)
    name = parts.fragment(dtype)
    parts.readable[name] = dtype
    other = (
        None
        if instr == "ld.global.unaligned"
        else draw(st.sampled_from([_constant(draw, dtype), Const(_zero(dtype), dtype)]))
    )
    if instr == "ld.global.unaligned":
        other = Const(_zero(dtype), dtype)
    rank = len(parts.tile.shape)
    return ThreadCopy(Access(name, coords(rank)), Access(tensor.name, place), parts.tile.shape, mask, other,
                parts.tile.layout, instr, vector)  # fmt: skip


def _store(draw: st.DrawFn, parts: Parts, name: str) -> Stmt:
    dtype = parts.readable[name]
    plain, run = parts.tile.target[3], parts.tile.run
    instr, vector, aligned = plain, _vector(draw, parts, dtype), True
    cuts = [v for v in (1, 2, 4, 8, 16) if 4 <= v * dtype.bytes <= 16 and v <= run]
    if plain == "st.global" and cuts and dtype.bits < 64 and draw(st.booleans()):
        instr, vector, aligned = "st.global.cut", draw(st.sampled_from(cuts)), False
    place = _place(parts)
    mask = _mask(draw, parts, place, instr == "st.global.cut")
    tensor = _tensor(draw, parts, dtype, vector if aligned else 1)
    parts.objects.append(tensor)
    rank = len(parts.tile.shape)
    return ThreadCopy(Access(tensor.name, place), Access(name, coords(rank)), parts.tile.shape, mask, None,
                parts.tile.layout, instr, vector)  # fmt: skip


# ---------------------------------------------------------------------------- statements


def _steps(draw: st.DrawFn, parts: Parts) -> list[Stmt]:
    kind = draw(st.sampled_from(["map", "map", "map", "loop", "branch", "shuffle", "shared", "total", "atomic"]))
    match kind:
        case "loop":
            return _loop(draw, parts)
        case "branch":
            return _branch(draw, parts)
        case "shuffle":
            return _shuffle(draw, parts)
        case "shared":
            return _exchange(draw, parts)
        case "total":
            return _total(draw, parts)
        case "atomic":
            return _atomic(draw, parts)
        case _:
            dtype = draw(st.sampled_from(_TYPES))
            value = _expression(draw, parts, dtype, 3)
            name = parts.fragment(dtype)
            parts.readable[name] = dtype
            return [_map(parts, name, value)]


def _map(parts: Parts, name: str, value: Expr) -> Stmt:
    layout = parts.tile.layout
    return Map(Access(name, coords(layout.rank)), value, layout.shape, layout, "thread")


def _loop(draw: st.DrawFn, parts: Parts) -> list[Stmt]:
    """A register tile takes something in each turn, or is reduced into."""
    dtype = draw(st.sampled_from(_COMPUTED))
    name, layout = parts.fragment(dtype), parts.tile.layout
    start = _map(parts, name, _expression(draw, parts, dtype, 1))
    parts.readable[name] = dtype
    variable = f"k{len(parts.fragments)}"
    parts.loops = (*parts.loops, variable)
    low, step = draw(st.sampled_from([Const(0), Const(-2), Const(1)])), draw(st.sampled_from([1, 2, 3]))
    cell = Access(name, coords(layout.rank))
    value = _expression(draw, parts, dtype, 2)
    if draw(st.booleans()):
        mask = draw(st.sampled_from([None, _expression(draw, parts, boolean, 2)]))
        which = draw(st.sampled_from(["add", "maximum", "minimum"]))
        inner: Stmt = Accumulate(cell, value, which, layout.shape, mask, layout, "thread")
    else:
        inner = _map(parts, name, value)
    parts.loops = parts.loops[:-1]
    high = draw(st.sampled_from([op("minimum", Param("K"), Const(4)), Const(3), op("mod", Param("N"), Const(4))]))
    return [start, For(variable, low, high, step, (inner,))]


def _branch(draw: st.DrawFn, parts: Parts) -> list[Stmt]:
    dtype = draw(st.sampled_from(_COMPUTED))
    name = parts.fragment(dtype)
    start = _map(parts, name, _expression(draw, parts, dtype, 1))
    cond = draw(st.sampled_from([
        op("gt", Param("N"), Const(16)), op("lt", op("mod", ProgramId(0), Const(3)), Param("K")),
        op("eq", op("and", Param("i"), Const(1)), Const(1)),
    ]))  # fmt: skip
    if not any(m.dim is None for m in parts.tile.layout.threads) and draw(st.booleans()):
        cond = op("lt", op("mod", Thread(), Const(5)), Const(3))
    then = (_map(parts, name, _expression(draw, parts, dtype, 2)),)
    otherwise = (_map(parts, name, _expression(draw, parts, dtype, 2)),) if draw(st.booleans()) else ()
    parts.readable[name] = dtype
    return [start, If(cond, then, otherwise)]


def _shuffle(draw: st.DrawFn, parts: Parts) -> list[Stmt]:
    """Elements change places along the last dimension; between lanes of a warp, or it is no kernel."""
    source = draw(st.sampled_from(sorted(parts.readable)))
    layout = parts.tile.layout
    name = parts.fragment(parts.readable[source])
    parts.readable[name] = parts.readable[source]
    index = (*coords(layout.rank)[:-1], _moved(draw, layout))
    return [Map(Access(name, coords(layout.rank)), Elem(source, index, parts.readable[source]), layout.shape, layout,
                "warp")]  # fmt: skip


def _moved(draw: st.DrawFn, layout: FragmentLayout) -> Expr:
    """Another element of the row."""
    column, extent = Coord(layout.rank - 1), layout.shape[-1]
    power = extent & -extent
    xor = op("xor", column, Const(draw(st.integers(0, power - 1))))
    turned = op("mod", op("add", column, Const(draw(st.integers(0, extent)))), Const(extent))
    return draw(
        st.sampled_from([xor, xor, turned, op("sub", Const(extent - 1), column), op("floordiv", column, Const(2))])
    )


def _exchange(draw: st.DrawFn, parts: Parts) -> list[Stmt]:
    """Through a shared tile, swizzled or padded, and back from other places."""
    source = draw(st.sampled_from(sorted(parts.readable)))
    dtype, layout = parts.readable[source], parts.tile.layout
    inner: AnyLayout = row_major(layout.shape)
    if draw(st.booleans()):
        inner = SwizzledLayout(Swizzle(draw(st.integers(1, 2)), draw(st.integers(0, 3)), 3), 0, row_major(layout.shape))
    at = sum(-(-(s.layout.cosize() if s.layout else 0) * s.dtype.bytes // 128) * 128 for s in parts.shared)
    tile = Shared(f"s{len(parts.shared)}", dtype, layout.shape, inner, at)
    parts.shared.append(tile)
    write, read, machine = _vector(draw, parts, dtype), _vector(draw, parts, dtype), parts.tile.target
    there, whole = coords(layout.rank), draw(st.booleans())
    back = there if read > 1 and whole else (*there[:-1], _moved(draw, layout))
    name = parts.fragment(dtype)
    parts.readable[name] = dtype
    return [
        ThreadCopy(
            Access(tile.name, there), Access(source, there), layout.shape, None, None, layout, machine[5], write
        ),
        Barrier(),
        ThreadCopy(Access(name, there), Access(tile.name, back), layout.shape, None, None, layout, machine[4],
             read if back == there else 1),
    ]  # fmt: skip


def _total(draw: st.DrawFn, parts: Parts) -> list[Stmt]:
    """All elements of a row together, in every lane that has one of them; of the whole tile, if it has one row."""
    dtype = draw(st.sampled_from(_COMPUTED))
    layout = parts.tile.layout
    last = layout.rank - 1
    threads = tuple(m if m.dim != last else Mode(m.extent, None) for m in layout.threads)
    row = FragmentLayout(layout.shape[:-1], threads, tuple(m for m in layout.values if m.dim != last))
    name, cell = parts.fragment(dtype, row), coords(layout.rank)[:-1]
    which = draw(st.sampled_from(["add", "maximum", "minimum"]))
    start = _constant(draw, dtype)
    mask = draw(st.sampled_from([None, _expression(draw, parts, boolean, 2)]))
    value = _expression(draw, parts, dtype, 2)
    if dtype.is_float and which == "add":  # sums in another order are the same if they are exact
        narrow = dtype.bits < 32  # as all integers up to 256 are in bfloat16
        value = Op("cast", (_expression(draw, parts, boolean if narrow else int8, 1),), dtype)
        start = Const(0.0, dtype) if narrow else start
    clear = Map(Access(name, cell), start, row.shape, row, "thread")
    total = Accumulate(Access(name, cell), value, which, layout.shape, mask, layout, "warp")
    result = parts.fragment(dtype)
    parts.readable[result] = dtype
    return [clear, total, _map(parts, result, Elem(name, cell, dtype))]


def _atomic(draw: st.DrawFn, parts: Parts) -> list[Stmt]:
    dtype, which = draw(
        st.sampled_from([(float32, "add"), *((d, o) for d in (int32, int64) for o in ("add", "maximum", "minimum"))])
    )
    tensor = Tensor(f"t{len(parts.objects)}", dtype, (Const(5),), (Const(1, int64),), dtype.bytes)
    parts.objects.append(tensor)
    layout = parts.tile.layout
    value = _expression(draw, parts, dtype, 2)
    if dtype.is_float:  # sums in another order are the same if they are exact
        value = Op("abs", (Op("cast", (_expression(draw, parts, int8, 1),), dtype),), dtype)
    at = op("mod", Coord(layout.rank - 1), Const(5))
    mask = draw(st.sampled_from([_inside(_place(parts), parts), None, _expression(draw, parts, boolean, 2)]))
    return [
        Accumulate(Access(tensor.name, (at,)), value, which, layout.shape, mask, layout, "thread", parts.tile.target[6])
    ]


# ---------------------------------------------------------------------------- expressions


def _zero(dtype: DType) -> int | float | bool:
    return 0.0 if dtype.is_float else False if dtype.kind == "bool" else 0


def _constant(draw: st.DrawFn, dtype: DType) -> Const:
    if dtype.kind == "bool":
        return Const(draw(st.booleans()), dtype)
    if dtype.is_float:
        return Const(draw(st.sampled_from([0.0, 1.0, -1.5, 0.25, 3.0])), dtype)
    low, high = dtype.integers
    return Const(draw(st.sampled_from([n for n in (0, 1, 2, 3, 7, -1, -5, low, high) if low <= n <= high])), dtype)


_FLOATING = ("add", "sub", "mul", "truediv", "minimum", "maximum")
_WHOLE = ("add", "sub", "mul", "and", "or", "xor", "minimum", "maximum", "floordiv", "mod", "shl", "shr")
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")


def _expression(draw: st.DrawFn, parts: Parts, dtype: DType, depth: int) -> Expr:
    """A value of `dtype` for each element of the tile; of exact operations, so that there is one result."""
    if depth == 0:
        return _leaf(draw, parts, dtype)
    less = depth - draw(st.integers(1, depth))
    if dtype in _STORED:
        return Op("cast", (_expression(draw, parts, float32, less),), dtype)
    kind = draw(st.sampled_from(["two", "two", "one", "where", "cast"]))
    if kind == "where":
        cond = _expression(draw, parts, boolean, less)
        return Op("where", (cond, *(_expression(draw, parts, dtype, less) for _ in range(2))), dtype)
    if kind == "cast":
        source = draw(
            st.sampled_from([d for d in _TYPES if d != dtype and (d in _COMPUTED or dtype.is_float or d == boolean)])
        )
        return Op("cast", (_expression(draw, parts, source, less),), dtype)
    if dtype == boolean:
        if kind == "one":
            return Op("not", (_expression(draw, parts, boolean, less),), boolean)
        if draw(st.booleans()):
            both = tuple(_expression(draw, parts, boolean, less) for _ in range(2))
            return Op(draw(st.sampled_from(["and", "or", "xor"])), both, boolean)
        compared = draw(st.sampled_from(_COMPUTED))
        both = tuple(_expression(draw, parts, compared, less) for _ in range(2))
        return Op(draw(st.sampled_from(_COMPARED)), both, boolean)
    x = _expression(draw, parts, dtype, less)
    if kind == "one":
        names = ("neg", "abs", "floor", "ceil", "sqrt") if dtype.is_float else ("neg", "abs", "not")
        return Op(draw(st.sampled_from(names)), (x,), dtype)
    name = draw(st.sampled_from(_FLOATING if dtype.is_float else _WHOLE))
    if dtype.is_int and name in ("shl", "shr"):
        return Op(name, (x, Const(draw(st.integers(0, dtype.bits - 1)), dtype)), dtype)
    y = _expression(draw, parts, dtype, less)
    if dtype.is_int and name in ("floordiv", "mod"):
        low, high = dtype.integers
        known = [Const(n, dtype) for n in (1, 2, 3, 8, 100, -1, -3, low, high) if low <= n <= high and n]
        y = draw(st.sampled_from([*known, Op("or", (y, Const(1, dtype)), dtype)]))
    return Op(name, (x, y), dtype)


def _leaf(draw: st.DrawFn, parts: Parts, dtype: DType) -> Expr:
    rank = parts.tile.layout.rank
    held = [name for name, of in parts.readable.items() if of == dtype]
    if held and draw(st.integers(0, 3)):
        return Elem(draw(st.sampled_from(held)), coords(rank), dtype)
    if dtype == int32:
        choices: list[Expr] = [
            *coords(rank),
            Param("i"),
            op("sub", Param("i"), Const(40)),
            Param("N"),
            Param("K"),
            ProgramId(0),
            *map(LoopVar, parts.loops),
        ]
        return draw(st.sampled_from(choices))
    if dtype == int64 and draw(st.booleans()):
        return Param("j", int64)
    if dtype == float32 and draw(st.booleans()):
        return Param("f", float32)
    others = [name for name, of in parts.readable.items() if of in _COMPUTED and of != dtype]
    if others and dtype not in _STORED and draw(st.booleans()):
        name = draw(st.sampled_from(others))
        return Op("cast", (Elem(name, coords(rank), parts.readable[name]),), dtype)
    return _constant(draw, dtype)
