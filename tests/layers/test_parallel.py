"""Expert parallelism beside one process that has all experts: results and gradients, with two processes (gloo)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from argus.backend.cpu import toolchain  # noqa: E402
from argus.kernels import mixture, router  # noqa: E402
from argus.layers import parallel_mixture  # noqa: E402
from tests.kernels.common import random  # noqa: E402
from tests.results import grant  # noqa: E402

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


def run(rank: int, folder: str, optimisation: str, proofs: bool) -> None:
    """One of the processes: the results of each case go to a file."""
    toolchain.OPTIMISATION = optimisation
    if not proofs:
        grant(pytest.MonkeyPatch())
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    try:
        for case in TOKENS:
            torch.save(part(case, rank), Path(folder) / f"{case}{rank}.pt")
    finally:
        dist.destroy_process_group()


def part(case: str, rank: int) -> list[torch.Tensor]:
    """What one of the processes computes: its result, and the gradients of what it was given."""
    x, weights, chosen, w1, w2, pull = layer(case, rank)
    own = slice(rank * E // WORLD, (rank + 1) * E // WORLD)
    given = leaves(x, weights, w1[own], w2[own])
    out = parallel_mixture(given[0], given[1], chosen, given[2], given[3], shared=x)
    return [out.detach(), *torch.autograd.grad(out, given, pull)]


def near(got: torch.Tensor, right: torch.Tensor, case: str) -> None:
    assert got.shape == right.shape, case
    assert float((got.double() - right.double()).norm()) <= 6 * 2**-8 * float(right.double().norm()), case


@pytest.mark.slow
@pytest.mark.usefixtures("granted")
def test_two_processes_are_one(tmp_path: Path, require_tool: Any, pytestconfig: pytest.Config) -> None:
    """The processes start once, and find the kernels that this one has built."""
    require_tool("g++", "clang++", "c++")
    right = {case: whole(case) for case in TOKENS}
    mp.spawn(run, (str(tmp_path), toolchain.OPTIMISATION, pytestconfig.getoption("--prove-results")), WORLD)
    for case, (parts, of_w1, of_w2) in right.items():
        found = [torch.load(tmp_path / f"{case}{rank}.pt") for rank in range(WORLD)]
        for rank in range(WORLD):
            for got, exact in zip(found[rank][:3], parts[rank], strict=True):
                near(got, exact, case)
        near(torch.cat([f[3] for f in found]), of_w1, case)
        near(torch.cat([f[4] for f in found]), of_w2, case)


def whole(case: str) -> tuple[list[tuple[torch.Tensor, ...]], torch.Tensor, torch.Tensor]:
    """What one process with all experts computes: results and gradients of each part, and gradients of the weights."""
    given = [layer(case, rank) for rank in range(WORLD)]
    w1, w2 = leaves(*given[0][3:5])
    parts = [leaves(x, weights) for x, weights, *_ in given]
    outs = [mixture(x, weights, g[2], w1, w2, shared=g[0]) for (x, weights), g in zip(parts, given, strict=True)]
    total = sum((out.double() * g[5].double()).sum() for out, g in zip(outs, given, strict=True))
    of_w1, of_w2, *rest = torch.autograd.grad(total, [w1, w2, *(t for part in parts for t in part)])
    return [(outs[rank].detach(), *rest[2 * rank : 2 * rank + 2]) for rank in range(WORLD)], of_w1, of_w2
