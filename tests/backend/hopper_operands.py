"""Explicit kernels for sm_90a whose operands lie in all ways that asynchronous products read: c = a b, slice by slice
of tensors of four dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from argus.ir.beginning import initialisation
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, coords, op
from argus.ir.instruction import WGMMA
from argus.ir.instruction.tiled import wgmma_accumulator, wgmma_operand
from argus.ir.nodes import (
    Access,
    Barrier,
    BulkCommit,
    BulkCopy,
    BulkWait,
    Counter,
    For,
    Fragment,
    Kernel,
    Map,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Programs,
    ProxyFence,
    Role,
    Roles,
    Shared,
    Signal,
    Stmt,
    ThreadCopy,
)
from argus.ir.types import DType, bfloat16, float8_e4m3fn, float8_e5m2, float16, float32, tfloat32
from argus.layout import FragmentLayout, Layout, Swizzle, SwizzledLayout, row_major
from tests.backend.emit_kernels import c, tensor

K = LoopVar("k0")


def panels(shape: tuple[int, int, int], dtype: DType) -> SwizzledLayout:
    """(stages, rows, columns) in panels of rows of 128 bytes."""
    stages, rows, columns = shape
    width = 128 // dtype.bytes
    count = columns // width
    inner = row_major(shape)
    if count > 1:
        inner = Layout((stages, rows, (width, count)), (rows * columns, width, (1, rows * width)))
    return SwizzledLayout(Swizzle(3, (16 // dtype.bytes).bit_length() - 1, 3), 0, inner)


@dataclass(frozen=True)
class Case:
    """c[s, t, m, n] = sum over k of a[s, t, m, k] * b[s, t, n, k], in blocks of `block` by `depth`.

    `across` are the operands that lie along m or n; `registers` brings a into registers first; `store` lets the copy
    engine store c, which then has the operands' type; `persistent` gives blocks several programs.
    """

    block: tuple[int, int] = (128, 128)
    depth: int = 128
    n: int = 128
    warps: tuple[int, int] = (8, 1)
    dtype: DType = bfloat16
    across: tuple[bool, bool] = (False, False)
    registers: bool = False
    stages: int = 2
    store: bool = False
    persistent: bool = False

    @property
    def out(self) -> DType:
        return self.dtype if self.store else float32

    @property
    def name(self) -> str:
        return f"wgmma_m64n{self.n}k{32 // self.dtype.bytes}"

    def tile(self, operand: int) -> tuple[int, int]:
        """Rows and columns of an operand's tile."""
        shape = (self.block[operand], self.depth)
        return (shape[1], shape[0]) if self.across[operand] else shape

    @property
    def bytes(self) -> int:
        return (self.block[0] + self.block[1]) * self.depth * self.dtype.bytes


def _slice() -> tuple[Expr, Expr]:
    return op("floordiv", ProgramId(2), Param("T")), op("mod", ProgramId(2), Param("T"))


def _stage(case: Case) -> tuple[Expr, Expr]:
    """Place and turn."""
    number = LoopVar("count") if case.persistent else op("floordiv", K, c(case.depth))
    return op("mod", number, c(case.stages)), op("floordiv", number, c(case.stages))


def _loop(case: Case, body: tuple[Stmt, ...]) -> For:
    counter = Counter("count", 2 * case.stages) if case.persistent else None
    return For("k0", c(0), Param("K"), case.depth, body, counter=counter)


def _whole(case: Case, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The role's program; bulk stores are waited for at its end."""
    read = (BulkWait(0, True),) if case.store and any(isinstance(s, BulkCommit) for s in body) else ()
    return (Programs(body), *read) if case.persistent else (*body, *read)


def _loads(case: Case, operand: int, stage: Expr) -> tuple[Stmt, ...]:
    name, size = "ab"[operand], "MN"[operand]
    (rows, columns), width = case.tile(operand), 128 // case.dtype.bytes
    start = op("mul", ProgramId(operand), c(case.block[operand]))
    starts, extents = (K, start) if case.across[operand] else (start, K), (Param("K"), Param(size))
    if not case.across[operand]:
        extents = (extents[1], extents[0])
    copies = []
    for first in range(0, columns, width):
        index = (op("add", starts[0], Coord(0)), op("add", op("add", starts[1], c(first)), Coord(1)))
        mask = op("and", *(op("lt", i, extent) for i, extent in zip(index, extents, strict=True)))
        to = Access(name + "t", (stage, Coord(0), op("add", Coord(1), c(first))))
        source = Access(name, (*_slice(), *index))
        copies.append(
            BulkCopy(to, source, (rows, width), mask, Const(0.0, case.dtype), instr="tma.load",
                 signal=Signal("full", stage))
        )  # fmt: skip
    return tuple(copies)


def _producer(case: Case) -> Role:
    stage, turn = _stage(case)
    body: tuple[Stmt, ...] = (
        MbarrierWait("empty", stage, op("mod", op("add", turn, c(1)), c(2))),
        MbarrierExpect("full", stage, case.bytes),
        *_loads(case, 0, stage),
        *_loads(case, 1, stage),
    )
    first = -(-case.warps[0] * case.warps[1] // 4) * 4
    return Role("producer", first, 1, 40, _whole(case, (_loop(case, body),)))


def _consumer(case: Case) -> tuple[Role, tuple[Fragment, ...]]:
    row, (stage, turn) = WGMMA[case.name], _stage(case)
    held, acc = ((case.block[0], case.depth), wgmma_accumulator(row, case.block, case.warps))
    operand = wgmma_operand(row, held, case.warps)
    orders = [(Coord(2), Coord(i)) if case.across[i] else (Coord(i), Coord(2)) for i in (0, 1)]
    left = Access("ar", (Coord(0), Coord(2))) if case.registers else Access("at", (stage, *orders[0]))
    run = operand.values[0].extent if operand.values[0].dim == 1 else 1
    load: tuple[Stmt, ...] = (
        ThreadCopy(
            Access("ar", coords(2)), Access("at", (stage, *coords(2))), held, None, None, operand, "ld.shared", run
        ),
        ProxyFence(),
    )  # fmt: skip
    loop: tuple[Stmt, ...] = (
        MbarrierWait("full", stage, op("mod", turn, c(2))),
        *(load if case.registers else ()),
        Map(Access("part", coords(2)), Const(0.0, float32), case.block, acc, "thread"),
        MmaFence(),
        Mma(Access("part", coords(2)), left, Access("bt", (stage, *orders[1])), (*case.block, case.depth), row.name,
            case.warps),
        MmaCommit(),
        MmaWait(0),
        MbarrierArrive("empty", stage),
        Map(Access("acc", coords(2)), Op("add", (Elem("acc", coords(2), float32), Elem("part", coords(2), float32)),
                                         float32), case.block, acc, "thread"),
    )  # fmt: skip
    index = tuple(op("add", op("mul", ProgramId(i), c(case.block[i])), Coord(i)) for i in (0, 1))
    inside = op("and", op("lt", index[0], Param("M")), op("lt", index[1], Param("N")))
    place = Access("c", (*_slice(), *index))
    direct = ThreadCopy(place, Access("acc", coords(2)), case.block, inside, None, acc, "st.global", 2)
    body: tuple[Stmt, ...] = (
        Map(Access("acc", coords(2)), Const(0.0, float32), case.block, acc, "thread"),
        _loop(case, loop),
        *(_stores(case, acc) if case.store else (direct,)),
    )
    fragments = (
        Fragment("acc", float32, case.block, acc),
        Fragment("part", float32, case.block, acc),
        *((Fragment("ar", case.dtype, held, operand),) if case.registers else ()),
    )
    if case.store:
        fragments += (Fragment("rounded", case.dtype, case.block, acc),)
    return Role("compute", 0, case.warps[0] * case.warps[1], 232, _whole(case, body)), fragments


def _stores(case: Case, acc: FragmentLayout) -> Iterator[Stmt]:
    """Through a scratch tile in panels, free again when the copy engine has read it."""
    value = Op("cast", (Elem("acc", coords(2), float32),), case.dtype)
    yield Map(Access("rounded", coords(2)), value, case.block, acc, "thread")
    yield BulkWait(0, True)
    yield Barrier()
    rounded = Access("rounded", coords(2))
    yield ThreadCopy(Access("scratch", coords(2)), rounded, case.block, None, None, acc, "st.shared", 2)
    yield ProxyFence()
    yield Barrier()
    width = 128 // case.dtype.bytes
    for first in range(0, case.block[1], width):
        rows = op("add", op("mul", ProgramId(0), c(case.block[0])), Coord(0))
        columns = op("add", op("add", op("mul", ProgramId(1), c(case.block[1])), c(first)), Coord(1))
        inside = op("and", op("lt", rows, Param("M")), op("lt", columns, Param("N")))
        source = Access("scratch", (Coord(0), op("add", Coord(1), c(first))))
        target = Access("c", (*_slice(), rows, columns))
        yield BulkCopy(target, source, (case.block[0], width), inside, instr="tma.store")
    yield BulkCommit()


def kernel(case: Case) -> Kernel:
    """The kernel of a case: one warp copies, the others compute; a block for each (m, n, slice)."""
    consumer, fragments = _consumer(case)
    producer, computing, shared, offset = _producer(case), case.warps[0] * case.warps[1], [], 0
    tensors = []
    for i, name in enumerate("ab"):
        shape = (case.stages, *case.tile(i))
        shared.append(Shared(f"{name}t", case.dtype, shape, panels(shape, case.dtype), offset))
        offset += case.stages * case.block[i] * case.depth * case.dtype.bytes
        rows = "KM" if i == 0 else "KN"
        tensors.append(tensor(name, case.dtype, "S", "T", *(rows if case.across[i] else reversed(rows))))
    if case.store:
        layout = panels((1, *case.block), case.dtype)
        flat = SwizzledLayout(layout.swizzle, 0, Layout(layout.inner.shape[1:], layout.inner.stride[1:]))
        shared.append(Shared("scratch", case.dtype, case.block, flat, offset))
        offset += case.block[0] * case.block[1] * case.dtype.bytes
    grid = (*(op("floordiv", op("add", Param(size), c(rows - 1)), c(rows))
              for size, rows in zip("MN", case.block, strict=True)), op("mul", Param("S"), Param("T")))  # fmt: skip
    barriers = (Mbarrier("full", case.stages, 1, offset), Mbarrier("empty", case.stages, computing, offset + 64))
    return Kernel(
        "hopper_operands",
        (*tensors, tensor("c", case.out, "S", "T", "M", "N")),
        ("S", "T", "M", "N", "K"),
        (),
        grid,
        producer.first_warp + 4,
        32,
        (),
        tuple(shared),
        fragments,
        (*initialisation(barriers), Roles((consumer, producer))),
        "sm_90a",
        barriers,
        persistent=case.persistent,
    )


CASES = {
    "k by k": Case(),
    "k by n": Case(across=(False, True)),
    "m by k": Case(across=(True, False), n=64),
    "m by n": Case(across=(True, True), block=(128, 192), n=192, stages=1),
    "registers by k": Case(registers=True, n=64, block=(64, 64), warps=(4, 1)),
    "registers by n": Case(registers=True, across=(False, True)),
    "n in parts of a panel": Case(across=(False, True), n=32, block=(64, 128), warps=(4, 1), depth=64),
    "groups side by side": Case(across=(False, True), n=64, block=(64, 128), warps=(4, 2)),
    "stored by the copy engine": Case(store=True),
    "persistent": Case(store=True, persistent=True, stages=3, depth=64),
    "persistent, by columns": Case((64, 64), 64, 64, (4, 1), across=(True, True), persistent=True),
    "repeated rows": Case(registers=True, across=(False, True), n=64, block=(128, 64), warps=(4, 1)),
}
"""Each way to read operands, each way to share the tile."""

DTYPES = {
    "float16": Case(dtype=float16, across=(True, True), n=64),
    "float16 in registers": Case(dtype=float16, registers=True),
    "tfloat32": Case(dtype=tfloat32, depth=64, stages=1, persistent=True),
    "tfloat32 in registers": Case((64, 64), 32, 64, (4, 1), tfloat32, registers=True),
    "float8_e4m3fn": Case(dtype=float8_e4m3fn, depth=256, stages=1),
    "float8_e5m2 in registers": Case(dtype=float8_e5m2, registers=True, n=64),
}
"""The same for operands of each type."""
