"""Attention with windows, soft caps, sinks, biases, custom scores and masks, and more head sizes."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.kernels.attention import attend, attention_forward
from argus.kernels.attention_operands import checked, results_like, scale_of, window_of
from argus.kernels.attention_scores import NEVER
from argus.kernels.attention_tiles import AttentionShape, hopper_tiles
from argus.kernels.exponentials import LOG2E
from argus.kernels.rows import dtype_of, same_shape
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

SIZES = (64, 80, 96, 128, 192, 256)
_SMALLER = {192: (128,)}
"""Head sizes of values that differ from those of queries and keys."""
_PANEL = 64  # elements: rows of the copy engine's tiles are multiples of them
_WIDE: Mapping[tuple[int, int], int] = {(192, 128): 96, (192, 192): 64, (256, 256): 48}
"""Keys of a block on sm_90a, by head sizes: as many as fit into shared memory beside 128 queries."""
_INVARIANT_BATCH = 8
"""The batch size whose tiles are used for all batches if the results of a batch must not depend on the others."""
_ELSEWHERE = {"BLOCK_M": 64, "BLOCK_N": 32, "STAGES": 2, "num_warps": 4}
_ADDED = ("sinks", "slopes", "bias")


@argus.kernel(num_warps=8)
def attention_added(
    q: al.Tensor[DTYPE, "B H M D"],
    k: al.Tensor[DTYPE, "B HK N D"],
    v: al.Tensor[DTYPE, "B HK N E"],
    o: al.Tensor[DTYPE, "B H P M E"],
    lse: al.Tensor[al.float32, "B H P M"],
    sinks: al.Tensor[al.float32, "H"] | None,
    slopes: al.Tensor[al.float32, "H"] | None,
    bias: al.Tensor[BIAS, "B H M N"] | None,
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    BIAS: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    E: al.constexpr = 128,
    GROUP: al.constexpr = 1,
    CAUSAL: al.constexpr = False,
    BLOCK_M: al.constexpr = 128,
    BLOCK_N: al.constexpr = 128,
    STAGES: al.constexpr = 2,
    HEADS: al.constexpr = 33,
    SCHEDULE: al.constexpr = "rows",
    WIDTH: al.constexpr = 0,
    WINDOW: al.constexpr = 0,
    CAP: al.constexpr = 0.0,
    SCORE: al.constexpr = None,
    MASK: al.constexpr = None,
    RANGE: al.constexpr = None,
    INVARIANT: al.constexpr = False,
):
    """Attention as `attend` computes it, with sinks, slopes and a bias, and values of E elements."""
    attend(
        q, k, v, o, lse, scale, sinks, slopes, bias,
        DTYPE, DTYPE, D, GROUP, CAUSAL, BLOCK_M, BLOCK_N, STAGES, True, HEADS, SCHEDULE, 1, 0, False, WIDTH,
        WINDOW, CAP, SCORE, MASK, RANGE, INVARIANT,
    )  # fmt: skip


def attention_with(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    score: Any = None,
    mask: Any = None,
    mask_range: Any = None,
    scale: float | None = None,
    return_lse: bool = False,
    batch_invariant: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute `attention` with more forms of scores and masks, and heads of 64 to 256 elements.

    `window`, with `causal`: a query sees that many keys, the last of which is its own. Scores of queries i and keys j
    are changed in this order:

    1. `softcap`: a score x becomes `softcap * tanh(x / softcap)`, with the tangent of `al.tanh_approx`.
    2. `alibi_slopes`, float32 `[H]`: `alibi_slopes[h] * (j - (i + N - M))` is added.
    3. `bias`, in the dtype of q or float32, whose shape broadcasts to `[B, H, M, N]`, is added.
    4. `score(x, b, h, i, j)`, an `@argus.func`, replaces x.

    `mask(b, h, i, j)`, an `@argus.func`, says if query i of head h sees key j. `sinks`, float32 `[H]`, are scores of a
    further key of each head, which all queries see and whose value is 0; the log-sum-exp counts it.

    Keys before all windows are not read. Keys that `mask` hides are read, unless `mask_range(b, h, first, last)` leaves
    them out: an `@argus.func` that returns `(low, high)`, so that of the queries `first` to `last` of head h none sees
    a key before `low`, nor from `high` on. That `mask` hides these keys is proved.

    `batch_invariant`: the bits of a batch's results do not depend on the other batches, nor on how many there are,
    which is proved, without a window; tiles are then those of a batch of eight. Head sizes are 64, 80, 96, 128, 192 and
    256; with 192, values may have 128.

    Windows alone have a gradient, of heads of 64 and 128 elements. Raises LaunchError.
    """
    way = (causal, _window(window, causal, batch_invariant), _cap(softcap), batch_invariant)
    added = dict(zip(_ADDED, (sinks, alibi_slopes, bias), strict=True))
    given = tuple(name for name, x in added.items() if x is not None)
    tensors = (q, k, v, *(added[name] for name in given))
    if mask_range is not None and mask is None:
        what = "a `mask_range` without a `mask`, which hides the keys outside of it"
        raise LaunchError.of("argument-type", what, "pass both, or `mask` alone")
    own = score is not None or mask is not None
    call, more = (_own, (score, mask, mask_range)) if own else (attention_with_function, ())
    o, lse = call(tensors, scale_of(scale), (*way, given, *more))
    return (o, lse) if return_lse else o


def _window(window: int | None, causal: bool, invariant: bool) -> int:
    """Return the number of keys that a query sees; 0 for all. Raises LaunchError."""
    found = window_of(window, causal)
    if found and invariant:
        what = "a window in a form whose results must not depend on the batch, which is not proved"
        raise LaunchError.of("argument-type", what, "leave out `window` or `batch_invariant`")
    return found


def _cap(softcap: float | None) -> float:
    """Return the cap of scores; 0 for none. Raises LaunchError."""
    cap = 0.0 if softcap is None else float(softcap)
    if softcap is not None and not (isfinite(cap) and cap > 0):
        raise LaunchError.of("bad-scale", f"the cap of scores is {cap}, no positive number", "leave it out for no cap")
    return cap


Tensors = tuple[Any, ...]


def _work(
    tensors: Tensors, numbers: tuple[Number, ...], causal: bool, window: int, cap: float, invariant: bool,
    given: tuple[str, ...], score: Any = None, mask: Any = None, mask_range: Any = None,
) -> Work:  # fmt: skip
    q, k, v = tensors[:3]
    dtype, group = checked(q, k, v, SIZES, _SMALLER)
    added = _added(q, k, given, tensors[3:])
    made = results_like(q, v)
    if not (k.shape[2] and q.numel()):
        level = added["sinks"][:, None] if "sinks" in given else made[1].new_full((), NEVER)
        return Work((), (made[0].zero_(), made[1].copy_(level)))
    read = tuple(x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    (B, H, M, size), (_, shared, N, _), values = q.shape, k.shape, v.shape[3]
    constants: dict[str, object] = {"DTYPE": dtype, "D": size, "GROUP": group, "CAUSAL": causal}
    constants |= {
        "WINDOW": min(window, N) if window else 0,
        "CAP": cap,
        "SCORE": score,
        "MASK": mask,
        "RANGE": mask_range,
    }
    constants["INVARIANT"], count = invariant, _INVARIANT_BATCH if invariant else B
    shape = AttentionShape(size, M, N, count * H, count * shared, causal)
    constants |= _tiles((*read, made[0]), shape, values)
    scale = numbers or (size**-0.5 * LOG2E,)
    written = made[0].view(B, H, 1, M, values), made[1].view(B, H, 1, M)
    if not given and values == size:
        return Work((Call(attention_forward, (*read, *written, *scale), {**constants, "OUT": dtype}),), made)
    constants |= {"E": values}
    if "bias" in given:
        constants["BIAS"] = dtype_of("bias", added["bias"])
    more = tuple(added.get(name) for name in _ADDED)
    return Work((Call(attention_added, (*read, *written, *more, *scale), constants),), made)


def _added(q: torch.Tensor, k: torch.Tensor, given: tuple[str, ...], tensors: Tensors) -> dict[str, torch.Tensor]:
    """Return what is added to scores, by name. Raises LaunchError."""
    added: dict[str, torch.Tensor] = {}
    for name, x in zip(given, tensors, strict=True):
        if name == "bias":
            dtype_of(name, x, ("float32", dtype_of("q", q).name))
            added[name] = _broadcast(x, (*q.shape[:3], k.shape[2]))
        else:
            dtype_of("alibi_slopes" if name == "slopes" else name, x, ("float32",))
            same_shape("alibi_slopes" if name == "slopes" else name, x, (q.shape[1],))
            added[name] = x.contiguous()
    return added


def _broadcast(bias: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return `bias` as a view of `shape`; a bias of one key for all is copied. Raises LaunchError."""
    if bias.ndim > 4 or any(n not in (1, m) for n, m in zip(bias.shape[::-1], shape[::-1], strict=False)):
        what = f"`bias` has the shape {tuple(bias.shape)}, which does not broadcast to {shape}"
        raise LaunchError.of("shape-mismatch", what, "pass a bias of [batches, heads, queries, keys], or 1 of any")
    wide = bias.expand(*bias.shape[:-1], shape[-1]) if bias.ndim else bias.expand(shape[-1])
    return (wide if wide.stride(-1) == 1 else wide.contiguous()).expand(shape)


def _tiles(tensors: Tensors, problem: AttentionShape, values: int) -> Mapping[str, object]:
    aligned = all(t.data_ptr() % 16 == 0 and all(s % 8 == 0 for s in t.stride()[:3]) for t in tensors)
    if target_of(str(tensors[0].device)) != "sm_90a" or not aligned:
        return _ELSEWHERE
    width = -(-problem.size // _PANEL) * _PANEL
    if width > 128:
        columns = _WIDE[width, -(-values // _PANEL) * _PANEL]
        return {"BLOCK_M": 128, "BLOCK_N": columns, "STAGES": 2, "num_warps": 8, "WIDTH": width}
    like = AttentionShape(width, problem.rows, problem.keys, problem.heads, problem.shared, problem.causal)
    found = {name: value for name, value in hopper_tiles(like).items() if name not in ("PARTS", "SPAN")}
    return {**found, "WIDTH": width}


def _fake(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    (q, k, v, *more), _, way = _split(*given)
    checked(q, k, v, SIZES, _SMALLER)
    _added(q, k, way[-1], tuple(more))
    return results_like(q, v)


def _joined(tensors: Tensors, numbers: tuple[Number, ...], way: Tensors) -> Tensors:
    *forms, given = way
    added = dict(zip(given, tensors[3:], strict=True))
    return (*tensors[:3], *map(added.get, _ADDED), numbers[0] / LOG2E if numbers else None, *forms)


def _split(*given: Any) -> tuple[Tensors, tuple[Number, ...], Tensors]:
    q, k, v, *added, scale = given[:7]
    there = tuple(name for name, x in zip(_ADDED, added, strict=True) if x is not None)
    tensors = (q, k, v, *(x for x in added if x is not None))
    return tensors, () if scale is None else (scale * LOG2E,), (*given[7:], there)


attention_with_function = Function(
    _work,
    Operator(
        "attention_with(Tensor q, Tensor k, Tensor v, Tensor? sinks=None, Tensor? slopes=None, "
        "Tensor? bias=None, float? scale=None, bool causal=False, int window=0, float softcap=0.0, "
        "bool batch_invariant=False) -> (Tensor, Tensor)",
        _fake,
        join=_joined,
        split=_split,
    ),
)
_own = Function(_work)
