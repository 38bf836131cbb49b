"""Conversions and functions of the CUDA header on every float32 there is, and on every pair of 16-bit floats, beside
PyTorch in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, log2

import pytest

from argus.backend.device_api import TYPES

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

from tests.gpu.device import compiled, function  # noqa: E402

AT_ONCE = 1 << 26
"""Numbers of one launch."""
Tensor = torch.Tensor
Reference = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Made:
    """What `result` makes of each `code` of 32 bits, by statements `given`, as numbers of `dtype`."""

    given: str
    result: str
    dtype: torch.dtype

    def text(self, symbol: str) -> str:
        return f"""ARGUS_KERNEL({symbol}, 256)({cpp(self.dtype)}* ARGUS_RESTRICT to, unsigned first) {{
    for (unsigned i = argus::block_id<0>() * 256 + argus::thread_id(); i < {AT_ONCE}; i += 256 * 2048) {{
        const unsigned code = first + i;
        {self.given}
        to[i] = {self.result};
    }}
}}
"""

    def of_all(self, together: tuple[Made, ...]) -> Iterator[tuple[Tensor, Tensor]]:
        """All codes, so many at a time, and their results; compiled `together` with others."""
        cubin = compiled(text(together))
        launcher = function(cubin, f"entry{together.index(self)}").prepare((2048, 1, 1), 256, 0)
        codes = torch.arange(AT_ONCE, device="cuda")
        found = torch.empty(AT_ONCE, device="cuda", dtype=self.dtype)
        for first in range(0, 1 << 32, AT_ONCE):
            cells = ctypes.c_uint64(found.data_ptr()), ctypes.c_uint32(first)
            launcher.launch((ctypes.c_void_p * 2)(*(ctypes.addressof(cell) for cell in cells)))
            yield codes + first, found


def cpp(dtype: torch.dtype) -> str:
    return TYPES[str(dtype).removeprefix("torch.")]


def text(together: tuple[Made, ...]) -> str:
    """One text of all."""
    return "".join(made.text(f"entry{i}") for i, made in enumerate(together))


def floats(codes: Tensor) -> Tensor:
    """The float32 numbers of these codes."""
    return torch.where(codes < 1 << 31, codes, codes - (1 << 32)).to(torch.int32).view(torch.float32)


FLOAT = "const float x = argus::target::float_of(code);"


def pair(dtype: torch.dtype) -> str:
    return f"const {cpp(dtype)} x{{static_cast<unsigned short>(code)}}, y{{static_cast<unsigned short>(code >> 16)}};"


def same(found: Tensor, wanted: Tensor) -> Tensor:
    return (found == wanted) | (found.isnan() & wanted.isnan())


def whole(low: int, high: int) -> Reference:
    """To integers from `low` to `high`: truncated, saturated, NaN to 0."""

    def reference(x: Tensor) -> Tensor:
        wide = x.double().nan_to_num(0.0, inf, -inf)
        kept = torch.where((wide > low) & (wide < high), wide, 0.0).long()
        return kept + torch.where(wide >= high, high, 0) + torch.where(wide <= low, low, 0)

    return reference


CONVERSIONS: dict[torch.dtype, Reference] = {
    torch.float16: lambda x: x.half(),
    torch.bfloat16: lambda x: x.bfloat16(),
    torch.float8_e4m3fn: lambda x: x.clamp(-448, 448).to(torch.float8_e4m3fn),
    torch.float8_e5m2: lambda x: x.to(torch.float8_e5m2),
    torch.float8_e4m3fnuz: lambda x: x.to(torch.float8_e4m3fnuz),
    torch.float8_e5m2fnuz: lambda x: x.to(torch.float8_e5m2fnuz),
    torch.int8: whole(-128, 127),
    torch.uint8: whole(0, 255),
    torch.int32: whole(-(2**31), 2**31 - 1),
    torch.int64: whole(-(2**63), 2**63 - 1),
    torch.bool: lambda x: x != 0,
}


CAST = tuple(Made(FLOAT, f"argus::cast<{cpp(dtype)}>(x)", dtype) for dtype in CONVERSIONS)


@pytest.mark.parametrize("made", CAST, ids=lambda made: str(made.dtype))
def test_conversions_of_every_float(made: Made) -> None:
    for codes, found in made.of_all(CAST):
        x = floats(codes)
        wanted = CONVERSIONS[made.dtype](x)
        if made.dtype.is_floating_point:
            found, wanted = found.float(), wanted.float()
        wrong = ~same(found, wanted.to(found.dtype))
        assert not wrong.any(), (x[wrong][:4], found[wrong][:4], wanted[wrong][:4])


FUNCTIONS: dict[str, tuple[Reference, float]] = {
    # name: the same of float64, and how many units of the last place it may be off
    "exp": (torch.exp, 2),
    "exp2": (torch.exp2, 2.5),  # PTX ISA, ex2: 2 from the correctly rounded result
    "log": (torch.log, 2),
    "log2": (torch.log2, 2),
    "sqrt": (torch.sqrt, 0.5),
    "rsqrt": (torch.rsqrt, 2),
    "sin": (torch.sin, 2.5),
    "cos": (torch.cos, 2.5),
    "tanh": (torch.tanh, 3),
    "tanh_approx": (torch.tanh, 2**13),  # PTX ISA, tanh: a relative error of 2^-11
    "erf": (torch.erf, 3),
    "sigmoid": (torch.sigmoid, 4),
    "floor": (torch.floor, 0),
    "ceil": (torch.ceil, 0),
    "formula::sin": (torch.sin, 2.5),
    "formula::cos": (torch.cos, 2.5),
    "formula::tanh": (torch.tanh, 3),
    "formula::erf": (torch.erf, 3),
    "formula::sigmoid": (torch.sigmoid, 4),
}


def units(found: Tensor, exact: Tensor, dtype: torch.dtype) -> float:
    """The largest error in units of the last place of `exact`; infinite where one is no number and the other is.

    Results below the smallest normal number may be zero, and those within two units of infinity infinite.
    """
    info = torch.finfo(dtype)
    digits, least = 1 - round(log2(info.eps)), round(log2(info.tiny)) + 1
    exponent = torch.frexp(exact.to(dtype).double()).exponent.clamp_min(least)
    place = torch.ldexp(torch.ones_like(exact), exponent - digits)
    wide = found.double()
    nothing = (exact.abs() < info.tiny) & (wide == 0)
    beyond = (exact.abs() > info.max * (1 - 2 * info.eps)) & (wide == exact.sign() * inf)
    error = ((wide - exact) / place).abs().masked_fill(same(wide, exact) | nothing | beyond, 0.0)
    return float(error.nan_to_num(inf).max())


OF_FLOATS = tuple(Made(FLOAT, f"argus::{name}(x)", torch.float32) for name in FUNCTIONS)
NARROW = (torch.float16, torch.bfloat16)
OF_NARROW = tuple(Made(pair(t), f"argus::{name}(x)", t) for name in FUNCTIONS if "::" not in name for t in NARROW)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_every_float(name: str) -> None:
    exact, allowed = FUNCTIONS[name]
    pairs = OF_FLOATS[list(FUNCTIONS).index(name)].of_all(OF_FLOATS)
    worst = max(units(found, exact(floats(codes).double()), torch.float32) for codes, found in pairs)
    assert worst <= allowed


@pytest.mark.parametrize("made", OF_NARROW, ids=lambda made: f"{made.result}-{made.dtype}")
def test_functions_of_narrow_floats_round_once(made: Made) -> None:
    codes, found = (part[: 1 << 16] for part in next(made.of_all(OF_NARROW)))
    exact, before = FUNCTIONS[made.result.removeprefix("argus::").removesuffix("(x)")]
    coarser = torch.finfo(torch.float32).eps / torch.finfo(made.dtype).eps
    assert units(found, exact(codes.to(torch.int16).view(made.dtype).double()), made.dtype) <= 0.501 + before * coarser


OPERATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x + y": torch.add,
    "x - y": torch.sub,
    "x * y": torch.mul,
    "x / y": torch.div,
    "argus::minimum(x, y)": torch.minimum,
    "argus::maximum(x, y)": torch.maximum,
    "argus::floordiv(x, y)": lambda x, y: torch.floor(x / y),
    "argus::floormod(x, y)": torch.remainder,
    "argus::where(x < y, x, y)": lambda x, y: torch.where(x < y, x, y),
    "argus::where(x >= y, x, y)": lambda x, y: torch.where(x >= y, x, y),
    "argus::where(x == y, x, -y)": lambda x, y: torch.where(x == y, x, -y),
}


OF_PAIRS = tuple(Made(pair(dtype), expression, dtype) for expression in OPERATORS for dtype in NARROW)


@pytest.mark.parametrize("made", OF_PAIRS, ids=lambda made: f"{made.result}-{made.dtype}")
def test_operators_on_every_pair(made: Made) -> None:
    """Computed in float32 and rounded once."""
    for codes, found in made.of_all(OF_PAIRS):
        x, y = ((codes >> by).to(torch.int16).view(made.dtype).float() for by in (0, 16))
        wrong = ~same(found, OPERATORS[made.result](x, y).to(made.dtype))
        assert not wrong.any(), (x[wrong][:4], y[wrong][:4], found[wrong][:4])


_SIZES = "code * 40503u + 77u"
_OPERANDS = f"""const unsigned other = code * 2654435761u + 12345u, near = {_SIZES} + other % 9 * 0x800000u;
        const float x = argus::target::float_of({_SIZES});
        const float y = argus::target::float_of((other & 0x807fffffu) | (near & 0x7f800000u));"""
MODULO = tuple(Made(_OPERANDS, result, torch.float32) for result in ("argus::formula::modulo(x, y)", "x", "y"))


def test_modulo_by_long_division() -> None:
    """Of floats of sizes that are not far apart, and of others: exact."""
    found, x, y = (next(made.of_all(MODULO))[1].clone() for made in MODULO)
    assert same(found, torch.fmod(x.double(), y.double()).float()).all()


NEAR_ONE = {"log1p": (torch.log1p, 3), "expm1": (torch.expm1, 4)}
"""Functions that are exact near 0, each beside PyTorch's, and the units in the last place that it may be off."""
OF_NEAR_ONE = (
    Made(FLOAT, "argus::log1p(x)", torch.float32),
    Made(FLOAT, "argus::formula::log1p(x)", torch.float32),
    Made(FLOAT, "argus::expm1(x)", torch.float32),
    Made(FLOAT, "argus::formula::expm1(x)", torch.float32),
)


@pytest.mark.parametrize("made", OF_NEAR_ONE, ids=lambda made: made.result)
def test_logarithms_and_exponentials_near_one_of_every_float(made: Made) -> None:
    reference, most = next(row for name, row in NEAR_ONE.items() if f"{name}(" in made.result)
    every = made.of_all(OF_NEAR_ONE)
    assert max(units(found, reference(floats(codes).double()), torch.float32) for codes, found in every) <= most


HIGH = (Made("const unsigned other = code * 2654435761u + 12345u;", "argus::umulhi(code, other)", torch.int32),)


def test_the_upper_half_of_products() -> None:
    """Beside the product of the halves of both factors, which 64 bits hold."""
    for codes, found in HIGH[0].of_all(HIGH):
        other = (codes * 2654435761 + 12345) & 0xFFFFFFFF
        (a, b), (c, d) = ((x >> 16, x & 0xFFFF) for x in (codes, other))
        middle = a * d + (b * d >> 16)
        wanted = a * c + (middle >> 16) + ((b * c + (middle & 0xFFFF)) >> 16)
        assert torch.equal(found.long() & 0xFFFFFFFF, wanted)


_INTEGER = "const int x = static_cast<int>(code);"
_BYTE = "bool x; reinterpret_cast<unsigned char&>(x) = static_cast<unsigned char>(code); argus::truths<1>(&x);"
CODES = (
    Made(FLOAT, "argus::sortable<int>(x)", torch.int32),
    Made(_INTEGER, "argus::sortable<float>(x)", torch.float32),
    Made(_BYTE, "x", torch.bool),
)


def test_integers_in_the_order_of_floats() -> None:
    """Minus the bits of the magnitude for negative floats; NaN of either sign is above infinity."""
    for codes, found in CODES[0].of_all(CODES):
        magnitude = codes & 0x7FFFFFFF
        negative = (codes > 1 << 31) & (magnitude <= 0x7F800000)
        assert torch.equal(found.long(), torch.where(negative, -magnitude, magnitude))


def test_floats_of_integers_in_their_order() -> None:
    for codes, found in CODES[1].of_all(CODES):
        x = torch.where(codes < 1 << 31, codes, codes - (1 << 32))
        bits = torch.where(x < 0, (1 << 31) | -x, x) & 0xFFFFFFFF
        assert torch.equal(found.view(torch.int32).long() & 0xFFFFFFFF, bits)


def test_truth_values_of_every_byte() -> None:
    codes, found = next(CODES[2].of_all(CODES))
    assert torch.equal(found.view(torch.uint8), (codes & 255 != 0).to(torch.uint8))
