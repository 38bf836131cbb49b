"""Mixtures of experts: the layer and its parts against float64, uneven experts, proofs and wrong twins."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import experts, moe  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402

E, H, INNER = 6, 24, 40


def layer(tokens: int, device: str, dtype: str = "bfloat16") -> tuple[torch.Tensor, ...]:
    x = random(tokens, H, dtype=dtype, device=device)
    logits = random(tokens, E, dtype=dtype, device=device, seed=1)
    w1 = (random(E, 2 * INNER, H, seed=2) / H**0.5).to(x)
    w2 = (random(E, H, INNER, seed=3) / INNER**0.5).to(x)
    return x, logits, w1, w2


def by_definition(
    x: torch.Tensor, logits: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, *, topk: int, sigmoid: bool = False,
    renormalize: bool = True, scale: float = 1.0, activation: str = "swiglu", shared: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """In float64; what an expert gives its tokens is rounded nowhere."""
    x, logits, w1, w2 = (t.double() for t in (x, logits, w1, w2))
    chosen = torch.sort(logits, dim=-1, descending=True, stable=True)[1][:, :topk]
    weights = (logits.sigmoid() if sigmoid else logits.softmax(-1)).gather(-1, chosen)
    weights = scale * (weights / weights.sum(-1, keepdim=True) if renormalize else weights)
    both = torch.einsum("tkih,th->tki", w1[chosen], x)
    gate, up = both.chunk(2, -1)
    if activation == "swiglu":
        hidden = torch.nn.functional.silu(gate) * up
    elif activation == "geglu":
        hidden = torch.nn.functional.gelu(gate) * up
    else:
        gate, up = gate.clamp(max=7), up.clamp(-7, 7)
        hidden = gate * torch.sigmoid(1.702 * gate) * (up + 1)
    result = torch.einsum("tk,tkhi,tki->th", weights, w2[chosen], hidden)
    return result if shared is None else result + shared.double()


def assert_near(got: torch.Tensor, exact: torch.Tensor) -> None:
    """As near as results that round to 16 bits twice on the way."""
    assert got.shape == exact.shape and bool(got.isfinite().all())
    assert float((got.double() - exact).norm()) <= 2 * torch.finfo(got.dtype).eps * float(exact.norm())


@pytest.mark.parametrize("tokens", [1, 5, 70])
def test_layer(device: str, tokens: int) -> None:
    given = layer(tokens, device)
    assert_near(moe(*given, topk=2), by_definition(*given, topk=2))


@pytest.mark.parametrize("activation", ["swiglu", "geglu", "clamped_swiglu"])
def test_activations(device: str, activation: str) -> None:
    x, logits, w1, w2 = layer(9, device, "float16")
    given = (x, logits, 8 * w1, w2)  # beyond what is clamped
    assert_near(moe(*given, topk=3, activation=activation), by_definition(*given, topk=3, activation=activation))


def test_weights_and_shared_experts(device: str) -> None:
    given = layer(9, device)
    way: dict[str, Any] = {"topk": 2, "sigmoid": True, "renormalize": False, "scale": 2.5}
    way["shared"] = random(9, H, dtype="bfloat16", device=device, seed=4)
    assert_near(moe(*given, **way), by_definition(*given, **way))


def test_one_expert_takes_all_tokens(device: str) -> None:
    """And the others none."""
    x, logits, w1, w2 = layer(70, device)
    logits[:, 4] = 20
    assert_near(moe(x, logits, w1, w2, topk=1), by_definition(x, logits, w1, w2, topk=1))


def test_no_tokens(device: str) -> None:
    assert moe(*layer(0, device), topk=2).shape == (0, H)


def test_rows_are_gathered(device: str) -> None:
    x = random(9, 70, dtype="bfloat16", device=device)
    token = torch.tensor([8, 0, 3, 3, 7], dtype=torch.int32, device=device)
    rows = x.new_empty(5, 70)
    experts.gather_rows(x, token, rows, BLOCK=64)
    assert torch.equal(rows, x[token.long()])


def test_order_of_pairs(device: str) -> None:
    """Places are those of a stable sort, over several blocks of pairs; numbers beyond the experts count as the last."""
    chosen = torch.randint(-1, 9, (700, 2), generator=torch.Generator().manual_seed(0)).int().to(device)
    order = moe_order(chosen, 7)
    flat = chosen.view(-1).clamp(0, 6)
    wanted = torch.sort(flat, stable=True)[1]
    assert torch.equal(order.place.view(-1)[wanted].cpu(), torch.arange(1400, dtype=torch.int32))
    assert torch.equal(order.token, (wanted // 2).int())
    assert order.offsets.tolist() == [0, *torch.bincount(flat, minlength=7).cumsum(0).tolist()]
    call, first, owner = order.cut(16)
    call.run()
    for begin, end, expert in zip(first.tolist(), [*first.tolist()[1:], 1400], owner.tolist(), strict=True):
        assert end - begin <= 16 and set(flat[wanted[begin:end]].tolist()) <= {expert}
    assert first[0] == 0 and first[-1] == 1400


def moe_order(chosen: torch.Tensor, count: int) -> Any:
    from argus.kernels.moe import Sorted

    order = Sorted(chosen, count)
    for call in order.calls:
        call.run()
    return order


def test_wrong_arguments_are_refused() -> None:
    x, logits, w1, w2 = layer(5, "cpu")
    for wrong, message in (
        ((x[:4], logits, w1, w2), "`x` has the shape"),
        ((x, logits[:, :5], w1, w2), "`router_logits` has the shape"),
        ((x, logits, w1[:, :79], w2), "`w"),
        ((x, logits, w1, w2.half()), "`w2` is a tensor of float16"),
    ):
        with pytest.raises(LaunchError, match=message):
            moe(*wrong, topk=2)
    with pytest.raises(LaunchError, match="`activation`"):
        moe(x, logits, w1, w2, topk=2, activation="relu")
    with pytest.raises(LaunchError, match="the 7 greatest"):
        moe(x, logits, w1, w2, topk=7)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_dispatch_is_proved(target: str) -> None:
    for kernel, warps in (("count_pairs", 8), ("add_counts", 8), ("place_pairs", 8), ("tokens_of_places", 4)):
        assert_proved("dispatch", kernel, target, num_warps=warps, alignment=4)
    assert_proved("dispatch", "cut_into_tiles", target, num_warps=8, alignment=4)


GATED = {"ACTIVATION": experts.swiglu, "PRODUCERS": 8}
PRODUCTS = {
    "gated rows": {"token": None, "ACTIVATION": experts.swiglu},
    "gathered and gated": GATED,
    "rows": {"token": None, "COLUMNS": 256},
    "few gathered rows": {**GATED, "ROWS": 16, "STAGES": 5, "SWAPPED": True},
    "few rows": {"token": None, "ROWS": 16, "STAGES": 5, "SWAPPED": True},
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_proved(name: str) -> None:
    assert_proved("experts", "expert_rows", "sm_90a", num_warps=8, **PRODUCTS[name])


def test_gathered_rows_are_proved() -> None:
    assert_proved("experts", "gather_rows", "sm_90a")


def test_combine_is_proved() -> None:
    for more in ({}, {"more": None}):
        assert_proved("experts", "combine_rows", "sm_90a", **more)


@pytest.mark.parametrize(
    ("file", "kernel", "old", "new"),
    [
        ("dispatch", "place_pairs", "q[None, :] < p[:, None]", "q[None, :] <= p[:, None]"),
        ("dispatch", "add_counts", "al.where(c < b, n, 0)", "al.where(c <= b, n, 0)"),
        ("dispatch", "tokens_of_places", "al.store(token[to], p // k", "al.store(token[to], p"),
        ("experts", "combine_rows", "al.load(weights[t, j]) * row", "al.load(weights[t, 0]) * row"),
    ],
)
def test_wrong_twins_are_refuted(file: str, kernel: str, old: str, new: str) -> None:
    """A pair that counts itself, a block that counts itself, pairs for tokens, one weight for all."""
    whole = source_of(file)
    assert whole.text.count(old) == 1
    report = prove(SourceFile(whole.path, whole.text.replace(old, new)), kernel, Options("sm_90a", 4))
    assert report.verdict is Verdict.REFUTED
