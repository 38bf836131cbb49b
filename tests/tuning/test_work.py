"""The work that the model sees: read off explicit kernels, and what occupancy and rooflines make of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus.ir.machine import H200
from argus.passes import lower
from argus.tuning.model import MODELS, Work, estimate, occupancy
from argus.tuning.work import work_of
from tests.passes import kernels

SIZES = {
    "M": 1024,
    "N": 512,
    "K": 640,
    "a.stride0": 640,
    "b.stride0": 640,
    "c.stride0": 512,
    "lda": 640,
    "ldb": 640,
    "ldc": 512,
}
HOPPER = MODELS["sm_90a"]
SOME = Work(264, 128, 64, 40_000, 1e8, 16, 0.0, 1e4, 1e4, 1e6, 4e4, 0.0)


def test_a_product_of_matrices() -> None:
    found = work_of(lower(kernels.gemm(tile=(128, 64, 32)), "sm_80"), SIZES)
    assert found.blocks == 8 * 8 and found.threads == 128
    assert 2 * 128 * 64 * 640 < found.matrix_flops < 4 * 128 * 64 * 640 and found.matrix_bits == 16  # by mma.sync
    assert found.all_bytes == 2 * (1024 * 640 + 512 * 640 + 1024 * 512)
    staged = 2 * (128 + 64) * 640
    assert staged <= found.global_traffic <= 1.5 * staged and found.shared_traffic > staged


@pytest.mark.parametrize(
    ("change", "blocks", "why"),
    [
        ({}, 5, "shared memory"),
        ({"shared_bytes": 0, "registers": 128}, 4, "registers"),
        ({"shared_bytes": 0, "registers": 16, "threads": 1024}, 2, "threads"),
        ({"shared_bytes": 0, "registers": 16, "threads": 32}, 32, "blocks"),
        ({"shared_bytes": 250_000}, 0, "250000 bytes of shared memory, and a block has 232448"),
        ({"registers": 256}, 0, "256 registers a thread, and there are 255"),
        ({"registers": 100, "threads": 1024}, 0, "102400 registers, and a block has 65536"),
    ],
)
def test_occupancy(change: dict[str, int], blocks: int, why: str) -> None:
    assert occupancy(replace(SOME, **change), H200) == (blocks, why)  # type: ignore[arg-type]


def test_the_slowest_part_bounds_a_launch() -> None:
    assert estimate(SOME, HOPPER).bound == "tensor cores"
    assert estimate(replace(SOME, all_bytes=1e10), HOPPER).bound == "memory"
    assert estimate(replace(SOME, shared_traffic=1e9), HOPPER).bound == "shared memory"
    assert estimate(replace(SOME, global_traffic=1e9), HOPPER).bound == "L2 cache"
    assert estimate(replace(SOME, blocks=0), HOPPER).bound == "launch"
    assert estimate(replace(SOME, registers=256), HOPPER).seconds == float("inf")
    assert estimate(SOME, MODELS["sm_80"]).seconds > estimate(SOME, HOPPER).seconds


def test_more_blocks_than_processors_take_another_round() -> None:
    one, two = (estimate(replace(SOME, blocks=n), HOPPER).seconds for n in (132, 133))
    assert 1.8 < (two - 2e-6) / (one - 2e-6) < 2.1


def test_few_bytes_in_flight_slow_memory_down() -> None:
    waiting = replace(SOME, all_bytes=1e9, in_flight=1000.0)
    assert estimate(waiting, HOPPER).seconds > 5 * estimate(replace(SOME, all_bytes=1e9), HOPPER).seconds
