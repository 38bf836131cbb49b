"""Tiles in other shapes: where elements stay in registers, where they move, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import argus.language as al
from argus.compile import elaborate, lower, verify
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.frontend.decorator import kernel
from argus.ir.expr import Const, Coord, reshaped
from argus.ir.locality import cells
from argus.ir.nodes import Kernel
from argus.layout import FragmentLayout, Mode
from argus.simulate import simulate
from argus.source import SourceFile


@kernel(num_warps=4)
def rotary(x: al.Tensor[al.float32, "M 128"], c: al.Tensor[al.float32, "M 64"], y: al.Tensor[al.float32, "M 128"]):
    al.spec(y, lambda i, j: al.where(j % 2 == 0, x[i, j // 2 * 2] * c[i, j // 2] - x[i, j // 2 * 2 + 1],
                                     x[i, j // 2 * 2] + x[i, j // 2 * 2 + 1] * c[i, j // 2]))  # fmt: skip
    m = al.grid(al.cdiv(x.shape[0], 8)) * 8
    a, b = al.split(al.reshape(al.load(x[m : m + 8, :], boundary_check=(0,)), (8, 64, 2)))
    u = al.load(c[m : m + 8, :], boundary_check=(0,))
    al.store(y[m : m + 8, :], al.interleave(a * u - b, a + b * u), boundary_check=(0,))


@kernel(num_warps=4)
def nibbles(w: al.Tensor[al.uint8, "M 64"], y: al.Tensor[al.int32, "M 128"]):
    al.spec(y, lambda i, j: al.where(j % 2 == 0, w[i, j // 2].to(al.int32) & 15, w[i, j // 2].to(al.int32) >> 4))
    m = al.grid(al.cdiv(w.shape[0], 16)) * 16
    t = al.load(w[m : m + 16, :], boundary_check=(0,)).to(al.int32)
    al.store(y[m : m + 16, :], al.interleave(t & 15, t >> 4), boundary_check=(0,))


@kernel(num_warps=4)
def turned(x: al.Tensor[al.float32, "64 32"], y: al.Tensor[al.float32, "64 32"]):
    p = al.grid(1)
    al.store(y[p : p + 64, :], al.reshape(al.trans(al.load(x[:, :])), (64, 32)))


@kernel(num_warps=2)
def stacked(x: al.Tensor[al.float32, "64"], y: al.Tensor[al.float32, "64 2"], z: al.Tensor[al.float32, "64"]):
    p = al.grid(1)
    t = al.load(x[:])
    both = al.join(t, -t)
    al.store(y[p : p + 64, :], both)
    first, second = al.split(both)
    al.store(z[p : p + 64], first - second)


def explicit(source: Any, target: str = "sm_80") -> Kernel:
    return lower(elaborate(source.file, source.name, Options(target=target)), target)


def made(source: Any, target: str = "sm_80", **arguments: Any) -> dict[str, Any]:
    lowered = explicit(source, target)
    assert verify(lowered).verdict is Verdict.PROVED
    outcome = simulate(lowered, arguments)
    assert outcome.ok, outcome.violations
    return outcome.tensors


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_rotary_embedding_stays_in_registers(target: str) -> None:
    assert not explicit(rotary, target).shared
    rng = np.random.default_rng(0)
    x, c = rng.standard_normal((9, 128)).astype(np.float32), rng.standard_normal((9, 64)).astype(np.float32)
    found = made(rotary, target, x=x, c=c, y=np.zeros_like(x))["y"]
    np.testing.assert_allclose(found[:, ::2], x[:, ::2] * c - x[:, 1::2], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[:, 1::2], x[:, ::2] + x[:, 1::2] * c, rtol=1e-6, atol=1e-6)


def test_packed_integers_stay_in_registers() -> None:
    assert not explicit(nibbles).shared
    w = np.random.default_rng(1).integers(0, 256, (17, 64)).astype(np.uint8)
    found = made(nibbles, w=w, y=np.zeros((17, 128), np.int32))["y"]
    np.testing.assert_array_equal(found[:, ::2], w & 15)
    np.testing.assert_array_equal(found[:, 1::2], w >> 4)


@kernel(num_warps=4)
def doubled(
    a: al.Tensor[al.tfloat32, "64 32"], b: al.Tensor[al.tfloat32, "2 64 32"], y: al.Tensor[al.float32, "64 64 2"]
):
    p = al.grid(1)
    first = al.zeros((64, 64), al.float32)
    second = al.zeros((64, 64), al.float32)
    for k in al.pipelined(0, 32, 32, stages=2, producer_warps=4):
        left = al.stage(a[p : p + 64, k : k + 32])
        first = al.mma(left, al.stage(b[0, 0:64, k : k + 32]), first)
        second = al.mma(left, al.stage(b[1, 0:64, k : k + 32]), second)
    al.store(y[p : p + 64, :, :], al.join(first, second))


def test_accumulators_that_are_joined_stay_in_registers() -> None:
    """Threads keep their elements of both, also if another layout suits the store's memory."""
    lowered = explicit(doubled, "sm_90a")
    (joined,) = (f for f in lowered.fragments if f.shape == (64, 64, 2))
    (first,) = (f for f in lowered.fragments if f.name == "first")
    assert isinstance(joined.layout, FragmentLayout) and isinstance(first.layout, FragmentLayout)
    assert joined.layout.values[0] == Mode(2, 2) and joined.layout.threads == first.layout.threads


def test_what_crosses_warps_moves_through_shared_memory() -> None:
    assert explicit(turned).shared
    x = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    found = made(turned, x=x, y=np.zeros_like(x))["y"]
    np.testing.assert_array_equal(found, x.T.reshape(64, 32))


def test_joined_and_split_again() -> None:
    x = np.random.default_rng(2).standard_normal(64).astype(np.float32)
    found = made(stacked, x=x, y=np.zeros((64, 2), np.float32), z=np.zeros(64, np.float32))
    np.testing.assert_array_equal(found["y"], np.stack([x, -x], 1))
    np.testing.assert_array_equal(found["z"], 2 * x)


@pytest.mark.parametrize(
    ("shape", "source"),
    [((6, 4), (24,)), ((24,), (2, 3, 4)), ((4, 6), (8, 3)), ((2, 1, 12), (2, 12)), ((2, 12), (2, 1, 3, 4)),
     ((1, 8), (8,)),
     ((8, 1), (8,)), ((1,), (1, 1)), ((5, 4, 2), (5, 8)), ((3, 2, 5), (6, 5))],
)  # fmt: skip
def test_the_same_elements_in_their_order(shape: tuple[int, ...], source: tuple[int, ...]) -> None:
    box = FragmentLayout(shape, (), tuple(Mode(n, axis) for axis, n in reversed(list(enumerate(shape)))))
    table = cells(reshaped(shape, source), source, box)
    assert table is not None
    np.testing.assert_array_equal(np.broadcast_to(table.reshape(-1), (box.size,)), np.arange(box.size))


def test_dimensions_that_stay_are_coordinates() -> None:
    assert reshaped((5, 4, 2), (5, 8))[0] == Coord(0)
    assert reshaped((5, 1), (5,)) == (Coord(0),)
    assert reshaped((5,), (5, 1)) == (Coord(0), Const(0))


HEAD = """
import argus
import argus.language as al

@argus.kernel
def k(x: al.Tensor[al.float32, "128"], out: al.Tensor[al.float32, "128"]):
    p = al.grid(1)
    t = al.load(x[:])
    r = {call}
    al.store(out[p : p + 128], t)
"""


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("al.reshape(t, (2, 63))", "shape-mismatch"),
        ("al.reshape(x, (2, 64))", "type-mismatch"),
        ("al.split(t)", "bad-shape"),
        ("al.join(t, al.arange(128))", "type-mismatch"),
        ("al.interleave(1.0, 2.0)", "bad-shape"),
    ],
)
def test_what_has_no_other_shape(call: str, code: str) -> None:
    def codes(call: str) -> list[str]:
        try:
            elaborate(SourceFile("k.py", HEAD.format(call=call)), "k", Options(target="sm_80"))
        except SourceError as error:
            return [d.code for d in error.diagnostics]
        return []

    assert codes(call) == [code]
    assert codes("al.split(al.reshape(al.interleave(t, t), (128, 2)))") == []
