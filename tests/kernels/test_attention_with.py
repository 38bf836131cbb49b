"""Attention with windows, caps, scores and masks of one's own: against float64, proofs, twins, wrong arguments."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import argus  # noqa: E402
import argus.language as al  # noqa: E402
from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import attention_with  # noqa: E402
from argus.kernels.attention_with import _broadcast  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402


@argus.func
def sloped(x, b, h, i, j):
    """ALiBi with the slopes 2 ** -(h + 1), counted from the first key."""
    return x + al.exp2(-(h + 1).to(al.float32)) * j.to(al.float32)


@argus.func
def documents(b, h, i, j):
    """Texts of 16 tokens do not see one another."""
    return i // 16 == j // 16


@argus.func
def texts(b, h, first, last):
    """The keys of the texts of some queries."""
    return first // 16 * 16, last // 16 * 16 + 16


@argus.func
def other_texts(b, h, first, last):
    """Without those of the last text."""
    return first // 16 * 16, last // 16 * 16 - 16


def exact(q: Any, k: Any, v: Any, causal: bool, window: int | None, cap: float | None, own: bool) -> tuple[Any, Any]:
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    x = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    x = x if cap is None else cap * torch.tanh(x / cap)
    i, j = (torch.arange(n, device=q.device) for n in x.shape[2:])
    i, j = i[:, None], j[None, :]
    seen = torch.ones_like(x, dtype=torch.bool)
    place = i + k.shape[2] - q.shape[2]
    if causal:
        seen &= j <= place
    if window is not None:
        seen &= place - window < j
    if own:
        head = torch.arange(q.shape[1], device=q.device)[:, None, None]
        x = x + 2.0 ** -(head + 1) * j
        seen &= i // 16 == j // 16
    x = x.masked_fill(~seen, -float("inf"))
    return torch.softmax(x, -1).nan_to_num(0.0) @ v, torch.logsumexp(x, -1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((1, 2, 1, 70, 70, 64), {"causal": True, "window": 20}),
        ((1, 2, 2, 33, 130, 96), {"causal": True, "window": 40, "softcap": 2.0}),
        ((2, 1, 1, 65, 50, 80), {"softcap": 0.5}),
        ((1, 2, 1, 40, 70, 192), {"causal": True}),
        ((1, 1, 1, 20, 70, 256), {}),
        ((1, 2, 2, 50, 50, 64), {"score": sloped, "mask": documents}),
        ((1, 1, 1, 150, 140, 64), {"score": sloped, "mask": documents, "mask_range": texts}),
    ],
)
def test_results(device: str, sizes: tuple[int, ...], options: dict[str, Any]) -> None:
    batch, heads, shared, m, n, d = sizes
    shapes = ((heads, m), (shared, n), (shared, n))
    q, k, v = (random(batch, *s, d, dtype="float16", device=device, seed=i) for i, s in enumerate(shapes))
    found, levels = attention_with(q, k, v, **options, return_lse=True)
    given = (options.get("causal", False), options.get("window"), options.get("softcap"), "mask" in options)
    right, exactly = exact(q, k, v, *given)
    eps = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double(), right, rtol=2 * eps, atol=2 * eps)
    torch.testing.assert_close(levels.double(), exactly, rtol=1e-5, atol=1e-4)


def added(q: Any, k: Any, v: Any, **more: Any) -> tuple[Any, Any]:
    """Causal attention in float64 with sinks, slopes and a bias."""
    x = q.double() @ k.double().transpose(2, 3) * q.shape[3] ** -0.5
    place = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2] - torch.arange(k.shape[2])
    if "alibi_slopes" in more:
        x = x - more["alibi_slopes"].double()[:, None, None] * place
    if "bias" in more:
        x = x + more["bias"].double()
    x = x.masked_fill(place < 0, -float("inf"))
    sinks = more.get("sinks", torch.full(q.shape[1:2], -float("inf"))).double()
    x = torch.cat((x, sinks[:, None, None].expand(*x.shape[:3], 1)), 3)
    return torch.softmax(x, -1).nan_to_num(0.0)[..., :-1] @ v.double(), torch.logsumexp(x, -1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ((2, 70, 130, 64, 64), ("sinks", "alibi_slopes", "bias")),
        ((3, 40, 33, 128, 128), ("sinks",)),
        ((1, 65, 70, 192, 128), ()),
        ((2, 1, 50, 192, 128), ("bias",)),
    ],
)
def test_what_is_added(device: str, sizes: tuple[int, ...], names: tuple[str, ...]) -> None:
    heads, m, n, size, values = sizes
    shapes = ((heads, m, size), (heads, n, size), (heads, n, values))
    q, k, v = (random(2, *s, dtype="bfloat16", seed=i) for i, s in enumerate(shapes))
    every = {"sinks": random(heads) + 3, "alibi_slopes": random(heads).abs(), "bias": random(2, 1, m, n, seed=7)}
    every["sinks"][0] = -float("inf")
    more = {name: every[name] for name in names}
    there = {name: x.to(device) for name, x in more.items()}
    given = (x.to(device) for x in (q, k, v))
    found, levels = attention_with(*given, causal=True, return_lse=True, **there)
    right, exactly = added(q, k, v, **more)
    eps = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double().cpu(), right, rtol=2 * eps, atol=eps)
    torch.testing.assert_close(levels.double().cpu(), exactly, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(3,), (1,), (70, 1), (2, 1, 1), (1, 2, 70, 3), ()])
def test_a_bias_is_broadcast(shape: tuple[int, ...]) -> None:
    bias = random(*shape)
    wide = _broadcast(bias, (1, 2, 70, 3))
    assert wide.shape == (1, 2, 70, 3) and wide.stride(3) == 1 and torch.equal(wide, bias.expand(1, 2, 70, 3))


def test_sinks_alone(device: str) -> None:
    q, k = random(1, 2, 3, 64, dtype="float16", device=device), random(1, 2, 0, 64, dtype="float16", device=device)
    sinks = random(2, device=device)
    found, levels = attention_with(q, k, k, sinks=sinks, return_lse=True)
    assert not found.any() and torch.equal(levels[0, :, 1], sinks)


@pytest.mark.slow
def test_results_do_not_depend_on_the_batch(device: str) -> None:
    q, k = (random(3, heads, 70, 64, dtype="float16", device=device, seed=heads) for heads in (2, 1))
    together = attention_with(q, k, k, causal=True, batch_invariant=True)
    for b in range(3):
        alone = attention_with(q[b : b + 1], k[b : b + 1], k[b : b + 1], causal=True, batch_invariant=True)
        assert torch.equal(alone[0], together[b])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 4}, "a window of 4 keys without causal"),
        ({"window": 0, "causal": True}, "a window of 0 keys"),
        ({"window": 4, "causal": True, "batch_invariant": True}, "a window in a form"),
        ({"mask_range": texts}, "without a `mask`"),
        ({"softcap": -1.0}, "the cap of scores is -1"),
        ({"softcap": float("inf")}, "the cap of scores is inf"),
        ({"sinks": torch.zeros(2)}, "`sinks` has the shape"),
        ({"sinks": torch.zeros(1).half()}, "`sinks` is a tensor of float16"),
        ({"alibi_slopes": torch.zeros(1, 1)}, "`alibi_slopes` has the shape"),
        ({"bias": torch.zeros(4, 3)}, "does not broadcast"),
        ({"bias": torch.zeros(1, 1, 1, 1, 1)}, "does not broadcast"),
        ({"bias": torch.zeros(4, 4).bfloat16()}, "`bias` is a tensor of bfloat16"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    q = random(1, 1, 4, 64, dtype="float16")
    with pytest.raises(LaunchError, match=message):
        attention_with(q, q, q, **options)


def test_heads_of_other_sizes_are_refused() -> None:
    q = random(1, 1, 4, 72, dtype="float16")
    with pytest.raises(LaunchError, match="64 or 80 or 96 or 128 or 192 or 256"):
        attention_with(q, q, q)
    q, v = random(1, 1, 4, 192, dtype="float16"), random(1, 1, 4, 64, dtype="float16")
    with pytest.raises(LaunchError, match="`v` has the shape"):
        attention_with(q, q, v)


HOPPER: dict[str, Any] = {"CAUSAL": True, "num_warps": 8}
ELSEWHERE: dict[str, Any] = {"CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 32}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "constants"),
    [
        ("sm_90a", {**HOPPER, "WINDOW": 1024, "SCHEDULE": "turns"}),
        ("sm_90a", {**HOPPER, "WINDOW": 100, "CAP": 30.0, "D": 64}),
        ("sm_90a", {**HOPPER, "D": 80, "WIDTH": 128}),
        ("sm_90a", {**HOPPER, "D": 256, "WIDTH": 256, "BLOCK_N": 48}),
        ("sm_90a", {**HOPPER, "INVARIANT": True, "SCHEDULE": "turns"}),
        ("sm_80", {**ELSEWHERE, "WINDOW": 100}),
        ("sm_80", {**ELSEWHERE, "D": 64, "INVARIANT": True}),
        ("sm_80", {**ELSEWHERE, "CAP": 30.0, "D": 96}),
        ("sm_80", {**ELSEWHERE, "CAUSAL": False, "SCORE": sloped, "MASK": documents}),
        ("sm_80", {**ELSEWHERE, "CAUSAL": False, "D": 64, "MASK": documents, "RANGE": texts}),
        ("gfx942", {**ELSEWHERE, "WINDOW": 100, "D": 64}),
    ],
)
def test_proved(target: str, constants: dict[str, Any]) -> None:
    assert_proved("attention", "attention_forward", target, **constants)


@pytest.mark.slow
def test_a_range_without_keys_that_are_seen_is_not_proved() -> None:
    """The twin of `texts`, which `test_proved` accepts."""
    constants = {"D": 64, "BLOCK_M": 64, "BLOCK_N": 32, "MASK": documents, "RANGE": other_texts}
    report = prove(source_of("attention"), "attention_forward", Options("sm_80", 4, constants))
    assert report.verdict is not Verdict.PROVED


ADDED: dict[str, Any] = {"sinks": None, "slopes": None, "bias": None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "names", "constants"),
    [
        ("sm_90a", ("sinks",), {**HOPPER, "WINDOW": 128, "D": 64, "E": 64, "SCHEDULE": "turns"}),
        ("sm_90a", ("sinks", "slopes", "bias"), HOPPER),
        ("sm_90a", (), {**HOPPER, "D": 192, "WIDTH": 192, "BLOCK_N": 96, "SCHEDULE": "turns"}),
        ("sm_80", ("sinks", "bias"), {**ELSEWHERE, "D": 64, "E": 64}),
        *(("sm_80", (name,), {**ELSEWHERE, "D": 64, "E": 64}) for name in ADDED),
        ("gfx942", ("sinks", "slopes"), {**ELSEWHERE, "D": 64, "E": 64}),
    ],
)
def test_what_is_added_is_proved(target: str, names: tuple[str, ...], constants: dict[str, Any]) -> None:
    absent = {name: None for name in ADDED if name not in names}
    assert_proved("attention_with", "attention_added", target, **constants, **absent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("sinks", "total = al.full((BLOCK_M,), 1.0, al.float32)", "total = al.full((BLOCK_M,), 2.0, al.float32)"),
        ("sinks", "al.load(sinks[head]) * (LOG2E / unit", "al.load(sinks[head]) * (1.0 / unit"),
        ("slopes", "(m0 + al.arange(BLOCK_M) + (N - M))[:, None]", "(m0 + al.arange(BLOCK_M) + N)[:, None]"),
        ("bias", "bias[batch, head, m0 : m0 + BLOCK_M, first", "bias[batch, 0, m0 : m0 + BLOCK_M, first"),
    ],
)
def test_wrong_sums_are_not_proved(name: str, right: str, wrong: str) -> None:
    """Twins of the kernel that `test_what_is_added_is_proved` accepts."""
    text, kernel = source_of("attention").text, source_of("attention_with").text
    assert text.count(right) == 1
    kernel = kernel[kernel.index("@argus.kernel") : kernel.index("def attention_with(")]
    absent = {other: None for other in ADDED if other != name}
    options = Options("sm_80", 4, {**ELSEWHERE, "D": 64, "E": 64, **absent})
    report = prove(SourceFile("wrong.py", text.replace(right, wrong) + kernel), "attention_added", options)
    assert report.verdict is not Verdict.PROVED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("ends[:, None] - WINDOW <= (first", "ends[:, None] - WINDOW < (first"),
        ("(m0 + (N - M) + 1 - WINDOW) // BLOCK_N", "(m0 + (N - M) + BLOCK_N - WINDOW) // BLOCK_N"),
        ("WINDOW and first < m0 + BLOCK_M + (N - M)", "WINDOW and first < m0 + (N - M)"),
    ],
)
def test_wrong_windows_are_not_proved(right: str, wrong: str) -> None:
    """Twins of the kernel that `test_proved` accepts."""
    text, helpers = source_of("attention").text, source_of("attention_scores").text
    where, cut = text.index("@argus.kernel"), helpers[helpers.index("@argus.func\ndef cut(") :].partition("\n\n\n")[0]
    text = f"{text[:where].replace(' cut,', '')}{cut}\n\n\n{text[where:]}"
    assert text.count(right) == 1
    options = Options("sm_80", 4, {"D": 64, "CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 32, "WINDOW": 100})
    report = prove(SourceFile("wrong.py", text.replace(right, wrong)), "attention_forward", options)
    assert report.verdict is not Verdict.PROVED
