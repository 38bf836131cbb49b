"""The operands of attention: what they have to be, and room for the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DType
from argus.kernels.exponentials import LOG2E
from argus.kernels.rows import dtype_of, same_shape

if TYPE_CHECKING:
    import torch

HEAD_SIZES = (64, 128)
EIGHT_BITS = ("float8_e4m3fn", "int8")
"""Dtypes of caches whose numbers are multiplied by scales."""


def scale_of(scale: float | None) -> tuple[Number, ...]:
    """Return the scale as the number that kernels receive, if it is a valid scale. Raises LaunchError."""
    if scale is None:
        return ()
    scale = float(scale)
    if not (isfinite(scale) and scale > 0):
        what = f"the scale is {scale}, no positive number"
        raise LaunchError.of("bad-scale", what, "leave it out for 1 / sqrt(D)")
    return (scale * LOG2E,)


def checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sizes: Sequence[int] = HEAD_SIZES,
    others: Mapping[int, Sequence[int]] = {},
) -> tuple[DType, int]:
    """Check the operands; return their dtype and the number of query heads per key head. Raises LaunchError.

    `others`: by head size, the sizes that values may have instead.
    """
    dtype, group = dtype_of("q", q, ("float16", "bfloat16")), _group(q, k, sizes)
    for name, x in (("k", k), ("v", v)):
        dtype_of(name, x, (dtype.name,))
    same_shape("k", k, (q.shape[0], *k.shape[1:3], q.shape[3]))
    # Sizes may be symbols, which are no keys of a dictionary.
    smaller = v.ndim == 4 and any(k.shape[3] == own and v.shape[3] in sizes for own, sizes in others.items())
    same_shape("v", v, (*k.shape[:3], v.shape[3]) if smaller else tuple(k.shape))
    return dtype, group


def results(q: torch.Tensor, v: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return empty tensors for the result, whose rows are as long as those of `v`, or of `q`, and its log-sum-exp."""
    return q.new_empty((*q.shape[:3], (q if v is None else v).shape[3])), q.new_empty(q.shape[:3], dtype=_float32())


def results_like(q: torch.Tensor, v: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return empty tensors like `results`. The heads of a row lie together in memory if those of q do, as in PyTorch's
    attention, so that the rows of all heads can be viewed as one matrix."""
    made, lse = results(q, v)
    batch, heads, rows, size = made.shape
    if rows > 1 and heads > 1 and q.stride(1) < q.stride(2):
        made = q.new_empty((batch, rows, heads, size)).transpose(1, 2)
    return made, lse


def _group(q: torch.Tensor, k: torch.Tensor, sizes: Sequence[int]) -> int:
    """Return the number of query heads for each head of keys. Raises LaunchError."""
    if q.ndim != 4 or k.ndim != 4 or q.shape[3] not in sizes:
        named = " or ".join(map(str, sizes))
        what = f"`q` has the shape {tuple(q.shape)} and `k` {tuple(k.shape)}; heads are [batch, heads, rows, {named}]"
        help = "pass tensors of four dimensions, the last of a size that there is"
        raise LaunchError.of("shape-mismatch", what, help)
    heads, shared = q.shape[1], k.shape[1]
    if not shared or heads % shared:
        what = f"{heads} heads of queries cannot share {shared} of keys, which do not divide them"
        raise LaunchError.of("shape-mismatch", what, "pass as many heads of k and v as of q, or a divisor of them")
    return max(1, heads // shared)


def _float32() -> torch.dtype:
    import torch

    return torch.float32


def check_scales(stored: DType, heads: int, scales: tuple[torch.Tensor, ...]) -> None:
    """Raise LaunchError unless a cache of 8 bits has two scales, and another one none."""
    if len(scales) != (2 if stored.name in EIGHT_BITS else 0):
        what = f"{len(scales)} scales for a cache of {stored.name}"
        help = "pass `key_scale` and `value_scale` for a cache of 8 bits, and neither for another"
        raise LaunchError.of("argument-type", what, help)
    for name, x in zip(("key_scale", "value_scale"), scales, strict=False):
        dtype_of(name, x, ("float32",))
        same_shape(name, x, (1,) if tuple(x.shape) == (1,) else (heads,))


def window_of(window: int | None, causal: bool) -> int:
    """Return the number of keys that a query sees; 0 for all. Raises LaunchError."""
    if window is not None and (window < 1 or not causal):
        what = f"a window of {window} keys" + ("" if causal else " without causal=True")
        raise LaunchError.of("argument-type", what, "pass a positive number of keys, and causal=True")
    return window or 0


VECTOR = 4
"""Number of float32 numbers in 16 bytes."""


def rows_of_vectors(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """Return an uninitialised tensor of `shape` whose rows begin at multiples of 16 bytes. Its dtype and device are
    those of `like`, a float32 tensor."""
    return like.new_empty(*shape[:-1], -(-shape[-1] // VECTOR) * VECTOR)[..., : shape[-1]]
