"""Expert parallelism: experts spread over the processes of a group, which exchange rows with `all_to_all_single`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from argus.kernels import mixture


def parallel_mixture(
    x: torch.Tensor,
    weights: torch.Tensor,
    chosen: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    *,
    group: dist.ProcessGroup | None = None,
    activation: str = "swiglu",
    shared: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return what `argus.kernels.mixture` returns for this process's tokens, with the experts of all processes.

    `w1` and `w2` are this process's experts: process r of the group has the experts `r n .. (r + 1) n`, n of them each.
    Every process calls this at the same time, with any number of tokens, none included. How many rows go where is asked
    of the device once, as `all_to_all_single` takes these numbers on the host. There are gradients with respect to
    tokens, their weights and this process's experts. Raises LaunchError, as `mixture` does.
    """
    world, own = dist.get_world_size(group), len(w1)
    experts = chosen.flatten().long().clamp(0, own * world - 1)
    order = experts.argsort(stable=True)  # by expert, and therefore by process
    sent = torch.bincount(experts // own, minlength=world)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    there, back = _Counts(sent.tolist(), received.tolist(), group), _Counts(received.tolist(), sent.tolist(), group)
    rows = _exchanged(x[order // chosen.shape[1]], there)
    numbers = _exchanged((experts[order] % own).int(), there)
    ones = weights.new_ones(len(rows), 1)
    made = _exchanged(mixture(rows, ones, numbers[:, None], w1, w2, activation=activation), back)
    parts = torch.zeros_like(made).index_copy(0, order, made).view(*chosen.shape, x.shape[1])
    result = (weights[..., None] * parts.float()).sum(1)
    return (result if shared is None else result + shared.float()).to(x.dtype)


class _Counts:
    """The numbers of rows that go to each process of a group, and that come from it."""

    def __init__(self, sent: list[int], received: list[int], group: dist.ProcessGroup | None) -> None:
        self.sent, self.received, self.group = sent, received, group

    def move(self, x: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        """Exchange rows of `x`, as bytes: not every backend knows every dtype."""
        given = x.contiguous()
        result = given.new_empty(sum(received), *x.shape[1:])
        if given.dtype.itemsize == 2:
            dist.all_to_all_single(result.view(torch.uint8), given.view(torch.uint8), received, sent, group=self.group)
        else:
            dist.all_to_all_single(result, given, received, sent, group=self.group)
        return result


class _Exchange(torch.autograd.Function):
    """The exchange of rows, whose gradient goes the other way."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, counts: _Counts) -> torch.Tensor:
        """See torch.autograd.Function."""
        ctx.counts = counts
        return counts.move(x, counts.sent, counts.received)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """See torch.autograd.Function."""
        counts: _Counts = ctx.counts
        return counts.move(gradient, counts.received, counts.sent), None


def _exchanged(x: torch.Tensor, counts: _Counts) -> torch.Tensor:
    result: torch.Tensor = _Exchange.apply(x, counts)  # type: ignore[no-untyped-call]
    return result
