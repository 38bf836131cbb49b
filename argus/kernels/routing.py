"""The router of a mixture of experts: from logits to the experts of each token and their weights.

Without groups, bias and float32 logits, one launch does all (`argus.kernels.topk.router_rows`): it orders the logits
themselves, as scores are in the same order. Otherwise scores and choices are written first
(`argus.kernels.grouped_router`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.kernels import grouped_router as grouped
from argus.kernels.rows import columns, dtype_of, matrix, same_shape
from argus.kernels.topk import HALVES, MOST_COLUMNS, MOST_TAKEN, router_rows, tile_of
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch

_ELEMENTS = 2048  # of the tile of a block of 128 threads


@dataclass(frozen=True, slots=True)
class Choice:
    """The way in which experts are chosen and weighted: the arguments of `router` that are no tensors, but for the
    scale."""

    k: int
    sigmoid: bool = False
    renormalize: bool = True
    groups: int = 1
    kept: int = 1

    @property
    def way(self) -> tuple[int, bool, bool, int, int]:
        """Return the same as an operator takes it."""
        return self.k, self.sigmoid, self.renormalize, self.groups, self.kept

    def checked(self, logits: torch.Tensor, bias: torch.Tensor | None) -> Any:
        """Return the dtype of `logits`. Raises LaunchError."""
        count = columns(logits)
        if not (0 < self.k <= MOST_TAKEN and self.k <= count <= MOST_COLUMNS):
            what = f"the {self.k} greatest of rows of {count} elements are not supported"
            raise LaunchError.of("shape-mismatch", what, f"take 1 to {MOST_TAKEN} of at most {MOST_COLUMNS} elements")
        if not 0 < self.kept <= self.groups or count % self.groups or self.k > count // self.groups * self.kept:
            what = f"{self.k} of {count} experts in the best {self.kept} of {self.groups} groups are not possible"
            raise LaunchError.of("argument-type", what, "let groups divide the experts, and keep enough of them")
        if bias is not None:
            dtype_of("bias", bias, ("float32",))
            same_shape("bias", bias, (count,))
        return dtype_of("logits", logits, (*HALVES, "float32"))


def router(
    logits: torch.Tensor,
    k: int,
    *,
    sigmoid: bool = False,
    renormalize: bool = True,
    scale: float = 1.0,
    bias: torch.Tensor | None = None,
    groups: int = 1,
    kept: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights, float32, and the numbers, int32, of the k experts that each token goes to.

    Scores are the softmax or the `sigmoid` of rows of logits, of bfloat16, float16 or float32, at most 512 to a row.
    The experts are those of the k (at most 16) greatest scores, with `bias` `[experts]`, float32, added for the choice
    alone; the first of equal ones come first. With `groups`, the experts are that many groups of neighbours, and those
    of the `kept` best groups can be chosen: the best by the sum of their two greatest choices, or without a bias by the
    greatest. Weights are the scores, over their sum with `renormalize`, times `scale`. There is a gradient of the
    weights with respect to the logits. Raises LaunchError.

    With a bias, groups or float32 logits, choices that differ in their last bits alone count as equal: a key of 32 bits
    holds a choice and the number of its expert.
    """
    choice = Choice(k, sigmoid, renormalize, groups, kept)
    tensors = (logits,) if bias is None else (logits, bias)
    results: tuple[torch.Tensor, torch.Tensor] = _router(tensors, (float(scale),), choice.way)
    return results


def routed(logits: torch.Tensor, bias: torch.Tensor | None, numbers: tuple[Number, ...], choice: Choice) -> Work:
    """Return the launches of `router`; `numbers` is its scale. Raises LaunchError."""
    import torch

    dtype = choice.checked(logits, bias)
    rows, shape = matrix(logits), (*logits.shape[:-1], choice.k)
    weights = rows.new_empty(len(rows), choice.k, dtype=torch.float32)
    experts = rows.new_empty(len(rows), choice.k, dtype=torch.int32)
    results = weights.view(shape), experts.view(shape)
    if bias is not None or choice.groups > 1 or dtype.name not in HALVES:
        return Work(_in_steps(rows, bias, weights, experts, numbers, choice, dtype), results)
    constants = {"DTYPE": dtype, "SIGMOID": choice.sigmoid, "SHARED": choice.renormalize}
    tile = tile_of(target_of(str(rows.device)), rows.shape[1], choice.k)
    call = Call(router_rows, (rows, weights, experts, *numbers), constants | tile)
    return Work((call,), results)


def _in_steps(
    x: torch.Tensor, bias: torch.Tensor | None, weights: torch.Tensor, experts: torch.Tensor,
    numbers: tuple[Number, ...], choice: Choice, dtype: Any,
) -> tuple[Call, ...]:  # fmt: skip
    """Return the launches that compute scores and choices, then the scores of groups, the experts, and the weights."""
    import torch

    (tokens, count), size = x.shape, x.shape[1] // choice.groups
    scores, chosen = (x.new_empty(x.shape, dtype=torch.float32) for _ in range(2))
    block = 1 << max(3, (count - 1).bit_length())
    tile = {"ROWS": max(1, _ELEMENTS // block), "BLOCK": block, "num_warps": 4}
    scored = {"DTYPE": dtype, "SIGMOID": choice.sigmoid, **tile}
    calls = [Call(grouped.router_scores, (x, bias, scores, chosen), scored)]
    best = None
    if choice.groups > 1:
        best, block = x.new_empty(tokens, choice.groups, dtype=torch.float32), _power(size)
        of_groups = {"BOTH": bias is not None and size > 1, "BLOCK": block, "ROWS": max(1, _ELEMENTS // block)}
        calls.append(Call(grouped.group_scores, (chosen.view(-1, size), best.view(-1)), of_groups))
    kept = {"KEPT": choice.kept, "SIZE": size, "GROUPS": _power(choice.groups)}
    found = {"K": choice.k, "SPAN": tile["BLOCK"], **tile, **kept}
    calls.append(Call(grouped.best_experts, (chosen, best, experts), found))
    weighed = {"SHARED": choice.renormalize, "CHOICES": choice.k, "BLOCK": _power(choice.k)}
    calls.append(Call(grouped.expert_weights, (scores, experts, weights, *numbers), weighed))
    return tuple(calls)


def _power(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()


def gradient_of_logits(
    gradient: torch.Tensor, logits: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor, scale: float,
    choice: Choice,
) -> torch.Tensor:  # fmt: skip
    """Return the gradient of `logits` from that of `weights`, by the closed form of each way to weigh.

    With s the sigmoid of a logit, its score changes by `s (1 - s)`; with p the softmax, that of expert e by
    `p (1 if it is e - p[e])`; and weights over their sum have the mean of what they pull at taken off.
    """
    import torch

    places, wide = experts.long(), logits.float()
    pulled = weights * gradient
    if choice.renormalize:
        pulled = pulled - weights * pulled.sum(-1, keepdim=True) / (scale or 1.0)
    if choice.sigmoid:
        pulled = pulled * (1 - wide.gather(-1, places).sigmoid())
    result = torch.zeros_like(wide).scatter(-1, places, pulled)
    if not (choice.renormalize or choice.sigmoid):
        result = result - wide.softmax(-1) * pulled.sum(-1, keepdim=True)
    return result.to(logits.dtype)


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...], *way: Any) -> Work:
    return routed(tensors[0], tensors[1] if len(tensors) > 1 else None, numbers, Choice(*way))


def _fake(
    logits: torch.Tensor, bias: torch.Tensor | None, _scale: float, *way: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    choice = Choice(*way)
    choice.checked(logits, bias)
    shape = (*logits.shape[:-1], choice.k)
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int32)


def _joined(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
    return (tensors[0], tensors[1] if len(tensors) > 1 else None, *numbers, *way)


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]:
    return tuple(t for t in given[:2] if t is not None), given[2:3], given[3:]


_router = Function(
    _work,
    Operator(
        "router(Tensor logits, Tensor? bias, float scale, int k, bool sigmoid, bool renormalize, int groups, int kept) "
        "-> (Tensor, Tensor)",
        _fake,
        join=_joined,
        split=_split,
    ),
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, _bias, ctx.scale, *way = inputs
    ctx.choice = Choice(*way)
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(logits, *output)


def _backward(ctx: Any, gradient: torch.Tensor, _of_experts: Any) -> tuple[Any, ...]:
    logits, weights, experts = ctx.saved_tensors
    of_logits = gradient_of_logits(gradient, logits, weights, experts, ctx.scale, ctx.choice)
    return of_logits, *(None,) * 7


attach(_router, _backward, _save)
