"""Matrix products of PyTorch tensors. Operands of any layout go to one proved kernel, with the tile for their shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.frontend.decorator import FuncSource
from argus.kernels import operands
from argus.kernels.fixed_order import tile_in_order
from argus.kernels.gemm import combine
from argus.kernels.product_tile import ProductShape, Tile, read_once, rows_together
from argus.kernels.reduce import reduce
from argus.runtime.function import Function, Operator
from argus.runtime.jit_kernel import JitKernel
from argus.runtime.shared import Shared
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch


class Matmul(Shared):
    """`matmul(a, b)`: see `__call__`. Keeps what it prepared, by shapes, strides, dtypes, alignments and device.

    `choose` gives the tile for a problem, `combine` adds up the parts that some tiles leave. With a `name`, it is the
    PyTorch operators of that name, and of that name with `_out`.
    """

    def __init__(
        self,
        kernel: JitKernel,
        choose: Callable[[ProductShape], Tile],
        combine: JitKernel = combine,
        name: str | None = None,
    ) -> None:
        self._kernel, self._choose, self._combine = kernel, choose, combine
        self._module = "argus.kernels" if name is not None else choose.__module__
        self._ones: dict[Any, Any] = {}
        self.product = Function(self._work, None if name is None else _operator(name))
        self.product_into = Function(self._work, None if name is None else _operator_into(name))
        if name is not None:
            attach(self.product, self._backward, _save)

    def module(self) -> str:
        """Return the module of the library's product, or for other products that of `choose`."""
        return self._module

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
        tf32: bool = True,
        batch_invariant: bool = False,
    ) -> torch.Tensor:
        """Return `epilogue(scale_a * scale_b * (a @ b) + bias) + residual`, added up in float32 and rounded once.

        `a` is `[M, K]` or `[Z, M, K]`, `b` `[K, N]` or `[Z, K, N]`, of one dtype: float16, bfloat16, float8_e4m3fn, on
        gfx942 float8_e4m3fnuz, or float32. That is multiplied as tfloat32 (10 bits of mantissa), or as it is with
        `tf32=False`, which needs gfx942. Views are taken as they are: transposed, padded, misaligned. `bias` is `[N]`;
        `residual` has the result's shape; `scale_a` is of float32, `[1]` or `[M]`, and `scale_b` `[1]` or `[N]`.
        `epilogue` is "relu", "silu", "gelu", "gelu_tanh", or an `@argus.func` of one tile of
        float32. The result is of `out_dtype` (float16, bfloat16 or float32; by default that of `a`, of 8-bit operands
        bfloat16), and is written to `out` if that is given, which overlaps no operand.
        `batch_invariant`: the bits of a row of the result do not depend on the other rows of `a`, nor on how many there
        are, for operands of the same layout and alignment. Sums have one order and one split, and kernels are proved.

        Raises LaunchError for what does not fit, and what a kernel's call raises.
        """
        if bias is residual is scale_a is scale_b is out is None:
            result: torch.Tensor = self.product((a, b), (), (epilogue, out_dtype, tf32, batch_invariant))
            return result
        given = (bias, residual, scale_a, scale_b, out)
        tensors = (a, b, *(x for x in given if x is not None))
        way = (epilogue, out_dtype, tf32, batch_invariant, *(x is None for x in given))
        if out is None:
            result = self.product(tensors, (), way)
            return result
        self.product_into(tensors, (), way)
        return out

    def _work(
        self,
        tensors: tuple[torch.Tensor, ...],
        _numbers: tuple[Number, ...],
        epilogue: str | FuncSource | None,
        out_dtype: torch.dtype | None,
        tf32: bool,
        invariant: bool,
        *absent: bool,
    ) -> Work:
        a, b, bias, residual, scale_a, scale_b, out = _all(tensors, absent)
        c = _empty(a, b, out_dtype, out) if out is None else out
        operands.result_dtype(a, out_dtype, out)
        request = operands.request(a, b, c, bias, residual, scale_a, scale_b, epilogue, tf32)
        problem = operands.problem(request)
        if a.device not in self._ones:
            self._ones[a.device] = _one(a)
        tile = tile_in_order(problem) if invariant else self._choose(problem)
        found = calls(self._kernel, self._combine, request, problem, tile, self._ones[a.device], invariant)
        return Work(found, (c,) if out is None else ())

    def _backward(self, ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of a, b, bias and residual; each is a product, a sum or the incoming gradient itself."""
        a, b = ctx.saved_tensors
        epilogue, tf32, invariant, *unscaled = ctx.way
        if epilogue is not None or unscaled != [True, True]:
            what = "`matmul` with an epilogue or scales has no gradient"
            raise LaunchError.of("no-gradient", what, "apply the epilogue or the scales to the product with PyTorch")
        of_a, of_b, of_bias, of_residual = ctx.needs_input_grad[:4]
        g = gradient.to(a.dtype)
        return (
            self._summed(g, b.mT, a, tf32, invariant) if of_a else None,
            self._summed(a.mT, g, b, tf32, False) if of_b else None,
            reduce(gradient.reshape(-1, gradient.shape[-1]), "sum", 0).to(ctx.dtypes[0]) if of_bias else None,
            gradient.to(ctx.dtypes[1]) if of_residual else None,
            *(None,) * 6,
        )

    def _summed(
        self, a: torch.Tensor, b: torch.Tensor, like: torch.Tensor, tf32: bool, invariant: bool
    ) -> torch.Tensor:
        """Return the product, summed over the batches that share the operand `like`."""
        import torch

        batches = max(x.shape[0] if x.ndim == 3 else 1 for x in (a, b))
        if batches == (like.shape[0] if like.ndim == 3 else 1):
            return self(a, b, out_dtype=like.dtype, tf32=tf32, batch_invariant=invariant).reshape(like.shape)
        product = self(a, b, out_dtype=torch.float32, tf32=tf32)
        return reduce(product, "sum", 0).to(like.dtype).reshape(like.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], _output: torch.Tensor) -> None:
    a, b, bias, residual, scale_a, scale_b, epilogue, _, tf32, invariant = inputs
    ctx.save_for_backward(a, b)
    ctx.dtypes = tuple(None if x is None else x.dtype for x in (bias, residual))
    ctx.way = epilogue, tf32, invariant, scale_a is None, scale_b is None


def _all(tensors: tuple[Any, ...], absent: tuple[bool, ...]) -> tuple[Any, ...]:
    """Return a, b, bias, residual, scale_a, scale_b and out, with None for those that are absent."""
    a, b, *rest = tensors
    found = iter(rest)
    return (a, b, *(None if gone else next(found) for gone in absent or (True,) * 5))


def _empty(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None, out: torch.Tensor | None) -> torch.Tensor:
    """Return an empty tensor for the result. Raises LaunchError."""
    import torch

    dtype = getattr(torch, operands.result_dtype(a, out_dtype, out))
    return a.new_empty(operands.result_shape(a, b), dtype=dtype)


def _one(a: torch.Tensor) -> torch.Tensor:
    import torch

    return a.new_ones(1, dtype=torch.float32)


_OPERANDS = "Tensor a, Tensor b"
_OPTIONAL = ("Tensor? bias", "Tensor? residual", "Tensor? scale_a", "Tensor? scale_b", "str? epilogue",
             "ScalarType? out_dtype")  # fmt: skip


def _operator(name: str) -> Operator:
    optional = ", ".join(f"{one}=None" for one in _OPTIONAL)
    schema = f"{name}({_OPERANDS}, {optional}, bool tf32=True, bool batch_invariant=False) -> Tensor"
    return Operator(schema, _fake, join=lambda *call: _joined(*call)[:-1], split=lambda *given: _split(*given, None))


def _operator_into(name: str) -> Operator:
    optional = ", ".join(_OPTIONAL)
    schema = f"{name}_out({_OPERANDS}, {optional}, bool tf32, bool batch_invariant, Tensor(a!) out) -> ()"
    return Operator(schema, _fake_into, join=_joined, split=_split)


def _joined(tensors: tuple[Any, ...], _numbers: tuple[Number, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
    epilogue, out_dtype, tf32, invariant, *absent = way
    *found, out = _all(tensors, tuple(absent))
    return (*found, operands.epilogue_text(epilogue), out_dtype, tf32, invariant, out)


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]:
    *found, epilogue, out_dtype, tf32, invariant, out = given
    optional = (*found[2:], out)
    tensors = (*found[:2], *(x for x in optional if x is not None))
    way = (operands.epilogue_of(epilogue), out_dtype, tf32, invariant)
    return tensors, (), way if len(tensors) == 2 else (*way, *(x is None for x in optional))


def _fake(*given: Any) -> torch.Tensor:
    a, b, bias, residual, scale_a, scale_b, epilogue, out_dtype, tf32, _ = given
    operands.check(a, b, None, bias, residual, scale_a, scale_b, operands.epilogue_of(epilogue), tf32)
    return _empty(a, b, out_dtype, None)


def _fake_into(*given: Any) -> None:
    a, b, bias, residual, scale_a, scale_b, epilogue, out_dtype, tf32, _, out = given
    operands.check(a, b, out, bias, residual, scale_a, scale_b, operands.epilogue_of(epilogue), tf32)
    operands.result_dtype(a, out_dtype, out)


def calls(
    kernel: JitKernel, combine: JitKernel, request: operands.Request, problem: ProductShape, tile: Tile, ones: Any,
    invariant: bool = False,
) -> tuple[Call, ...]:  # fmt: skip
    """Return the calls that compute a product with a tile: packing of operands, the product, the sum of the parts."""
    if not tile.packed:
        return _of_operands(kernel, combine, request, problem, tile, ones, invariant)
    packings = packed(request, problem)
    first = tuple(Call(p.kernel, (p.x, p.out), p.constants) for p in packings if p is not None)
    request = of_packed(request, packings)
    return (*first, *_of_operands(kernel, combine, request, problem.packed, tile, ones, invariant))


Packings = tuple[operands.Packing | None, operands.Packing | None]


def packed(request: operands.Request, problem: ProductShape) -> Packings:
    """Return the packings of a and b, with None for an operand that needs no packing."""
    return (
        operands.packing(request.a) if problem.pack_a else None,
        operands.packing(request.b) if problem.pack_b else None,
    )


def of_packed(request: operands.Request, packings: Packings) -> operands.Request:
    """Return the product of the packed copies."""
    first, second = packings
    return replace(request, a=request.a if first is None else first.out, b=request.b if second is None else second.out)


def _of_operands(
    kernel: JitKernel, combine: JitKernel, request: operands.Request, problem: ProductShape, tile: Tile, ones: Any,
    invariant: bool,
) -> tuple[Call, ...]:  # fmt: skip
    """Return the product of unpacked operands: one call, or one call for partial sums and one that adds them up."""
    if not tile.part:
        seen = operands.turned(request) if tile.swapped else operands.in_halves(request) if tile.shift else request
        tensors, constants = operands.arguments(seen, problem.bulk, ones)
        own = {**tile.constants, **read_once(problem, tile), **rows_together(problem)}
        own |= operands.near(problem, tile, *tensors[:2])
        return (Call(kernel, tensors, {**constants, **own, **_promised(seen, invariant)}),)
    across, count = operands.by_rows(request), tile.parts(problem.k)
    parts = empty_parts(across, count)
    first = operands.of_parts(across, parts)
    seen = operands.turned(first) if tile.swapped != across.turned else first
    tensors, constants = operands.arguments(seen, problem.bulk, ones)
    rest, more = operands.combined(across, problem.bulk, ones)
    size = (1, _ALIKE) if invariant else parts.shape[1:]
    more |= {"PARTS": count, "DEPTH": tile.part, **tiles_of_parts(count, *size)}
    own = {**tile.constants, **read_once(problem, tile), **operands.near(problem, tile, *tensors[:2])}
    return (
        Call(kernel, tensors, {**constants, **own, **_promised(seen, invariant)}),
        Call(combine, (parts, *rest, problem.k), more),
    )


def _promised(seen: operands.Request, invariant: bool) -> dict[str, str]:
    """Return the kernel's constant that promises the bits of rows of the caller's `a`."""
    return {"INVARIANT": "N" if seen.turned else "M"} if invariant else {}


def empty_parts(across: operands.Request, count: int) -> Any:
    """Return an empty tensor for the parts of a product, which have the memory layout of its result."""
    import torch

    shape = (count, across.a.shape[-2], across.b.shape[-2])
    return torch.empty(shape, dtype=torch.float32, device=across.a.device)


_TOGETHER, _ROOM = 7, 2**18
"""Parts that `combine` asks for before it adds the first: kernels that read eight times what they write keep the next
launch waiting until they end. And elements of a result for which a thread each 4 finds room beside the product's."""


_ALIKE = 512
"""Columns of a sum's tile of one row, where the bits must not depend on how many rows there are."""


def tiles_of_parts(count: int, rows: int, columns: int) -> dict[str, int]:
    """Return the constants of `combine` for this many parts of a result: fewer rows for long results, and vectors of 4
    elements a thread, or two for large results, whose blocks would otherwise run one after another."""
    elements, wide = 512 if rows * columns <= _ROOM else 1024, 32
    while wide < min(columns, 512):
        wide *= 2
    return {"EACH": ceil(count / ceil(count / _TOGETHER)), "ROWS": elements // wide, "COLUMNS": wide}
