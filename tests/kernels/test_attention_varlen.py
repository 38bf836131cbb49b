"""Attention of packed sequences: against float64, empty and short ones, offsets that are wrong, proofs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options, check, parse  # noqa: E402
from argus.kernels import attention_varlen  # noqa: E402
from argus.kernels.attention_varlen import _SHORT, _TILES  # noqa: E402
from argus.passes import lower  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.backend.host import run  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402


def offsets(lengths: list[int], device: str) -> Any:
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device=device)


def packed(heads: tuple[int, int, int], queries: list[int], keys: list[int], dtype: str, device: str) -> list[Any]:
    """Queries, keys, values and offsets; `heads`: of queries, of keys, and their elements."""
    shapes = ((sum(queries), heads[0]), (sum(keys), heads[1]), (sum(keys), heads[1]))
    tensors = [random(*s, heads[2], dtype=dtype, device=device, seed=i) for i, s in enumerate(shapes)]
    return [*tensors, offsets(queries, device), offsets(keys, device)]


def exact(q: Any, k: Any, v: Any, rows: Any, keys: Any, causal: bool) -> tuple[Any, Any]:
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    results, levels = [], []
    rows, keys = rows.tolist(), keys.tolist()
    for a, b, c, d in zip(rows[:-1], rows[1:], keys[:-1], keys[1:], strict=True):
        x = torch.einsum("mhd,nhd->hmn", q[a:b], k[c:d]) * q.shape[2] ** -0.5
        if causal:
            seen = torch.ones(b - a, d - c, dtype=torch.bool, device=x.device).tril(d - c - (b - a))
            x = x.masked_fill(~seen, -float("inf"))
        results.append(torch.einsum("hmn,nhd->mhd", x.softmax(-1).nan_to_num(0.0), v[c:d]))
        levels.append(x.logsumexp(-1))
    return torch.cat(results), torch.cat(levels, 1)


@pytest.mark.slow
@pytest.mark.product
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "queries", "keys"),
    [
        ((2, 1, 64), [70, 0, 1, 33], [70, 5, 3, 20]),
        ((2, 2, 128), [5, 130], [0, 131]),
        ((1, 1, 64), [3] * 40, [5] * 40),
        ((1, 1, 64), [0, 0, 9, 0], [1, 0, 9, 4]),
    ],
)
def test_results(device: str, heads: tuple[int, int, int], queries: list[int], keys: list[int], causal: bool) -> None:
    given = packed(heads, queries, keys, "bfloat16", device)
    found, levels = attention_varlen(*given, causal=causal, return_lse=True)
    right, exactly = exact(*given, causal)
    eps = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double(), right, rtol=2 * eps, atol=eps)
    torch.testing.assert_close(levels.double(), exactly, rtol=1e-5, atol=1e-5)


def tiles(queries: list[int], keys: list[int], side: int, causal: bool) -> list[Any]:
    """Where each tile's rows begin, and the keys of its last row: what `cut_sequences` finds, one tile left over."""
    first, begin, end = [], [], []
    row = key = 0
    for m, n in zip(queries, keys, strict=True):
        for at in range(0, m, side):
            first.append(row + at)
            begin.append(key)
            end.append(max(key, key + n - (m - min(at + side, m) if causal else 0)))
        row, key = row + m, key + n
    found = ([*first, row, row], [*begin, 0, 0], [*end, 0, 0])
    return [np.array(x, np.int32) for x in found]


@pytest.mark.slow
@pytest.mark.product
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "queries", "keys"),
    [((2, 1, 64), [70, 0, 1, 333], [70, 5, 3, 320]), ((2, 2, 128), [5, 130, 300], [0, 131, 40])],
)
@pytest.mark.parametrize("side", [64, 128])
def test_text_for_the_copy_engine(
    side: int, heads: tuple[int, int, int], queries: list[int], keys: list[int], causal: bool, require_tool: Any
) -> None:
    """The text for sm_90a, whose blocks go through several programs, run on the host."""
    require_tool("g++", "clang++", "c++")
    found = _SHORT if side == 64 else _TILES
    constants = {name: value for name, value in found.items() if name != "num_warps"}
    constants |= {"D": heads[2], "GROUP": heads[0] // heads[1], "CAUSAL": causal}
    module = parse(source_of("attention_varlen"))
    kernel = lower(check(module, "attention_packed", Options("sm_90a", int(found["num_warps"]), constants)), "sm_90a")
    given = packed(heads, queries, keys, "bfloat16", "cpu")
    bits = {name: x.view(torch.uint16).numpy() for name, x in zip("qkv", given, strict=False)}
    o = np.full((sum(queries), *heads[::2]), 0x7FC0, np.uint16)
    lse = np.full((heads[0], sum(queries)), np.nan, np.float32)
    plan = dict(zip(("first", "begin", "end"), tiles(queries, keys, side, causal), strict=True))
    sizes = {"T": sum(queries), "H": heads[0], "S": sum(keys), "HK": heads[1], "L1": len(plan["first"])}
    grid = (heads[0], sizes["L1"] - 1, 1)
    run(kernel, grid, o=o, lse=lse, scale=heads[2] ** -0.5 * 1.4426950408889634, **bits, **plan, **sizes)
    right, exactly = exact(*given, causal)
    torch.testing.assert_close(torch.from_numpy(o).view(torch.bfloat16).double(), right, rtol=0.016, atol=0.008)
    torch.testing.assert_close(torch.from_numpy(lse).double(), exactly, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wrong", [[0, 40, 20, 50], [0, 900, 20, 50], [7, 20, 30, 2000], [0, -5, 3, 50]])
def test_offsets_that_are_wrong_leave_other_memory_alone(device: str, wrong: list[int]) -> None:
    """Results are whatever they are, but rows and keys beyond the tensors are not touched."""
    q, k, v, rows, keys = packed((1, 1, 64), [20, 10, 20], [20, 10, 20], "float16", device)
    bad = torch.tensor(wrong, dtype=torch.int32, device=device)
    for given in ((bad, keys), (rows, bad), (bad, bad)):
        assert attention_varlen(q, k, v, *given, causal=True).shape == q.shape
    assert attention_varlen(q, k, v, rows, keys).isfinite().all()


def test_nothing_to_attend_to(device: str) -> None:
    given = packed((2, 1, 64), [3, 2], [0, 0], "float16", device)
    found, levels = attention_varlen(*given, return_lse=True)
    assert not found.any() and (levels == -float("inf")).all()


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, lambda x: x[..., :32], "`k` has the shape"),
        (1, lambda x: x[:, :0], "`v` has the shape"),
        (2, lambda x: x.double(), "`v` is a tensor of float64"),
        (3, lambda x: x.long(), "`cu_seqlens_q` is a tensor of int64"),
        (4, lambda x: x[:1], "`cu_seqlens_k` has the shape"),
    ],
)
def test_wrong_arguments_are_refused(place: int, change: Any, message: str) -> None:
    given = packed((2, 1, 64), [3, 2], [3, 2], "float16", "cpu")
    given[place] = change(given[place])
    with pytest.raises(LaunchError, match=message):
        attention_varlen(*given)


ELSEWHERE: dict[str, Any] = {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4}
HOPPER: dict[str, Any] = {"SCHEDULE": "turns", "num_warps": 8}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "constants"),
    [
        ("sm_90a", {**HOPPER, "CAUSAL": True, "GROUP": 4}),
        ("sm_90a", {**HOPPER, "D": 64}),
        ("sm_90a", {"BLOCK_M": 64, "num_warps": 4, "CAUSAL": True}),
        ("sm_80", {**ELSEWHERE, "CAUSAL": True}),
        ("gfx942", {**ELSEWHERE, "D": 64}),
    ],
)
def test_proved(target: str, constants: dict[str, Any]) -> None:
    assert_proved("attention_varlen", "attention_packed", target, **constants)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942"])
def test_tiles_are_proved(target: str) -> None:
    assert_proved("attention_varlen", "cut_sequences", target, alignment=4, CAUSAL=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("seen = ends - (m1 - 1) + p", "seen = ends - m1 + p"),
        ("last = begins + (blocks - 1) * BLOCK_N", "last = begins + blocks * BLOCK_N"),
        ("mask=(p < m1)[:, None]", "boundary_check=(0,)"),
    ],
)
def test_wrong_rows_are_not_proved(right: str, wrong: str) -> None:
    """Twins of the kernel that `test_proved` accepts."""
    text = source_of("attention_varlen").text
    assert text.count(right) == 1
    options = Options("sm_80", 4, {"D": 64, "CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 32})
    report = prove(SourceFile("wrong.py", text.replace(right, wrong)), "attention_packed", options)
    assert report.verdict is not Verdict.PROVED
