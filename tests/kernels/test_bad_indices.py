"""Index tensors that break what kernels declare of them: no access leaves its tensor, and the rest is right.

No declared fact is checked here, as in every call that does not ask for it.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import Severity  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import attention_decode, attention_varlen, cache_append, mixture  # noqa: E402
from argus.kernels.attention_varlen_backward import attention_varlen_backward  # noqa: E402
from argus.kernels.cache_slots import next_slots  # noqa: E402
from argus.kernels.grouped import grouped_product  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import random, source_of  # noqa: E402

pytestmark = pytest.mark.slow

FAR = 2**31 - 1
PAGES, PAGE = 3, 16


def cache(device: str) -> tuple[Any, Any]:
    return tuple(random(PAGES, PAGE, 1, 64, dtype="float16", device=device, seed=seed) for seed in (1, 2))


def numbers(*rows: Any, device: str) -> Any:
    return torch.tensor(rows, dtype=torch.int32, device=device)


def test_pages_that_there_are_not_count_as_the_nearest(device: str) -> None:
    """Far ones, negative ones, and ones that several sequences use."""
    q = random(3, 2, 1, 64, dtype="float16", device=device)
    lens = numbers(32, 20, 32, device=device)
    wrong = numbers([0, FAR], [-FAR, 1], [1, 3], device=device)
    right = numbers([0, 2], [0, 1], [1, 2], device=device)
    found, exact = (attention_decode(q, *cache(device), table, lens) for table in (wrong, right))
    assert torch.equal(found, exact)


def test_lengths_beyond_the_table_and_below_zero(device: str) -> None:
    q = random(3, 2, 1, 64, dtype="float16", device=device)
    table = numbers([0, 1], [2, 1], [1, 0], device=device)
    found = attention_decode(q, *cache(device), table, numbers(FAR, -FAR - 1, 32, device=device))
    right = attention_decode(q, *cache(device), table, numbers(32, 0, 32, device=device))
    assert torch.equal(found, right) and not found[1].any()


def test_tokens_without_a_place_are_not_written(device: str) -> None:
    keys, values = cache(device)
    before = keys.clone(), values.clone()
    k, v = (random(4, 1, 64, dtype="float16", device=device, seed=seed) for seed in (5, 6))
    cache_append(k, v, keys, values, numbers(-1, PAGES * PAGE, 7, FAR, device=device))
    for made, old, new in ((keys, before[0], k), (values, before[1], v)):
        assert torch.equal(made[0, 7], new[2])
        made[0, 7] = old[0, 7]
        assert torch.equal(made, old)


def test_slots_of_lengths_that_there_are_not(device: str) -> None:
    table = numbers([4, 9], [5, 8], device=device)
    slots = torch.full((2, 2), -7, dtype=torch.int32, device=device)
    next_slots(numbers(-9, FAR, device=device), table, slots, PAGE=PAGE)
    assert slots.tolist() == [[4 * PAGE, 4 * PAGE + 1], [8 * PAGE + PAGE - 1] * 2]


@pytest.mark.parametrize("offsets", [(0, 2, FAR - 2**20), (0, 2, 9), (-4, 2, 5)])
def test_offsets_beyond_the_rows_count_as_all_of_them(offsets: tuple[int, ...], device: str) -> None:
    x, w = random(5, 64, dtype="float16", device=device), random(2, 64, 64, dtype="float16", device=device, seed=1)
    found = grouped_product(x, w, numbers(*offsets, device=device))
    assert torch.equal(found, grouped_product(x, w, numbers(0, 2, 5, device=device)))


def test_offsets_that_decrease(device: str) -> None:
    """What belongs to no expert or to two is anything, and nothing else is touched."""
    x, w = random(5, 64, dtype="float16", device=device), random(3, 64, 64, dtype="float16", device=device, seed=1)
    assert grouped_product(x, w, numbers(0, 4, 1, 5, device=device)).shape == (5, 64)


def test_experts_that_there_are_not_count_as_the_nearest(device: str) -> None:
    x = random(3, 32, dtype="float16", device=device)
    w1, w2 = (random(2, *shape, dtype="float16", device=device, seed=1) for shape in ((64, 32), (32, 32)))
    weights = torch.ones(3, 1, device=device)
    found, right = (mixture(x, weights, numbers(*e, device=device), w1, w2) for e in (
        ([FAR], [-5], [0]), ([1], [0], [0])))  # fmt: skip
    assert torch.equal(found, right)


@pytest.mark.nightly  # offsets of experts that decrease are the same rule
def test_sequences_whose_offsets_decrease(device: str) -> None:
    """Results are anything, without an access outside, forward and backward."""
    q, k, v = (random(6, 1, 64, dtype="float16", device=device, seed=seed) for seed in range(3))
    wrong = numbers(0, 5, -FAR, 6, device=device)
    y, lse = attention_varlen(q, k, v, wrong, wrong.flip(0), causal=True, return_lse=True)
    made = attention_varlen_backward(y, q, k, v, wrong, wrong.flip(0), y, lse, causal=True)
    assert [x.shape for x in made] == [q.shape] * 3


def test_scales_of_zero_and_infinity(device: str) -> None:
    """A scale of 0 stores zeros, and reads zeros; one of infinity stores zeros, and reads no numbers."""
    keys, values = (torch.ones(PAGES, PAGE, 2, 64, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    k, v = (random(1, 2, 64, dtype="float16", device=device, seed=seed) for seed in (5, 6))
    scale = torch.tensor([0.0, float("inf")], device=device)
    cache_append(k, v, keys, values, numbers(3, device=device), key_scale=scale, value_scale=scale)
    assert not keys[0, 3].float().any() and not values[0, 3].float().any()
    q, table = random(1, 2, 1, 64, dtype="float16", device=device), numbers([0], device=device)
    way = {"key_scale": scale, "value_scale": scale}
    found = attention_decode(q, keys, values, table, numbers(4, device=device), **way)
    assert not found[0, 0].any() and bool(found[0, 1].isnan().all())


@pytest.mark.parametrize(
    ("file", "kernel", "facts"),
    [
        pytest.param(
            "attention_decode", "attention_decode_pages", ("al.in_range(table, 0, PAGES)",), marks=pytest.mark.nightly
        ),
        ("cache_append", "append_tokens", ("al.in_range(slot, 0, C)",)),
        ("cache_slots", "next_slots", ("al.in_range(lens, 0, 2**30)",)),
    ],
)
def test_every_access_is_inside_whatever_the_indices_are(file: str, kernel: str, facts: tuple[str, ...]) -> None:
    """Proved without the declared ranges: nothing but values and coverage is open."""
    source = source_of(file)
    text = source.text.replace("    al.requires(scale > 0.0)\n", "    al.requires((scale > 0.0) & (PAGES > 0))\n")
    for fact in facts:
        assert text.count(f"    al.requires({fact})\n") == 1
        text = text.replace(f"    al.requires({fact})\n", "")
    report = prove(SourceFile(source.path, text), kernel, Options("sm_90a"))
    open = {(d.property, d.code) for d in report.diagnostics if d.severity is Severity.ERROR}
    assert not [found for found in open if found[0] in ("bounds", "initialisation", "convergence", "machine")], open
