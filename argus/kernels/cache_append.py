"""Append new tokens' keys and values to a paged cache; rotary embedding turns the keys on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.diagnostic import LaunchError
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

_FLOATS = ("float16", "bfloat16")


@argus.func
def turned(x, cos, sin, t, h, p, e):
    """Return element (p, e) of a key whose halves p are turned by the angles of its token."""
    return al.where(
        p == 0,
        x[t, h, 0, e] * cos[t, e] - x[t, h, 1, e] * sin[t, e],
        x[t, h, 1, e] * cos[t, e] + x[t, h, 0, e] * sin[t, e],
    )


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
    """`keys[slot[t]] = k[t]`, turned by the angles of token t, and `values[slot[t]] = v[t]`."""
    T, H, E, C = k.shape[0], k.shape[1], k.shape[3], keys.shape[0]
    al.requires(E == BLOCK)
    al.requires(al.in_range(slot, 0, C))
    al.requires(al.distinct(slot))
    al.covers(keys, at=lambda t, h, p, e: (slot[t], h, p, e))
    al.covers(values, at=lambda t, h, p, e: (slot[t], h, p, e))
    if cos is None:
        al.spec(keys, lambda t, h, p, e: k[t, h, p, e])
    else:
        al.spec(keys, lambda t, h, p, e: turned(k, cos, sin, t, h, p, e))
    al.spec(values, lambda t, h, p, e: v[t, h, p, e])
    block, t = al.grid(al.cdiv(H, HEADS), T)
    h = (block * HEADS + al.arange(HEADS))[:, None]
    e = al.arange(BLOCK)[None, :]
    to = al.load(slot[t])
    x, y = al.load(k[t, h, 0, e], mask=h < H), al.load(k[t, h, 1, e], mask=h < H)
    if cos is not None and sin is not None:
        c, s = al.load(cos[t, e]), al.load(sin[t, e])
        x, y = x.to(al.float32), y.to(al.float32)
        x, y = (x * c - y * s).to(DTYPE), (y * c + x * s).to(DTYPE)
    al.store(keys[to, h, 0, e], x, mask=h < H)
    al.store(keys[to, h, 1, e], y, mask=h < H)
    al.store(values[to, h, 0, e], al.load(v[t, h, 0, e], mask=h < H), mask=h < H)
    al.store(values[to, h, 1, e], al.load(v[t, h, 1, e], mask=h < H), mask=h < H)


def cache_append(
    k: torch.Tensor,
    v: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
    *,
    cos: torch.Tensor | None = None,
    sin: torch.Tensor | None = None,
) -> None:
    """Write the keys and values `[T, H, D]` of new tokens into a cache `[pages, page, H, D]`, in place.

    Token t goes to place `slots[t] % page` of page `slots[t] // page`; `slots` is int32 `[T]`. Its numbers have to be
    different, and those of places that there are: this is not checked. With `cos` and `sin`, float32 `[T, D / 2]`, key
    element e < D / 2 of token t becomes `k[e] * cos[t, e] - k[e + D / 2] * sin[t, e]`, and element e + D / 2 becomes
    `k[e + D / 2] * cos[t, e] + k[e] * sin[t, e]`. D is a power of two from 16 to 256. There is no gradient. Raises
    LaunchError.
    """
    _append((k, v, keys, values, slots, *(x for x in (cos, sin) if x is not None)))


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Any, ...]) -> Work:
    k, v, keys, values, slots, *angles = tensors
    dtype = _checked(*tensors)
    if not k.numel():
        return Work((), ())
    H, half = k.shape[1], k.shape[2] // 2
    new = tuple((x if x.stride(2) == 1 else x.contiguous()).view(-1, H, 2, half) for x in (k, v))
    cache = tuple(x.view(-1, H, 2, half) for x in (keys, values))
    turns = tuple(x if x.stride(1) == 1 else x.contiguous() for x in angles) or (None, None)
    heads = min(1 << (H - 1).bit_length(), max(1, 1024 // half))
    call = Call(append_tokens, (*new, *turns, slots, *cache), {"DTYPE": dtype, "BLOCK": half, "HEADS": heads})
    return Work((call,), ())


def _checked(
    k: torch.Tensor, v: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, *angles: Any
) -> Any:
    """Return the dtype. Raises LaunchError."""
    dtype = dtype_of("k", k, _FLOATS)
    for name, x, rank in (("k", k, 3), ("keys", keys, 4), ("slots", slots, 1)):
        same_rank(name, x, rank)
    for name, x in (("v", v), ("keys", keys), ("values", values)):
        dtype_of(name, x, (dtype.name,))
    T, H, D = k.shape
    same_shape("v", v, (T, H, D))
    same_shape("keys", keys, (*keys.shape[:2], H, D))
    same_shape("values", values, tuple(keys.shape))
    same_shape("slots", slots, (T,))
    dtype_of("slots", slots, ("int32",))
    if len(angles) not in (0, 2):
        raise LaunchError.of("argument-type", "one of `cos` and `sin` alone", "pass both, or neither")
    for name, x in zip(("cos", "sin"), angles, strict=False):
        dtype_of(name, x, ("float32",))
        same_shape(name, x, (T, D // 2))
    if D not in (16, 32, 64, 128, 256):
        what = f"heads of {D} elements"
        raise LaunchError.of("shape-mismatch", what, "pass a power of two from 16 to 256")
    if not (keys.is_contiguous() and values.is_contiguous()):
        what = "a cache whose elements do not stand one behind the other"
        raise LaunchError.of("stride-mismatch", what, "pass contiguous caches")
    return dtype


def _fake(*given: Any) -> None:
    _checked(*(x for x in given if x is not None))


def _joined(tensors: tuple[Any, ...], _numbers: tuple[Any, ...], _way: tuple[()]) -> tuple[Any, ...]:
    k, v, keys, values, slots, *angles = tensors
    return (k, v, keys, values, slots, *(angles or (None, None)))


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[()], tuple[()]]:
    return tuple(x for x in given if x is not None), (), ()


_append = Function(
    _work,
    Operator(
        "cache_append(Tensor k, Tensor v, Tensor(a!) keys, Tensor(b!) values, Tensor slots, Tensor? cos, Tensor? sin)"
        " -> ()",
        _fake,
        join=_joined,
        split=_split,
    ),
)
