"""Tokens appended to a paged cache: against float64, other places untouched, wrong arguments, proofs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels import cache_append  # noqa: E402
from tests.kernels.common import assert_proved, random  # noqa: E402


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


@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942"])
def test_proved(target: str) -> None:
    assert_proved("cache_append", "append_tokens", target)
