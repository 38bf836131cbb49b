"""Conversions and elementwise functions of the CUDA header on the hardware."""

from __future__ import annotations

from collections.abc import Callable
from math import erf

import numpy as np
import pytest

from argus.backend.device_api import TYPES

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

from tests.gpu.device import run  # noqa: E402

BITS = {"float16": np.uint16, "bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8,
        "float8_e4m3fnuz": np.uint8, "float8_e5m2fnuz": np.uint8}  # fmt: skip
INTEGERS = {"int8": np.int8, "uint8": np.uint8, "int32": np.int32, "int64": np.int64, "bool": np.bool_}
GRID = 64


def elementwise(expression: str, types: list[str], inputs: list[np.ndarray], output: np.ndarray) -> np.ndarray:
    """`output[i] = expression` of `x = p0[i]` (and `y = p1[i]`) for all i."""
    count = output.size
    loads = "".join(f"const auto {'xy'[i]} = p{i}[i];" for i in range(len(inputs)))
    body = f"""
    for (int i = argus::block_id<0>() * 256 + t; i < {count}; i += 256 * {GRID}) {{
        {loads}
        p{len(inputs)}[i] = {expression};
    }}"""
    cpp = [f"const {t}" for t in types[:-1]] + [types[-1]]
    return run(body, cpp, [*inputs, output], threads=256, grid=(GRID, 1, 1))[-1]


def floats() -> np.ndarray:
    """Every float whose low 12 bits are 0, 1 or all ones: all values of the narrow types, and their neighbours."""
    high = np.arange(1 << 20, dtype=np.uint32) << 12
    return np.concatenate([high, high | 1, high | 0xFFF]).view(np.float32)


def narrowed(values: np.ndarray, name: str) -> np.ndarray:
    """PyTorch's conversion on the CPU, e4m3fn saturating as it does from 2.12 on."""
    if name == "float8_e4m3fn":
        values = np.clip(values, -448, 448)
    view = torch.int16 if BITS[name] is np.uint16 else torch.uint8
    return torch.from_numpy(values).to(getattr(torch, name)).view(view).numpy().view(BITS[name])


def widened(bits: np.ndarray, name: str) -> np.ndarray:
    signed = bits.view(np.int16) if bits.dtype == np.uint16 else bits
    return torch.from_numpy(signed).view(getattr(torch, name)).float().numpy()


@pytest.mark.parametrize("name", list(BITS))
def test_from_float(name: str) -> None:
    values = floats()
    output = np.zeros(values.size, BITS[name])
    got = elementwise(f"argus::cast<{TYPES[name]}>(x)", ["float", TYPES[name]], [values], output)
    nan = np.isnan(values)
    assert np.isnan(widened(got[nan], name)).all()
    np.testing.assert_array_equal(got[~nan], narrowed(values[~nan], name))


@pytest.mark.parametrize("name", [name for name, bits in BITS.items() if bits is np.uint8])
def test_several_from_float(name: str) -> None:
    values = floats()
    cpp, count = TYPES[name], values.size // 4
    body = f"""
    for (int i = t; i < {count}; i += 256) {{
        alignas(16) float wide[4];
        alignas(16) {cpp} few[4];
        argus::load_global<4>(p0, argus::i64(i) * 4, wide);
        argus::narrow<4>(wide, few);
        argus::store_global<4>(p1, argus::i64(i) * 4, few);
    }}"""
    got = run(body, ["const float", cpp], [values, np.zeros(values.size, BITS[name])], threads=256)[1]
    nan = np.isnan(values)
    assert np.isnan(widened(got[nan], name)).all()
    np.testing.assert_array_equal(got[~nan], narrowed(values[~nan], name))


@pytest.mark.parametrize("to", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int8"])
def test_eight_bits_to_sixteen_for_every_pattern(name: str, to: str) -> None:
    """Four neighbours at a time, each pattern in each place of a word."""
    codes = np.concatenate([np.roll(np.arange(256, dtype=np.uint8), shift) for shift in range(4)])
    body = f"""
    alignas(4) {TYPES[name]} from[4];
    alignas(8) {TYPES[to]} wide[4];
    for (int i = 0; i < 4; ++i) from[i] = p0[4 * t + i];
    argus::widen<4>(from, wide);
    for (int i = 0; i < 4; ++i) p1[4 * t + i] = wide[i];"""
    given = [codes.view(np.int8) if name == "int8" else codes, np.zeros(1024, BITS[to])]
    got = run(body, [f"const {TYPES[name]}", TYPES[to]], given, threads=256)[1]
    exact = codes.view(np.int8).astype(np.float32) if name == "int8" else widened(codes, name)
    np.testing.assert_array_equal(widened(got, to), exact)


@pytest.mark.parametrize("place", [0, 3, 4, 7, 8])
@pytest.mark.parametrize("most", [15, 255])
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_fractions_of_packed_integers(name: str, most: int, place: int) -> None:
    """Every pair of numbers, less every integer and some that are none; other bits of the word do not count."""
    first, less = (n.reshape(-1) for n in np.meshgrid(np.arange(most + 1, dtype=np.uint32), np.arange(-9.5, 300, 0.5)))
    second, unit = first[::-1], 2.0**-6 if name == "bfloat16" else 2.0**-9
    others = ~np.uint32((most << place) * 65537 & 0xFFFFFFFF) & np.uint32(0x9E3779B9)
    words, cpp = (first | second << 16) << place | others, TYPES[name]
    body = f"""
    for (int i = t; i < {first.size}; i += 256) {{
        alignas(16) {cpp} both[2];
        argus::fractions<{most}>(p0[i], {place}, argus::cast<{cpp}>(p1[i]), both);
        p2[2 * i] = both[0];
        p2[2 * i + 1] = both[1];
    }}"""
    given = [words, (less * unit).astype(np.float32), np.zeros(2 * first.size, BITS[name])]
    got = run(body, ["const unsigned", "const float", cpp], given, threads=256)[2]
    rounded = torch.tensor(less * unit).to(getattr(torch, name)).double()
    for half, numbers in enumerate((first, second)):
        exact = (torch.tensor(numbers.astype(np.float64)) * unit - rounded).to(getattr(torch, name))
        np.testing.assert_array_equal(widened(got[half::2], name), exact.float().numpy())


@pytest.mark.parametrize("name", list(BITS))
def test_to_float_for_every_pattern(name: str) -> None:
    codes = np.arange(1 << (8 * np.dtype(BITS[name]).itemsize)).astype(BITS[name])
    got = elementwise("argus::cast<float>(x)", [TYPES[name], "float"], [codes], np.zeros(codes.size, np.float32))
    np.testing.assert_array_equal(got, widened(codes, name))


@pytest.mark.parametrize("to", list(BITS))
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_between_narrow_types_for_every_pattern(name: str, to: str) -> None:
    codes = np.arange(1 << 16).astype(np.uint16)
    output = np.zeros(codes.size, BITS[to])
    got = elementwise(f"argus::cast<{TYPES[to]}>(x)", [TYPES[name], TYPES[to]], [codes], output)
    values = widened(codes, name)
    if name == to:
        np.testing.assert_array_equal(got, codes)
        return
    nan = np.isnan(values)
    assert np.isnan(widened(got[nan], to)).all()
    np.testing.assert_array_equal(got[~nan], narrowed(values[~nan], to))


def test_tf32_keeps_ten_bits_ties_away() -> None:
    values = floats()
    got = elementwise(
        "argus::cast<float>(argus::cast<argus::tf32>(x))", ["float", "float"], [values], np.zeros_like(values)
    )
    nan = np.isnan(values)
    assert np.isnan(got[nan]).all()
    expected = (values.view(np.uint32) + np.uint32(0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
    np.testing.assert_array_equal(got[~nan], expected[~nan])


@pytest.mark.parametrize("name", list(INTEGERS))
def test_floats_to_integers_truncate_and_saturate(name: str) -> None:
    values = floats()
    got = elementwise(
        f"argus::cast<{TYPES[name]}>(x)", ["float", TYPES[name]], [values], np.zeros(values.size, INTEGERS[name])
    )
    if name == "bool":
        np.testing.assert_array_equal(got, values != 0)
        return
    info = np.iinfo(INTEGERS[name])
    wide = np.where(np.isnan(values), np.float32(0), values).astype(np.float64)
    inside = (wide > info.min) & (wide < float(info.max))
    expected = np.where(wide > 0, info.max, info.min).astype(INTEGERS[name])
    expected[inside] = np.trunc(wide[inside]).astype(INTEGERS[name])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("to", ["float32", *BITS, *INTEGERS])
@pytest.mark.parametrize("name", list(INTEGERS))
def test_integers_to_everything(name: str, to: str) -> None:
    generator = np.random.default_rng(0)
    info = np.iinfo(np.int64)
    raw = np.concatenate([generator.integers(info.min, info.max, 4096), np.arange(-300, 300)])
    values = raw.astype(INTEGERS[name])
    storage = {"float32": np.float32}.get(to) or BITS.get(to) or INTEGERS[to]
    got = elementwise(
        f"argus::cast<{TYPES[to]}>(x)", [TYPES[name], TYPES[to]], [values], np.zeros(values.size, storage)
    )
    if to in INTEGERS:
        np.testing.assert_array_equal(got, values.astype(INTEGERS[to]))
    else:
        single = values.astype(np.float32)
        np.testing.assert_array_equal(got, single if to == "float32" else narrowed(single, to))


OPERATORS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x * y": lambda x, y: x * y,
    "x / y": lambda x, y: x / y,
    "-x": lambda x, y: -x,
    "argus::minimum(x, y)": torch.minimum,
    "argus::maximum(x, y)": torch.maximum,
    "argus::absolute(x)": lambda x, y: x.abs(),
    "argus::where(x < y, x, y)": lambda x, y: torch.where(x < y, x, y),
    "argus::where(x >= y, x, y)": lambda x, y: torch.where(x >= y, x, y),
    "argus::where(x != y, x, y)": lambda x, y: torch.where(x != y, x, y),
    "argus::floor(x)": lambda x, y: x.floor(),
    "argus::ceil(x)": lambda x, y: x.ceil(),
    "argus::sqrt(x)": lambda x, y: torch.from_numpy(np.sqrt(x.float().numpy())).to(x.dtype),
}


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("expression", list(OPERATORS))
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_operators_round_once(name: str, expression: str) -> None:
    dtype = getattr(torch, name)
    generator = np.random.default_rng(1)
    if name == "float32":
        x, y = (generator.integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32) for _ in range(2))
        tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    else:
        x = np.tile(np.arange(1 << 16, dtype=np.uint16), 4)
        y = generator.permutation(x)
        tx, ty = (torch.from_numpy(v.view(np.int16)).view(dtype) for v in (x, y))
    cpp = TYPES[name]
    got = elementwise(expression, [cpp, cpp, cpp], [x, y], np.zeros_like(x))
    as_float = torch.from_numpy(got if name == "float32" else got.view(np.int16)).view(dtype).float().numpy()
    np.testing.assert_array_equal(as_float, OPERATORS[expression](tx, ty).float().numpy())


FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float, float]] = {
    # name: exact function of float64, domain, allowed error in ulp
    "exp": (np.exp, -87, 88, 2),
    "exp2": (np.exp2, -125, 127, 2),
    "log": (np.log, 1e-37, 1e37, 2),
    "log2": (np.log2, 1e-37, 1e37, 2),
    "sqrt": (np.sqrt, 0, 1e37, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-37, 1e37, 2),
    "sin": (np.sin, -100, 100, 2),
    "cos": (np.cos, -1e6, 1e6, 2),
    "tanh": (np.tanh, -12, 12, 3),
    "tanh_approx": (np.tanh, -12, 12, 2**13),  # PTX ISA, tanh: a relative error of 2^-11
    "erf": (lambda x: np.array([erf(v) for v in x]), -5, 5, 3),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -80, 80, 3),
}


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """Largest error in units of the last place of the float nearest to `exact`."""
    spacing = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return float((np.abs(got.astype(np.float64) - exact) / spacing).max())


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions_are_accurate(name: str) -> None:
    function, low, high, allowed = FUNCTIONS[name]
    generator = np.random.default_rng(2)
    values = generator.uniform(low, high, 1 << 17)
    if low >= 0:
        values = np.concatenate([values, np.exp(generator.uniform(-80, 80, 1 << 17))])
    else:
        values = np.concatenate([values, generator.uniform(-1, 1, 1 << 17), generator.uniform(-1, 1, 1 << 15) * 1e-3])
    x = values.astype(np.float32)
    got = elementwise(f"argus::{name}(x)", ["float", "float"], [x], np.zeros_like(x))
    assert ulps(got, function(x.astype(np.float64))) <= allowed


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_special_values(name: str) -> None:
    """Infinities, zeros, NaN and subnormal numbers, as NumPy has them."""
    tiny = np.float32(1e-40)
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 200.0, -200.0, tiny, -tiny], np.float32)
    got = elementwise(f"argus::{name}(x)", ["float", "float"], [x], np.zeros_like(x))
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name][0](x.astype(np.float64)).astype(np.float32)
    digits = 2**-11 if name == "tanh_approx" else 1e-6
    np.testing.assert_allclose(got, expected, rtol=digits, atol=1e-37)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_functions_of_narrow_floats_round_once(name: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    values = widened(codes, name)
    got = widened(elementwise("argus::tanh(x)", [TYPES[name], TYPES[name]], [codes], np.zeros_like(codes)), name)
    expected = torch.from_numpy(np.tanh(values)).to(getattr(torch, name)).float().numpy()
    np.testing.assert_allclose(got, expected, rtol=2**-8 if name == "bfloat16" else 2**-10)


INTEGER_FUNCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add_wrap": np.add,
    "sub_wrap": np.subtract,
    "mul_wrap": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "floordiv": np.floor_divide,
    "floormod": np.remainder,
}


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("function", list(INTEGER_FUNCTIONS))
def test_integer_functions(function: str, name: str) -> None:
    generator = np.random.default_rng(3)
    info = np.iinfo(INTEGERS[name])
    x, y = (
        np.concatenate([
            generator.integers(info.min, info.max, 4096, endpoint=True),
            generator.integers(max(info.min, -50), 50, 4096),
        ]).astype(INTEGERS[name])
        for _ in range(2)
    )  # fmt: skip
    y[y == 0] = 3
    x[(y == -1) & (x == info.min)] = 1 if info.min < 0 else 0
    cpp = TYPES[name]
    got = elementwise(f"argus::{function}(x, y)", [cpp, cpp, cpp], [x, y], np.zeros_like(x))
    np.testing.assert_array_equal(got, INTEGER_FUNCTIONS[function](x, y))


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "int64"])
def test_shifts_negation_and_magnitude(name: str) -> None:
    generator = np.random.default_rng(4)
    info = np.iinfo(INTEGERS[name])
    x = generator.integers(info.min, info.max, 4096, endpoint=True).astype(INTEGERS[name])
    y = generator.integers(0, info.bits, 4096).astype(INTEGERS[name])
    cpp = TYPES[name]
    expected = {
        "argus::shl(x, y)": np.left_shift(x, y),
        "argus::shr(x, y)": np.right_shift(x, y),
        "argus::neg_wrap(x)": np.negative(x),
        "argus::absolute(x)": np.abs(x),
    }
    for expression, result in expected.items():
        got = elementwise(expression, [cpp, cpp, cpp], [x, y], np.zeros_like(x))
        np.testing.assert_array_equal(got, result, err_msg=expression)


def test_float_modulo() -> None:
    generator = np.random.default_rng(5)
    x = generator.uniform(-50, 50, 4096).astype(np.float32)
    y = (generator.uniform(0.5, 10, 4096) * generator.choice([-1, 1], 4096)).astype(np.float32)
    got = elementwise("argus::floormod(x, y)", ["float", "float", "float"], [x, y], np.zeros_like(x))
    np.testing.assert_array_equal(got, np.mod(x, y))
    got = elementwise("argus::floordiv(x, y)", ["float", "float", "float"], [x, y], np.zeros_like(x))
    np.testing.assert_array_equal(got, np.floor(x / y))


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_constants(name: str) -> None:
    cpp = TYPES[name]
    output = np.zeros(2, np.float32)
    body = f"""
    p0[0] = argus::cast<float>(argus::infinity<{cpp}>());
    p0[1] = argus::cast<float>(argus::not_a_number<{cpp}>());"""
    (got,) = run(body, ["float"], [output])
    assert got[0] == np.inf
    assert np.isnan(got[1])
