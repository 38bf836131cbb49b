"""Atomic updates by the copy engine on the GPU. Needs compute capability 9.0."""

from __future__ import annotations

from typing import Any

import pytest

import argus.language as al
from examples.stream_k_atomic import stream_k_atomic
from tests.reject.kernels.reduced import reduced

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="needs sm_90"
    ),
]
TYPES = {"float32": al.float32, "float16": al.float16, "bfloat16": al.bfloat16, "int32": al.int32}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(128, 128, 1024), (200, 328, 776), (8, 16, 2000)])
def test_sums(shape: tuple[int, int, int], name: str, persistent: bool) -> None:
    """Small integers, whose sums are exact in every type and order."""
    m, n, k = shape
    a: Any = (torch.arange(m * k, device="cuda") % 3 - 1).reshape(m, k) * (torch.arange(k, device="cuda") % 16 == 0)
    b: Any = (torch.arange(n * k, device="cuda") % 3 - 1).reshape(n, k)
    c = torch.full((m, n), 2, device="cuda", dtype=getattr(torch, name))
    # Parts that are cut off to integers are no terms of a sum of products, so of these nothing is specified.
    constants = {"OUT": TYPES[name], "PERSISTENT": persistent, "SPECIFIED": name != "int32"}
    for _ in range(2):
        reduced(a.bfloat16(), b.bfloat16(), c, **constants)
    assert torch.equal(c.double(), 2 + 2 * (a.double() @ b.double().t()))


@pytest.mark.parametrize("shape", [(70, 140, 200), (128, 512, 256)])
def test_equal_shares(shape: tuple[int, int, int]) -> None:
    """Updates in a loop: a block hands over one tile and goes on with the next."""
    m, n, k = shape
    a: Any = (torch.arange(m * k, device="cuda") % 3 - 1).reshape(m, k)
    b: Any = (torch.arange(n * k, device="cuda") % 5 - 2).reshape(n, k)
    c = torch.full((m, n), 2.0, device="cuda")
    stream_k_atomic(a.bfloat16(), b.bfloat16(), c, DEPTH=k, SHARE=3, BLOCK_K=64)
    assert torch.equal(c.double(), 2 + a.double() @ b.double().t())
