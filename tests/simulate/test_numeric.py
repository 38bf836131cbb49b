"""Rounding against PyTorch's casts, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from argus.ir.types import DTYPES, bfloat16, int8, int32, int64
from argus.simulate.numeric import bf16_to_bits, bits_to_bf16, from_bits, round_to, to_bits

FLOATS = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def samples() -> np.ndarray:
    rng = np.random.default_rng(0)
    wide = rng.standard_normal(4000) * np.exp2(rng.integers(-30, 20, 4000))
    grid = np.arange(-520, 520, 0.5)  # ties of the 8-bit formats, and their overflow thresholds
    tiny = np.arange(-64, 64) * 2.0**-20
    return np.concatenate([wide, grid, tiny, [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)


@pytest.mark.parametrize("name", FLOATS)
def test_rounds_as_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    values = samples()
    if torch.__version__ < "2.12":  # where an overflow of float8_e4m3fn is NaN, not the largest number
        values = values[~(np.abs(values) > 464)]
    expected = torch.from_numpy(values.copy()).to(getattr(torch, name)).float().numpy()
    np.testing.assert_array_equal(round_to(values, DTYPES[name]), expected)


@pytest.mark.parametrize("name", FLOATS)
def test_bits_round_trip(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = DTYPES[name]
    bits = np.arange(2**dtype.bits).astype(f"uint{dtype.bits}")
    signed = torch.from_numpy(bits.view(f"int{dtype.bits}").copy())
    expected = signed.view(getattr(torch, name)).float().numpy()
    values = from_bits(bits, dtype)
    np.testing.assert_array_equal(values, expected)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(to_bits(values, dtype)[number], bits[number])


def test_bf16_helpers_are_inverse() -> None:
    bits = np.array([0x3F80, 0xC000, 0x0001], dtype=np.uint16)
    np.testing.assert_array_equal(bf16_to_bits(bits_to_bf16(bits)), bits)
    assert round_to(np.float32([1.00390625]), bfloat16)[0] == 1.0  # a tie goes to even


def test_integers_wrap_and_floats_truncate() -> None:
    assert round_to(np.array([130, -129]), int8).tolist() == [-126, 127]
    assert round_to(np.array([-1.9, 3e9]), int32).tolist() == [-1, 2**31 - 1]
    beyond = np.array([np.inf, 2.0**63, 2.0**62, -(2.0**63), -np.inf, np.nan])
    assert round_to(beyond, int64).tolist() == [2**63 - 1, 2**63 - 1, 2**62, -(2**63), -(2**63), 0]
