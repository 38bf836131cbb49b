"""The router: results and gradients against float64, groups and biases, wrong arguments, proofs, wrong twins."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import router  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import TARGETS, assert_proved, random, source_of  # noqa: E402


def by_definition(
    logits: torch.Tensor, k: int, *, sigmoid: bool = False, renormalize: bool = True, scale: float = 1.0,
    bias: torch.Tensor | None = None, groups: int = 1, kept: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """In float64, as DeepSeek-V3 defines it."""
    scores = logits.double().sigmoid() if sigmoid else logits.double().softmax(-1)
    choice = scores if bias is None else scores + bias.double()
    if groups > 1:
        parts = choice.unflatten(-1, (groups, -1))
        best = parts.amax(-1) if bias is None else parts.topk(2).values.sum(-1)
        left = torch.ones_like(best).scatter(-1, best.topk(kept).indices, 0.0).bool()
        choice = parts.masked_fill(left[..., None], -float("inf")).flatten(-2)
    experts = torch.sort(choice, dim=-1, descending=True, stable=True)[1][..., :k]
    weights = scores.gather(-1, experts)
    return scale * (weights / weights.sum(-1, keepdim=True) if renormalize else weights), experts


def assert_routed(logits: torch.Tensor, k: int, **way: Any) -> None:
    weights, experts = router(logits, k, **way)
    wanted, numbers = by_definition(logits, k, **way)
    assert torch.equal(experts.long(), numbers)
    torch.testing.assert_close(weights.double(), wanted, rtol=4e-6, atol=1e-7)


@pytest.mark.product
@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize(("shape", "k"), [((5, 13), 3), ((9, 64), 8), ((3, 20), 1)])
def test_without_groups(device: str, shape: tuple[int, ...], k: int, sigmoid: bool, renormalize: bool) -> None:
    logits = random(*shape, dtype="bfloat16", device=device)
    assert_routed(logits, k, sigmoid=sigmoid, renormalize=renormalize, scale=2.5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("tokens", "experts", "k", "groups", "kept"), [(1, 24, 5, 4, 2), (70, 256, 8, 8, 4)])
def test_groups_with_a_bias(device: str, tokens: int, experts: int, k: int, groups: int, kept: int, dtype: str) -> None:
    logits = random(tokens, experts, dtype=dtype, device=device)
    bias = random(experts, device=device, seed=1) / 4
    assert_routed(logits, k, sigmoid=True, scale=2.5, bias=bias, groups=groups, kept=kept)


def test_groups_without_a_bias(device: str) -> None:
    logits = random(9, 24, device=device)
    assert_routed(logits, 3, renormalize=False, scale=16.0, groups=6, kept=2)


def test_bias_without_groups(device: str) -> None:
    logits = random(3, 7, 20, dtype="bfloat16", device=device)
    bias = torch.zeros(20, device=device)
    bias[11] = 5.0
    assert_routed(logits, 4, sigmoid=True, bias=bias)
    assert bool((router(logits, 4, sigmoid=True, bias=bias)[1][..., 0] == 11).all())


def test_equal_choices_come_in_order(device: str) -> None:
    logits = torch.zeros(2, 12, device=device)
    logits[1, 7:9] = 1.0
    weights, experts = router(logits, 3, sigmoid=True, groups=3, kept=2)
    assert experts.tolist() == [[0, 1, 2], [7, 8, 4]] and bool((weights[0] == weights[0, 0]).all())


@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("renormalize", [False, True])
def test_gradient(device: str, sigmoid: bool, renormalize: bool) -> None:
    logits = random(5, 13, device=device).requires_grad_()
    weights, experts = router(logits, 3, sigmoid=sigmoid, renormalize=renormalize, scale=2.5)
    assert weights.requires_grad and not experts.requires_grad
    pull = random(5, 3, device=device, seed=1)
    (found,) = torch.autograd.grad((weights * pull).sum(), logits)
    exact = logits.detach().double().requires_grad_()
    wanted = by_definition(exact, 3, sigmoid=sigmoid, renormalize=renormalize, scale=2.5)[0]
    (right,) = torch.autograd.grad((wanted * pull).sum(), exact)
    torch.testing.assert_close(found.double(), right, rtol=1e-5, atol=1e-6)


def test_wrong_arguments_are_refused() -> None:
    logits = torch.zeros(3, 40, dtype=torch.bfloat16)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"k": 17}, "the 17 greatest"),
        ({"k": 4, "groups": 3}, "4 of 40 experts in the best 1 of 3 groups"),
        ({"k": 11, "groups": 4}, "11 of 40 experts in the best 1 of 4 groups"),
        ({"k": 4, "groups": 4, "kept": 5}, "the best 5 of 4 groups"),
        ({"k": 4, "bias": torch.zeros(39)}, "`bias` has the shape"),
        ({"k": 4, "bias": torch.zeros(40).half()}, "`bias` is a tensor of float16"),
    ]
    for way, message in wrong:
        with pytest.raises(LaunchError, match=message):
            router(logits, **way)
    with pytest.raises(LaunchError, match="`logits` is a tensor of float64"):
        router(logits.double(), 2)


@pytest.mark.parametrize("target", TARGETS)
def test_proved(target: str) -> None:
    for sigmoid in (False, True):
        for shared in (False, True):
            assert_proved("topk", "router_rows", target, SIGMOID=sigmoid, SHARED=shared, K=4)


STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "sigmoid": ("router_scores", {}),
    "softmax": ("router_scores", {"bias": None, "SIGMOID": False}),
    "two of a group": ("group_scores", {}),
    "one of a group": ("group_scores", {"BOTH": False}),
    "groups": ("best_experts", {}),
    "no groups": ("best_experts", {"groups": None}),
    "weights": ("expert_weights", {}),
    "scores": ("expert_weights", {"SHARED": False}),
}


@pytest.mark.parametrize("target", [*TARGETS, "gfx942"])
@pytest.mark.parametrize("name", STEPS)
def test_steps_are_proved(name: str, target: str) -> None:
    kernel, constants = STEPS[name]
    assert_proved("grouped_router", kernel, target, **constants)


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("best_experts", "(own, cols // SIZE, SPAN) >= worst", "(own, cols // SIZE, SPAN) > worst"),
        ("group_scores", "keys < first[:, None]", "keys <= first[:, None]"),
        ("router_scores", "found + al.load(bias[cols], mask=cols < E)", "found - al.load(bias[cols], mask=cols < E)"),
        ("expert_weights", "found * scale, mask", "found, mask"),
    ],
)
def test_wrong_twins_are_not_proved(kernel: str, old: str, new: str) -> None:
    """A group too few, the greatest twice, a bias taken off, no scale."""
    whole = source_of("grouped_router")
    assert whole.text.count(old) == 1
    report = prove(SourceFile(whole.path, whole.text.replace(old, new)), kernel, Options("sm_80", 4))
    assert report.verdict is not Verdict.PROVED
