"""Values: what explicit kernels compute, against NumPy, at sizes that do and do not divide."""

from __future__ import annotations

import numpy as np
import pytest

from argus.ir.instruction import MMA
from argus.ir.instruction.tiled import tiled_mma
from argus.simulate import Outcome, simulate
from tests.simulate.kernels import TRANSPOSE, VECTOR_ADD, gemm_text, parse


def explained(outcome: Outcome) -> list[str]:
    return [str(v) for v in outcome.violations]


@pytest.mark.parametrize("n", [0, 1, 127, 128, 300])
@pytest.mark.parametrize("schedule", ["program", "reverse", "random(3)"])
def test_vector_add(n: int, schedule: str) -> None:
    x = np.arange(n, dtype=np.float32)
    arguments = {"x": x, "y": 2 * x, "out": np.zeros(n, np.float32)}
    outcome = simulate(parse(VECTOR_ADD), arguments, tags=True, schedule=schedule)
    assert not explained(outcome) and outcome.complete
    np.testing.assert_array_equal(outcome.tensors["out"], 3 * x)
    assert not arguments["out"].any(), "arguments are not changed"


@pytest.mark.parametrize("schedule", ["program", "reverse", "random(3)"])
def test_transpose(schedule: str) -> None:
    x = np.arange(512, dtype=np.float32).reshape(16, 32)
    arguments = {"x": x, "out": np.zeros((32, 16), np.float32)}
    outcome = simulate(parse(TRANSPOSE), arguments, tags=True, schedule=schedule)
    assert not explained(outcome)
    np.testing.assert_array_equal(outcome.tensors["out"], x.T)


def product(m: int, n: int, k: int, dtype: str = "bfloat16") -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (n, k))
    kind, result = (np.int8, np.int32) if dtype == "int8" else (np.float32, np.float32)
    return {"a": a.astype(kind), "b": b.astype(kind), "c": np.zeros((m, n), result)}, (a @ b.T).astype(result)


@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 16), (40, 20, 48), (5, 3, 8), (64, 64, 0), (33, 64, 24)])
def test_gemm(m: int, n: int, k: int) -> None:
    arguments, expected = product(m, n, k)
    outcome = simulate(parse(gemm_text()), arguments)
    assert not explained(outcome)
    np.testing.assert_array_equal(outcome.tensors["c"], expected)


def test_gemm_of_other_types_and_warps() -> None:
    for dtype, block, instr, swizzle in (
        ("float16", (32, 32, 32), "mma_m16n8k16", "Sw<2,3,3> o 0 o "),
        ("int8", (32, 32, 32), "mma_m16n8k32", "Sw<1,4,3> o 0 o "),
    ):
        arguments, expected = product(64, 40, 64, dtype)
        outcome = simulate(parse(gemm_text(block, (2, 2), instr, dtype, swizzle)), arguments, tags=False)
        assert not explained(outcome)
        np.testing.assert_array_equal(outcome.tensors["c"], expected)


def test_larger_gemm() -> None:
    arguments, expected = product(256, 256, 256)
    kernel = parse(gemm_text((128, 128, 32), (2, 2), swizzle="Sw<2,3,3> o 0 o "))
    outcome = simulate(kernel, arguments, tags=True)
    assert not explained(outcome)
    np.testing.assert_array_equal(outcome.tensors["c"], expected)


def test_bfloat16_rounds_at_every_write() -> None:
    x = np.linspace(0.1, 3, 512, dtype=np.float32).reshape(16, 32)
    kernel = parse(TRANSPOSE.replace("float32", "bfloat16"), ("Sw<2,2,3> o 0 o ", ""))
    outcome = simulate(kernel, {"x": x, "out": np.zeros((32, 16), np.float32)})
    bits = outcome.tensors["out"].view(np.uint32)
    assert not (bits & 0xFFFF).any()
    np.testing.assert_allclose(outcome.tensors["out"], x.T, rtol=2**-8)


def test_wrong_declared_layout_gives_what_the_hardware_would() -> None:
    """Lanes hold what the instruction says, so an accumulator declared with other lanes comes out permuted."""
    arguments, expected = product(32, 32, 16)
    text = gemm_text()
    accumulator = str(tiled_mma(MMA["mma_m16n8k16"], (32, 32, 16), (2, 1)).c)
    swapped = accumulator.replace("t 4@1*2 8@0", "t 8@0 4@1*2")
    outcome = simulate(parse(text, (accumulator, swapped)), arguments)
    assert not np.array_equal(outcome.tensors["c"], expected)
    np.testing.assert_array_equal(np.sort(outcome.tensors["c"], axis=None), np.sort(expected, axis=None))
    np.testing.assert_array_equal(simulate(parse(text), arguments).tensors["c"], expected)
