"""Which products of float32 are left to PyTorch's library on a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from argus.graph.capture import Meta, _is_copied
from argus.graph.library import copies_too_much


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
