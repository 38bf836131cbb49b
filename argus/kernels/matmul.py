"""Matrix products of PyTorch tensors: operands of any layout go to one proved kernel, with the tile for their shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from argus.backend.launch.plan import Plan
from argus.frontend.decorator import FuncSource
from argus.kernels import operands
from argus.kernels.gemm import combine
from argus.kernels.tiling import Problem, Tile
from argus.runtime.jit_kernel import JitKernel
from argus.runtime.reader import Memory

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Ready:
    """A prepared call. `plan` takes a and b (`turned`: b and a), the result, and the rest: `ones` where absent.

    With `parts` the result is what that allocates, without the rest, and `combine` takes it, the result and the rest
    (`across`: with the scales of b and a), and the number of terms. With `packs` a or b, or both, are copied first.
    """

    plan: Plan
    turned: bool
    allocate: Callable[[], Any]
    ones: int
    parts: Callable[[], Any] | None = None
    combine: Plan | None = None
    across: bool = False
    terms: int = 0
    packs: tuple[Pack | None, Pack | None] | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """A prepared copy of an operand, to what `allocate` gives."""

    plan: Plan
    allocate: Callable[[], Any]

    def run(self, at: int) -> Any:
        """The copy of the operand at address `at`, on its way."""
        room = self.allocate()
        self.plan.run((at, room.data_ptr()))
        return room


class Matmul:
    """`matmul(a, b)`: see `__call__`. Keeps what it prepared, by shapes, strides, dtypes, alignments and device.

    `choose` gives the tile for a problem, `combine` adds up the parts that some tiles leave.
    """

    def __init__(self, kernel: JitKernel, choose: Callable[[Problem], Tile], combine: JitKernel = combine) -> None:
        self._kernel, self._choose, self._combine = kernel, choose, combine
        self._memory: Memory[Ready] = Memory()
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
        tensors = (a, b, *(x for x in given if x is not None))
        way = (epilogue, out_dtype, *(x is None for x in given))
        ready, addresses = self._memory.find(
            way,
            tensors,
            lambda: self._prepare(a, b, bias, residual, epilogue, scale_a, scale_b, out_dtype, out),
        )
        at_a, at_b = addresses[:2]
        c = ready.allocate() if out is None else out
        if ready.packs is not None:
            copies = [None if p is None else p.run(at) for p, at in zip(ready.packs, (at_a, at_b), strict=True)]
            at_a, at_b = (at if x is None else x.data_ptr() for x, at in zip(copies, (at_a, at_b), strict=True))
        one = ready.ones
        none: tuple[int, ...] = (one, one, one, one)
        at_rest = none
        if not plain:
            turned = ready.turned if ready.combine is None else ready.across
            first, second = (scale_b, scale_a) if turned else (scale_a, scale_b)
            at_rest = tuple(one if x is None else x.data_ptr() for x in (bias, residual, first, second))
        operands_at = (at_b, at_a) if ready.turned else (at_a, at_b)
        if ready.parts is None or ready.combine is None:
            ready.plan.run((*operands_at, c.data_ptr(), *at_rest))
            return c
        parts = ready.parts()
        ready.plan.run((*operands_at, parts.data_ptr(), *none))
        ready.combine.run((parts.data_ptr(), c.data_ptr(), *at_rest, ready.terms))
        return c

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
    ) -> Ready:
        import torch

        dtype = getattr(torch, operands.result_dtype(a, out_dtype, out))
        allocate = partial(torch.empty, operands.result_shape(a, b), dtype=dtype, device=a.device)
        c = allocate() if out is None else out
        request = operands.request(a, b, c, bias, residual, scale_a, scale_b, epilogue)
        problem = operands.problem(request)
        tile = self._choose(problem)
        if a.device not in self._ones:
            self._ones[a.device] = torch.ones(1, device=a.device)
        ones = self._ones[a.device]
        packings = packed(request, problem) if tile.packed else None
        if packings is not None:
            request, problem = of_packed(request, packings), problem.packed
        found = tuple(
            call.kernel.prepare(*call.arguments, **call.constants)
            for call in _of_operands(self._kernel, self._combine, request, problem, tile, ones)
        )
        packs = None if packings is None else (_prepared(packings[0]), _prepared(packings[1]))
        at_ones = ones.data_ptr()
        if len(found) == 1:
            return Ready(found[0], tile.swapped, allocate, at_ones, packs=packs)
        across = operands.by_rows(request)
        parts = partial(empty_parts, across, tile.parts(problem.k))
        return Ready(found[0], tile.swapped, allocate, at_ones, parts, found[1], across.turned, problem.k, packs)


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


def _prepared(packing: operands.Packing | None) -> Pack | None:
    if packing is None:
        return None
    return Pack(packing.kernel.prepare(packing.x, packing.out, **packing.constants), packing.room)


def _of_operands(
    kernel: JitKernel, combine: JitKernel, request: operands.Request, problem: Problem, tile: Tile, ones: Any
) -> tuple[Call, ...]:
    """A product of operands as they are: one call, or one that makes parts of the sums and one that adds them up."""
    if not tile.part:
        tensors, constants = operands.arguments(
            operands.turned(request) if tile.swapped else request, problem.bulk, ones
        )
        return (Call(kernel, tensors, {**constants, **tile.constants}),)
    across, count = operands.by_rows(request), tile.parts(problem.k)
    parts = empty_parts(across, count)
    first = operands.of_parts(across, parts)
    tensors, constants = operands.arguments(
        operands.turned(first) if tile.swapped != across.turned else first, problem.bulk, ones
    )
    rest, more = operands.combined(across, problem.bulk, ones)
    more |= {"PARTS": count, "DEPTH": tile.part, **_spread(parts.shape[2])}
    return (
        Call(kernel, tensors, {**constants, **tile.constants}),
        Call(combine, (parts, *rest, problem.k), more),
    )


def empty_parts(across: operands.Request, count: int) -> Any:
    """Room for the parts of a product, which lie in memory as its result does."""
    import torch

    shape = (count, across.a.shape[-2], across.b.shape[-2])
    return torch.empty(shape, dtype=torch.float32, device=across.a.device)


def _spread(columns: int) -> dict[str, int]:
    """Tiles of `combine`: 8 elements a thread, fewer rows for long ones."""
    wide = 32
    while wide < min(columns, 512):
        wide *= 2
    return {"ROWS": 1024 // wide, "COLUMNS": wide}
