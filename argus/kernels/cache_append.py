"""Append new tokens' keys and values to a paged cache; rotary embedding turns the keys on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.diagnostic import LaunchError
from argus.kernels.attention_operands import EIGHT_BITS, check_scales
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

_FLOATS = ("float16", "bfloat16")
Tensors = tuple[Any, ...]


@argus.func
def turned(x, cos, sin, t, h, p, e):
    """Return element (p, e) of a key whose halves p are turned by the angles of its token."""
    return al.where(
        p == 0,
        x[t, h, 0, e] * cos[t, e] - x[t, h, 1, e] * sin[t, e],
        x[t, h, 1, e] * cos[t, e] + x[t, h, 0, e] * sin[t, e],
    )


@argus.func
def reciprocal(scale):
    """Return one over a scale, or 0 for a scale of 0, whose numbers are all 0."""
    return al.where(scale == 0.0, 0.0, 1.0 / scale)


@argus.func
def stored(x, STORED):
    """Return `x` rounded to the nearest number of the cache's dtype, which has 8 bits."""
    if STORED == al.int8:
        x = al.maximum(al.minimum(al.floor(x + 0.5), 127.0), -128.0)
    return x.to(STORED)


@argus.func
def key_of(k, cos, sin, t, h, p, e):
    """Return element (p, e) of a token's key as the cache has it, before it is scaled."""
    return k[t, h, p, e] if cos is None else turned(k, cos, sin, t, h, p, e)


@argus.func
def append(k, v, cos, sin, key_scales, value_scales, slot, keys, values, DTYPE, STORED, BLOCK, HEADS):
    """Compute `keys[slot[t]] = k[t]`, turned by the angles of token t, and `values[slot[t]] = v[t]`.

    With scales of heads, a cache's numbers are the nearest ones of 8 bits to these over the scales.
    """
    T, H, E, C = k.shape[0], k.shape[1], k.shape[3], keys.shape[0]
    al.requires(E == BLOCK)
    al.requires(al.in_range(slot, 0, C))
    al.requires(al.distinct(slot))
    al.covers(keys, at=lambda t, h, p, e: (slot[t], h, p, e))
    al.covers(values, at=lambda t, h, p, e: (slot[t], h, p, e))
    if key_scales is None:
        al.spec(keys, lambda t, h, p, e: key_of(k, cos, sin, t, h, p, e))
        al.spec(values, lambda t, h, p, e: v[t, h, p, e])
    else:
        al.spec(keys, lambda t, h, p, e: stored(key_of(k, cos, sin, t, h, p, e) * reciprocal(key_scales[h]), STORED))
        al.spec(values, lambda t, h, p, e: stored(v[t, h, p, e] * reciprocal(value_scales[h]), STORED))
    t, block = al.grid(T, al.cdiv(H, HEADS), group=2)  # blocks follow rows; other axes of the hardware end at 65535
    h = (block * HEADS + al.arange(HEADS))[:, None]
    e = al.arange(BLOCK)[None, :]
    to = al.load(slot[t])
    there = (h < H) & (0 <= to) & (to < C)  # a place that nobody checked may be none
    x, y = al.load(k[t, h, 0, e], mask=h < H), al.load(k[t, h, 1, e], mask=h < H)
    if cos is not None and sin is not None:
        c, s = al.load(cos[t, e]), al.load(sin[t, e])
        x, y = x.to(al.float32), y.to(al.float32)
        x, y = (x * c - y * s).to(DTYPE), (y * c + x * s).to(DTYPE)
    if key_scales is not None:
        f = reciprocal(al.load(key_scales[h], mask=h < H))
        x, y = stored(x.to(al.float32) * f, STORED), stored(y.to(al.float32) * f, STORED)
    al.store(keys[to, h, 0, e], x, mask=there)
    al.store(keys[to, h, 1, e], y, mask=there)
    if value_scales is None:
        al.store(values[to, h, 0, e], al.load(v[t, h, 0, e], mask=h < H), mask=there)
        al.store(values[to, h, 1, e], al.load(v[t, h, 1, e], mask=h < H), mask=there)
    else:
        g = reciprocal(al.load(value_scales[h], mask=h < H))
        x, y = al.load(v[t, h, 0, e], mask=h < H), al.load(v[t, h, 1, e], mask=h < H)
        al.store(values[to, h, 0, e], stored(x.to(al.float32) * g, STORED), mask=there)
        al.store(values[to, h, 1, e], stored(y.to(al.float32) * g, STORED), mask=there)


@argus.kernel
def append_tokens(
    k: al.Tensor[DTYPE, "T H 2 E"],
    v: al.Tensor[DTYPE, "T H 2 E"],
    cos: al.Tensor[al.float32, "T E"] | None,
    sin: al.Tensor[al.float32, "T E"] | None,
    slot: al.Tensor[al.int32, "T"],
    keys: al.Tensor[DTYPE, "C H 2 E"],
    values: al.Tensor[DTYPE, "C H 2 E"],
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 64,
    HEADS: al.constexpr = 8,
):
    """Run `append` for a cache in the dtype of keys and values."""
    append(k, v, cos, sin, None, None, slot, keys, values, DTYPE, DTYPE, BLOCK, HEADS)


@argus.kernel
def append_scaled(
    k: al.Tensor[DTYPE, "T H 2 E"],
    v: al.Tensor[DTYPE, "T H 2 E"],
    cos: al.Tensor[al.float32, "T E"] | None,
    sin: al.Tensor[al.float32, "T E"] | None,
    key_scales: al.Tensor[al.float32, "H"],
    value_scales: al.Tensor[al.float32, "H"],
    slot: al.Tensor[al.int32, "T"],
    keys: al.Tensor[STORED, "C H 2 E"],
    values: al.Tensor[STORED, "C H 2 E"],
    DTYPE: al.constexpr = al.bfloat16,
    STORED: al.constexpr = al.float8_e4m3fn,
    BLOCK: al.constexpr = 64,
    HEADS: al.constexpr = 8,
):
    """Run `append` for a cache of 8 bits."""
    append(k, v, cos, sin, key_scales, value_scales, slot, keys, values, DTYPE, STORED, BLOCK, HEADS)


def cache_append(
    k: torch.Tensor,
    v: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
    *,
    cos: torch.Tensor | None = None,
    sin: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
) -> None:
    """Write the keys and values `[T, H, D]` of new tokens into a cache `[pages, page, H, D]`, in place.

    Token t goes to place `slots[t] % page` of page `slots[t] // page`; `slots` is int32 `[T]`. Its numbers have to be
    different, which is not checked; a token whose place the cache does not have is not written. With `cos` and `sin`,
    float32 `[T, D / 2]`, key element e < D / 2 of token t becomes `k[e] * cos[t, e] - k[e + D / 2] * sin[t, e]`, and
    element e + D / 2 becomes `k[e + D / 2] * cos[t, e] + k[e] * sin[t, e]`. D is a power of two from 16 to 256.

    A cache has the dtype of k, or is float8_e4m3fn or int8. Then it gets the nearest numbers of 8 bits to those over
    `key_scale` and `value_scale`, finite float32 `[H]`, or `[1]` for all heads, which is copied; too large numbers
    become the largest. A scale of 0 gives zeros. There is no gradient. Raises LaunchError.
    """
    given = (cos, sin, key_scale, value_scale)
    there = tuple(x is not None for x in given)
    _append((k, v, keys, values, slots, *(x for x in given if x is not None)), (), there)


def _work(tensors: Tensors, _numbers: tuple[Any, ...], *there: bool) -> Work:
    k, v, keys, values, slots = tensors[:5]
    dtype, more = _checked(tensors, there), iter(tensors[5:])
    cos, sin = (next(more) if one else None for one in there[:2])
    scales = tuple(more)
    if not k.numel():
        return Work((), ())
    H, half = k.shape[1], k.shape[2] // 2
    new = tuple((x if x.stride(2) == 1 else x.contiguous()).view(-1, H, 2, half) for x in (k, v))
    cache = tuple(x.view(-1, H, 2, half) for x in (keys, values))
    turns = tuple(x if x is None or x.stride(1) == 1 else x.contiguous() for x in (cos, sin))
    heads = min(1 << (H - 1).bit_length(), max(1, 1024 // half))
    constants = {"DTYPE": dtype, "BLOCK": half, "HEADS": heads}
    if not scales:
        return Work((Call(append_tokens, (*new, *turns, slots, *cache), constants),), ())
    factors = tuple(x.expand(H).contiguous() for x in scales)
    constants["STORED"] = dtype_of("keys", keys, EIGHT_BITS)
    return Work((Call(append_scaled, (*new, *turns, *factors, slots, *cache), constants),), ())


def _checked(tensors: Tensors, there: tuple[bool, ...]) -> Any:
    """Return the dtype. Raises LaunchError."""
    k, v, keys, values, slots, *more = tensors
    angles, scales = more[: sum(there[:2])], tuple(more[sum(there[:2]) :])
    dtype = dtype_of("k", k, _FLOATS)
    for name, x, rank in (("k", k, 3), ("keys", keys, 4), ("slots", slots, 1)):
        same_rank(name, x, rank)
    dtype_of("v", v, (dtype.name,))
    kept = dtype_of("keys", keys, (dtype.name, *EIGHT_BITS))
    dtype_of("values", values, (kept.name,))
    T, H, D = k.shape
    same_shape("v", v, (T, H, D))
    same_shape("keys", keys, (*keys.shape[:2], H, D))
    same_shape("values", values, tuple(keys.shape))
    same_shape("slots", slots, (T,))
    dtype_of("slots", slots, ("int32",))
    if len(angles) == 1:
        raise LaunchError.of("argument-type", "one of `cos` and `sin` alone", "pass both, or neither")
    for name, x in zip(("cos", "sin"), angles, strict=False):
        dtype_of(name, x, ("float32",))
        same_shape(name, x, (T, D // 2))
    check_scales(kept, H, scales)
    if D not in (16, 32, 64, 128, 256):
        what = f"heads of {D} elements"
        raise LaunchError.of("shape-mismatch", what, "pass a power of two from 16 to 256")
    if not (keys.is_contiguous() and values.is_contiguous()):
        what = "a cache whose elements do not stand one behind the other"
        raise LaunchError.of("stride-mismatch", what, "pass contiguous caches")
    return dtype


def _fake(*given: Any) -> None:
    tensors, _, there = _split(*given)
    _checked(tensors, there)


def _joined(tensors: Tensors, _numbers: tuple[Any, ...], there: tuple[bool, ...]) -> Tensors:
    more = iter(tensors[5:])
    return (*tensors[:5], *(next(more) if one else None for one in there))


def _split(*given: Any) -> tuple[Tensors, tuple[()], tuple[bool, ...]]:
    return tuple(x for x in given if x is not None), (), tuple(x is not None for x in given[5:])


_append = Function(
    _work,
    Operator(
        "cache_append(Tensor k, Tensor v, Tensor(a!) keys, Tensor(b!) values, Tensor slots, Tensor? cos=None,"
        " Tensor? sin=None, Tensor? key_scale=None, Tensor? value_scale=None) -> ()",
        _fake,
        join=_joined,
        split=_split,
    ),
)
