"""Which products of float32 are left to PyTorch's library on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from argus.graph.capture import Meta, _is_copied
from argus.graph.library import ImageGradient, WeightGradient, copies_too_much


def rows(count: int, terms: int, batch: tuple[int, ...] = ()) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A factor whose terms are contiguous."""
    return (*batch, count, terms), (*(count * terms,) * len(batch), terms, 1)


def columns(count: int, terms: int, batch: tuple[int, ...] = ()) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A factor whose terms are far apart."""
    return (*batch, count, terms), (*(count * terms,) * len(batch), 1, count)


@pytest.mark.parametrize(
    ("a", "b", "left"),
    [
        (rows(4096, 4096), rows(4096, 4096), False),
        (rows(4096, 4096), columns(4096, 4096), False),
        (rows(2048, 8192), columns(4096, 8192), True),
        (rows(2048, 8192), rows(4096, 8192), False),
        (columns(2048, 8192), columns(4096, 8192), True),
        (rows(512, 1024, (128,)), columns(2048, 1024, (128,)), True),
        (rows(256, 2**19), columns(256, 2**19), True),
        (rows(32768, 64), columns(32768, 64), False),  # the result is most of it
        (rows(2048, 8191), columns(4096, 8191), False),  # rows of odd length
        (rows(64, 8192), columns(4096, 8192), False),  # too small for a copy
    ],
)
def test_products_whose_copies_cost_too_much(a: tuple, b: tuple, left: bool) -> None:  # type: ignore[type-arg]
    assert copies_too_much(a, b) is left


@pytest.mark.parametrize(
    ("device", "dtype", "left"), [("cuda:0", "float32", True), ("cuda:0", "bfloat16", False), ("cpu", "float32", False)]
)
def test_only_float32_on_a_gpu_is_left(device: str, dtype: str, left: bool) -> None:
    first = Meta((2048, 8192), (8192, 1), dtype, device, False)
    second = Meta((8192, 4096), (4096, 1), dtype, device, False)
    assert _is_copied(dtype, first, second) is left


IMAGES = {"read": 51_380_224, "bits": 16, "products": 7_398_752_256, "dims": 2, "parts": 1}
"""Gradients of 3 x 3 filters of 64 images with 64 channels of 56 x 56 pixels."""


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({}, True),
        ({"last": False, "bits": 32, "read": 51_380_224, "products": 3_699_376_128}, False),
        ({"bits": 32, "products": 3_699_376_128}, True),
        ({"depthwise": True, "products": 629_407_744}, True),
        ({"copied": False, "read": 128_450_560, "products": 3_288_334_336}, False),  # one tap
        ({"depthwise": True, "products": 629_407_744, "last": False}, False),
        ({"dims": 3, "bits": 32, "products": 7_247_757_312}, True),
    ],
)
def test_gradients_of_weights_whose_copies_cost_too_much(change: dict[str, Any], left: bool) -> None:
    """As measured on one H200: kernels were faster where nothing is left."""
    case: dict[str, Any] = IMAGES | {"depthwise": False, "last": True, "copied": True} | change
    assert WeightGradient(**case).is_left() is left


@pytest.mark.parametrize(("bits", "last", "left"), [(16, True, True), (32, True, True), (32, False, False)])
def test_gradients_of_images_with_strides_are_left_where_the_library_copies_nothing(
    bits: int, last: bool, left: bool
) -> None:
    """Of 3 x 3 filters with strides of 2: a kernel multiplies 16 times where there are 9 taps."""
    size = 64 * 28 * 28 * 128
    case = ImageGradient(size * bits // 8, 4 * size * bits // 8, bits, size * 128 * 9, 16 / 9, last)
    assert case.is_left() is left
