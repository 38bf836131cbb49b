"""The gradients of attention: against float64, through autograd, of the log-sum-exp, as text of each target, proofs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from argus.backend.cuda import toolchain  # noqa: E402
from argus.backend.emit import emit  # noqa: E402
from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options, check, parse  # noqa: E402
from argus.ir.nodes import Kernel  # noqa: E402
from argus.ir.types import bfloat16  # noqa: E402
from argus.kernels import attention, attention_backward, attention_with  # noqa: E402
from argus.passes import lower  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.backend.host import run  # noqa: E402
from tests.conftest import require  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402

LOG2E = 1.4426950408889634
FILE = "attention_backward"

# batch, heads of q, heads of k, queries, keys, head size
SIZES = [
    (1, 1, 1, 1, 1, 64),
    (2, 4, 2, 63, 65, 64),
    (1, 3, 1, 130, 130, 128),
    (1, 2, 2, 65, 200, 128),
    (1, 2, 1, 100, 70, 64),
]
HOPPER = {"BLOCK": 128, "STEP": 64, "STAGES": 3, "num_warps": 8}
WIDE = HOPPER | {"STEP": 128, "STAGES": 2}  # of keys, heads of 64 elements
ELSEWHERE = {"BLOCK": 64, "STEP": 16, "STAGES": 2, "num_warps": 4}
ALONE = ELSEWHERE | {"STAGES": 1}


def exact(
    q: Any, k: Any, v: Any, causal: bool, scale: float | None = None, window: int | None = None
) -> tuple[Any, Any]:
    """The result and the log-sum-exp, with gradients: 0 and a number in rows that see no key."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    if causal:
        seen = seen.tril(k.shape[2] - q.shape[2])
    if window is not None:
        seen = seen.triu(k.shape[2] - q.shape[2] - window + 1)
    some = seen.any(1)[:, None]
    scores = scores.masked_fill(~seen & some, -float("inf"))
    return torch.where(some, torch.softmax(scores, -1), 0.0) @ v, torch.logsumexp(scores, -1)


def operands(sizes: tuple[int, ...], dtype: str, device: str) -> tuple[Any, ...]:
    batch, heads, shared, m, n, d = sizes
    shapes = ((heads, m), (shared, n), (shared, n), (heads, m))
    return tuple(random(batch, *s, d, dtype=dtype, device=device, seed=i) for i, s in enumerate(shapes, 1))


def accept(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    """Weights, their gradients and results are rounded to the dtype once each."""
    for got, right in zip(found, wanted, strict=True):
        assert got.shape == right.shape
        eps = torch.finfo(got.dtype).eps
        size = float(right.abs().max()) if right.numel() else 0.0
        torch.testing.assert_close(got.double(), right, rtol=2 * eps, atol=eps * max(1.0, size))


def gradients(tensors: tuple[Any, ...], function: Any, dy: Any, dlse: Any = None) -> tuple[Any, ...]:
    """Those of the tensors, given those of both results of the function."""
    leaves = tuple(x.detach().requires_grad_() for x in tensors)
    y, lse = function(*leaves)
    results, given = ((y, lse), (dy, dlse)) if dlse is not None else ((y,), (dy,))
    return torch.autograd.grad(results, leaves, given)


def wanted(q: Any, k: Any, v: Any, dy: Any, causal: bool, scale: float | None = None, dlse: Any = None) -> Any:
    doubled = tuple(x.double() for x in (q, k, v))
    return gradients(doubled, lambda *x: exact(*x, causal, scale), dy.double(), None if dlse is None else dlse.double())


@pytest.mark.product
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_results(device: str, sizes: tuple[int, ...], causal: bool) -> None:
    *tensors, dy = operands(sizes, "bfloat16" if sizes[3] % 2 else "float16", device)
    found = gradients(tuple(tensors), lambda *x: attention(*x, causal=causal, return_lse=True), dy)
    accept(found, wanted(*tensors, dy, causal))


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "window"), [((1, 4, 2, 70, 70, 64), 20), ((1, 1, 1, 1, 30, 64), 9)])
def test_windows(device: str, sizes: tuple[int, ...], window: int) -> None:
    *tensors, dy = operands(sizes, "bfloat16", device)
    found = gradients(tuple(tensors), lambda *x: attention_with(*x, causal=True, window=window, return_lse=True), dy)
    doubled = tuple(x.double() for x in tensors)
    accept(found, gradients(doubled, lambda *x: exact(*x, True, None, window), dy.double()))


def test_other_forms_have_no_gradient() -> None:
    q = random(1, 1, 4, 64, dtype="float16").requires_grad_()
    for more in ({"softcap": 2.0}, {"sinks": torch.zeros(1)}):
        with pytest.raises(LaunchError, match="has a gradient of windows alone"):
            attention_with(q, q, q, **more).sum().backward()


@pytest.mark.slow
def test_a_scale_and_a_gradient_of_the_log_sum_exp(device: str) -> None:
    *tensors, dy = operands((1, 4, 2, 20, 30, 64), "float16", device)
    dlse = random(1, 4, 20, device=device, seed=7)
    found = gradients(tuple(tensors), lambda *x: attention(*x, scale=0.3, return_lse=True), dy, dlse)
    accept(found, wanted(*tensors, dy, False, 0.3, dlse))


@pytest.mark.slow
def test_heads_next_to_rows_and_gradients_of_any_strides(device: str) -> None:
    q, k, v = (x.transpose(1, 2) for x in random(3, 2, 70, 3, 64, dtype="float16", device=device))
    dy = torch.ones((), dtype=torch.float16, device=device).expand(q.shape)
    found = gradients((q, k[:, :1], v[:, :1]), lambda *x: attention(*x, causal=True, return_lse=True), dy)
    accept(found, wanted(q, k[:, :1], v[:, :1], dy, True))


@pytest.mark.slow
def test_results_are_the_same_in_each_run(device: str) -> None:
    q, k, v, dy = operands((1, 4, 2, 20, 30, 64), "float16", device)
    y, lse = attention(q, k, v, return_lse=True)
    first, again = (attention_backward(dy, q, k, v, y, lse, deterministic=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_nothing_to_attend_to(device: str) -> None:
    q, k, v, dy = operands((1, 2, 2, 3, 0, 64), "float16", device)
    found = gradients((q, k, v), lambda *x: attention(*x, return_lse=True), dy)
    assert [x.shape for x in found] == [q.shape, k.shape, v.shape] and not found[0].any()


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, lambda x: x[:, :, :4], "`dy` has the shape"),
        (4, lambda x: x.bfloat16(), "`y` is a tensor of bfloat16"),
        (5, lambda x: x.half(), "`lse` is a tensor of float16"),
        (6, lambda x: x[:, :1], "`dlse` has the shape"),
    ],
)
def test_wrong_arguments_are_refused(place: int, change: Any, message: str) -> None:
    q, k, v, dy = operands((1, 2, 2, 5, 7, 64), "float16", "cpu")
    tensors = [dy, q, k, v, torch.zeros_like(q), torch.zeros(1, 2, 5), torch.zeros(1, 2, 5)]
    tensors[place] = change(tensors[place])
    with pytest.raises(LaunchError, match=message):
        attention_backward(*tensors)


@cache
def lowered(kernel: str, target: str, **constants: Any) -> Kernel:
    constants = {"DTYPE": bfloat16, "GROUP": 2, **(HOPPER if target == "sm_90a" else ALONE), **constants}
    warps = constants.pop("num_warps")
    found = check(parse(source_of(FILE)), f"attention_backward_{kernel}", Options(target, warps, constants))
    return lower(found, target)


@pytest.mark.product
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(2, 4, 2, 68, 65, 64), (1, 2, 1, 200, 140, 128)])
@pytest.mark.parametrize("target", ["sm_90a", "cpu"])
def test_text(target: str, sizes: tuple[int, ...], causal: bool, require_tool: Any) -> None:
    """The text for a target, run on the host."""
    require_tool("g++", "clang++", "c++")
    batch, heads, shared, m, n, d = sizes
    q, k, v, dy = operands(sizes, "bfloat16", "cpu")
    y, lse = exact(q.double(), k.double(), v.double(), causal)
    arrays = {name: x.view(torch.uint16).numpy() for name, x in (("q", q), ("k", k), ("v", v), ("dy", dy))}
    arrays |= {"lse": lse.float().numpy(), "delta": (dy.double() * y).sum(-1).float().numpy()}
    for name in ("q", "dy", "lse", "delta"):
        arrays[name] = arrays[name].reshape(batch, shared, 2, *arrays[name].shape[2:])
    made = {"dq": (shared, 2, m), "dk": (shared, n), "dv": (shared, n)}
    found = {name: np.full((batch, *shape, d), 0x7FC0, np.uint16) for name, shape in made.items()}
    named = {"B": batch, "H": shared, "M": m, "N": n, "scale": d**-0.5 * LOG2E}
    block = (HOPPER if target == "sm_90a" else ELSEWHERE)["BLOCK"]
    wide = WIDE if target == "sm_90a" and d == 64 else {}
    text = lowered("keys", target, D=d, CAUSAL=causal, **wide)
    grid = (shared, batch, -(-n // block)) if causal else (-(-n // block), shared, batch)
    run(text, grid, eager=causal, **arrays, **{r: found[r] for r in ("dk", "dv")}, **named)
    text = lowered("queries", target, D=d, CAUSAL=causal)
    grid = (heads, batch, -(-m // block)) if causal else (-(-m // block), heads, batch)
    run(text, grid, eager=causal, **arrays, dq=found["dq"], **named)
    results = tuple(torch.from_numpy(x.reshape(batch, -1, *x.shape[-2:])).view(torch.bfloat16) for x in found.values())
    accept(results, wanted(q, k, v, dy, causal))


@pytest.mark.product
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["keys", "queries"])
@pytest.mark.parametrize(
    ("target", "size", "tiles"),
    [
        ("sm_90a", 64, HOPPER),
        ("sm_90a", 128, HOPPER),
        ("sm_80", 128, ELSEWHERE),
        ("gfx942", 128, ALONE),
        ("sm_90a", 64, WIDE),
    ],
)
def test_proved(target: str, size: int, tiles: dict[str, int], kernel: str, causal: bool) -> None:
    group = 1 if target == "gfx942" else 4  # causal with shared heads takes more work there than a proof may
    constants: dict[str, Any] = {"DTYPE": "float16", "D": size, "GROUP": group, "CAUSAL": causal, **tiles}
    assert_proved(FILE, f"attention_backward_{kernel}", target, **constants)


@pytest.mark.slow
@pytest.mark.product
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("kernel", ["keys", "queries"])
def test_products_do_not_wait_for_one_another(kernel: str, size: int, causal: bool) -> None:
    """ptxas says so where it makes them."""
    require(toolchain.find_compiler(), "NVRTC or nvcc")
    tiles = WIDE if (kernel, size) == ("keys", 64) else HOPPER
    _, resources = toolchain.compile(emit(lowered(kernel, "sm_90a", D=size, CAUSAL=causal, **tiles)), "sm_90a")
    assert resources.warnings == ()
    assert resources.spill_bytes == 0 or tiles is WIDE  # with a few of them it is faster than 64 rows without


@pytest.mark.slow
@pytest.mark.product
@pytest.mark.parametrize("kernel", ["keys", "queries"])
@pytest.mark.parametrize(("target", "group", "tiles"), [("sm_90a", 4, HOPPER), ("sm_80", 1, ELSEWHERE)])
def test_windows_are_proved(target: str, group: int, tiles: dict[str, int], kernel: str) -> None:
    constants: dict[str, Any] = {"D": 64, "GROUP": group, "CAUSAL": True, "WINDOW": 1000, **tiles}
    assert_proved(FILE, f"attention_backward_{kernel}", target, **constants)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "right", "wrong"),
    [
        ("keys", "n0 + BLOCK - 1 + WINDOW - (N - M)", "n0 + BLOCK - 2 - 2 * STEP + WINDOW - (N - M)"),
        ("queries", "ends[:, None] - WINDOW <= (first", "ends[:, None] - WINDOW < (first"),
    ],
)
def test_wrong_windows_are_not_proved(kernel: str, right: str, wrong: str) -> None:
    """Twins of the kernels that `test_windows_are_proved` accepts."""
    text = source_of(FILE).text
    assert text.count(right) == 1
    options = Options("sm_80", 4, {"D": 64, "CAUSAL": True, "WINDOW": 1000, "BLOCK": 64, "STEP": 16})
    report = prove(SourceFile("wrong.py", text.replace(right, wrong)), f"attention_backward_{kernel}", options)
    assert report.verdict is not Verdict.PROVED


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
@pytest.mark.parametrize("copied", [False, True])
def test_means_are_proved(target: str, copied: bool) -> None:
    absent = {"sums": None} if copied else {"lse": None, "level": None}
    assert_proved(FILE, "attention_backward_rows", target, **absent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("r = p * (g - mean[:, None])", "r = p * (g + mean[:, None])"),
        ("rows + (N - M) + 1 if CAUSAL", "rows + (N - M) if CAUSAL"),
        ("al.mma(r.to(DTYPE), al.trans(kt), acc)", "al.mma(p.to(DTYPE), al.trans(kt), acc)"),
    ],
)
def test_a_wrong_gradient_is_not_proved(right: str, wrong: str) -> None:
    """Twins of the kernel that `test_proved` accepts."""
    text = source_of(FILE).text
    assert text.count(right) == 1
    options = Options("sm_80", 4, {"D": 64, "CAUSAL": True, "BLOCK": 64, "STEP": 16})
    report = prove(SourceFile("wrong.py", text.replace(right, wrong)), "attention_backward_queries", options)
    assert report.verdict is not Verdict.PROVED
