"""A mixture of experts, from the router's logits to the sum of what each token's experts gave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argus.kernels.mixture import mixture
from argus.kernels.mixture_blocks import mixture_blocks
from argus.kernels.routing import router

if TYPE_CHECKING:
    import torch


def moe(
    x: torch.Tensor,
    router_logits: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    *,
    topk: int,
    sigmoid: bool = False,
    renormalize: bool = True,
    scale: float = 1.0,
    bias: torch.Tensor | None = None,
    groups: int = 1,
    kept: int = 1,
    activation: str = "swiglu",
    shared: torch.Tensor | None = None,
    scale1: torch.Tensor | None = None,
    scale2: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return, for each token, the weighted sum of the outputs of its `topk` experts: `[T, H]`, in x's dtype.

    `x` `[T, H]`, `w1` `[E, 2 I, H]` (an expert's gates and, behind these, what passes them) and `w2` `[E, H, I]` are of
    bfloat16 or float16, all the same. `router_logits` `[T, E]` choose experts and weights as `router` says, with its
    arguments `sigmoid` to `kept`; `mixture` explains the rest. Both have gradients. Weights of experts may be float8
    with `scale1` and `scale2`, as `mixture_blocks` takes them, without a gradient. Raises LaunchError.
    """
    choice = {"sigmoid": sigmoid, "renormalize": renormalize, "scale": scale, "groups": groups, "kept": kept}
    weights, chosen = router(router_logits, topk, bias=bias, **choice)  # type: ignore[arg-type]
    if scale1 is not None and scale2 is not None:
        scales = (scale1, scale2)
        return mixture_blocks(x, weights, chosen, w1, w2, *scales, activation=activation, shared=shared)
    return mixture(x, weights, chosen, w1, w2, activation=activation, shared=shared)
