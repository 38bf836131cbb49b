"""Calls of PyTorch's attention become calls of the library's kernels, before a graph is traced to ATen operators.

    scaled_dot_product_attention(q, k, v, attn_mask=m)  →  attention(q, k, v, causal=True)

Attention of float32 with few scores is written out (`argus.graph.encoder`). For 16 bits, the library has proved kernels
for attention without a mask, for causal attention and for windows, forward and backward.
A mask that the graph computes from numbers alone is computed once, when the graph is compiled, and is recognised by its
elements. Attention with other masks stays as it is. The same holds for the attention inside of a function of PyTorch
that Dynamo does not look into (`multi_head_attention_forward`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn import functional

from argus.diagnostic import LaunchError
from argus.graph.constant import computed
from argus.graph.encoder import attention, is_written_out
from argus.runtime.device import target_of

_FAST = ("cpu", "sm_90a")
"""Targets whose kernels are at least as fast as PyTorch's. On a CPU, speed does not count."""
_ORDER = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_DEFAULTS = (None, None, None, None, 0.0, False, None, False)


@dataclass(frozen=True)
class Form:
    """A form of masks. With `causal`, query i sees the keys up to i + N - M; with a `window`, that many of them."""

    causal: bool
    window: int = 0


def call_library(gm: torch.fx.GraphModule) -> None:
    """Replace attention in a graph that Dynamo traced, and in the graphs inside it, where the library has a kernel."""
    for part in gm.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            if node.op == "call_function" and node.target is functional.scaled_dot_product_attention:
                _replace(part, node)
            elif node.op == "call_function" and node.target is functional.multi_head_attention_forward:
                node.target = _many_heads
        part.recompile()  # Nodes without users stay: in this graph, some of them write their arguments.


def _many_heads(*args: Any, **kwargs: Any) -> Any:
    """Compute `multi_head_attention_forward` by operators, if the call asks for nothing that has none here."""
    function = functional.multi_head_attention_forward
    bound = signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    given: dict[str, Any] = bound.arguments
    plain = all(given[name] is None or given[name] is False for name in _LEFT_IF_GIVEN)
    if not plain or given["query"].dim() != 3 or (given["training"] and given["dropout_p"]):
        return function(*args, **kwargs)
    factors = [x.unflatten(-1, (given["num_heads"], -1)).permute(1, 2, 0, 3) for x in _projected(given)]
    call, ways = _way(factors, _given((), {}), Form(False)) or (functional.scaled_dot_product_attention, {})
    found = call(*factors, **ways).permute(2, 0, 1, 3).flatten(2)
    return functional.linear(found, given["out_proj_weight"], given["out_proj_bias"]), None


_LEFT_IF_GIVEN = (
    "need_weights", "is_causal", "add_zero_attn", "use_separate_proj_weight", "bias_k", "bias_v", "key_padding_mask",
    "attn_mask", "static_k", "static_v",
)  # fmt: skip


def _projected(given: dict[str, Any]) -> tuple[Any, ...]:
    """Return the queries, keys and values of all heads: by one product, if they are those of one sequence."""
    q, k, v, weights, bias = (given[n] for n in ("query", "key", "value", "in_proj_weight", "in_proj_bias"))
    if q is k is v:
        return tuple(functional.linear(q, weights, bias).chunk(3, -1))
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return tuple(functional.linear(*each) for each in zip((q, k, v), weights.chunk(3), biases, strict=True))


def _given(args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call of attention by name."""
    given: dict[str, Any] = dict(zip(_ORDER, _DEFAULTS, strict=True))
    given.update(zip(_ORDER, args, strict=False))
    return given | dict(kwargs)


def _way(tensors: list[Any], given: dict[str, Any], form: Form | None) -> tuple[Any, dict[str, Any]] | None:
    """Return the function that computes attention with a form of mask, and its arguments beside the factors; None if it
    stays with PyTorch. Without a mask in the call, attention of few scores is written out."""
    if given["attn_mask"] is None and given["dropout_p"] == 0 and is_written_out(*tensors):
        return attention, {"scale": given["scale"], "causal": bool(given["is_causal"])}
    if form is None or not _suits(tensors, given) or not _has_kernel(tensors, form):
        return None
    return _attended, {"causal": form.causal, "window": form.window, "scale": given["scale"]}


def _replace(gm: torch.fx.GraphModule, node: Any) -> None:
    given = _given(node.args, node.kwargs)
    factors = tuple(given[name] for name in _ORDER[:3])
    tensors = [factor.meta.get("example_value") for factor in factors if isinstance(factor, torch.fx.Node)]
    if len(tensors) != 3 or not all(isinstance(x, torch.Tensor) for x in tensors):
        return
    form = _form(gm, tensors, given) if _suits(tensors, given) else None
    if way := _way(tensors, given, form):
        _replaced_by(gm, node, way[0], factors, way[1])


def _replaced_by(gm: torch.fx.GraphModule, node: Any, call: Any, factors: tuple[Any, ...], ways: Any) -> None:
    with gm.graph.inserting_before(node):
        own = gm.graph.call_function(call, factors, ways)
    own.meta = dict(node.meta)
    node.replace_all_uses_with(own)
    gm.graph.erase_node(node)


def _attended(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, window: int, scale: float | None
) -> Any:
    from argus.kernels import attention, attention_with
    from argus.kernels.attention_operands import HEAD_SIZES

    if causal and k.shape[2] > q.shape[2] > 1:  # PyTorch lets both begin together, and the library lets both end so
        k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]
    if window or q.shape[3] not in HEAD_SIZES:
        return attention_with(q, k, v, causal=causal, window=window or None, scale=scale)
    return attention(q, k, v, causal=causal, scale=scale)


def _suits(tensors: list[Any], given: dict[str, Any]) -> bool:
    """Return True for tensors, and numbers beside them, that the library's attention may have."""
    q, k, v = tensors
    if any(x.ndim != 4 or x.dtype != q.dtype or x.device != q.device for x in tensors):
        return False
    if q.dtype not in (torch.float16, torch.bfloat16) or k.shape != v.shape or q.shape[3] != k.shape[3]:
        return False
    if not all(isinstance(size, int) and size > 0 for x in tensors for size in x.shape) or q.shape[0] != k.shape[0]:
        return False
    shared = q.shape[1] % k.shape[1] == 0 if given["enable_gqa"] else q.shape[1] == k.shape[1]
    scale = given["scale"]
    positive = scale is None or (isinstance(scale, (int, float)) and scale > 0)
    return shared and positive and given["dropout_p"] == 0 and is_fast(str(q.device))


def is_fast(device: str) -> bool:
    """Return True for a device on which the library's kernels are at least as fast as PyTorch's."""
    try:
        return target_of(device) in _FAST
    except LaunchError:
        return False


def _has_kernel(tensors: list[Any], form: Form) -> bool:
    """Return True if the library has a kernel for heads of this size, and its gradient if one may be needed."""
    from argus.kernels.attention_operands import HEAD_SIZES
    from argus.kernels.attention_with import SIZES

    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    return tensors[0].shape[3] in (HEAD_SIZES if recorded else SIZES)


def _form(gm: torch.fx.GraphModule, tensors: list[Any], given: dict[str, Any]) -> Form | None:
    """Return the form of a call's mask, or None if there is none, or if it is not known before the graph runs."""
    queries, keys = tensors[0].shape[2], tensors[1].shape[2]
    mask = given["attn_mask"]
    if mask is None:
        if not given["is_causal"]:
            return Form(False)
        return Form(True) if queries <= keys and queries > 1 else None
    if not isinstance(mask, torch.fx.Node) or given["is_causal"]:
        return None
    found = computed(gm.graph, mask)
    with unset_fake_temporarily():
        return None if found is None else form_of(found, queries, keys)


def form_of(mask: torch.Tensor, queries: int, keys: int) -> Form | None:
    """Return the form of a mask of truth values or of summands, or None if it has no form that the library knows."""
    seen = _seen(mask)
    if seen is None:
        return None
    rows = list(
        _matrices(seen.expand(*seen.shape[:-2], queries, keys) if seen.ndim > 1 else seen.expand(queries, keys))
    )
    if bool(all(row.all() for row in rows)):
        return Form(False)
    if queries != keys:
        return None
    window = int(rows[0][-1].sum())
    distance = torch.arange(queries)[:, None] - torch.arange(keys)
    band = ((distance >= 0) & (distance < window)).to(seen.device)
    if not window or not all(torch.equal(row, band) for row in rows):
        return None
    return Form(True, 0 if window == keys else window)


def _seen(mask: torch.Tensor) -> torch.Tensor | None:
    """Return the truth values of a mask: which keys are seen. Return None if it adds other numbers than 0 and -inf."""
    if mask.dtype == torch.bool:
        return mask
    if not mask.is_floating_point():
        return None
    seen = mask == 0
    hidden = mask <= torch.finfo(mask.dtype).min
    return seen if bool((seen | hidden).all()) else None


def _matrices(mask: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the different matrices of a mask: those that are repeated in memory are yielded once."""
    while mask.ndim > 2:
        repeated = [d for d in range(mask.ndim - 2) if mask.stride(d) == 0 or mask.shape[d] == 1]
        if not repeated:
            break
        mask = mask.select(repeated[0], 0)
    yield from mask.reshape(-1, *mask.shape[-2:])
