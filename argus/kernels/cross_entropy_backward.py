"""Compute the gradient of cross entropy, element by element, from the logits and the log-sum-exp of the forward
pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels.cross_entropy import losses_function
from argus.kernels.exponentials import LOG2E
from argus.kernels.rows import dtype_of, matrix, same_rank, same_shape, tiled
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch

_WARPS = 4  # each thread has two vectors, so that half as many read the numbers of their row


@argus.kernel
def cross_entropy_backward_tiles(
    dloss: al.Tensor[al.float32, "T"],
    dlevel: al.Tensor[al.float32, "T"],
    logits: al.Tensor[DTYPE, "T V"],
    target: al.Tensor[INDEX, "T"],
    level: al.Tensor[al.float32, "T"],
    dlogits: al.Tensor[DTYPE, "T V"],
    ignored: al.int32,
    DTYPE: al.constexpr = al.bfloat16,
    INDEX: al.constexpr = al.int64,
    ROWS: al.constexpr = 1,
    BLOCK: al.constexpr = 1024,
):
    """Compute `dlogits[t, v] = dloss[t] * (p - (v == target[t])) + dlevel[t] * p`, with `p = exp(logits[t, v] -
    level[t])`.

    A block works on ROWS x BLOCK elements. The first term is 0 in rows whose target is `ignored`, and NaN where the
    target is no column.
    """
    T, V = logits.shape
    al.invariant(dlogits, T)
    al.spec(
        dlogits,
        lambda t, v: (
            al.where(
                (0 <= target[t]) & (target[t] < V.to(INDEX)),
                dloss[t] * (al.exp2((logits[t, v] - level[t]) * LOG2E) - al.where(target[t] == v.to(INDEX), 1.0, 0.0)),
                al.where(target[t] == ignored.to(INDEX), 0.0, float("nan")),
            )
            + dlevel[t] * al.exp2((logits[t, v] - level[t]) * LOG2E)
        ),
    )
    row, column = al.grid(al.cdiv(T, ROWS), al.cdiv(V, BLOCK), group=2)
    rows, cols = row * ROWS + al.arange(ROWS)[:, None], column * BLOCK + al.arange(BLOCK)
    inside = rows < T
    live = inside & (cols < V)
    scores = al.load(logits[rows, cols], mask=live).to(al.float32)
    place = al.load(target[rows], mask=inside)
    known = (0 <= place) & (place < V.to(INDEX))
    given = al.load(dloss[rows], mask=inside)
    weights = al.exp2((scores - al.load(level[rows], mask=inside)) * LOG2E)
    result = given * (weights - al.where(place == cols.to(INDEX), 1.0, 0.0))
    other = al.where(place == ignored.to(INDEX), 0.0, float("nan"))
    of_level = al.load(dlevel[rows], mask=inside) * weights
    al.store(dlogits[rows, cols], (al.where(known, result, other) + of_level).to(DTYPE), mask=live)


def cross_entropy_backward(
    dloss: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    level: torch.Tensor,
    ignore_index: int = -100,
    dlevel: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the gradient of `logits` `[T, V]` in their dtype. `dloss` `[T]` is the gradient of `cross_entropy`'s
    losses.

    `level` `[T]` is the logarithm of the sum of each row's exponentials, as `losses_and_levels` gives it, and `dlevel`
    its gradient, 0 if not given; all but logits and targets are of float32. The loss of a row whose target is
    `ignore_index` is a constant; where the target is no column, the gradient is NaN. Raises LaunchError.
    """
    if dlevel is None:
        dlevel = level.new_zeros(level.shape)
    result: torch.Tensor = _backward((dloss, dlevel, logits, target, level), (ignore_index,))
    return result


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    dloss, dlevel, logits, target, level = tensors
    dtype, index = _checked(*tensors)
    rows = matrix(logits)
    out = rows.new_empty(rows.shape)
    tile = {**tiled(rows.shape[1], rows.element_size()).constants, "num_warps": _WARPS}
    constants = {"DTYPE": dtype, "INDEX": index, **tile}
    read = (dloss.contiguous(), dlevel.contiguous(), rows, target.contiguous(), level.contiguous())
    return Work((Call(cross_entropy_backward_tiles, (*read, out, *numbers), constants),), (out,))


def _checked(
    dloss: torch.Tensor, dlevel: torch.Tensor, logits: torch.Tensor, target: torch.Tensor, level: torch.Tensor
) -> tuple[DType, DType]:
    """Return the dtypes of logits and targets. Raises LaunchError."""
    same_rank("logits", logits, 2)
    for name, x in (("dloss", dloss), ("dlevel", dlevel), ("target", target), ("level", level)):
        same_shape(name, x, tuple(logits.shape[:1]))
    for name, x in (("dloss", dloss), ("level", level), ("dlevel", dlevel)):
        dtype_of(name, x, ("float32",))
    return dtype_of("logits", logits), dtype_of("target", target, ("int64", "int32"))


def _fake(
    dloss: torch.Tensor, dlevel: torch.Tensor, logits: torch.Tensor, target: torch.Tensor, level: torch.Tensor, _i: int
) -> torch.Tensor:
    _checked(dloss, dlevel, logits, target, level)
    return logits.new_empty(logits.shape)


_backward = Function(
    _work,
    Operator(
        "cross_entropy_backward(Tensor dloss, Tensor dlevel, Tensor logits, Tensor target, Tensor level,"
        " int ignore_index=-100) -> Tensor",
        _fake,
    ),
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, target, ctx.ignored = inputs
    ctx.save_for_backward(logits, target, output[1])


def _gradients(ctx: Any, dloss: torch.Tensor | None, dlevel: torch.Tensor | None) -> tuple[Any, ...]:
    logits, target, level = ctx.saved_tensors
    given = (level.new_zeros(level.shape) if each is None else each for each in (dloss, dlevel))
    return _backward((*given, logits, target, level), (ctx.ignored,)), None, None


attach(losses_function, _gradients, _save)
