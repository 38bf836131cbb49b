"""Linear attention with decay in chunks: results against the recurrence in float64, extreme decays, proofs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import linear_attention  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402


def operands(
    batch: int, tokens: int, shared: int, heads: int, features: int, width: int, device: str
) -> tuple[torch.Tensor, ...]:
    q, k = (random(batch, tokens, shared, features, dtype="bfloat16", device=device, seed=i) for i in range(2))
    v = random(batch, tokens, heads, width, dtype="bfloat16", device=device, seed=2)
    return q, k, v, -random(batch, tokens, heads, device=device, seed=3).abs() / 4


def recurrence(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor) -> torch.Tensor:
    """In float64, a token at a time."""
    repeats = v.shape[2] // q.shape[2]
    q, k = (x.double().repeat_interleave(repeats, 2) for x in (q, k))
    v, state, found = v.double(), 0.0, []
    for t in range(v.shape[1]):
        state = state * log_decay[:, t].double().exp()[..., None, None] + v[:, t, :, :, None] * k[:, t, :, None]
        found.append((state * q[:, t, :, None]).sum(-1))
    return torch.stack(found, 1)


def assert_near(got: torch.Tensor, exact: torch.Tensor) -> None:
    assert got.shape == exact.shape and bool(got.isfinite().all())
    assert float((got.double() - exact).norm()) <= 2 * torch.finfo(got.dtype).eps * float(exact.norm())


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1), (2, 37, 1, 2, 20, 16), (1, 70, 2, 2, 40, 33)])
def test_results(device: str, sizes: tuple[int, ...]) -> None:
    given = operands(*sizes, device)
    assert_near(linear_attention(*given), recurrence(*given))


@pytest.mark.parametrize("decay", [0.0, -200.0])
def test_extreme_decays(device: str, decay: float) -> None:
    """Nothing is forgotten, or all of it at once: no exponent overflows."""
    q, k, v, log_decay = operands(1, 50, 1, 1, 8, 8, device)
    given = (q, k, v, torch.full_like(log_decay, decay))
    assert_near(linear_attention(*given), recurrence(*given))


def test_no_tokens(device: str) -> None:
    assert linear_attention(*operands(2, 0, 1, 2, 8, 8, device)).shape == (2, 0, 2, 8)


def test_wrong_arguments_are_refused() -> None:
    q, k, v, log_decay = operands(1, 5, 2, 4, 8, 8, "cpu")
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((q, k[:, :4], v, log_decay), "`k` has the shape"),
        ((q[:, :4], k[:, :4], v, log_decay), "`q` has the shape"),
        ((q, k, v, log_decay[..., :3]), "`log_decay` has the shape"),
        ((q, k, v, log_decay.half()), "`log_decay` is a tensor of float16"),
        ((q, k, v[:, :, :3], log_decay[..., :3]), "3 heads of `v` cannot share 2"),
        ((q, k, v.repeat(1, 1, 1, 17), log_decay), "136 and 8 features"),
    ]
    for given, message in wrong:
        with pytest.raises(LaunchError, match=message):
            linear_attention(*given)


KERNELS = ("levels", "chunk_states", "states_before", "chunk_outputs")


@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_proved(kernel: str, target: str) -> None:
    assert_proved("chunk_scan", kernel, target)


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("chunk_states", "al.load(level[b, h, s + 1], mask=s < T)", "al.load(level[b, h, s], mask=s < T)"),
        ("states_before", "(j[None, :] < c[:, None])", "(j[None, :] <= c[:, None])"),
        ("chunk_outputs", "(t[None, :] <= t[:, None])", "(t[None, :] < t[:, None])"),
    ],
)
def test_wrong_twins_are_not_proved(kernel: str, old: str, new: str) -> None:
    """A decay too many, a chunk that sees its own state twice, a token that does not see itself."""
    whole = source_of("chunk_scan")
    assert whole.text.count(old) == 1
    report = prove(SourceFile(whole.path, whole.text.replace(old, new)), kernel, Options("sm_90a", 4))
    assert report.verdict is not Verdict.PROVED
