"""What the GPU headers share, run on the host: narrow floats for all their codes, functions within their error."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from math import erf
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import argus.backend
from argus.ir.expr import OPERATORS

pytestmark = pytest.mark.slow

Floats = NDArray[np.float32]
NARROW = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


@pytest.fixture(scope="module")
def library(require_tool: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = require_tool("c++", "g++", "clang++", "clang++-19")
    output = tmp_path_factory.mktemp("formulas") / "formulas.so"
    source = Path(__file__).parent / "host_formulas.cpp"
    include = Path(argus.backend.__file__).parent
    functions = "".join(f"UNARY({row.name})" for row in OPERATORS.values() if row.takes == "floats" and row.arity == 1)
    flags = [f"-DFUNCTIONS={functions}", "-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(output), "-lm"], check=True, timeout=120)
    return ctypes.CDLL(str(output))


def call(library: ctypes.CDLL, name: str, *arrays: NDArray[np.generic]) -> NDArray[np.generic]:
    result = np.zeros_like(arrays[0])
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, result)]
    getattr(library, name)(*pointers, ctypes.c_int(result.size))
    return result


def interesting() -> Floats:
    """Every float whose low 12 bits are 0, 1 or all ones, a half of an ulp of each narrow type among them."""
    high = np.arange(1 << 20, dtype=np.uint32) << 12
    return np.concatenate([high, high | 1, high | 0xFFF]).view(np.float32)


def same(got: NDArray[np.generic], expected: NDArray[np.generic]) -> None:
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["bfloat16", *NARROW])
def test_narrow_floats_are_pytorchs(library: ctypes.CDLL, name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype, bits = getattr(torch, name), (np.uint16 if name == "bfloat16" else np.uint8)
    values = interesting()
    if name == "float8_e4m3fn" and torch.tensor(480.0).to(dtype).float().isnan():
        values = values[~(np.abs(values) > 464)]  # PyTorch before 2.12 gives NaN for what is too large
    values = values[~np.isnan(values)]
    integer = {2: torch.int16, 1: torch.uint8}[np.dtype(bits).itemsize]
    expected = torch.from_numpy(values).to(dtype).view(integer).numpy().view(bits)
    same(call(library, f"encode_{name}", values), expected.astype(np.float32))
    codes = np.arange(1 << (8 * np.dtype(bits).itemsize)).astype(bits)
    decoded = torch.from_numpy(codes.view(np.int16 if bits is np.uint16 else bits)).view(dtype).float().numpy()
    same(call(library, f"decode_{name}", codes.astype(np.float32)), decoded)


@pytest.mark.parametrize("name", ["bfloat16", *NARROW])
def test_nan_stays_nan(library: ctypes.CDLL, name: str) -> None:
    nans = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(call(library, f"decode_{name}", call(library, f"encode_{name}", nans))).all()


def test_largest_values(library: ctypes.CDLL) -> None:
    """The rule without PyTorch: e4m3fn saturates, e5m2 has infinities, the others turn into NaN."""
    huge = np.array([448, 465, 1e30, np.inf, -np.inf, 61439, 61440], np.float32)
    same(call(library, "encode_float8_e4m3fn", huge), np.array([126, 126, 126, 126, 254, 126, 126], np.float32))
    expected = np.array([0x5F, 0x5F, 0x7C, 0x7C, 0xFC, 0x7B, 0x7C], np.float32)
    same(call(library, "encode_float8_e5m2", huge), expected)
    same(call(library, "encode_float8_e4m3fnuz", huge), np.full(7, 128, np.float32))


def test_tf32_keeps_ten_bits_ties_away(library: ctypes.CDLL) -> None:
    one = np.float32(1)
    ulp = np.float32(2**-10)
    values = np.array([1, 1 + 2**-11, 1 + 2**-11 - 2**-23, -1 - 2**-11, np.inf, -np.inf, 0], np.float32)
    expected = np.array([1, one + ulp, 1, -one - ulp, np.inf, -np.inf, 0], np.float32)
    same(call(library, "round_tf32", values), expected)
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(call(library, "round_tf32", nans)).all()


def test_floats_to_small_integers_saturate(library: ctypes.CDLL) -> None:
    values = np.array([1.9, -1.9, 127.9, 128, -129, 256, np.inf, -np.inf, np.nan, 1e20], np.float32)
    same(call(library, "to_int8", values), np.array([1, -1, 127, 127, -128, 127, 127, -128, 0, 127], np.float32))
    same(call(library, "to_uint8", values), np.array([1, 0, 127, 128, 0, 255, 255, 0, 0, 255], np.float32))


def ulps(got: Floats, exact: NDArray[np.float64]) -> float:
    """Largest error in units of the last place of the float nearest to `exact`."""
    spacing = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return float((np.abs(got.astype(np.float64) - exact) / spacing).max())


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_functions_are_within_two_ulp(library: ctypes.CDLL, name: str) -> None:
    generator = np.random.default_rng(0)
    spread = generator.uniform(-12, 12, 200_000)
    tiny = np.ldexp(generator.uniform(-1, 1, 20_000), generator.integers(-140, 0, 20_000))
    values = np.concatenate([spread, tiny]).astype(np.float32)
    exact = {
        "tanh": lambda x: np.tanh(x),
        "erf": lambda x: np.array([erf(v) for v in x]),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    }[name](values.astype(np.float64))
    assert ulps(call(library, f"f_{name}", values), exact) <= 2


def test_log1p_is_within_three_ulp_for_numbers_of_every_size(library: ctypes.CDLL) -> None:
    generator = np.random.default_rng(0)
    sizes = np.ldexp(generator.uniform(0.5, 1, 100_000), generator.integers(-140, 120, 100_000))
    values = np.concatenate([sizes, -sizes[sizes < 0.999], generator.uniform(-0.999, 4, 100_000)]).astype(np.float32)
    assert ulps(call(library, "f_log1p", values), np.log1p(values.astype(np.float64))) <= 3
    limits = np.array([0.0, -0.0, np.inf, -1.0], np.float32)
    same(call(library, "f_log1p", limits), np.array([0.0, -0.0, np.inf, -np.inf], np.float32))
    assert np.signbit(call(library, "f_log1p", limits)[1])
    assert np.isnan(call(library, "f_log1p", np.array([np.nan, -np.inf, -1.5], np.float32))).all()


def test_expm1_is_within_four_ulp_for_numbers_of_every_size(library: ctypes.CDLL) -> None:
    generator = np.random.default_rng(0)
    sizes = np.ldexp(generator.uniform(0.5, 1, 100_000), generator.integers(-140, 5, 100_000))
    values = np.concatenate([sizes, -sizes, generator.uniform(-90, 88, 100_000)]).astype(np.float32)
    assert ulps(call(library, "f_expm1", values), np.expm1(values.astype(np.float64))) <= 4
    limits = np.array([0.0, -0.0, np.inf, -np.inf, 100.0, -1e30], np.float32)
    same(call(library, "f_expm1", limits), np.array([0.0, -0.0, np.inf, -1.0, np.inf, -1.0], np.float32))
    assert np.signbit(call(library, "f_expm1", limits)[1])
    assert np.isnan(call(library, "f_expm1", np.array([np.nan], np.float32))).all()


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_limits(library: ctypes.CDLL, name: str) -> None:
    values = np.array([0.0, -0.0, np.inf, -np.inf, 100, -1e30], np.float32)
    low, middle = (0.0, 0.5) if name == "sigmoid" else (-1.0, 0.0)
    got = call(library, f"f_{name}", values)
    same(got, np.array([middle, middle, 1, low, 1, low], np.float32))
    assert np.isnan(call(library, f"f_{name}", np.array([np.nan, -np.nan], np.float32))).all()
    assert name == "sigmoid" or np.signbit(got[1])


@pytest.mark.parametrize(("name", "exact"), [("sin", np.sin), ("cos", np.cos)])
def test_waves_are_within_two_ulp_of_every_size_of_angle(
    library: ctypes.CDLL, name: str, exact: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> None:
    """Angles near multiples of pi/2 among them: there all digits of pi count."""
    generator = np.random.default_rng(0)
    multiples = np.arange(1, 30_000) * (np.pi / 2)
    huge = np.exp2(generator.uniform(15, 128, 30_000))
    near = np.float64(np.arange(0, 4 * 10**7, 997)) * (np.pi / 2)
    tiny = np.exp2(generator.uniform(-149, 0, 5_000))
    values = np.concatenate([generator.uniform(0, 40, 50_000), multiples, huge, near, tiny]).astype(np.float32)
    values = np.concatenate([values, -values, np.float32([1.7182846e20, 3.4028235e38, 16367173 * 2.0**72])])
    assert ulps(call(library, f"f_{name}", values), exact(values.astype(np.float64))) <= 2


def test_limits_of_waves(library: ctypes.CDLL) -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    assert np.signbit(call(library, "f_sin", zeros)).tolist() == [False, True]
    same(call(library, "f_cos", zeros), np.ones(2, np.float32))
    for name in ("sin", "cos"):
        assert np.isnan(call(library, f"f_{name}", np.array([np.nan, np.inf, -np.inf], np.float32))).all()


def test_integer_division_rounds_down(library: ctypes.CDLL) -> None:
    x, y = (a.reshape(-1).astype(np.int32) for a in np.meshgrid(np.arange(-20, 21), [-7, -3, -1, 1, 2, 5, 2**30]))
    same(call(library, "i_floordiv", x, y), x // y)
    same(call(library, "i_floormod", x, y), x % y)


def test_the_least_integer_divided_by_minus_one_wraps(library: ctypes.CDLL) -> None:
    """The machine's own division may stop the process there."""
    least = np.array([-(2**31), -(2**31), 2**31 - 1], np.int32)
    divisor = np.array([-1, 1, -1], np.int32)
    same(call(library, "i_floordiv", least, divisor), np.array([-(2**31), -(2**31), -(2**31 - 1)], np.int32))
    same(call(library, "i_floormod", least, divisor), np.zeros(3, np.int32))


def test_integer_arithmetic_wraps(library: ctypes.CDLL) -> None:
    generator = np.random.default_rng(1)
    x, y = (generator.integers(-(2**31), 2**31, 1000).astype(np.int32) for _ in range(2))
    for name, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        same(call(library, f"i_{name}_wrap", x, y), function(x, y))
    same(call(library, "i_minimum", x, y), np.minimum(x, y))
    same(call(library, "i_maximum", x, y), np.maximum(x, y))


def test_float_modulo_is_exact(library: ctypes.CDLL) -> None:
    generator = np.random.default_rng(2)
    x, y = (
        np.ldexp(generator.uniform(-1, 1, 5000), generator.integers(-148, 120, 5000)).astype(np.float32)
        for _ in range(2)
    )
    with np.errstate(invalid="ignore"):
        x[:6], y[:6] = (
            [np.inf, 1, np.nan, 1, -0.0, 5],
            [1, 0, 1, np.inf, 3, np.nan],
        )
        same(call(library, "f_modulo", x, y), np.fmod(x, y))
    x, y = (generator.uniform(low, 50, 5000).astype(np.float32) for low in (-50, 0.5))
    for sign in (1, -1):
        same(call(library, "f_floormod", x, sign * y), np.mod(x, sign * y))


# ---------------------------------------------------------------------------- the order of blocks


def walk(group: int, rows: int, columns: int) -> list[tuple[int, int]]:
    """What the order is by definition: `group` rows at a time (fewer at the end), column by column."""
    return [
        (row, column)
        for first in range(0, rows, group)
        for column in range(columns)
        for row in range(first, min(first + group, rows))
    ]


@pytest.mark.parametrize("group", range(1, 21))
def test_grouped_blocks_are_the_grid_in_their_order(library: ctypes.CDLL, group: int) -> None:
    """Every cell of the grid once, for every grid up to 40 x 40: with it program ids are a bijection of block ids."""
    for rows in range(1, 41):
        for columns in range(1, 41):
            ids = np.empty((rows * columns, 2), np.int32)
            library.grouped(group, rows, columns, ctypes.c_void_p(ids.ctypes.data))
            order = walk(group, rows, columns)
            assert sorted(order) == [(x, y) for x in range(rows) for y in range(columns)]
            assert ids.tolist() == [list(cell) for cell in order]


@pytest.mark.parametrize("dies", [1, 3, 8])
def test_each_die_has_consecutive_blocks(library: ctypes.CDLL, dies: int) -> None:
    """Every number once, for every grid up to 300 blocks; die d runs the blocks d, d + dies, ..., in their order."""
    for blocks in range(1, 301):
        numbers = np.empty(blocks, np.int32)
        library.of_die(blocks, dies, ctypes.c_void_p(numbers.ctypes.data))
        assert np.concatenate([numbers[die::dies] for die in range(dies)]).tolist() == list(range(blocks))


@pytest.mark.parametrize(
    ("group", "rows", "columns", "block", "expected"),
    [
        (8, 2**31 - 1, 1, (2**31 - 2, 0), (2**31 - 2, 0)),
        (2**31 - 1, 2**15, 65535, (2**15 - 1, 65534), (2**15 - 1, 65534)),
        (8, 65536, 32767, (65535, 32766), (65535, 32766)),
        (8, 65536, 32767, (3, 0), (3, 0)),
        (8, 65536, 65535, (65535, 65534), (65535, 65534)),  # more blocks than an int counts: their own order
        (8, 65536, 65535, (9, 5), (9, 5)),
    ],
)
def test_grouped_blocks_of_large_grids(
    library: ctypes.CDLL, group: int, rows: int, columns: int, block: tuple[int, int], expected: tuple[int, int]
) -> None:
    ids = np.empty(2, np.int32)
    library.grouped_one(group, rows, columns, *block, ctypes.c_void_p(ids.ctypes.data))
    assert tuple(ids) == expected


def test_the_largest_integer_below_a_bound(library: ctypes.CDLL) -> None:
    ends = np.array([-(2**31), 1 - 2**31, -1, 0, 1, 2**31 - 2, 2**31 - 1], np.int32)
    generator = np.random.default_rng(0)
    both = [np.concatenate([generator.choice(ends, 5000), generator.integers(-(2**31), 2**31, 5000, dtype=np.int32)])
            for _ in range(2)]  # fmt: skip
    bound, first = both
    values = np.stack([np.roll(first, -i) for i in range(4)])
    expected = np.where(values < bound, values, ends[0]).max(0)
    same(call(library, "below", bound, first), expected)


def test_integers_in_the_order_of_floats(library: ctypes.CDLL) -> None:
    codes = np.array([0, 1, 0x7F800000, 0x7F800001, 0x7FFFFFFF], np.uint32)
    values = np.concatenate([codes, codes | np.uint32(1 << 31)])
    below_zero = (values >> 31 == 1) & (values & 0x7FFFFFFF <= 0x7F800000)
    magnitudes = (values & 0x7FFFFFFF).astype(np.int64)
    result = np.zeros(len(values), np.int32)
    library.order(*(ctypes.c_void_p(a.ctypes.data) for a in (values, result)), len(values))
    same(result, np.where(below_zero, -magnitudes, magnitudes).astype(np.int32))
