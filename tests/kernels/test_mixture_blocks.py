"""Mixtures of experts in float8: results against float64, uneven experts, wrong arguments, proofs, wrong twins."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import expert_blocks, experts, mixture_blocks, moe, router  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402

E, H, INNER = 4, 150, 72


def layer(tokens: int, device: str, dtype: str = "bfloat16") -> tuple[torch.Tensor, ...]:
    """Tokens, logits, weights in float8, and the scales of their blocks."""
    x = random(tokens, H, dtype=dtype, device=device)
    logits = random(tokens, E, dtype=dtype, device=device, seed=1)
    w1, w2 = (random(*s, device=device, seed=2).to(torch.float8_e4m3fn) for s in ((E, 2 * INNER, H), (E, H, INNER)))
    scales = (random(E, 2, n, device=device, seed=3).abs() / 10 for n in (2, 1))
    return x, logits, w1, w2, *scales


def wide(w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Weights in float64."""
    scale = scale.double().view(-1, 1, 1).expand(-1, 2, 2) if scale.ndim == 1 else scale.double()
    every = scale.repeat_interleave(128, 1).repeat_interleave(128, 2)
    return w.double() * every[:, : w.shape[1], : w.shape[2]]


def quantised(x: torch.Tensor) -> torch.Tensor:
    """Rows in float64 as float8 holds them, with a scale for each 128 elements."""
    parts = torch.nn.functional.pad(x.double(), (0, -x.shape[-1] % 128)).unflatten(-1, (-1, 128))
    scale = parts.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448
    return ((parts / scale).to(torch.float8_e4m3fn).double() * scale).flatten(-2)[..., : x.shape[-1]]


def by_definition(
    x: torch.Tensor, logits: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, s1: torch.Tensor, s2: torch.Tensor,
    topk: int,
) -> torch.Tensor:  # fmt: skip
    """In float64 but for what is rounded on purpose: tokens, the first product and activations."""
    weights, chosen = logits.double().softmax(-1).topk(topk)
    weights = weights / weights.sum(-1, keepdim=True)
    both = torch.einsum("tkih,th->tki", wide(w1, s1)[chosen], quantised(x))
    gate, up = both.to(x.dtype).double().chunk(2, -1)
    hidden = quantised(torch.nn.functional.silu(gate) * up)
    return torch.einsum("tk,tkhi,tki->th", weights, wide(w2, s2)[chosen], hidden)


def assert_near(got: torch.Tensor, exact: torch.Tensor) -> None:
    """As near as results that round to 16 bits twice on the way."""
    assert got.shape == exact.shape and bool(got.isfinite().all())
    assert float((got.double() - exact).norm()) <= 2 * torch.finfo(torch.bfloat16).eps * float(exact.norm())


@pytest.mark.parametrize("tokens", [1, 9, 70])
def test_layer(device: str, tokens: int) -> None:
    x, logits, w1, w2, s1, s2 = given = layer(tokens, device)
    assert_near(moe(x, logits, w1, w2, topk=2, scale1=s1, scale2=s2), by_definition(*given, topk=2))


def test_scales_of_experts(device: str) -> None:
    x, logits, w1, w2, s1, s2 = layer(9, device, "float16")
    s1, s2 = s1[:, 0, 0].clone(), s2[:, 0, 0].clone()
    weights, chosen = router(logits, 1)
    found = mixture_blocks(x, weights, chosen, w1, w2, s1, s2, shared=x)
    assert_near(found - x, by_definition(x, logits, w1, w2, s1, s2, 1))


def test_one_expert_takes_all_tokens(device: str) -> None:
    x, logits, w1, w2, s1, s2 = given = layer(70, device)
    logits[:, 2] = 20
    assert_near(moe(x, logits, w1, w2, topk=1, scale1=s1, scale2=s2), by_definition(*given, topk=1))


def test_bad_scales_stay_where_they_are(device: str) -> None:
    """A scale of 0 makes zeros, an infinite one spoils the tokens of its expert and no others."""
    x, logits, w1, w2, s1, s2 = layer(12, device)
    weights, chosen = router(logits, 1)
    s1[1], s2[3] = float("inf"), 0.0
    found = mixture_blocks(x, weights, chosen, w1, w2, s1, s2)
    of = chosen[:, 0].long()
    assert bool(found[of != 1].isfinite().all()) and not found[of == 3].any()
    assert bool((of == 1).any()) and not bool(found[of == 1].isfinite().any())


def test_quantised_on_their_way(device: str) -> None:
    """Rows and activations, beside the definition of scales."""
    x, token = (
        random(5, 300, dtype="bfloat16", device=device),
        torch.tensor([4, 0, 0], dtype=torch.int32, device=device),
    )
    values = torch.empty(3, 300, dtype=torch.float8_e4m3fn, device=device)
    scale = torch.empty(3, 3, device=device)
    expert_blocks.gathered_blocks(x, token, values, scale)
    rows = x[token.long()].double()
    largest = torch.nn.functional.pad(rows, (0, 84)).unflatten(-1, (3, 128)).abs().amax(-1)
    torch.testing.assert_close(scale.t().double(), largest / 448, rtol=3e-7, atol=0)
    spread = scale.t().double().repeat_interleave(128, 1)[:, :300]
    torch.testing.assert_close(values.double() * spread, rows, rtol=2**-4, atol=2e-5)


def test_wrong_arguments_are_refused() -> None:
    x, logits, w1, w2, s1, s2 = layer(5, "cpu")
    weights, chosen = router(logits, 2)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((x[:4], weights, chosen, w1, w2, s1, s2), "`x` has the shape"),
        ((x, weights, chosen, w1, w2[:, :9], s1, s2), "`w2` has the shape"),
        ((x, weights, chosen, w1, w2, s1[:, :1], s2), "`scale1` has the shape"),
        ((x, weights, chosen, w1, w2, s1, s2[:3, 0, 0]), "`scale2` has the shape"),
        ((x, weights, chosen, w1.bfloat16(), w2, s1, s2), "`w1` is a tensor of bfloat16"),
        ((x, weights, chosen.long(), w1, w2, s1, s2), "`chosen` is a tensor of int64"),
    ]
    for given, message in wrong:
        with pytest.raises(LaunchError, match=message):
            mixture_blocks(*given)
    with pytest.raises(LaunchError, match="`activation`"):
        mixture_blocks(x, weights, chosen, w1, w2, s1, s2, activation="relu")


SMALL: dict[str, Any] = {"PRODUCERS": 0, "ROWS": 64, "COLUMNS": 64, "STAGES": 2, "MULTIPLY": "float16"}


@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942"])
def test_proved(target: str) -> None:
    assert_proved("expert_blocks", "gathered_blocks", target)
    for name in ("swiglu", "geglu", "clamped_swiglu"):
        assert_proved("expert_blocks", "activated_blocks", target, ACTIVATION=getattr(experts, name))
    if target == "sm_90a":
        assert_proved("expert_blocks", "expert_blocks", target, num_warps=8)
        assert_proved("expert_blocks", "expert_blocks", target, ROWS=64)
    else:
        assert_proved("expert_blocks", "expert_blocks", target, **SMALL)


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("expert_blocks", "al.load(scale_w[e, n0 // SIDE, g])", "al.load(scale_w[e, n0 // SIDE, h])"),
        ("expert_blocks", "acc += more * of_more", "acc += more * of_rows"),
        ("gathered_blocks", "x[al.load(token[p]), n], mask", "x[0, n], mask"),
        ("activated_blocks", "ACTIVATION(gate, up)", "ACTIVATION(up, gate)"),
    ],
)
def test_wrong_twins_are_not_proved(kernel: str, old: str, new: str) -> None:
    """Scales of the block after, of the block before, of the first token, gates for what they multiply."""
    whole = source_of("expert_blocks")
    before, text = whole.text.split(f"def {kernel}(")
    assert text.count(old) == 1
    text = f"{before}def {kernel}(" + text.replace(old, new)
    report = prove(SourceFile(whole.path, text), kernel, Options("sm_90a", 8))
    assert report.verdict is not Verdict.PROVED
