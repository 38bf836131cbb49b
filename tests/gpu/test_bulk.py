"""Tensor maps on the GPU: addresses that change, views, empty tensors, graphs. Needs compute capability 9.0."""

from __future__ import annotations

from typing import Any

import pytest

from examples.gemm_hopper import gemm_hopper

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="needs sm_90"
    ),
]


def operands(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Aligned to 16 bytes; `k` may be 0."""
    a, b = (torch.randn(rows, max(k, 8), device="cuda", dtype=torch.bfloat16)[:, :k] for rows in (m, n))
    return a, b, torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)


def check(a: Any, b: Any, c: Any) -> None:
    torch.testing.assert_close(c, (a.double() @ b.double().t()).bfloat16(), rtol=0.01, atol=0.05)


SHAPES = [(128, 256, 64), (1000, 3000, 776), (8, 8, 8), (70, 80, 0), (0, 64, 64), (64, 0, 64), (2000, 520, 8)]


@pytest.mark.parametrize("shape", SHAPES)
def test_products(shape: tuple[int, int, int]) -> None:
    a, b, c = operands(*shape)
    gemm_hopper(a, b, c)
    check(a, b, c)


@pytest.mark.parametrize("cluster", [2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_in_clusters(shape: tuple[int, int, int], cluster: int) -> None:
    a, b, c = operands(*shape)
    for _ in range(3):  # the phases of one launch leave nothing to the next
        gemm_hopper(a, b, c.fill_(float("nan")), CLUSTER=cluster)
        check(a, b, c)


def test_addresses_change_more_often_than_maps_are_kept() -> None:
    sets = [operands(200, 304, 136) for _ in range(20)]
    for a, b, c in (*sets, *sets):
        gemm_hopper(a, b, c.fill_(float("nan")))
    for each in sets:
        check(*each)


def test_views() -> None:
    wide, b, c = operands(200, 304, 256)[0], *operands(200, 304, 128)[1:]
    for a in (wide[:, :128], wide[:, 128:], wide[:, 8:136], wide[:1].expand(200, 256)[:, :128]):
        gemm_hopper(a, b, c.fill_(float("nan")))
        check(a, b, c)


def test_a_graph_keeps_its_maps() -> None:
    first, second = operands(200, 304, 136), operands(200, 304, 136)
    gemm_hopper(*first)  # builds and loads, which a capture forbids
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemm_hopper(*first)
    for _ in range(20):
        gemm_hopper(*operands(200, 304, 136))
    gemm_hopper(*second)
    first[2].fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    check(*first)
    check(*second)
