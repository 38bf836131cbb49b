"""Decode attention over a paged cache: against float64, ragged lengths, shared heads, several queries, proofs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels import attention_decode  # noqa: E402
from argus.kernels.attention_decode import _parts  # noqa: E402
from tests.kernels.common import assert_proved, random  # noqa: E402


def cache(sizes: tuple[int, ...], lens: list[int], dtype: str, device: str) -> tuple[Any, ...]:
    """Queries, keys, values, a table whose pages come in no order, and lengths; what no sequence has is NaN."""
    heads, shared, queries, size, page, most = sizes
    pages = len(lens) * most + 1
    q = random(len(lens), heads, queries, size, dtype=dtype, device=device, seed=1)
    keys, values = (random(pages, page, shared, size, dtype=dtype, device=device, seed=seed) for seed in (2, 3))
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(4))[: len(lens) * most]
    table = order.view(len(lens), most).to(device, torch.int32)
    for b, length in enumerate(lens):
        last = -(-length // page)
        keys[table[b, last:].long()] = values[table[b, last:].long()] = float("nan")
        if length % page:
            keys[table[b, last - 1].long(), length % page :] = float("nan")
            values[table[b, last - 1].long(), length % page :] = float("nan")
    return q, keys, values, table, torch.tensor(lens, dtype=torch.int32, device=device)


def exact(q: Any, keys: Any, values: Any, table: Any, lens: Any, scale: float) -> tuple[Any, Any]:
    results, levels = torch.zeros(q.shape, dtype=torch.float64), torch.full(q.shape[:3], -float("inf")).double()
    group, queries = q.shape[1] // keys.shape[2], q.shape[2]
    for b, length in enumerate(lens.tolist()):
        k, v = (x[table[b].long()].flatten(0, 1)[:length].double().repeat_interleave(group, 1) for x in (keys, values))
        scores = torch.einsum("hmd,nhd->hmn", q[b].double(), k) * scale
        seen = torch.ones(queries, length, dtype=torch.bool).tril(length - queries).to(q.device)
        scores = scores.masked_fill(~seen, -float("inf"))
        results[b] = torch.einsum("hmn,nhd->hmd", scores.softmax(-1).nan_to_num(0.0), v)
        levels[b] = scores.logsumexp(-1)
    return results, levels


@pytest.mark.product
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "lens"),
    [
        ((2, 2, 1, 64, 16, 3), [33, 1, 0]),
        ((8, 2, 3, 64, 32, 20), [600, 2, 64]),
        ((4, 1, 8, 128, 64, 9), [513, 5]),
    ],
)
def test_results(device: str, sizes: tuple[int, ...], lens: list[int]) -> None:
    given = cache(sizes, lens, "bfloat16", device)
    found, levels = attention_decode(*given, scale=0.2, return_lse=True)
    wanted, exactly = exact(*given, 0.2)
    eps = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double().cpu(), wanted, rtol=2 * eps, atol=eps)
    torch.testing.assert_close(levels.double().cpu(), exactly, rtol=1e-5, atol=1e-5)


def test_nothing_to_attend_to(device: str) -> None:
    q, keys, values, table, lens = cache((2, 2, 1, 64, 16, 0), [0, 0], "float16", device)
    assert not attention_decode(q, keys, values, table, lens).any()


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, lambda x: x[..., :32], "`keys` has the shape"),
        (0, lambda x: x.expand(-1, -1, 9, -1), "9 queries"),
        (1, lambda x: x[:, :, :0], "`values` has the shape"),
        (3, lambda x: x.long(), "`table` is a tensor of int64"),
        (4, lambda x: x[:1], "`lens` has the shape"),
    ],
)
def test_wrong_arguments_are_refused(place: int, change: Any, message: str) -> None:
    given = list(cache((2, 2, 1, 64, 16, 3), [33, 1], "float16", "cpu"))
    given[place] = change(given[place])
    with pytest.raises(LaunchError, match=message):
        attention_decode(*given)


def test_parts_are_all_keys() -> None:
    for heads in (1, 8, 1024):
        for page in (16, 48, 128):
            for pages in (1, 7, 300, 5000):
                span, parts = _parts(heads, pages, page, 4 if page % 32 == 0 else 2)
                assert span * parts >= pages and (parts == 1 or span * page >= 256)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "constants"),
    [
        ("sm_90a", {"PAGE": 16, "num_warps": 2}),
        ("sm_90a", {"PAGE": 128, "QUERIES": 4, "ROWS": 32}),
        ("sm_80", {"PAGE": 64, "D": 64, "QUERIES": 3}),
    ],
)
def test_proved(target: str, constants: dict[str, Any]) -> None:
    assert_proved("attention_decode", "attention_decode_pages", target, **constants)
