"""Bounds and conditions that are read from a tensor, in the emitted text as it runs on the host."""

from __future__ import annotations

import numpy as np
import pytest

import argus
import argus.language as al


@argus.kernel(num_warps=1)
def repeat(n: al.Tensor[al.int32, "4"], x: al.Tensor[al.float32, "64"], z: al.Tensor[al.float32, "64"]):
    """Adds 1 n[0] times, and 100 where that is more than 5; what the bound's register holds later does not matter."""
    al.requires(al.in_range(n, 0, 100))
    al.grid(1)
    o = al.arange(64)
    total = al.load(x[o])
    times = al.load(n[0])
    if times > 5:
        total = total + 100.0
    for _i in range(times):
        times = al.minimum(times, 2)
        total = total + 1.0
    al.store(z[o], total)


@pytest.mark.parametrize("times", [0, 1, 5, 7])
def test_bounds_and_conditions_from_a_tensor(times: int) -> None:
    x, z = np.zeros(64, np.float32), np.zeros(64, np.float32)
    repeat(np.array([times, 0, 0, 0], np.int32), x, z)
    np.testing.assert_array_equal(z, np.float32(times + (100 if times > 5 else 0)))


@argus.kernel(num_warps=1)
def quotients(x: al.Tensor[al.int32, "64"], y: al.Tensor[al.int32, "64"], z: al.Tensor[al.int32, "4 64"]):
    al.grid(1)
    o = al.arange(64)
    a, b = al.load(x[o]), al.load(y[o])
    by = al.where(b == 0, 1, b)
    al.store(z[0, o], a // by)
    al.store(z[1, o], a % by)
    al.store(z[2, o], a * b + 1)
    al.store(z[3, o], (a >> 3) & 7)


def test_integers_of_data_round_and_wrap_as_numpy_does() -> None:
    random = np.random.default_rng(0)
    x = random.integers(-(2**31), 2**31, 64).astype(np.int32)
    y = random.integers(-9, 9, 64).astype(np.int32)
    x[:4], y[:4] = [-(2**31), 2**31 - 1, -1, 0], [3, -3, 0, -2]
    z, by = np.zeros((4, 64), np.int32), np.where(y == 0, 1, y)
    quotients(x, y, z)
    np.testing.assert_array_equal(z, np.stack([x // by, x % by, x * y + np.int32(1), (x >> 3) & 7]))


@argus.kernel(num_warps=1)
def narrow(x: al.Tensor[al.int8, "64"], z: al.Tensor[al.int8, "2 64"]):
    al.grid(1)
    o = al.arange(64)
    a, place = al.load(x[o]), o.to(al.int8)
    al.store(z[0, o], a + -place)
    al.store(z[1, o], al.maximum(a, place // 3))


def test_narrow_integers_of_places_stay_narrow() -> None:
    x, place = np.arange(-96, 96, 3, dtype=np.int8), np.arange(64, dtype=np.int8)
    z = np.zeros((2, 64), np.int8)
    narrow(x, z)
    np.testing.assert_array_equal(z, np.stack([x - place, np.maximum(x, place // 3)]))
