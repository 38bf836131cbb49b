"""silu(gate) * up, element by element: the activation of gated feed-forward layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels.exponentials import root
from argus.kernels.rows import columns, dtype_of, matrix, same_shape, shaped, tiled
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch


@argus.kernel
def silu_mul_tiles(
    gate: al.Tensor[DTYPE, "M N"],
    up: al.Tensor[DTYPE, "M N"],
    out: al.Tensor[DTYPE, "M N"],
    DTYPE: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 1,
    BLOCK: al.constexpr = 1024,
):
    """Compute `out = gate / (1 + exp(-gate)) * up`; a block works on ROWS x BLOCK elements.

    Consecutive blocks follow the rows, two at a time. If they followed a column, each block would open another page of
    memory. The reciprocal is the square of rsqrt, which is one instruction: a division takes ten times that.
    """
    M, N = gate.shape
    al.invariant(out, M)
    al.spec(out, lambda i, j: gate[i, j] * (root(gate[i, j]) * root(gate[i, j])) * up[i, j])
    row, column = al.grid(al.cdiv(M, ROWS), al.cdiv(N, BLOCK), group=2)
    rows, cols = row * ROWS + al.arange(ROWS), column * BLOCK + al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    gates = al.load(gate[rows[:, None], cols], mask=live)
    ups = al.load(up[rows[:, None], cols], mask=live)
    g = gates.to(al.float32)
    r = root(g)
    result = g * (r * r) * ups.to(al.float32)
    al.store(out[rows[:, None], cols], result.to(DTYPE), mask=live)


@argus.kernel
def silu_mul_gradient_tiles(
    gate: al.Tensor[DTYPE, "M N"],
    up: al.Tensor[DTYPE, "M N"],
    gradient: al.Tensor[DTYPE, "M N"],
    of_gate: al.Tensor[DTYPE, "M N"],
    of_up: al.Tensor[DTYPE, "M N"],
    DTYPE: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 1,
    BLOCK: al.constexpr = 1024,
):
    """Compute the gradients of gate and up from `gradient`, that of the result: with s the sigmoid of gate,
    `up s (1 + gate (1 - s))` and `gate s` times it."""
    M, N = gate.shape
    al.invariant(of_gate, M)
    al.invariant(of_up, M)
    al.spec(of_up, lambda i, j: gradient[i, j] * (gate[i, j] * (root(gate[i, j]) * root(gate[i, j]))))
    al.spec(
        of_gate,
        lambda i, j: (
            gradient[i, j]
            * up[i, j]
            * ((root(gate[i, j]) * root(gate[i, j])) * (1.0 + gate[i, j] * (1.0 - root(gate[i, j]) * root(gate[i, j]))))
        ),
    )
    row, column = al.grid(al.cdiv(M, ROWS), al.cdiv(N, BLOCK), group=2)
    rows, cols = row * ROWS + al.arange(ROWS), column * BLOCK + al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    g = al.load(gate[rows[:, None], cols], mask=live).to(al.float32)
    ups = al.load(up[rows[:, None], cols], mask=live).to(al.float32)
    wanted = al.load(gradient[rows[:, None], cols], mask=live).to(al.float32)
    r = root(g)
    s = r * r
    al.store(of_up[rows[:, None], cols], (wanted * (g * s)).to(DTYPE), mask=live)
    al.store(of_gate[rows[:, None], cols], (wanted * ups * (s * (1.0 + g * (1.0 - s)))).to(DTYPE), mask=live)


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return `silu(gate) * up` of two float32, float16 or bfloat16 tensors of the same dtype and shape, computed in
    float32.

    Rows (along the last dimension) may be any distance apart, so both can be halves of one tensor. Raises LaunchError.
    """
    result: torch.Tensor = _silu_mul((gate, up))
    return result


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    gate, up = tensors
    dtype, rows = _checked(gate, up), matrix(gate)
    out = rows.new_empty(rows.shape)
    constants = {"DTYPE": dtype, **tiled(rows.shape[1], rows.element_size()).constants}
    return Work((Call(silu_mul_tiles, (rows, matrix(up), out), constants),), (shaped(out, gate),))


def _checked(gate: torch.Tensor, up: torch.Tensor) -> DType:
    """Return the dtype. Raises LaunchError."""
    columns(gate)
    dtype = dtype_of("gate", gate)
    same_shape("up", up, tuple(gate.shape))
    dtype_of("up", up, (dtype.name,))
    return dtype


def _fake(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    _checked(gate, up)
    return gate.new_empty(gate.shape)


_silu_mul = Function(_work, Operator("silu_mul(Tensor gate, Tensor up) -> Tensor", _fake, batch=2))


def _work_of_gradient(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    gate, up, gradient = tensors
    dtype, rows = _checked(gate, up), matrix(gate)
    _checked(gate, gradient)
    made = tuple(rows.new_empty(rows.shape) for _ in range(2))
    constants = {"DTYPE": dtype, **tiled(rows.shape[1], rows.element_size()).constants}
    call = Call(silu_mul_gradient_tiles, (rows, matrix(up), matrix(gradient), *made), constants)
    return Work((call,), tuple(shaped(t, gate) for t in made))


def _fake_gradient(gate: torch.Tensor, up: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    _checked(gate, up), _checked(gate, gradient)
    return gate.new_empty(gate.shape), gate.new_empty(gate.shape)


_silu_mul_gradient = Function(
    _work_of_gradient,
    Operator("silu_mul_gradient(Tensor gate, Tensor up, Tensor gradient) -> (Tensor, Tensor)", _fake_gradient, batch=3),
)


def _save(ctx: Any, inputs: tuple[torch.Tensor, ...], _output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: torch.Tensor) -> Any:
    return _silu_mul_gradient((*ctx.saved_tensors, gradient))


attach(_silu_mul, _backward, _save)
