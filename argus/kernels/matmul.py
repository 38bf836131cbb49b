"""Matrix products of PyTorch tensors: operands of any layout go to one proved kernel, with the tile for their shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from argus.frontend.decorator import FuncSource
from argus.kernels import operands
from argus.kernels.gemm import combine
from argus.kernels.tiling import Problem, Tile, read_once, rows_together
from argus.runtime.jit_kernel import JitKernel
from argus.runtime.reader import Memory, Run
from argus.runtime.recipe import Given, Launch, Made, Recipe, Value, room, room_like

if TYPE_CHECKING:
    import torch


class Matmul:
    """`matmul(a, b)`: see `__call__`. Keeps what it prepared, by shapes, strides, dtypes, alignments and device.

    `choose` gives the tile for a problem, `combine` adds up the parts that some tiles leave.
    """

    def __init__(self, kernel: JitKernel, choose: Callable[[Problem], Tile], combine: JitKernel = combine) -> None:
        self._kernel, self._choose, self._combine = kernel, choose, combine
        self._memory = Memory()
        self._ones: dict[Any, Any] = {}

    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        bias: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        epilogue: str | FuncSource | None = None,
        scale_a: torch.Tensor | None = None,
        scale_b: torch.Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`epilogue(scale_a * scale_b * (a @ b) + bias) + residual`, added up in float32 and rounded once. No gradient.

        `a` is `[M, K]` or `[Z, M, K]`, `b` `[K, N]` or `[Z, K, N]`, of one dtype: float16, bfloat16, float8_e4m3fn, or
        float32, which is multiplied as tfloat32 (10 bits of mantissa). Views are taken as they are: transposed, padded,
        misaligned. `bias` is `[N]`; `residual` has the result's shape; `scale_a` is of float32, `[1]` or `[M]`, and
        `scale_b` `[1]` or `[N]`. `epilogue` is "relu", "silu", "gelu", "gelu_tanh", or an `@argus.func` of one tile of
        float32. The result is of `out_dtype` (float16, bfloat16 or float32; by default that of `a`, of 8-bit operands
        bfloat16), and is written to `out` if that is given, which overlaps no operand.

        Raises LaunchError for what does not fit, and what a kernel's call raises.
        """
        plain = bias is residual is scale_a is scale_b is out is None
        given = () if plain else (bias, residual, scale_a, scale_b, out)
        tensors = (a, b) if plain else (a, b, *(x for x in given if x is not None))
        way = (epilogue, out_dtype) if plain else (epilogue, out_dtype, *(x is None for x in given))
        result: torch.Tensor = self._memory.call(
            way, tensors, (), self._prepare, a, b, bias, residual, epilogue, scale_a, scale_b, out_dtype, out
        )
        return result if out is None else out

    def _prepare(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        epilogue: str | FuncSource | None,
        scale_a: torch.Tensor | None,
        scale_b: torch.Tensor | None,
        out_dtype: torch.dtype | None,
        out: torch.Tensor | None,
    ) -> Run:
        import torch

        dtype = getattr(torch, operands.result_dtype(a, out_dtype, out))
        allocate = room(operands.result_shape(a, b), dtype, a.device)
        request = operands.request(a, b, allocate() if out is None else out, bias, residual, scale_a, scale_b, epilogue)
        problem = operands.problem(request)
        tile = self._choose(problem)
        if a.device not in self._ones:
            self._ones[a.device] = torch.ones(1, device=a.device)
        ones = self._ones[a.device]
        packings = packed(request, problem) if tile.packed else (None, None)
        if tile.packed:
            request, problem = of_packed(request, packings), problem.packed
        calls = _of_operands(self._kernel, self._combine, request, problem, tile, ones)
        places = map(Given, range(2, 7))
        *others, to = (None if x is None else next(places) for x in (bias, residual, scale_a, scale_b, out))
        one = ones.data_ptr()
        bias_at, residual_at, *scales_at = (one if place is None else place for place in others)
        if tile.swapped if len(calls) == 1 else operands.by_rows(request).turned:
            scales_at.reverse()
        rest = (bias_at, residual_at, *scales_at)
        return _recipe(calls, packings, tile.swapped, allocate if to is None else to, rest, one).runner()


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a kernel: `kernel(*arguments, **constants)`."""

    kernel: JitKernel
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


def calls(
    kernel: JitKernel, combine: JitKernel, request: operands.Request, problem: Problem, tile: Tile, ones: Any
) -> tuple[Call, ...]:
    """What computes a product with a tile: calls that pack operands, one of the product, one that adds up parts."""
    if not tile.packed:
        return _of_operands(kernel, combine, request, problem, tile, ones)
    packings = packed(request, problem)
    first = tuple(Call(p.kernel, (p.x, p.out), p.constants) for p in packings if p is not None)
    request = of_packed(request, packings)
    return (*first, *_of_operands(kernel, combine, request, problem.packed, tile, ones))


Packings = tuple[operands.Packing | None, operands.Packing | None]


def packed(request: operands.Request, problem: Problem) -> Packings:
    """How a and b are packed; None for one that stays as it is."""
    return (
        operands.packing(request.a) if problem.pack_a else None,
        operands.packing(request.b) if problem.pack_b else None,
    )


def of_packed(request: operands.Request, packings: Packings) -> operands.Request:
    """The product of the copies."""
    first, second = packings
    return replace(request, a=request.a if first is None else first.out, b=request.b if second is None else second.out)


def _recipe(
    calls: tuple[Call, ...],
    packings: Packings,
    swapped: bool,
    to: Given | Callable[[], Any],
    rest: tuple[Value, ...],
    one: int,
) -> Recipe:
    """What `calls` do, on a, b, and what else is given: `rest` are bias, residual and scales, in the calls' order.

    `to`: where the result goes, or what makes it. `one` is the address of what stands for absent tensors.
    """
    allocations: list[Callable[[], Any]] = []

    def made(allocate: Callable[[], Any]) -> Made:
        allocations.append(allocate)
        return Made(len(allocations) - 1)

    c = to if isinstance(to, Given) else made(to)
    tensors = 2 + sum(isinstance(v, Given) for v in (c, *rest))
    launches: list[Launch] = []
    at: list[Value] = [Given(0), Given(1)]
    for i, packing in enumerate(packings):
        if packing is not None:
            plan, copy = packing.kernel.prepare(packing.x, packing.out, **packing.constants), made(packing.room)
            launches.append(Launch(plan, (at[i], copy)))
            at[i] = copy
    if swapped:
        at.reverse()
    first, *sums = (call.kernel.prepare(*call.arguments, **call.constants) for call in calls)
    if not sums:
        launches.append(Launch(first, (*at, c, *rest)))
    else:
        parts, depth = calls[1].arguments[0], calls[1].arguments[-1]
        sums_at = made(room_like(parts))
        launches.append(Launch(first, (*at, sums_at, one, one, one, one)))
        launches.append(Launch(sums[0], (sums_at, c, *rest, depth)))
    return Recipe(tensors, tuple(allocations), tuple(launches), 0 if isinstance(to, Given) else 1)


def _of_operands(
    kernel: JitKernel, combine: JitKernel, request: operands.Request, problem: Problem, tile: Tile, ones: Any
) -> tuple[Call, ...]:
    """A product of operands as they are: one call, or one that makes parts of the sums and one that adds them up."""
    if not tile.part:
        seen = operands.turned(request) if tile.swapped else operands.in_halves(request) if tile.shift else request
        tensors, constants = operands.arguments(seen, problem.bulk, ones)
        own = {**tile.constants, **read_once(problem, tile), **rows_together(problem)}
        return (Call(kernel, tensors, {**constants, **own}),)
    across, count = operands.by_rows(request), tile.parts(problem.k)
    parts = empty_parts(across, count)
    first = operands.of_parts(across, parts)
    tensors, constants = operands.arguments(
        operands.turned(first) if tile.swapped != across.turned else first, problem.bulk, ones
    )
    rest, more = operands.combined(across, problem.bulk, ones)
    more |= {"PARTS": count, "DEPTH": tile.part, **_spread(*parts.shape)}
    return (
        Call(kernel, tensors, {**constants, **tile.constants, **read_once(problem, tile)}),
        Call(combine, (parts, *rest, problem.k), more),
    )


def empty_parts(across: operands.Request, count: int) -> Any:
    """Room for the parts of a product, which lie in memory as its result does."""
    import torch

    shape = (count, across.a.shape[-2], across.b.shape[-2])
    return torch.empty(shape, dtype=torch.float32, device=across.a.device)


_TOGETHER, _ROOM = 7, 2**18
"""Parts that `combine` asks for before it adds the first: kernels that read eight times what they write keep the next
launch waiting until they end. And elements of a result for which a thread each 4 finds room beside the product's."""


def _spread(count: int, rows: int, columns: int) -> dict[str, int]:
    """Tiles of `combine` for so many parts of a result: fewer rows for long ones; a vector of 4 elements a thread, or
    two for large ones, whose blocks would else come one after the other."""
    elements, wide = 512 if rows * columns <= _ROOM else 1024, 32
    while wide < min(columns, 512):
        wide *= 2
    return {"EACH": ceil(count / ceil(count / _TOGETHER)), "ROWS": elements // wide, "COLUMNS": wide}
