"""Mixtures of experts: the layer and its parts against float64, uneven experts, proofs and wrong twins."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import experts, mixture, moe  # noqa: E402
from argus.kernels import experts_backward as backward  # noqa: E402
from argus.kernels.sorting import order_of  # noqa: E402
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


def assert_near(got: torch.Tensor, exact: torch.Tensor, times: int = 2) -> None:
    """As near as results that round to 16 bits so many times on the way."""
    assert got.shape == exact.shape and bool(got.isfinite().all())
    assert float((got.double() - exact).norm()) <= times * torch.finfo(got.dtype).eps * float(exact.norm())


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
    experts.gather_rows(x, token, None, rows, BLOCK=64)
    assert torch.equal(rows, x[token.long()])


def gradients(function: Any, given: tuple[torch.Tensor, ...], way: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Of all tensors, for a gradient of the result that is the same for the same shapes."""
    leaves = tuple(t.detach().requires_grad_() for t in given)
    shared = way["shared"].detach().requires_grad_() if "shared" in way else None
    out = function(*leaves, **{**way, "shared": shared})
    pull = random(*out.shape, seed=9).to(out)
    wanted = leaves if shared is None else (*leaves, shared)
    return torch.autograd.grad(out, wanted, pull)


@pytest.mark.parametrize("activation", ["swiglu", "geglu", "clamped_swiglu"])
def test_gradients(device: str, activation: str) -> None:
    """Of tokens, logits, and both weights; experts without tokens get zeros."""
    x, logits, w1, w2 = layer(9, device)
    logits[:, 3] = -20
    way: dict[str, Any] = {"topk": 2, "activation": activation, "scale": 1.5}
    if activation == "swiglu":
        way["shared"] = random(9, H, dtype="bfloat16", device=device, seed=4)
    given = (x, logits, 6 * w1, w2)
    found = gradients(moe, given, way)
    wide = tuple(t.double() for t in given)
    exact = gradients(by_definition, wide, way)
    for got, right in zip(found, exact, strict=True):
        assert_near(got, right.double(), 4)
    assert not found[2][3].any() and not found[3][3].any()


def test_gradients_of_uneven_experts(device: str) -> None:
    """All tokens on one expert, several tiles of them; one token."""
    for tokens, k in ((70, 1), (1, 2)):
        x, logits, w1, w2 = layer(tokens, device)
        logits[:, 4] = 20
        found = gradients(moe, (x, logits, w1, w2), {"topk": k, "renormalize": False})
        exact = gradients(
            by_definition, tuple(t.double() for t in (x, logits, w1, w2)), {"topk": k, "renormalize": False}
        )
        for got, right in zip((found[0], *found[2:]), (exact[0], *exact[2:]), strict=True):
            assert_near(got, right.double(), 4)


def test_rows_past_the_end_do_not_leak(device: str) -> None:
    """The gradient of an expert's weights reads no rows of the next one, which are NaN."""
    g, x = (random(40, n, dtype="bfloat16", device=device, seed=n) for n in (20, 24))
    g[23:], x[23:] = float("nan"), float("nan")
    offsets = torch.tensor([0, 0, 23, 40], dtype=torch.int32, device=device)
    out = g.new_empty(3, 20, 24)
    way: dict[str, Any] = {"ROWS": 32, "COLUMNS": 32, "DEPTH": 32, "STAGES": 1, "PRODUCERS": 0, "num_warps": 4}
    backward.weight_gradients(g, x, offsets, out, **way)
    assert not out[0].any() and bool(out[2].isnan().all())
    assert_near(out[1], g[:23].double().T @ x[:23].double())


def test_routing_of_ones_own(device: str) -> None:
    """Experts that are chosen twice, and numbers that do not exist: the nearest expert."""
    x, _, w1, w2 = layer(5, device)
    chosen = torch.tensor([[1, 1], [-3, 2], [9, 0], [5, 4], [0, 3]], dtype=torch.int32, device=device)
    weights = random(5, 2, device=device, seed=5)
    found = mixture(x, weights, chosen, w1, w2)
    places = chosen.long().clamp(0, E - 1)
    wide = [t.double() for t in (x, w1, w2)]
    gate, up = torch.einsum("tkih,th->tki", wide[1][places], wide[0]).chunk(2, -1)
    hidden = torch.nn.functional.silu(gate) * up
    assert_near(found, torch.einsum("tk,tkhi,tki->th", weights.double(), wide[2][places], hidden))


def test_order_of_pairs(device: str) -> None:
    """Places are those of a stable sort, over several blocks of pairs; numbers beyond the experts count as the last."""
    chosen = torch.randint(-1, 9, (700, 2), generator=torch.Generator().manual_seed(0)).int().to(device)
    order = order_of(chosen, 7)
    for call in order.calls:
        call.run()
    flat = chosen.view(-1).clamp(0, 6)
    wanted = torch.sort(flat, stable=True)[1]
    assert torch.equal(order.place.view(-1)[wanted].cpu(), torch.arange(1400, dtype=torch.int32))
    assert torch.equal(order.token, (wanted // 2).int())
    assert order.offsets.tolist() == [0, *torch.bincount(flat, minlength=7).cumsum(0).tolist()]
    tiles = order.cut(16)
    tiles.call.run()
    first = tiles.first.tolist()
    for begin, end, expert in zip(first, [*first[1:], 1400], tiles.owner.tolist(), strict=True):
        assert end - begin <= 16 and set(flat[wanted[begin:end]].tolist()) <= {expert}
    assert first[0] == 0 and first[-1] == 1400


def test_wrong_arguments_are_refused() -> None:
    x, logits, w1, w2 = layer(5, "cpu")
    for wrong, message in (
        ((x[:4], logits, w1, w2), "`x` has the shape"),
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
IN_TURNS = {"token": None, "SCHEDULE": "pingpong", "num_warps": 4}
PRODUCTS: dict[str, dict[str, Any]] = {
    "gated rows": {"token": None, "ACTIVATION": experts.swiglu},
    "gathered and gated": GATED,
    "rows": {"token": None, "COLUMNS": 256, "SCHEDULE": "rows"},
    "rows in turns": {**IN_TURNS, "COLUMNS": 192},
    "gated rows in turns": {**IN_TURNS, "ACTIVATION": experts.swiglu, "COLUMNS": 96},
    "few gathered rows": {**GATED, "ROWS": 16, "STAGES": 5, "SWAPPED": True},
    "few rows": {"token": None, "ROWS": 16, "STAGES": 5, "SWAPPED": True},
    "turned": {"token": None, "COLUMNS": 256, "WEIGHTS": "E K N"},
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_proved(name: str) -> None:
    assert_proved("experts", "expert_rows", "sm_90a", **{"num_warps": 8, **PRODUCTS[name]})


def test_gathered_rows_are_proved() -> None:
    assert_proved("experts", "gather_rows", "sm_90a")
    assert_proved("experts", "gather_rows", "sm_90a", factor=None)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["swiglu", "geglu", "clamped_swiglu"])
def test_activations_are_proved(name: str, target: str) -> None:
    activation: dict[str, Any] = {"ACTIVATION": getattr(experts, name)}
    assert_proved("experts_backward", "activated_rows", target, **activation)
    derivatives = {part.upper(): getattr(backward, f"{part[3:]}_of_{name}") for part in ("of_gate", "of_up")}
    assert_proved("experts_backward", "activation_gradients", target, **activation, **derivatives)


def test_gradients_of_weights_are_proved() -> None:
    assert_proved("experts_backward", "weight_gradients", "sm_90a", num_warps=8)
    for target in ("sm_80", "gfx942"):
        way: dict[str, Any] = {"ROWS": 64, "COLUMNS": 64, "DEPTH": 32, "STAGES": 2, "PRODUCERS": 0}
        assert_proved("experts_backward", "weight_gradients", target, **way)


def test_combine_is_proved() -> None:
    assert_proved("experts", "combine_rows", "sm_90a")
    assert_proved("experts", "combine_rows", "sm_90a", more=None)


@pytest.mark.parametrize(
    ("file", "kernel", "old", "new"),
    [
        ("dispatch", "place_pairs", "q[None, :] < p[:, None]", "q[None, :] <= p[:, None]"),
        ("dispatch", "add_counts", "al.where(c < b, n, 0)", "al.where(c <= b, n, 0)"),
        ("dispatch", "tokens_of_places", "al.store(token[to], p // k", "al.store(token[to], p"),
        ("experts", "combine_rows", "al.load(weights[t, j]) * row", "al.load(weights[t, 0]) * row"),
        ("experts_backward", "weight_gradients", "p = p0 + al.arange(DEPTH)", "p = p0 + 1 + al.arange(DEPTH)"),
    ],
)
def test_wrong_twins_are_refuted(file: str, kernel: str, old: str, new: str) -> None:
    """A pair that counts itself, a block that counts itself, pairs for tokens, one weight for all."""
    whole = source_of(file)
    assert whole.text.count(old) == 1
    report = prove(SourceFile(whole.path, whole.text.replace(old, new)), kernel, Options("sm_90a", 4))
    assert report.verdict is Verdict.REFUTED
