"""Attention with windows, soft caps, custom scores and masks, and more head sizes."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.kernels.attention import attention_forward, checked, results, scale_of
from argus.kernels.attention_scores import LOG2E, NEVER
from argus.kernels.attention_tiles import AttentionShape, hopper_tiles
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

SIZES = (64, 80, 96, 128, 192, 256)
_PANEL = 64  # elements: rows of the copy engine's tiles are multiples of them
_WIDE: Mapping[int, int] = {192: 64, 256: 48}
"""Keys of a block on sm_90a, by head size: as many as fit into shared memory beside 128 queries."""
_INVARIANT_BATCH = 8
"""The batch size whose tiles are used for all batches if the results of a batch must not depend on the others."""
_ELSEWHERE = {"BLOCK_M": 64, "BLOCK_N": 32, "STAGES": 2, "num_warps": 4}


def attention_with(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    score: Any = None,
    mask: Any = None,
    scale: float | None = None,
    return_lse: bool = False,
    batch_invariant: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute `attention` with more forms of scores and masks, and heads of 64 to 256 elements.

    `window`, with `causal`: a query sees that many keys, the last of which is its own. `softcap`: a score x becomes
    `softcap * tanh(x / softcap)`, with the tangent of `al.tanh_approx`. `score(x, b, h, i, j)` and `mask(b, h, i, j)`
    are `@argus.func`s: `score` replaces x, and `mask` says if query i of head h sees key j. Keys before all windows are
    not read; keys that `mask` hides are read. `batch_invariant`: the bits of a batch's results do not depend on the
    other batches, nor on how many there are, which is proved, without a window; tiles are then those of a batch of
    eight. Head sizes are 64, 80, 96, 128, 192 and 256. There is no gradient. Raises LaunchError.
    """
    way = (causal, _window(window, causal, batch_invariant), _cap(softcap), batch_invariant)
    own = score is not None or mask is not None
    call, more = (_own, (score, mask)) if own else (_with, ())
    o, lse = call((q, k, v), scale_of(scale), (*way, *more))
    return (o, lse) if return_lse else o


def _window(window: int | None, causal: bool, invariant: bool) -> int:
    """Return the number of keys that a query sees; 0 for all. Raises LaunchError."""
    if window is not None and (window < 1 or not causal):
        what = f"a window of {window} keys" + ("" if causal else " without causal=True")
        raise LaunchError.of("argument-type", what, "pass a positive number of keys, and causal=True")
    if window is not None and invariant:
        what = "a window in a form whose results must not depend on the batch, which is not proved"
        raise LaunchError.of("argument-type", what, "leave out `window` or `batch_invariant`")
    return window or 0


def _cap(softcap: float | None) -> float:
    """Return the cap of scores; 0 for none. Raises LaunchError."""
    cap = 0.0 if softcap is None else float(softcap)
    if softcap is not None and not (isfinite(cap) and cap > 0):
        raise LaunchError.of("bad-scale", f"the cap of scores is {cap}, no positive number", "leave it out for no cap")
    return cap


def _work(
    tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...], causal: bool, window: int, cap: float,
    invariant: bool, score: Any = None, mask: Any = None,
) -> Work:  # fmt: skip
    q, k, v = tensors
    dtype, group = checked(q, k, v, SIZES)
    made = results(q)
    if not (k.shape[2] and q.numel()):
        return Work((), (made[0].zero_(), made[1].fill_(NEVER)))
    read = tuple(x if x.stride(3) == 1 else x.contiguous() for x in tensors)
    (B, H, M, size), (_, shared, N, _) = q.shape, k.shape
    constants: dict[str, object] = {"DTYPE": dtype, "OUT": dtype, "D": size, "GROUP": group, "CAUSAL": causal}
    constants |= {"WINDOW": min(window, N) if window else 0, "CAP": cap, "SCORE": score, "MASK": mask}
    constants["INVARIANT"], count = invariant, _INVARIANT_BATCH if invariant else B
    constants |= _tiles((*read, made[0]), AttentionShape(size, M, N, count * H, count * shared, causal))
    scale = numbers or (size**-0.5 * LOG2E,)
    written = made[0].view(B, H, 1, M, size), made[1].view(B, H, 1, M)
    return Work((Call(attention_forward, (*read, *written, *scale), constants),), made)


def _tiles(tensors: tuple[torch.Tensor, ...], problem: AttentionShape) -> Mapping[str, object]:
    aligned = all(t.data_ptr() % 16 == 0 and all(s % 8 == 0 for s in t.stride()[:3]) for t in tensors)
    if target_of(str(tensors[0].device)) != "sm_90a" or not aligned:
        return _ELSEWHERE
    width = -(-problem.size // _PANEL) * _PANEL
    if width in _WIDE:
        return {"BLOCK_M": 128, "BLOCK_N": _WIDE[width], "STAGES": 2, "num_warps": 8, "WIDTH": width}
    like = AttentionShape(width, problem.rows, problem.keys, problem.heads, problem.shared, problem.causal)
    found = {name: value for name, value in hopper_tiles(like).items() if name not in ("PARTS", "SPAN")}
    return {**found, "WIDTH": width}


def _fake(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    _scale: float | None,
    _causal: bool,
    _window: int,
    _cap: float,
    _invariant: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    checked(q, k, v, SIZES)
    return results(q)


def _joined(tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*tensors, numbers[0] / LOG2E if numbers else None, *way)


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]:
    q, k, v, scale, *way = given
    return (q, k, v), () if scale is None else (scale * LOG2E,), tuple(way)


_with = Function(
    _work,
    Operator(
        "attention_with(Tensor q, Tensor k, Tensor v, float? scale, bool causal, int window, float softcap, "
        "bool batch_invariant)"
        " -> (Tensor, Tensor)",
        _fake,
        join=_joined,
        split=_split,
    ),
)
_own = Function(_work)
