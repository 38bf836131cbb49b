"""Maps that are built, against the same maps as texts."""

from __future__ import annotations

import pytest

from argus.verify.model.isl import isl, point, same_group, shift, unequal, without_last


@pytest.mark.parametrize("by", [-3, 0, 128])
def test_shift(by: int) -> None:
    assert shift(by).is_equal(isl.Map(f"{{ [t] -> [u] : u = t + {by} }}"))


@pytest.mark.parametrize("size", [1, 32, 64])
def test_same_group(size: int) -> None:
    assert same_group(size).is_equal(isl.Map(f"{{ [t] -> [u] : floor(t / {size}) = floor(u / {size}) }}"))
    assert not same_group(size).is_equal(same_group(size + 1))


def test_unequal() -> None:
    assert unequal(isl.Set("{ [t] }").get_space()).is_equal(isl.Map("{ [t] -> [u] : t != u }"))


def test_point() -> None:
    assert point((-2, 0)).is_equal(isl.Set("{ [-2, 0] }"))


@pytest.mark.parametrize(("count", "left"), [(0, "a, b, c"), (2, "a"), (3, "")])
def test_without_last(count: int, left: str) -> None:
    space = isl.Set("{ [a, b, c] }").get_space()
    assert without_last(space, "S3", count).is_equal(isl.Map(f"{{ S3[a, b, c] -> S3[{left}] }}"))
