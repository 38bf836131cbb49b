"""Attention of 8-bit floats: results against float64, scales, masks, shared heads, proofs, wrong twins."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import attention_float8  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402
from tests.kernels.test_attention import exact  # noqa: E402

pytestmark = pytest.mark.slow

FILE, NAME = "attention_float8", "attention_eight_bits"
SMALL = {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4, "MULTIPLY": "float16"}

# batch, heads of q, heads of k, queries, keys, head size
SIZES = [(1, 1, 1, 1, 1, 64), (2, 4, 2, 63, 45, 64), (1, 2, 1, 30, 70, 128)]


def operands(sizes: tuple[int, ...], device: str) -> tuple[Any, ...]:
    batch, heads, shared, m, n, d = sizes
    q = random(batch, heads, m, d, device=device, seed=1)
    k, v = (random(batch, shared, n, d, device=device, seed=seed) for seed in (2, 3))
    return tuple(x.to(torch.float8_e4m3fn) for x in (q, k, v))


def scales(count: int, device: str, seed: int = 0) -> Any:
    return random(count, device=device, seed=seed).abs() / 4 + 0.5


def accept(found: Any, given: tuple[Any, ...], factors: tuple[Any, ...], causal: bool) -> None:
    """Weights are rounded to float16 on the host, and to 3 bits of mantissa by sm_90a."""
    q, k, v = (x.double() * s.double()[None, :, None, None] for x, s in zip(given, factors, strict=True))
    y, lse = exact(q, k, v, causal)
    eps = 2**-4 if found[0].device.type == "cuda" else 2**-8
    torch.testing.assert_close(found[0].double(), y, rtol=eps, atol=eps)
    torch.testing.assert_close(found[1].double(), lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_results(sizes: tuple[int, ...], causal: bool, device: str) -> None:
    """Scales of heads; causal with one scale for all, and values whose keys are contiguous already."""
    q, k, v = operands(sizes, device)
    counts = (1, 1, 1) if causal else sizes[1:2] + sizes[2:3] * 2
    given = tuple(scales(count, device, seed) for seed, count in enumerate(counts))
    values = v.mT.contiguous().mT if causal else v
    named = dict(zip(("query_scale", "key_scale", "value_scale"), given, strict=True))
    found = attention_float8(q, k, values, **named, causal=causal, return_lse=True)
    factors = tuple(s.expand(x.shape[1]) for s, x in zip(given, (q, k, v), strict=True))
    accept(found, (q, k, v), factors, causal)


def test_scales_of_zero(device: str) -> None:
    """All keys weigh the same if their scale is 0; values count as zeros if theirs is."""
    q, k, v = operands((1, 1, 1, 5, 9, 64), device)
    one, zero = torch.ones(1, device=device), torch.zeros(1, device=device)
    mean = attention_float8(q, k, v, query_scale=one, key_scale=zero, value_scale=one)
    torch.testing.assert_close(mean.float(), v.float().mean(2, keepdim=True).expand(mean.shape), rtol=0.02, atol=0.02)
    assert not attention_float8(q, k, v, query_scale=one, key_scale=one, value_scale=zero).any()


def test_nothing_to_attend_to(device: str) -> None:
    one = torch.ones(1, device=device)
    q, k, v = operands((1, 1, 1, 3, 0, 64), device)
    y, lse = attention_float8(q, k, v, query_scale=one, key_scale=one, value_scale=one, return_lse=True)
    assert not y.any() and bool((lse == -float("inf")).all())


def test_wrong_arguments_are_refused() -> None:
    q, k, v = operands((1, 3, 3, 2, 2, 64), "cpu")
    one = torch.ones(1)
    right: dict[str, Any] = {"query_scale": one, "key_scale": one, "value_scale": one}
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((q.float(), k, v), {}, "`q` is a tensor of float32"),
        ((q, k[:, :2], v[:, :2]), {}, "3 heads of 64 elements on 2 of keys"),
        ((q, k, v), {"key_scale": torch.ones(2)}, "`key_scale` has the shape"),
        ((q, k, v), {"value_scale": one.half()}, "`value_scale` is a tensor of float16"),
        ((q, k, v), {"out_dtype": torch.float32}, "the result cannot be float32"),
    ]
    for given, more, message in wrong:
        with pytest.raises(LaunchError, match=message):
            attention_float8(*given, **{**right, **more})


@pytest.mark.parametrize(
    ("target", "size", "causal", "constants"),
    [
        ("sm_90a", 64, True, {}),
        pytest.param("sm_90a", 128, False, {}, marks=pytest.mark.nightly),
        pytest.param("sm_90a", 128, True, {}, marks=pytest.mark.nightly),
        pytest.param("sm_80", 128, True, SMALL, marks=pytest.mark.nightly),
    ],
)
def test_proved(target: str, size: int, causal: bool, constants: dict[str, Any]) -> None:
    assert_proved(FILE, NAME, target, **{"num_warps": 8, "D": size, "CAUSAL": causal, "GROUP": 4, **constants})


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[:, None] * al.load(value_scale[kv])", "[:, None] * al.load(value_scale[0])"),
        ("        s = s * own\n", ""),
        ("total = total * shrink + al.sum(w, axis=1)", "total = total + al.sum(w, axis=1)"),
    ],
)
def test_wrong_twins_are_not_proved(old: str, new: str) -> None:
    """Another head's scale, scores without their factor, sums that are not rescaled."""
    whole = source_of(FILE)
    assert whole.text.count(old) == 1
    report = prove(SourceFile(whole.path, whole.text.replace(old, new)), NAME, Options("sm_90a", 8, {"D": 64}))
    assert report.verdict is not Verdict.PROVED
