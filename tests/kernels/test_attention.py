"""Attention: results against float64 at sizes that no tile divides, masks, shared heads, strides, proofs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import argus.kernels  # noqa: E402
from argus.diagnostic import LaunchError  # noqa: E402
from argus.frontend import Options, check, parse  # noqa: E402
from argus.ir.nodes import Kernel  # noqa: E402
from argus.ir.types import bfloat16, float16, float32  # noqa: E402
from argus.kernels import attention  # noqa: E402
from argus.kernels.attention import _apart, _together  # noqa: E402
from argus.passes import lower  # noqa: E402
from argus.runtime.function import Function  # noqa: E402
from argus.runtime.work import Work  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.backend.host import run  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402

pytestmark = pytest.mark.slow

LOG2E = 1.4426950408889634

# batch, heads of q, heads of k, queries, keys, head size
SIZES = [
    (1, 1, 1, 1, 1, 64),
    (2, 4, 2, 63, 65, 64),
    (1, 3, 1, 130, 130, 128),
    (1, 2, 2, 65, 300, 128),
    (1, 2, 1, 200, 70, 64),
]


SQUARE = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8}
TALL = {"BLOCK_M": 192, "BLOCK_N": 128, "num_warps": 12, "HEADS": 66, "SCHEDULE": "cooperative"}
HOPPER = {64: TALL, 128: SQUARE}
ELSEWHERE = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4}
HALF = {"BLOCK_M": 64, "BLOCK_N": 128, "STAGES": 2, "num_warps": 4}
LITTLE = {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4}
"""For 64 KiB of shared memory."""


def exact(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> tuple[Any, Any]:
    """The result and the log-sum-exp in float64."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    if causal:
        rows, columns = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        seen = (columns <= rows + k.shape[2] - q.shape[2]).to(scores.device)
        scores = scores.masked_fill(~seen, -float("inf"))
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v, torch.logsumexp(scores, -1)


def operands(sizes: tuple[int, ...], dtype: str, device: str) -> tuple[Any, Any, Any]:
    batch, heads, shared, m, n, d = sizes
    q = random(batch, heads, m, d, dtype=dtype, device=device, seed=1)
    return q, *(random(batch, shared, n, d, dtype=dtype, device=device, seed=seed) for seed in (2, 3))


def accept(found: Any, wanted: Any) -> None:
    eps = torch.finfo(found[0].dtype).eps
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=2 * eps, atol=eps)
    torch.testing.assert_close(found[1].double(), wanted[1], rtol=1e-5, atol=1e-5)


def tiles(target: str, size: int) -> dict[str, int]:
    return HOPPER[size] if target == "sm_90a" else ELSEWHERE


@cache
def lowered(target: str, **constants: Any) -> Kernel:
    path = Path(argus.kernels.__file__).parent / "attention.py"
    module = parse(SourceFile(path.name, path.read_text(encoding="utf-8")))
    chosen = tiles(target, constants["D"])
    blocks = {name: extent for name, extent in chosen.items() if name != "num_warps"}
    options = Options(target, chosen["num_warps"], blocks | constants)
    return lower(check(module, "attention_forward", options), target)


@pytest.mark.product
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("target", ["sm_90a", "cpu"])
def test_text(target: str, sizes: tuple[int, ...], causal: bool, require_tool: Any, **more: int) -> None:
    """The text for a target, run on the host."""
    require_tool("g++", "clang++", "c++")
    batch, heads, shared, m, n, d = sizes
    kernel = lowered(target, DTYPE=bfloat16, D=d, GROUP=heads // shared, CAUSAL=causal, **more)
    q, k, v = operands(sizes, "bfloat16", "cpu")
    bits = {name: x.view(torch.uint16).numpy() for name, x in (("q", q), ("k", k), ("v", v))}
    o = np.full((batch, heads, 1, m, d), 0x7FC0, np.uint16)
    lse = np.full((batch, heads, 1, m), np.nan, np.float32)
    named = {"B": batch, "H": heads, "M": m, "HK": shared, "N": n, "P": 1, "scale": d**-0.5 * LOG2E}
    blocks = -(-m // tiles(target, d)["BLOCK_M"])
    grid = (heads, batch, blocks) if causal else (blocks, heads, batch)
    run(kernel, grid, eager=causal, o=o, lse=lse, **bits, **named)
    found = torch.from_numpy(o).view(torch.bfloat16)[:, :, 0], torch.from_numpy(lse)[:, :, 0]
    accept(found, exact(q, k, v, causal))


@pytest.mark.parametrize("heads", [1, 3])
def test_heads_together(heads: int, require_tool: Any) -> None:
    """Causal programs in groups of so many heads, of all batches: the last group has fewer."""
    test_text("sm_90a", (2, 4, 2, 200, 70, 64), True, require_tool, HEADS=heads)


@pytest.mark.parametrize("causal", [False, True])
def test_in_turns(causal: bool, require_tool: Any) -> None:
    """Warpgroups take turns, at blocks of keys that are no power of two."""
    test_text("sm_90a", (1, 2, 2, 130, 300, 128), causal, require_tool, SCHEDULE="turns", BLOCK_N=80)


@pytest.mark.product
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [*SIZES, (2, 4, 2, 1, 70, 64)])
def test_results(device: str, sizes: tuple[int, ...], causal: bool) -> None:
    q, k, v = operands(sizes, "bfloat16" if sizes[3] % 2 else "float16", device)
    accept(attention(q, k, v, causal=causal, return_lse=True), exact(q, k, v, causal))


@pytest.mark.product
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_many_keys_of_few_queries(device: str, causal: bool) -> None:
    """Parts of the keys, on a GPU that has the copy engine."""
    q, k, v = operands((1, 2, 1, 70, 2100, 64), "float16", device)
    accept(attention(q, k, v, causal=causal, return_lse=True), exact(q, k, v, causal))


@pytest.mark.slow
def test_keys_that_all_queries_see_and_the_others() -> None:
    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Work:
        q, k, _ = tensors
        group = q.shape[1] // k.shape[1]
        made = torch.empty(q.shape, dtype=q.dtype), torch.empty(q.shape[:3])
        constants = {"DTYPE": float16, "D": q.shape[3], "GROUP": group, "CAUSAL": True}
        return _apart(tensors, _together(q, group), made, numbers, constants)

    function = Function(work)
    for offset in (0.0, 0.1):
        q, k, v = operands((2, 4, 2, 5, 70, 64), "float16", "cpu")
        accept(function((q, k + offset, v), (64**-0.5 * LOG2E,)), exact(q, k + offset, v, True))


@pytest.mark.slow
def test_heads_next_to_rows_and_misaligned(device: str) -> None:
    wide = random(2, 70, 3, 4 * 64 + 8, dtype="float16", device=device)
    parts = [wide[..., i : i + 64].transpose(1, 2) for i in (0, 64, 130)]
    accept(attention(*parts, scale=0.3, return_lse=True), exact(*parts, scale=0.3))
    q, k, v = parts[0], parts[1][:, :1], parts[2][:, :1]
    accept(attention(q, k, v, return_lse=True), exact(q, k, v))
    q, k, v = (x.transpose(2, 3).contiguous().transpose(2, 3) for x in parts)
    accept((attention(q, k, v), exact(q, k, v)[1]), exact(q, k, v))


def test_nothing_to_attend_to(device: str) -> None:
    q, k, v = operands((1, 2, 2, 3, 0, 64), "float16", device)
    o, lse = attention(q, k, v, return_lse=True)
    assert not o.any() and bool((lse == -float("inf")).all())
    assert attention(*operands((0, 2, 1, 3, 5, 64), "float16", device)).shape == (0, 2, 3, 64)


@pytest.mark.slow
def test_scores_that_are_not_finite(device: str) -> None:
    q, k, v = operands((1, 1, 1, 4, 5, 64), "bfloat16", device)
    q[0, 0, 1] = float("nan")
    found = attention(q, k, v)
    assert bool(found[0, 0, 1].isnan().all()) and not found[0, 0, [0, 2, 3]].isnan().any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": (2, 3, 5, 96)}, "64 or 128"),
        ({"q": (3, 5, 64)}, "64 or 128"),
        ({"k": (2, 2, 7, 64)}, "divide"),
        ({"scale": -1.0}, "positive"),
        ({"scale": float("nan")}, "positive"),
        ({"dtype": "float32"}, "float16, bfloat16"),
    ],
)
def test_wrong_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    dtype = getattr(torch, change.get("dtype", "float16"))
    q, k = (torch.zeros(change.get(n, (2, 3, 5, 64)), dtype=dtype) for n in "qk")
    with pytest.raises(LaunchError, match=message):
        attention(q, k, k, scale=change.get("scale"))


@pytest.mark.parametrize("causal", [False, True])
def test_parts_of_the_keys(causal: bool, require_tool: Any) -> None:
    """Parts and what joins them, run on the host: the last part is not full, and one has no key that is seen."""
    require_tool("g++", "clang++", "c++")
    batch, heads, m, n, d, parts = 1, 2, 70, 150, 64, 3
    kernel = lowered("cpu", DTYPE=bfloat16, OUT=float32, D=d, GROUP=2, CAUSAL=causal, PARTS=parts, SPAN=64)
    q, k, v = operands((batch, heads, 1, m, n, d), "bfloat16", "cpu")
    bits = {name: x.view(torch.uint16).numpy() for name, x in (("q", q), ("k", k), ("v", v))}
    o = np.full((batch, heads, parts, m, d), np.nan, np.float32)
    levels = np.full((batch, heads, parts, m), np.nan, np.float32)
    named = {"B": batch, "H": heads, "M": m, "HK": 1, "N": n, "P": parts, "scale": d**-0.5 * LOG2E}
    blocks = -(-m // 64) * parts
    grid = (heads, batch, blocks) if causal else (blocks, heads, batch)
    run(kernel, grid, eager=causal, o=o, lse=levels, **bits, **named)
    join = lower(
        check(parse(source_of("attention")), "attention_combine", Options("cpu", 4, {"D": d})), "cpu"
    )
    out, lse = np.full((heads, m, d), 0x7FC0, np.uint16), np.full((heads, m), np.nan, np.float32)
    sizes = {"Z": heads, "P": parts, "M": m}
    run(join, (heads, m), parts=o[0], levels=levels[0], o=out, lse=lse, **sizes)
    found = torch.from_numpy(out).view(torch.bfloat16)[None], torch.from_numpy(lse)[None]
    accept(found, exact(q, k, v, causal))


@pytest.mark.product
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("target", "size", "tiles"),
    [
        ("sm_90a", 64, HOPPER[64]),
        ("sm_90a", 64, SQUARE),
        ("sm_90a", 128, SQUARE),
        ("sm_90a", 128, SQUARE | {"SCHEDULE": "turns"}),
        ("sm_90a", 64, SQUARE | {"SCHEDULE": "turns", "BLOCK_N": 80}),
        ("sm_90a", 64, ELSEWHERE),
        ("sm_80", 64, ELSEWHERE),
        ("gfx942", 64, LITTLE),
        ("gfx942", 128, LITTLE),
    ],
)
def test_proved(target: str, size: int, tiles: dict[str, int], causal: bool) -> None:
    assert_proved("attention", "attention_forward", target, DTYPE="float16", D=size, GROUP=4, CAUSAL=causal, **tiles)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_parts_are_proved(causal: bool) -> None:
    parts = {"PARTS": 4, "SPAN": 1024, "OUT": "float32", "DTYPE": "float16", "GROUP": 4, "CAUSAL": causal}
    for size, tiles in ((128, HALF), (128, SQUARE | {"SCHEDULE": "turns"}), (64, TALL)):
        assert_proved("attention", "attention_forward", "sm_90a", D=size, **tiles, **parts)
    assert_proved("attention", "attention_combine", "sm_90a", DTYPE="float16", D=128, ROOM=64, num_warps=4)
