"""Tokens appended to a paged cache: against float64, other places untouched, wrong arguments, proofs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.ir.types import int8  # noqa: E402
from argus.kernels import cache_append  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402


def given(sizes: tuple[int, ...], dtype: str, device: str) -> list[Any]:
    """New keys and values, a cache, and slots in no order."""
    tokens, heads, size, pages, page = sizes
    new = [random(tokens, heads, size, dtype=dtype, device=device, seed=i) for i in (1, 2)]
    cache = [random(pages, page, heads, size, dtype=dtype, device=device, seed=i) for i in (3, 4)]
    slots = torch.randperm(pages * page, generator=torch.Generator().manual_seed(5))[:tokens]
    return [*new, *cache, slots.to(device, torch.int32)]


@pytest.mark.slow
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", [(5, 3, 64, 2, 16), (1, 1, 16, 3, 7), (9, 20, 128, 4, 5)])
def test_results(device: str, sizes: tuple[int, ...], turned: bool) -> None:
    k, v, keys, values, slots = given(sizes, "bfloat16", device)
    angles = random(sizes[0], sizes[2] // 2, device=device, seed=6)
    wanted, exact = [x.clone().flatten(0, 1) for x in (keys, values)], k.double()
    if turned:
        x, y = exact.chunk(2, 2)
        c, s = angles.cos().double()[:, None], angles.sin().double()[:, None]
        exact = torch.cat((x * c - y * s, y * c + x * s), 2)
    wanted[0][slots.long()], wanted[1][slots.long()] = exact.bfloat16(), v
    more = {"cos": angles.cos(), "sin": angles.sin()} if turned else {}
    version = keys._version
    cache_append(k, v, keys, values, slots, **more)
    torch.testing.assert_close(keys.flatten(0, 1), wanted[0], rtol=8e-3, atol=8e-3)
    assert torch.equal(values.flatten(0, 1), wanted[1]) and keys._version > version


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "turned"), [("int8", True), ("float8_e4m3fn", False)])
def test_numbers_of_8_bits(device: str, dtype: str, turned: bool) -> None:
    k, v, keys, values, slots = given((5, 3, 64, 2, 16), "float16", device)
    keys, values = (torch.zeros_like(x).to(getattr(torch, dtype)) for x in (keys, values))
    scales = [torch.tensor(x, device=device) for x in ([0.02, 0.0, 0.001], [0.03])]
    exact, more = k.double(), {}
    if turned:
        angles = random(5, 32, device=device, seed=6)
        x, y = exact.chunk(2, 2)
        c, s = angles.cos().double()[:, None], angles.sin().double()[:, None]
        exact, more = torch.cat((x * c - y * s, y * c + x * s), 2), {"cos": angles.cos(), "sin": angles.sin()}
    cache_append(k, v, keys, values, slots, **more, key_scale=scales[0], value_scale=scales[1])
    for found, new, scale in ((keys, exact, scales[0]), (values, v.double(), scales[1])):
        one = scale.double()[:, None]
        wanted = torch.where(one == 0, 0.0, new / one)
        got = found.flatten(0, 1)[slots.long()].double()
        if dtype == "int8":
            assert ((got - wanted.clamp(-128, 127)).abs() <= 0.56).all()
        else:
            torch.testing.assert_close(got, wanted.clamp(-448, 448), rtol=0.07, atol=0.002)


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, lambda x: x.float(), "`k` is a tensor of float32"),
        (1, lambda x: x[:, :1], "`v` has the shape"),
        (2, lambda x: x[:, :, :1], "`keys` has the shape"),
        (3, lambda x: x.transpose(0, 1).contiguous().transpose(0, 1), "do not stand one behind the other"),
        (4, lambda x: x.long(), "`slots` is a tensor of int64"),
    ],
)
def test_wrong_arguments_are_refused(place: int, change: Any, message: str) -> None:
    tensors = given((5, 3, 64, 2, 16), "float16", "cpu")
    tensors[place] = change(tensors[place])
    with pytest.raises(LaunchError, match=message):
        cache_append(*tensors)


def test_one_angle_alone_is_refused() -> None:
    tensors = given((5, 3, 64, 2, 16), "float16", "cpu")
    with pytest.raises(LaunchError, match="one of `cos` and `sin` alone"):
        cache_append(*tensors, cos=random(5, 32))


def test_wrong_scales_are_refused() -> None:
    k, v, keys, values, slots = given((5, 3, 64, 2, 16), "float16", "cpu")
    scales = {"key_scale": torch.ones(3), "value_scale": torch.ones(3)}
    with pytest.raises(LaunchError, match="2 scales for a cache of float16"):
        cache_append(k, v, keys, values, slots, **scales)
    keys, values = keys.to(torch.int8), values.to(torch.int8)
    with pytest.raises(LaunchError, match="0 scales for a cache of int8"):
        cache_append(k, v, keys, values, slots)
    with pytest.raises(LaunchError, match="`value_scale` has the shape"):
        cache_append(k, v, keys, values, slots, **{**scales, "value_scale": torch.ones(2)})


@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942"])
def test_proved(target: str) -> None:
    assert_proved("cache_append", "append_tokens", target)


@pytest.mark.parametrize(("target", "stored"), [("sm_90a", "float8_e4m3fn"), ("sm_80", "int8"), ("gfx942", "int8")])
def test_numbers_of_8_bits_are_proved(target: str, stored: str) -> None:
    assert_proved("cache_append", "append_scaled", target, STORED=stored)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("x + 0.5), 127.0", "x + 0.5), 128.0"), ("g = reciprocal(al.load(value", "g = reciprocal(al.load(key")],
)
def test_wrong_numbers_of_8_bits_are_not_proved(right: str, wrong: str) -> None:
    """Twins of the kernel that `test_numbers_of_8_bits_are_proved` accepts; the specification keeps its own."""
    text = source_of("cache_append").text
    assert text.count(right) == 1
    rounded = text[text.index("@argus.func\ndef stored") : text.index("@argus.func\ndef key_of")]
    text = (
        text.replace("x, y = stored(", "x, y = other(")
        .replace(", stored(x", ", other(x")
        .replace(", stored(y", ", other(y")
    )
    text = text.replace(rounded, rounded + rounded.replace("def stored", "def other").replace(right, wrong))
    text = text.replace(right, wrong) if "reciprocal" in right else text
    report = prove(SourceFile("wrong.py", text), "append_scaled", Options("sm_80", 4, {"STORED": int8}))
    assert report.verdict is not Verdict.PROVED
