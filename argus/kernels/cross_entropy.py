"""Cross entropy of every row of logits against its target, in one pass over memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels.exponentials import LOG2E
from argus.kernels.rows import dtype_of, matrix, same_rank, same_shape, spread, step_of, vector
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

LOWEST = -3.4028234e38  # of float32
LONGEST = 6144
"""Largest number of elements of a row that stays in the registers of 4 warps. A longer row passes through them, _EACH
elements a thread at a time. This keeps the memory busier than distributing the row over more warps, which would load
together and then compute together."""
_EACH = 64  # half as many for unaligned rows, where each load takes a register


@argus.kernel
def cross_entropy_rows(
    logits: al.Tensor[DTYPE, "T V"],
    target: al.Tensor[INDEX, "T"],
    loss: al.Tensor[al.float32, "T"],
    level: al.Tensor[al.float32, "T"],
    ignored: al.int32,
    DTYPE: al.constexpr = al.bfloat16,
    INDEX: al.constexpr = al.int64,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
    FROM: al.constexpr = 0,
):
    """Compute `level[t] = log(sum(exp(logits[t, :])))`, `loss[t] = level[t] - logits[t, target[t]]`; ROWS rows a
    block."""
    T, V = logits.shape
    al.invariant(level, T)
    al.invariant(loss, T)
    al.requires(FROM <= V <= BLOCK)
    al.requires(V > 0)  # The maximum of no score is -inf, and -inf - -inf is not a number.
    al.spec(
        level,
        lambda t: (
            al.log(al.sum(lambda n: al.exp2((logits[t, n] - al.max(lambda k: logits[t, k])) * LOG2E)))
            + al.max(lambda k: logits[t, k])
        ),
    )
    al.spec(
        loss,
        lambda t: al.where(
            (0 <= target[t]) & (target[t] < V.to(INDEX)),
            al.log(al.sum(lambda n: al.exp2((logits[t, n] - al.max(lambda k: logits[t, k])) * LOG2E)))
            + (al.max(lambda k: logits[t, k]) - logits[t, target[t]]),
            al.where(target[t] == ignored.to(INDEX), 0.0, float("nan")),
        ),
    )
    rows = al.grid(al.cdiv(T, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK)
    inside = rows < T
    live = inside[:, None] & (cols < V)
    scores = al.load(logits[rows[:, None], cols], mask=live, other=-float("inf")).to(al.float32)
    place = al.load(target[rows], mask=inside, other=-1)
    known = (0 <= place) & (place < V.to(INDEX))
    chosen = al.load(logits[rows, place], mask=inside & known).to(al.float32)
    top = al.max(scores, axis=1)
    total = al.sum(al.exp2((scores - top[:, None]) * LOG2E), axis=1)
    part = al.log(total)
    al.store(level[rows], part + top, mask=inside)
    losses = al.where(known, part + (top - chosen), al.where(place == ignored.to(INDEX), 0.0, float("nan")))
    al.store(loss[rows], losses, mask=inside)


@argus.func
def with_scores(top, total, scores):
    """Return the maximum of all scores that each thread has seen, and the sum relative to it, after it has seen
    `scores`."""
    new = al.maximum(top, al.max(al.max(scores, axis=2), axis=0))
    weights = al.exp2((scores - new[:, None]) * LOG2E)
    return new, total * al.exp2((top - new) * LOG2E) + al.sum(al.sum(weights, axis=2), axis=0)


@argus.kernel
def cross_entropy_long_rows(
    logits: al.Tensor[DTYPE, "T V"],
    target: al.Tensor[INDEX, "T"],
    loss: al.Tensor[al.float32, "T"],
    level: al.Tensor[al.float32, "T"],
    ignored: al.int32,
    DTYPE: al.constexpr = al.bfloat16,
    INDEX: al.constexpr = al.int64,
    EACH: al.constexpr = 4,
    WIDTH: al.constexpr = 8,
    STEP: al.constexpr = 0,
):
    """Compute the loss of `cross_entropy_rows` for rows of any length, EACH vectors of WIDTH elements a thread at a
    time.

    Every thread keeps the maximum of what it has seen, and the sum relative to that. What is behind the last whole
    EACH * LANES * WIDTH elements has a loop of its own, of one turn at most: no element of the others is masked.
    Where each row begins STEP elements further behind an aligned address, the vectors are those of the memory, and the
    mask cuts the first and the last of them.
    """
    T, V = logits.shape
    al.invariant(level, T)
    al.invariant(loss, T)
    al.tag(logits, lambda t, v: (t, v))
    al.spec(level, lambda i: al.logsumexp(lambda n: logits[i, n]))
    al.spec(
        loss,
        lambda i: al.where(
            (0 <= target[i]) & (target[i] < V.to(INDEX)),
            al.logsumexp(lambda n: logits[i, n]) - logits[i, target[i]],
            al.where(target[i] == ignored.to(INDEX), 0.0, float("nan")),
        ),
    )
    t = al.grid(T)
    place = al.load(target[t])
    LANES = al.num_threads()
    column = ((al.arange(EACH)[:, None] * LANES + al.arange(LANES)) * WIDTH)[:, :, None] + al.arange(WIDTH)
    CHUNK = EACH * LANES * WIDTH
    top = al.full((LANES,), LOWEST, al.float32)
    total = al.zeros((LANES,), al.float32)
    shift = t % WIDTH * STEP % WIDTH
    load = "ld.global.cut" if STEP else None
    vectors = al.blocked((EACH, LANES, WIDTH), (2, 1, 0), WIDTH) if STEP else None
    whole = 0 if STEP else V // CHUNK * CHUNK
    if not STEP:
        for v0 in range(0, whole, CHUNK):
            scores = al.load(logits[t, v0 + column]).to(al.float32)
            al.assert_tags(lambda e, i, j: scores[e, i, j] == (t, v0 + (e * LANES + i) * WIDTH + j))
            top, total = with_scores(top, total, scores)
    for v0 in range(whole, V + shift, CHUNK):
        at = v0 + column - shift
        live = (0 <= at) & (at < V) if STEP else at < V
        loaded = al.load(logits[t, at], mask=live, other=-float("inf"), layout=vectors, instruction=load)
        scores = loaded.to(al.float32)
        al.assert_tags(
            lambda e, i, j: scores[e, i, j] == (t, v0 + (e * LANES + i) * WIDTH + j - shift),
            where=lambda e, i, j: (
                (0 <= v0 + (e * LANES + i) * WIDTH + j - shift) & (v0 + (e * LANES + i) * WIDTH + j - shift < V)
            ),
        )
        top, total = with_scores(top, total, scores)
    known = (0 <= place) & (place < V.to(INDEX))
    chosen = al.load(logits[t, place], mask=known).to(al.float32)
    highest = al.max(top)
    part = al.log(al.sum(total * al.exp2((top - highest) * LOG2E)))
    al.store(level[t], part + highest)
    al.store(
        loss[t], al.where(known, part + (highest - chosen), al.where(place == ignored.to(INDEX), 0.0, float("nan")))
    )


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, ignore_index: int = -100) -> torch.Tensor:
    """Return `-log_softmax(logits)[t, target[t]]` of every row, float32 `[T]`. Differentiable.

    `logits` `[T, V]` is float32, float16 or bfloat16, `target` `[T]` int64 or int32. The loss of a row whose target is
    `ignore_index` is 0, and NaN if the target is no column. Rows of logits may be any distance apart. Raises
    LaunchError.
    """
    return losses_and_levels(logits, target, ignore_index)[0]


def losses_and_levels(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int = -100
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses of `cross_entropy`, and the logarithm of the sum of exponentials of each row."""
    results: tuple[torch.Tensor, torch.Tensor] = losses_function((logits, target), (ignore_index,))
    return results


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    logits, target = tensors
    dtype, index = _checked(logits, target)
    rows = matrix(logits)
    results = _results(logits)
    if not 0 < rows.shape[1] <= LONGEST:
        step, width = step_of(rows), vector(rows)
        if step:
            width = 16 // dtype.bytes
        each = (_EACH if width * dtype.bytes == 16 and not step else _EACH // 2) // width
        kernel, shape = cross_entropy_long_rows, {"EACH": each, "WIDTH": width, **({"STEP": step} if step else {})}
    else:
        kernel, shape = cross_entropy_rows, spread(rows.shape[1], dtype.bytes, width=vector(rows)).constants
    constants = {"DTYPE": dtype, "INDEX": index, **shape}
    return Work((Call(kernel, (rows, target.contiguous(), *results, *numbers), constants),), results)


def _checked(logits: torch.Tensor, target: torch.Tensor) -> tuple[DType, DType]:
    """Return the dtypes. Raises LaunchError."""
    same_rank("logits", logits, 2)
    same_shape("target", target, tuple(logits.shape[:1]))
    return dtype_of("logits", logits), dtype_of("target", target, ("int64", "int32"))


def _results(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    def empty() -> torch.Tensor:
        return logits.new_empty(logits.shape[:1], dtype=torch.float32)

    return empty(), empty()


def _fake(logits: torch.Tensor, target: torch.Tensor, _ignored: int) -> tuple[torch.Tensor, torch.Tensor]:
    _checked(logits, target)
    return _results(logits)


losses_function = Function(
    _work, Operator("cross_entropy(Tensor logits, Tensor target, int ignore_index=-100) -> (Tensor, Tensor)", _fake)
)
