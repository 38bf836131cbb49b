"""The work of one launch of an explicit kernel, counted from its statements: operations, bytes, and memory.

Trip counts of loops are those of the first program. Both branches of an `if` count. This is enough for the model, which
compares configurations of one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from argus.backend.abi import shared_bytes
from argus.backend.launch.evaluate import Number, evaluate
from argus.ir.expr import Const, Expr, LoopVar, ProgramId, rewrite
from argus.ir.machine import H200
from argus.ir.nodes import Accumulate, Copy, For, If, Kernel, Map, Mma, Programs, Roles, Shared, Stmt, Tensor
from argus.tuning.model import Work

_IDLE_CYCLES = 2500.0  # until the first bytes are there, and from the last operation to the end
_OWN_REGISTERS = 32  # a thread: addresses, counters
_LOADS_IN_FLIGHT = 4  # vectors of 16 bytes a thread, where nothing is asynchronous


def work_of(kernel: Kernel, values: Mapping[str, Number]) -> Work:
    """Return the work of a launch with sizes, strides and scalars by name. `kernel` is explicit and has a grid."""
    flops = scalar = shared = outside = 0.0
    bits = 32
    for stmt, times in _weighed(kernel.body, values, 1.0):
        match stmt:
            case Mma(shape=shape, a=a, b=b):
                flops += times * 2.0 * prod(shape)
                bits = kernel.object(b.obj).dtype.bits
                m, n, k = shape
                for operand, elements in ((a, m * k), (b, n * k)):
                    if isinstance(kernel.object(operand.obj), Shared):
                        shared += times * elements * bits / 8
            case Copy(src=src, dst=dst, shape=shape):
                moved = times * prod(shape) * kernel.object(src.obj).dtype.bytes
                sides = [kernel.object(side.obj) for side in (src, dst)]
                outside += moved * any(isinstance(side, Tensor) for side in sides)
                shared += moved * sum(isinstance(side, Shared) for side in sides)
            case Map(shape=shape) | Accumulate(shape=shape):
                scalar += times * prod(shape)
            case _:
                pass
    held = sum(prod(f.shape) * f.dtype.bytes for f in kernel.fragments) / (4 * kernel.num_threads)
    room = shared_bytes(kernel)
    return Work(
        blocks=prod(int(evaluate(extent, values)) for extent in kernel.grid or ()),
        threads=kernel.num_threads,
        registers=min(H200.thread_registers, int(held) + _OWN_REGISTERS, H200.registers // kernel.num_threads),
        shared_bytes=room,
        matrix_flops=flops,
        matrix_bits=bits,
        scalar_flops=scalar,
        shared_traffic=shared,
        global_traffic=outside,
        all_bytes=sum(prod(int(evaluate(e, values)) for e in t.shape) * t.dtype.bytes for t in kernel.tensors),
        in_flight=max(room, 16 * _LOADS_IN_FLIGHT * kernel.num_threads),
        idle_cycles=_IDLE_CYCLES,
    )


def _weighed(body: tuple[Stmt, ...], values: Mapping[str, Number], times: float) -> Iterator[tuple[Stmt, float]]:
    """Yield every statement with the number of times that a block runs it."""
    for stmt in body:
        yield stmt, times
        match stmt:
            case For(start=start, stop=stop, step=step, body=inner):
                trips = max(0, -(-int(_first(stop, values) - _first(start, values)) // step))
                yield from _weighed(inner, values, times * trips)
            case If(then=then, orelse=orelse):
                yield from _weighed((*then, *orelse), values, times)
            case Roles(roles=roles):
                for role in roles:
                    yield from _weighed(role.body, values, times)
            case Programs(body=inner):
                yield from _weighed(inner, values, times)
            case _:
                pass


def _first(expr: Expr, values: Mapping[str, Number]) -> Number:
    """Return a loop's bound for program 0 and the first iterations of the loops around it; 1 if it depends on data."""
    at_first = rewrite(expr, lambda e: Const(0, e.dtype) if isinstance(e, ProgramId | LoopVar) else None)
    try:
        return evaluate(at_first, values)
    except (TypeError, ArithmeticError, ValueError):
        return 1
