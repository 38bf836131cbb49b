"""The examples at sizes that do not divide, against NumPy; their rejected twins break a rule."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from argus.frontend import Options, check, parse
from argus.ir import types
from argus.ir.nodes import Kernel
from argus.passes import lower
from argus.simulate import simulate
from argus.simulate.numeric import round_to
from argus.source import SourceFile
from tests.conftest import example_runs, example_target
from tests.random_numbers import philox

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
Arrays = dict[str, NDArray[np.generic]]


@cache
def explicit(path: str, name: str, target: str) -> Kernel:
    source = SourceFile(path, Path(path).read_text(encoding="utf-8"))
    return lower(check(parse(source), name, Options(target=target, default_alignment=4)), target)


def inputs(name: str) -> tuple[dict[str, NDArray[np.generic] | float], NDArray[np.generic]]:
    """Arguments at awkward sizes, and what the output should be."""
    rng = np.random.default_rng(11)

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape).astype(np.float32)

    match name:
        case "vector_add":
            x, y = normal(2051), normal(2051)
            return {"x": x, "y": y, "out": np.zeros_like(x)}, x + y
        case "softmax" | "cluster_softmax":
            x = normal(5, 999) if name == "softmax" else normal(2, 7003)
            e = np.exp(x - x.max(1, keepdims=True))
            return {"x": x, "out": np.zeros_like(x)}, e / e.sum(1, keepdims=True)
        case "rmsnorm":
            x, w = bfloat16(normal(3, 902)), bfloat16(normal(902))
            expected = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5) * w
            return {"x": x, "weight": w, "out": np.zeros_like(x), "eps": 1e-5}, expected
        case "transpose":
            x = normal(71, 39)
            return {"x": x, "out": np.zeros((39, 71), np.float32)}, x.T
        case "embedding":
            table = normal(11, 302).astype(np.float16)
            tokens = rng.integers(0, 11, 37).astype(np.int32)
            return {"tokens": tokens, "table": table, "out": np.zeros((37, 302), np.float16)}, table[tokens]
        case "gemm" | "gemm_explicit" | "gemm_hopper" | "gemm_pingpong" | "gemm_waves" | "gemm_turns":
            a, b = bfloat16(normal(139, 74)), bfloat16(normal(78, 74))
            return {"a": a, "b": b, "c": np.zeros((139, 78), np.float32)}, a @ b.T
        case "split_k":
            a, b = bfloat16(normal(35, 520)), bfloat16(normal(78, 520))
            return {"a": a, "b": b, "c": np.zeros((35, 78), np.float32)}, a @ b.T
        case "stream_k_atomic":
            a, b = bfloat16(normal(70, 200)), bfloat16(normal(140, 200))
            return {"a": a, "b": b, "c": np.zeros((70, 140), np.float32)}, a @ b.T
        case "linear":
            x, weight, bias = bfloat16(normal(70, 74)), bfloat16(normal(78, 74)), normal(78)
            empty = np.zeros((70, 78), np.float32)
            return {"x": x, "weight": weight, "bias": bias, "out": empty}, np.maximum(x @ weight.T + bias, 0)
        case "column_sum":
            x = normal(71, 139)
            return {"x": x, "total": np.zeros(139, np.float32)}, x.sum(0)
        case "dropout":
            x = normal(300)
            number = philox(7, np.arange(300)) >> 8
            kept = np.where(number < 2**23, x * np.float32(2), np.float32(0))
            return {"x": x, "out": np.zeros_like(x), "seed": 7, "share": 2**23, "scale": 2.0}, kept
        case "cumsum":
            x = normal(11, 39)
            return {"x": x, "out": np.zeros_like(x)}, x.cumsum(1)
        case "conv2d":
            x, weight, bias = normal(1, 2, 9, 37), normal(3, 2, 3, 3), normal(3)
            out = np.zeros((1, 3, 9, 37), np.float32)
            return {"x": x, "weight": weight, "bias": bias, "out": out}, conv2d(x, weight, bias)
        case "depthwise":
            x, weight, bias = normal(2, 3, 9, 70), normal(3, 3, 3), normal(3)
            return {"x": x, "weight": weight, "bias": bias, "out": np.zeros_like(x)}, depthwise(x, weight, bias)
        case "rotary":
            x, frequency = normal(1, 5, 2, 2, 9), normal(9)
            position = np.float32([0, 1, 2, 3, 4])
            expected = rotary(x, position, frequency)
            return {"x": x, "position": position, "frequency": frequency, "out": np.zeros_like(x)}, expected
        case "grouped_matmul":
            x, w = bfloat16(normal(139, 74)), bfloat16(normal(3, 78, 74))
            offsets = np.array([0, 70, 70, 139], np.int32)
            arguments = {"x": x, "offsets": offsets, "w": w, "out": np.zeros((139, 78), np.float32), "most": 70}
            return arguments, by_expert(x, offsets, w)
        case "gathered_matmul":
            x, w = bfloat16(normal(11, 74)), bfloat16(normal(3, 78, 74))
            offsets, token = np.array([0, 70, 70, 139], np.int32), rng.integers(0, 11, 139).astype(np.int32)
            out = np.zeros((139, 78), np.float32)
            arguments = {"x": x, "token": token, "offsets": offsets, "w": w, "out": out, "most": 70}
            return arguments, by_expert(x[token], offsets, w)
        case "paged_decode":
            q, keys, values = (bfloat16(normal(*n)) for n in ((3, 2, 8, 64), (9, 16, 2, 64), (9, 16, 2, 64)))
            table, lens = rng.permutation(9).reshape(3, 3).astype(np.int32), np.array([17, 48, 0], np.int32)
            arguments = {"q": q, "keys": keys, "values": values, "table": table, "lens": lens, "scale": 0.25}
            return {**arguments, "out": np.zeros((3, 2, 8, 64), np.float32)}, paged(q, keys, values, table, lens)
        case _:
            raise AssertionError(f"no inputs for the example {name}")


def by_expert(
    x: NDArray[np.float32], offsets: NDArray[np.int32], w: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Rows times the weights of the expert whose segment they stand in."""
    expert = np.searchsorted(offsets, np.arange(len(x)), side="right") - 1
    return np.einsum("tk,tnk->tn", x, w[expert])


def paged(
    q: NDArray[np.float32], keys: NDArray[np.float32], values: NDArray[np.float32], table: NDArray[np.int32],
    lens: NDArray[np.int32],
) -> NDArray[np.float32]:  # fmt: skip
    """Attention to the first keys of each sequence's pages; nothing where there are none."""
    result = np.zeros(q.shape, np.float32)
    for b, length in enumerate(lens):
        if length:
            k, v = (np.concatenate(list(cache[table[b]]))[:length] for cache in (keys, values))
            weights = np.exp(np.einsum("hgd,jhd->hgj", q[b], k) * 0.25)
            result[b] = np.einsum("hgj,jhd->hgd", weights / weights.sum(-1, keepdims=True), v)
    return result


def conv2d(x: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float32]:
    """The convolution with a border of zeros."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    return np.einsum("bchwrs,ocrs->bohw", windows, weight) + bias[:, None, None]


def depthwise(x: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float32]:
    """The convolution of each channel by its own filter, with a border of zeros."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    return np.einsum("bchwrs,crs->bchw", windows, weight) + bias[:, None, None]


def rotary(
    x: NDArray[np.float32], position: NDArray[np.float32], frequency: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Pairs of features as complex numbers, turned by position times frequency; angles are float32."""
    angle = (position[:, None] * frequency)[None, :, None].astype(np.float64)
    turned = (x[:, :, :, 0] + 1j * x[:, :, :, 1]) * np.exp(1j * angle)
    return np.stack([turned.real, turned.imag], 3).astype(np.float32)


def bfloat16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return round_to(values, types.bfloat16)


TARGETS = [(n, t) for n in NAMES for t in ("sm_80", "gfx942", "sm_90a") if t == example_target(n) or t == "gfx942"]


@pytest.mark.parametrize(("name", "target"), [(n, t) for n, t in TARGETS if example_runs(n, t)])
def test_accepted(name: str, target: str) -> None:
    arguments, expected = inputs(name)
    outcome = simulate(explicit(str(EXAMPLES / f"{name}.py"), name, target), arguments, tags=True)
    assert outcome.ok, [str(v) for v in outcome.violations]
    (output,) = (outcome.tensors[t] for t in ("c", "out", "total") if t in outcome.tensors)
    np.testing.assert_allclose(output, expected, rtol=2**-7, atol=2e-3)


PROPERTIES = {
    "vector_add": "bounds",
    "softmax": "tags",
    "cluster_softmax": "races",
    "rmsnorm": "tags",
    "transpose": "races",
    "embedding": "bounds",
    "gemm": "tags",
    "gemm_explicit": "races",
    "gemm_hopper": "tags",
    "gemm_pingpong": "tags",
    "gemm_waves": "races",
    "gemm_turns": "races",
    "split_k": "races",
    "stream_k_atomic": "races",
    "linear": "tags",
    "column_sum": "bounds",
    "cumsum": "tags",
    "dropout": "tags",
    "conv2d": "tags",
    "depthwise": "bounds",
    "rotary": "tags",
    "grouped_matmul": "bounds",
    "gathered_matmul": "bounds",
    "paged_decode": "tags",
}


@pytest.mark.parametrize("name", NAMES)
def test_rejected(name: str) -> None:
    arguments, _ = inputs(name)
    if name == "embedding":  # a token that the table does not have, which nothing excludes
        arguments["tokens"] = np.asarray(arguments["tokens"]) + np.int32(3)
    path = EXAMPLES / "rejected" / f"{name}.py"
    outcome = simulate(explicit(str(path), f"{name}_rejected", example_target(name)), arguments, tags=True)
    assert PROPERTIES[name] in {v.property for v in outcome.violations}, [str(v) for v in outcome.violations]
    assert any(v.statement is not None and v.statement.span.known for v in outcome.violations)
