"""The work of one launch of an explicit kernel, counted from its statements: operations, bytes, and memory.

Every operand is counted where it is read. Threads that load it from global memory request cache lines, and each warp
requests all lines of its elements (`requests`). A warpgroup reads the whole second operand of its product from shared
memory for every 64 rows. Loops and branches are counted for the program in the middle of the grid and for the middle
iteration. A branch that depends on data counts in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, prod

from argus.backend.abi import shared_bytes
from argus.backend.launch.evaluate import Number, evaluate
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, ProgramId, rewrite, walk
from argus.ir.instruction import BULK_LOADS, WGMMA
from argus.ir.machine import H200, WARPGROUP
from argus.ir.nodes import (
    Accumulate,
    Copy,
    For,
    Fragment,
    If,
    Kernel,
    Map,
    Mma,
    MmaWait,
    Programs,
    Role,
    Roles,
    Shared,
    Stmt,
    Tensor,
    WaitGroup,
)
from argus.ir.visit import walk as every
from argus.tuning.model import Work
from argus.tuning.registers import exceeded, held_registers
from argus.tuning.requests import active, lines

_FIRST_CYCLES = 600.0  # cycles until the first bytes arrive
_LAST_CYCLES = 590.0  # cycles from the last product to the end, without the time for the bytes of the result
_STORED_BYTES = 21.0  # bytes of a result that are stored in a cycle
_IDLE_CYCLES = 2500.0  # cycles from the first request to the end, if there are no producer warps
_ROUND_TRIP_CYCLES = 600.0  # cycles of a loop iteration that waits for its own requests
# bytes of a stage's boxes that arrive in a cycle, and the smallest number of cycles until all have arrived
_ARRIVING_BYTES, _SOONEST_CYCLES = 22.3, 500.0
_OWN_REGISTERS = 32  # registers of a thread for addresses and counters
_BESIDE_TILES = 8  # smallest number of registers besides tiles: with fewer, the compiler moves tiles to memory
_LEAST_IN_FLIGHT = 16  # bytes in flight for a thread
_APART = 1.08
"""Time of shared memory if several warpgroups read at different times, relative to one warpgroup."""
_SYNC_SHARE = 0.6
"""The share of the tensor cores' rate that mma.sync reaches."""
_ATOM_ROWS = 64  # rows of one asynchronous product of a warpgroup

_SLOTS: Mapping[str, float] = {
    "exp2": 16.0, "log2": 16.0, "rsqrt": 16.0, "exp": 30.0, "log": 30.0, "sqrt": 20.0, "truediv": 40.0, "maximum": 6.0,
    "minimum": 6.0,
    "sigmoid": 40.0, "tanh": 40.0, "tanh_approx": 8.0,
    "sin": 40.0, "cos": 40.0, "erf": 60.0, "log1p": 40.0, "expm1": 40.0,
}  # fmt: skip
_SLOT = 2.0
"""Number of operations that the machine could do in the time of one float operator. A multiply-add counts as 2."""

Middle = Mapping[int | str | None, int]
"""The axes of the grid and the loops by name, with the program and the iterations that represent all others."""


@dataclass(slots=True)
class _Counts:
    """Sums over the statements that a block runs."""

    flops: float = 0.0
    bits: int = 32
    scalar: float = 0.0
    beside: float = 0.0
    shared: float = 0.0
    outside: float = 0.0
    requests: float = 0.0
    trips: float = 0.0
    steps: float = 0.0
    stored: float = 0.0
    open_products: bool = False
    asked: float = 0.0
    staged: float = 0.0
    boxes: dict[str, float] = field(default_factory=dict)
    rings: dict[str, float] = field(default_factory=dict)


def work_of(kernel: Kernel, values: Mapping[str, Number]) -> Work:
    """Return the work of a launch with sizes, strides and scalars by name. `kernel` is explicit and has a grid."""
    counts = _Counts()
    grid = [int(evaluate(extent, values)) for extent in kernel.grid or ()]
    middle: Middle = {axis: extent // 2 for axis, extent in enumerate(grid)}
    for stmt, times in _weighed(kernel.body, values, middle, 1.0):
        _count(stmt, times, kernel, values, counts)
    roles = [role for s in kernel.body if isinstance(s, Roles) for role in s.roles]
    groups = _groups(kernel, roles)
    bulk = bool(roles) and bool(counts.boxes)
    hidden = bulk and any(isinstance(s, Programs) and s.turns > 1 for s in every(kernel.body))
    room = shared_bytes(kernel)
    stages = max((b.count for b in kernel.barriers), default=1) if bulk else 1
    steps = max(int(counts.steps), 1) if bulk else 1
    end = _LAST_CYCLES + counts.stored / _STORED_BYTES
    serial = counts.scalar - counts.beside if groups < 2 else 0.0
    return Work(
        blocks=prod(grid),
        threads=kernel.num_threads,
        registers=_registers(kernel, roles),
        shared_bytes=room,
        matrix_flops=counts.flops,
        matrix_bits=counts.bits,
        scalar_flops=counts.scalar,
        serial_flops=serial if counts.flops else 0.0,
        shared_traffic=counts.shared * (_APART if groups > 1 and bulk else 1.0),
        global_traffic=counts.outside,
        requests=counts.requests,
        all_bytes=sum(prod(int(evaluate(e, values)) for e in t.shape) * t.dtype.bytes for t in kernel.tensors),
        in_flight=max(counts.asked, room * bool(counts.staged), _LEAST_IN_FLIGHT * kernel.num_threads),
        idle_cycles=0.0 if hidden else end if bulk else _IDLE_CYCLES + counts.trips * _ROUND_TRIP_CYCLES,
        start_cycles=(_FIRST_CYCLES if bulk else 0.0) + (end if hidden else 0.0),
        steps=steps,
        stages=stages,
        rings=sum(times == counts.steps for times in counts.rings.values()) if bulk else 1,
        arrival_cycles=max(_SOONEST_CYCLES, sum(counts.boxes.values()) / _ARRIVING_BYTES) if bulk else 0.0,
        reason=exceeded(kernel, _BESIDE_TILES),
    )


def _registers(kernel: Kernel, roles: list[Role]) -> int:
    """Return the registers of a thread, as an average if roles have budgets of their own."""
    if roles and all(role.registers is not None for role in roles):
        given = sum((role.registers or 0) * _whole(role.num_warps) for role in roles)
        return min(given // sum(_whole(role.num_warps) for role in roles), H200.registers // kernel.num_threads)
    held, room = held_registers(kernel), min(H200.thread_registers, H200.registers // kernel.num_threads)
    return min(held + _OWN_REGISTERS, room) if held + _BESIDE_TILES <= room else held + _OWN_REGISTERS


def _whole(warps: int) -> int:
    return ceil(warps / WARPGROUP) * WARPGROUP


def _groups(kernel: Kernel, roles: list[Role]) -> int:
    """Return how many groups of warps of a block compute independently of one another."""
    computing = [role for role in roles if any(isinstance(s, Mma | Map) for s in every(role.body))]
    return sum(max(1, role.num_warps // WARPGROUP) for role in computing) or kernel.num_warps


def _count(stmt: Stmt, times: float, kernel: Kernel, values: Mapping[str, Number], counts: _Counts) -> None:
    match stmt:
        case Mma():
            _product(stmt, times, kernel, counts)
        case MmaWait(pending=0):
            counts.open_products = False
        case Copy():
            _moved(stmt, times, kernel, values, counts)
        case Map(shape=shape, layout=layout, value=value) | Accumulate(shape=shape, layout=layout, value=value):
            held = layout.num_threads * layout.num_values if layout is not None else prod(shape)
            slots = times * held * _slots(value, isinstance(stmt, Accumulate))
            counts.scalar += slots
            counts.beside += slots * counts.open_products
        case For():
            counts.trips += times * _waits(stmt, kernel)
        case _:
            pass


def _product(stmt: Mma, times: float, kernel: Kernel, counts: _Counts) -> None:
    m, n, k = stmt.shape
    bits = kernel.object(stmt.b.obj).dtype.bits
    engine = stmt.instr in WGMMA
    counts.bits = bits
    counts.flops += times * 2.0 * m * n * k / (1.0 if engine else _SYNC_SHARE)
    counts.open_products |= engine
    readers = ceil(m / _ATOM_ROWS) if engine else max(1, (stmt.warps or (1, 1))[0])
    for operand, elements in ((stmt.a, m * k), (stmt.b, n * k * readers)):
        if isinstance(kernel.object(operand.obj), Shared):
            counts.shared += times * elements * bits / 8


def _moved(stmt: Copy, times: float, kernel: Kernel, values: Mapping[str, Number], counts: _Counts) -> None:
    src, dst = kernel.object(stmt.src.obj), kernel.object(stmt.dst.obj)
    inside = active(stmt, values)
    once = prod(stmt.shape) * src.dtype.bytes * inside
    held = stmt.layout.num_threads * stmt.layout.num_values if stmt.layout is not None else prod(stmt.shape)
    if isinstance(src, Tensor) or isinstance(dst, Tensor):
        counts.outside += times * once
    counts.stored += times * once * isinstance(dst, Tensor)
    counts.asked += once * isinstance(src, Tensor) * isinstance(dst, Fragment)
    counts.staged += once * isinstance(src, Tensor) * isinstance(dst, Shared)
    for side, tile in ((stmt.src, src), (stmt.dst, dst)):
        if isinstance(tile, Tensor):
            counts.requests += times * lines(stmt, side, tile, values, kernel.warp_size) * inside
        elif isinstance(tile, Shared):
            counts.shared += times * (held if side is stmt.src else prod(stmt.shape)) * src.dtype.bytes
    if stmt.instr in BULK_LOADS:
        counts.steps = max(counts.steps, times)
        if stmt.signal is not None:
            counts.rings[stmt.signal.barrier] = max(counts.rings.get(stmt.signal.barrier, 0.0), times)
        counts.boxes[stmt.dst.obj] = max(counts.boxes.get(stmt.dst.obj, 0.0), once)


def _waits(loop: For, kernel: Kernel) -> float:
    """Return 1 if an iteration waits for elements that it requested itself, else 0."""
    tensors = {t.name for t in kernel.tensors}
    fragments = {f.name for f in kernel.fragments}
    for stmt in loop.body:
        if isinstance(stmt, Copy) and stmt.src.obj in tensors and stmt.dst.obj in fragments:
            return 1.0
        if isinstance(stmt, WaitGroup) and stmt.pending == 0:
            return 1.0
    return 0.0


def _slots(value: Expr, reduces: bool) -> float:
    """Return the time of an element's operators, in operations. Terms that do not depend on the element, or only on its
    row, are computed once and do not count. A product that is added to something takes no instruction of its own."""
    found = _SLOT if reduces else 0.0
    every = _coordinates(value)
    for part in walk(value):
        reads = isinstance(part, Op) and any(isinstance(inner, Elem) for inner in walk(part))
        if isinstance(part, Op) and reads and _coordinates(part) == every:
            found += _SLOTS.get(part.op, _SLOT) - _SLOT * _fused(part, every)
    return max(found, _SLOT / 2)


def _fused(part: Op, every: set[int]) -> bool:
    """Return True if an addition multiplies one of its arguments in the same instruction."""
    products = (a for a in part.args if isinstance(a, Op) and a.op == "mul" and a.dtype.is_float)
    return part.op in ("add", "sub") and any(_coordinates(a) == every for a in products)


def _coordinates(expr: Expr) -> set[int]:
    return {part.axis for part in walk(expr) if isinstance(part, Coord)}


def _weighed(
    body: tuple[Stmt, ...], values: Mapping[str, Number], middle: Middle, times: float
) -> Iterator[tuple[Stmt, float]]:
    """Yield every statement with the number of times that a block runs it. A loop is yielded with the number of its
    iterations."""
    for stmt in body:
        match stmt:
            case For(var=var, start=start, stop=stop, step=step, body=inner):
                first, last = _at(start, values, middle, 0), _at(stop, values, middle, 1)
                trips = max(0, ceil((last - first) / step))
                yield stmt, times * trips
                inside = {**middle, var: int(first + trips // 2 * step)}
                yield from _weighed(inner, values, inside, times * trips)
                continue
            case If(cond=cond, then=then, orelse=orelse):
                taken = _at(cond, values, middle, -1)
                both = (*then, *orelse)
                yield from _weighed(both if taken == -1 else then if taken else orelse, values, middle, times)
            case Roles(roles=roles):
                for role in roles:
                    yield from _weighed(role.body, values, middle, times)
            case Programs(body=inner, turns=turns):
                yield from _weighed(inner, values, middle, times / max(1, turns))
            case _:
                pass
        yield stmt, times


def _at(expr: Expr, values: Mapping[str, Number], middle: Middle, otherwise: int) -> int:
    """Evaluate an expression in the middle, or return `otherwise` if it depends on data."""

    def fix(part: Expr) -> Expr | None:
        place = part.axis if isinstance(part, ProgramId) else part.name if isinstance(part, LoopVar) else None
        return Const(middle[place], part.dtype) if place in middle else None

    try:
        return int(evaluate(rewrite(expr, fix), values))
    except (TypeError, KeyError, ArithmeticError, ValueError):
        return otherwise
