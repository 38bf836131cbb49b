"""Decode attention over a paged cache: against float64, ragged lengths, shared heads, several queries, proofs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import attention_decode, attention_decode_latent  # noqa: E402
from argus.kernels.attention_decode import _span  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402


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
    results = torch.zeros((*q.shape[:3], values.shape[3]), dtype=torch.float64)
    levels = torch.full(q.shape[:3], -float("inf")).double()
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


def exact_cache(x: Any, scale: Any) -> Any:
    """A cache of 8 bits as numbers."""
    return x.double() * scale.double()[:, None]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "size", "page"), [("int8", 64, 16), ("float8_e4m3fn", 128, 32)])
def test_caches_of_8_bits(device: str, dtype: str, size: int, page: int) -> None:
    q, keys, values, table, lens = cache((4, 2, 2, size, page, 3), [33, 2, 0], "bfloat16", device)
    whole = [(x * 40).nan_to_num(99.0).to(getattr(torch, dtype)) for x in (keys, values)]
    scales = [random(2, device=device, seed=i).abs() / 40 for i in (5, 6)]
    given = (q, *whole, table, lens)
    found = attention_decode(*given, scale=0.2, key_scale=scales[0], value_scale=scales[1])
    wanted, _ = exact(q, *map(exact_cache, whole, scales), table, lens, 0.2)
    eps = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double().cpu(), wanted, rtol=2 * eps, atol=2 * eps)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_results_do_not_depend_on_the_batch(device: str, dtype: str) -> None:
    q, keys, values, table, lens = cache((4, 2, 1, 64, 16, 66), [1030, 7, 300], "bfloat16", device)
    one = torch.full((1,), 0.1, device=device)
    more: dict[str, Any] = {"batch_invariant": True}
    if dtype == "int8":
        keys, values = ((x * 20).nan_to_num(9.0).to(torch.int8) for x in (keys, values))
        more |= {"key_scale": one, "value_scale": one}
    together = attention_decode(q, keys, values, table, lens, **more)
    for b, most in ((0, 66), (1, 1), (2, 20)):
        own = slice(b, b + 1)
        alone = attention_decode(q[own], keys, values, table[own, :most], lens[own], **more)
        assert torch.equal(alone[0], together[b])


@pytest.mark.slow
def test_latent_results_do_not_depend_on_the_batch(device: str) -> None:
    q, keys, _, table, lens = cache((4, 1, 1, 576, 16, 66), [1030, 7], "bfloat16", device)
    more = {"scale": 0.07, "batch_invariant": True}
    together = attention_decode_latent(q, keys[:, :, 0], table, lens, **more)
    for b, most in ((0, 66), (1, 1)):
        own = slice(b, b + 1)
        alone = attention_decode_latent(q[own], keys[:, :, 0], table[own, :most], lens[own], **more)
        assert torch.equal(alone[0], together[b])


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "queries", "page"), [(4, 1, 16), (24, 2, 64), (65, 1, 48)])
def test_latent_heads(device: str, heads: int, queries: int, page: int) -> None:
    q, keys, _, table, lens = cache((heads, 1, queries, 576, page, 3), [2 * page + 1, 2, 0], "bfloat16", device)
    found, levels = attention_decode_latent(q, keys[:, :, 0], table, lens, scale=0.07, return_lse=True)
    wanted, exactly = exact(q, keys, keys[..., :512], table, lens, 0.07)
    eps = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double().cpu(), wanted, rtol=2 * eps, atol=eps)
    torch.testing.assert_close(levels.double().cpu(), exactly, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_lengths_beyond_the_table(device: str) -> None:
    """A length past the table counts as the whole table, a negative one as none; nothing past a length is read."""
    q, keys, values, table, lens = cache((4, 2, 1, 64, 16, 3), [48, 48, 0, 20], "bfloat16", device)
    beyond = torch.tensor([48 + 7, 2**31 - 1, -(2**31), 20], dtype=torch.int32, device=device)
    found = attention_decode(q, keys, values, table, beyond)
    assert torch.equal(found, attention_decode(q, keys, values, table, lens)) and not found[2].any()


@pytest.mark.slow
def test_scales_of_zero_and_infinity(device: str) -> None:
    """A scale of values that is 0 makes zeros, one of keys makes a mean; an infinite one spoils its head alone."""
    q, keys, values, table, lens = cache((4, 2, 1, 64, 16, 3), [33, 16], "bfloat16", device)
    keys, values = ((x * 40).nan_to_num(99.0).to(torch.int8) for x in (keys, values))
    one, zero, wide = (torch.full((2,), x, device=device) for x in (1.0, 0.0, 1.0))
    wide[1] = float("inf")
    call = {"key_scale": one, "value_scale": one}
    assert not attention_decode(q, keys, values, table, lens, **call | {"value_scale": zero}).any()
    mean, _ = exact(q * 0, keys, values, table, lens, 1.0)
    found = attention_decode(q, keys, values, table, lens, **call | {"key_scale": zero})
    torch.testing.assert_close(found.double().cpu(), mean, rtol=0.01, atol=0.01)
    found = attention_decode(q, keys, values, table, lens, **call | {"value_scale": wide})
    plain = attention_decode(q, keys, values, table, lens, **call)
    assert torch.equal(found[:, :2], plain[:, :2]) and not found[:, 2:].isfinite().any()


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


def test_wrong_latent_rows_are_refused() -> None:
    q, keys, _, table, lens = cache((2, 1, 1, 576, 16, 3), [33, 1], "float16", "cpu")
    for given, message in (
        ((q[..., :512], keys[:, :, 0]), "`q` has the shape"),
        ((q, keys), "`cache` has 4 dimensions"),
        ((q, keys[:, :8, 0]), "over pages of 8 rows"),
        ((q, keys[:, :, 0].bfloat16()), "`cache` is a tensor of bfloat16"),
    ):
        with pytest.raises(LaunchError, match=message):
            attention_decode_latent(*given, table, lens, scale=1.0)


def test_wrong_scales_are_refused() -> None:
    q, keys, values, table, lens = cache((2, 2, 1, 64, 16, 3), [33, 1], "float16", "cpu")
    one = {"key_scale": torch.ones(1), "value_scale": torch.ones(1)}
    with pytest.raises(LaunchError, match="2 scales for a cache of float16"):
        attention_decode(q, keys, values, table, lens, **one)
    keys, values = keys.to(torch.int8), values.to(torch.int8)
    with pytest.raises(LaunchError, match="0 scales for a cache of int8"):
        attention_decode(q, keys, values, table, lens)


@pytest.mark.parametrize("least", [2, 4, 16])
@pytest.mark.parametrize("heads", [1, 64, 512])
def test_parts_share_multiprocessors(heads: int, least: int) -> None:
    """Parts have pages enough; where there are enough of these, programs that run together leave few idle."""
    for pages in (1, 7, 256, 300, 5000):
        span = _span(pages, least, heads, 396)
        rounds = -(-heads * -(-pages // span) // 396)
        assert span >= least
        if pages * heads > 16 * 396 * least:
            assert heads * pages / (rounds * 396 * span) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "constants"),
    [
        ("sm_90a", {"PAGE": 16, "num_warps": 2}),
        ("sm_90a", {"PAGE": 128, "QUERIES": 4, "ROWS": 32}),
        ("sm_80", {"PAGE": 64, "D": 64, "QUERIES": 3}),
        ("sm_90a", {"PAGE": 64, "INVARIANT": True}),
    ],
)
def test_proved(target: str, constants: dict[str, Any]) -> None:
    assert_proved("attention_decode", "attention_decode_pages", target, **constants)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "constants"),
    [
        ("sm_90a", {"PAGE": 64, "QUERIES": 2}),
        ("sm_90a", {"PAGE": 64, "BLOCK": 32, "INVARIANT": True}),
        ("sm_80", {"PAGE": 16, "BLOCK": 16, "STORED": "int8", "D": 64, "num_warps": 2}),
    ],
)
def test_caches_of_8_bits_are_proved(target: str, constants: dict[str, Any]) -> None:
    assert_proved("attention_decode", "attention_decode_scaled", target, **constants)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "constants"),
    [
        ("sm_90a", {"PAGE": 64, "BLOCK": 64}),
        ("sm_90a", {"PAGE": 64, "BLOCK": 32, "INVARIANT": True}),
        ("sm_90a", {"PAGE": 64, "BLOCK": 32, "ROWS": 64, "num_warps": 8}),
        ("sm_80", {"PAGE": 48, "BLOCK": 16, "QUERIES": 2, "ROWS": 32, "num_warps": 4}),
    ],
)
def test_latent_heads_are_proved(target: str, constants: dict[str, Any]) -> None:
    assert_proved("attention_latent", "attention_decode_rows", target, **constants)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "right", "wrong"),
    [
        ("scaled", "s = s * al.load(key_scales[head])", "s = s * al.load(key_scales[0])"),
        ("scaled", "y = y * al.load(value_scales[head])", "y = y * al.load(key_scales[head])"),
        ("scaled", "v8 = al.stage(values[page, at : at + BLOCK, head, :], mask=before(p * BLOCK, BLOCK, length))",
         "v8 = al.stage(values[page, at : at + BLOCK, head, :], mask=before(p * BLOCK, BLOCK, length - 1))"),
        ("pages", "hidden[:, None] < length", "hidden[:, None] <= length"),
    ],
)  # fmt: skip
def test_wrong_keys_are_not_proved(kernel: str, right: str, wrong: str) -> None:
    """Twins of the kernels that the tests above accept."""
    text = source_of("attention_decode").text
    assert text.count(right) == 1
    source = SourceFile("wrong.py", text.replace(right, wrong))
    report = prove(source, f"attention_decode_{kernel}", Options("sm_80", 4, {"PAGE": 64, "D": 64}))
    assert report.verdict is not Verdict.PROVED
