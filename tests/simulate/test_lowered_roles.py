"""Kernels of roles as the passes make them, under every schedule: epilogues through shared memory, two products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from argus.ir.nodes import Kernel
from argus.ir.types import bfloat16
from argus.passes import lower
from argus.simulate import replay, simulate
from argus.simulate.numeric import round_to
from tests.passes.test_specialise import gemm as policy_gemm
from tests.passes.test_specialise_attention import lowered as attention
from tests.passes.test_specialise_results import GATED, gemm, lowered

SCHEDULES = ("program", "reverse", "lazy", "eager-{0}", "eager-{1}", "random(3)")


def named(kernel: Kernel, schedule: str) -> str:
    """The schedule with the kernel's role names."""
    return schedule.format(*(role.name for role in kernel.body[-1].roles))  # type: ignore[union-attr]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 0), (70, 40, 200)])
def test_gemm(schedule: str, m: int, n: int, k: int) -> None:
    kernel = gemm(4, 64, 64, 2)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, (rows, k)).astype(np.float32) for rows in (m, n))
    arguments = {"a": a, "b": b, "c": np.full((m, n), np.nan, np.float32)}
    outcome = simulate(kernel, arguments, tags=True, schedule=named(kernel, schedule))
    assert outcome.ok and outcome.complete, [str(v) for v in outcome.violations]
    np.testing.assert_array_equal(outcome.tensors["c"], round_to(a @ b.T, bfloat16))


def test_two_groups_of_warps() -> None:
    assert not replay(gemm(8, 128, 64, 3), {"M": 130, "N": 72, "K": 264}, [(1, 1)])


def test_two_products_share_a_tile() -> None:
    kernel = lowered(GATED, "gated", 4)
    for schedule in SCHEDULES:
        assert not replay(kernel, {"M": 70, "N": 40, "K": 200}, [(1, 0)], schedule=named(kernel, schedule))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_persistent_gemm(schedule: str) -> None:
    kernel = lower(replace(policy_gemm(tile=(64, 64, 64), stages=2), persistent=True), "sm_90a")
    assert kernel.persistent
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, (rows, 200)).astype(np.float32) for rows in (130, 72))
    arguments = {"a": a, "b": b, "c": np.full((130, 72), np.nan, np.float32)}
    outcome = simulate(kernel, arguments, tags=True, schedule=named(kernel, schedule))
    assert outcome.ok and outcome.complete and outcome.blocks == 6, [str(v) for v in outcome.violations]
    np.testing.assert_array_equal(outcome.tensors["c"], round_to(a @ b.T, bfloat16))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_attention(schedule: str) -> None:
    kernel = attention(D=64, GROUP=2, BLOCK_M=128, BLOCK_N=64)
    rng = np.random.default_rng(1)
    q, k, v = (round_to(rng.standard_normal((1, h, n, 64)), bfloat16) for h, n in ((2, 40), (1, 150), (1, 150)))
    one = (*q.shape[:2], 1, *q.shape[2:])  # part of the keys
    empty = {"o": np.full(one, np.nan, q.dtype), "lse": np.full(one[:4], np.nan, np.float32)}
    arguments = {"q": q, "k": k, "v": v, "scale": 0.125 / np.log(2), **empty}
    outcome = simulate(kernel, arguments, schedule=named(kernel, schedule))
    assert outcome.ok and outcome.complete, [str(x) for x in outcome.violations]
    s = q @ k.transpose(0, 1, 3, 2) * 0.125
    weights = np.exp(s - s.max(axis=-1, keepdims=True))
    expected = weights / weights.sum(axis=-1, keepdims=True) @ v
    np.testing.assert_allclose(outcome.tensors["o"][:, :, 0], expected, atol=0.02)
