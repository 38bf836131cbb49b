"""Expert parallelism beside one process that has all experts: results and gradients, with two processes (gloo)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from argus.kernels import mixture, router  # noqa: E402
from argus.layers import parallel_mixture  # noqa: E402
from tests.kernels.common import random  # noqa: E402

E, H, INNER, WORLD = 6, 24, 40, 2
TOKENS = {"uneven": (9, 4), "none here": (7, 0), "all on one": (5, 3)}


def layer(case: str, rank: int) -> tuple[torch.Tensor, ...]:
    """The tokens of a process, their weights and choices, the weights of all experts, and a gradient."""
    count = TOKENS[case][rank]
    x, pull = (random(count, H, dtype="bfloat16", seed=10 + rank + i) for i in (0, 50))
    logits = random(count, E, seed=20 + rank)
    if case == "all on one":
        logits[:, 4] += 30
    weights, chosen = router(logits, 1 if case == "all on one" else 2)
    w1 = (random(E, 2 * INNER, H, seed=2) / H**0.5).bfloat16()
    w2 = (random(E, H, INNER, seed=3) / INNER**0.5).bfloat16()
    return x, weights, chosen, w1, w2, pull


def leaves(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [t.detach().clone().requires_grad_() for t in tensors]


def run(rank: int, case: str, folder: str) -> None:
    """One of the processes: its results go to a file."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    try:
        x, weights, chosen, w1, w2, pull = layer(case, rank)
        own = slice(rank * E // WORLD, (rank + 1) * E // WORLD)
        given = leaves(x, weights, w1[own], w2[own])
        out = parallel_mixture(given[0], given[1], chosen, given[2], given[3], shared=x)
        found = torch.autograd.grad(out, given, pull)
        torch.save([out.detach(), *found], Path(folder) / f"{case}{rank}.pt")
    finally:
        dist.destroy_process_group()


def near(got: torch.Tensor, right: torch.Tensor) -> None:
    assert got.shape == right.shape
    assert float((got.double() - right.double()).norm()) <= 6 * 2**-8 * float(right.double().norm())


@pytest.mark.slow
@pytest.mark.parametrize("case", TOKENS)
def test_two_processes_are_one(case: str, tmp_path: Path, require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    mp.spawn(run, (case, str(tmp_path)), WORLD)
    found = [torch.load(tmp_path / f"{case}{rank}.pt") for rank in range(WORLD)]
    given = [layer(case, rank) for rank in range(WORLD)]
    w1, w2 = leaves(*given[0][3:5])
    parts = [leaves(x, weights) for x, weights, *_ in given]
    outs = [mixture(x, weights, g[2], w1, w2, shared=g[0]) for (x, weights), g in zip(parts, given, strict=True)]
    total = sum((out.double() * g[5].double()).sum() for out, g in zip(outs, given, strict=True))
    of_w1, of_w2, *rest = torch.autograd.grad(total, [w1, w2, *(t for part in parts for t in part)])
    for rank in range(WORLD):
        near(found[rank][0], outs[rank].detach())
        near(found[rank][1], rest[2 * rank])
        near(found[rank][2], rest[2 * rank + 1])
    near(torch.cat([f[3] for f in found]), of_w1)
    near(torch.cat([f[4] for f in found]), of_w2)
