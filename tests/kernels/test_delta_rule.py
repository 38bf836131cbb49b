"""The gated delta rule in chunks: results against the recurrence in float64, extreme decays, proofs, wrong twins."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import gated_delta_rule, gated_delta_step  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402


def operands(
    batch: int, tokens: int, shared: int, heads: int, features: int, width: int, device: str, dtype: str = "bfloat16"
) -> tuple[torch.Tensor, ...]:
    """Keys of length 1, decays, and rates from 0 to 1."""
    q, k = (random(batch, tokens, shared, features, device=device, seed=i) for i in range(2))
    q, k = (torch.nn.functional.normalize(x, dim=-1).to(getattr(torch, dtype)) for x in (q, k))
    v = random(batch, tokens, heads, width, dtype=dtype, device=device, seed=2)
    decay = -random(batch, tokens, heads, device=device, seed=3).abs() / 4
    return q, k, v, decay, random(batch, tokens, heads, device=device, seed=4).sigmoid()


def recurrence(q: Any, k: Any, v: Any, log_decay: Any, beta: Any, state: Any = None) -> torch.Tensor:
    """In float64, a token at a time."""
    return recurrence_and_state(q, k, v, log_decay, beta, state)[0]


def recurrence_and_state(q: Any, k: Any, v: Any, log_decay: Any, beta: Any, state: Any) -> tuple[torch.Tensor, Any]:
    """The same, and the state behind the last token."""
    repeats = v.shape[2] // q.shape[2]
    q, k = (x.double().repeat_interleave(repeats, 2) for x in (q, k))
    v, beta, found = v.double(), beta.double(), []
    state = v.new_zeros(*v.shape[:1], *v.shape[2:], q.shape[3]) if state is None else state.double()
    for t in range(v.shape[1]):
        state = state * log_decay[:, t].double().exp()[..., None, None]
        u = beta[:, t, :, None] * (v[:, t] - (state * k[:, t, :, None]).sum(-1))
        state = state + u[..., None] * k[:, t, :, None]
        found.append((state * q[:, t, :, None]).sum(-1))
    return torch.stack(found, 1), state


def assert_near(got: torch.Tensor, exact: torch.Tensor) -> None:
    """Weights, `u` and states are rounded to the dtype once each."""
    assert got.shape == exact.shape and bool(got.isfinite().all())
    assert float((got.double() - exact).norm()) <= 2 * torch.finfo(got.dtype).eps * float(exact.norm())


@pytest.mark.product
@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [((1, 1, 1, 1, 1, 1), "float16"), ((2, 37, 1, 2, 20, 16), "bfloat16"), ((1, 96, 1, 1, 32, 64), "float16")],
)
def test_results(device: str, sizes: tuple[int, ...], dtype: str) -> None:
    given = operands(*sizes, device, dtype)
    assert_near(gated_delta_rule(*given), recurrence(*given))


@pytest.mark.parametrize("decay", [None, -200.0])
def test_extreme_decays(device: str, decay: float | None) -> None:
    """Nothing is forgotten, or all of it at once: no exponent overflows."""
    *given, log_decay, beta = operands(1, 50, 1, 1, 8, 8, device)
    found = gated_delta_rule(*given, None if decay is None else torch.full_like(log_decay, decay), beta)
    assert_near(found, recurrence(*given, torch.full_like(log_decay, decay or 0.0), beta))


@pytest.mark.product
@pytest.mark.parametrize("sizes", [(2, 37, 1, 2, 20, 16), (1, 64, 1, 1, 32, 32)])
def test_states(device: str, sizes: tuple[int, ...]) -> None:
    """A sequence in two parts, the second from the state of the first, is as one of both."""
    given = operands(*sizes, device)
    first, state = gated_delta_rule(*(x[:, :20] for x in given), return_state=True)
    second, last = gated_delta_rule(*(x[:, 20:] for x in given), state=state, return_state=True)
    exact, wanted = recurrence_and_state(*given, None)
    assert_near(torch.cat((first, second), 1), exact)
    assert float((last.double() - wanted).norm()) <= 0.02 * float(wanted.norm())


@pytest.mark.parametrize("sizes", [(2, 4, 1, 2, 20, 18), (3, 4, 2, 2, 128, 128), (1, 4, 1, 1, 1, 1)])
def test_steps(device: str, sizes: tuple[int, ...]) -> None:
    """A token at a time, and each sequence by itself has the same bits."""
    given = operands(*sizes, device)
    state = random(sizes[0], sizes[3], sizes[5], sizes[4], device=device, seed=7)
    exact, wanted = recurrence_and_state(*given, state)
    alone = state[:1]
    for t in range(sizes[1]):
        out, state = gated_delta_step(*(x[:, t] for x in given), state)
        assert_near(out, exact[:, t])
        own, alone = gated_delta_step(*(x[:1, t] for x in given), alone)
        assert torch.equal(own, out[:1]) and torch.equal(alone, state[:1])
    torch.testing.assert_close(state.double(), wanted, rtol=1e-4, atol=1e-4)


def test_what_is_written_again_is_replaced(device: str) -> None:
    """With rates of 1, a key that comes again has the last value alone."""
    key = torch.nn.functional.one_hot(torch.tensor([0, 1, 0, 1, 1]), 4).bfloat16().to(device)[None, :, None]
    v = random(1, 5, 1, 4, device=device).round().bfloat16()
    found = gated_delta_rule(key, key, v, None, torch.ones(1, 5, 1, device=device))
    assert torch.equal(found, v)


def test_no_tokens(device: str) -> None:
    assert gated_delta_rule(*operands(2, 0, 1, 2, 8, 8, device)).shape == (2, 0, 2, 8)


def test_wrong_arguments_are_refused() -> None:
    q, k, v, log_decay, beta = operands(1, 5, 2, 4, 8, 8, "cpu")
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((q, k[:, :4], v, log_decay, beta), "`k` has the shape"),
        ((q, k, v, log_decay[..., :3], beta), "`log_decay` has the shape"),
        ((q, k, v, log_decay, beta[..., :3]), "`beta` has the shape"),
        ((q, k, v, log_decay, beta.half()), "`beta` is a tensor of float16"),
        ((q, k, v.repeat(1, 1, 1, 17), log_decay, beta), "136 and 8 features"),
    ]
    for given, message in wrong:
        with pytest.raises(LaunchError, match=message):
            gated_delta_rule(*given)
    with pytest.raises(LaunchError, match="`state` has the shape"):
        gated_delta_rule(q, k, v, log_decay, beta, state=torch.zeros(1, 4, 8, 7))
    with pytest.raises(LaunchError, match="`q` has"):
        gated_delta_step(q, k, v, log_decay, beta, torch.zeros(1, 4, 8, 8))
    with pytest.raises(LaunchError, match="no gradient"):
        gated_delta_rule(q, k, v.requires_grad_(), log_decay, beta).sum().backward()


KERNELS = ("chunk_inverses", "chunk_terms", "chunk_updates", "delta_step")


@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_proved(kernel: str, target: str) -> None:
    stages = {"STAGES": 1} if (kernel, target) == ("chunk_updates", "gfx942") else {}
    assert_proved("delta_scan", kernel, target, **stages)


def test_updates_without_a_state_are_proved() -> None:
    assert_proved("delta_scan", "chunk_updates", "sm_90a", first=None)


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("chunk_inverses", "left = left - al.load", "left = left + al.load"),
        ("chunk_inverses", "mask=(i == r)[:, None]", "mask=(i == CHUNK - 1 - r)[:, None]"),
        ("chunk_terms", "past = beta_t *", "past ="),
        ("chunk_updates", "new = (known - read).to(DTYPE)", "new = (known + read).to(DTYPE)"),
        ("chunk_updates", "is None else al.load(first", "is None else 2.0 * al.load(first"),
        ("delta_step", "left * state + new", "state + new"),
        ("delta_step", "(value - left * al.sum", "(value - al.sum"),
    ],
)
def test_wrong_twins_are_not_proved(kernel: str, old: str, new: str) -> None:
    """Signs, rows from the last to the first, a product without its rate."""
    whole = source_of("delta_scan")
    assert whole.text.count(old) == 1
    report = prove(SourceFile(whole.path, whole.text.replace(old, new)), kernel, Options("sm_80", 4))
    assert report.verdict is not Verdict.PROVED
