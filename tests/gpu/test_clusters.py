"""Distributed shared memory on the hardware: blocks of a cluster that write to one another, and read of one another."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

from argus.kernels.gemm import gemm  # noqa: E402
from argus.kernels.matmul import Matmul  # noqa: E402
from argus.kernels.product_tile import Tile  # noqa: E402
from examples.cluster_softmax import cluster_softmax  # noqa: E402
from tests.gpu.device import architecture  # noqa: E402
from tests.reject.kernels.exchange import exchange  # noqa: E402


@pytest.fixture(autouse=True)
def needs_hopper() -> None:
    if architecture() != "sm_90a":
        pytest.skip("needs sm_90a")


@pytest.mark.parametrize("shape", [(1, 1), (3, 700), (65, 4097), (1000, 8192)])
@pytest.mark.parametrize("cluster", [2, 4])
def test_blocks_write_to_one_another(shape: tuple[int, int], cluster: int) -> None:
    x = torch.randn(*shape, device="cuda")
    out = torch.full_like(x, float("nan"))
    cluster_softmax(x, out, PART=8192 // cluster, CLUSTER=cluster)
    assert torch.allclose(out, torch.softmax(x, -1), atol=1e-6)


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize("shape", [(2, 1), (4, 1), (4, 2)])
def test_operands_of_columns_and_of_rows(layout: str, shape: tuple[int, int]) -> None:
    """Descriptors of panels have nothing of the block's number in the cluster."""
    tile = Tile(128, 128, 64, 4, 8, 4, cluster=shape[0], across=shape[1])
    m, n, k = 1000, 1032, 264
    a = torch.randn(m, k, device="cuda") if layout[0] == "n" else torch.randn(k, m, device="cuda").t()
    b = torch.randn(k, n, device="cuda") if layout[1] == "n" else torch.randn(n, k, device="cuda").t()
    a, b = a.bfloat16(), b.bfloat16()
    out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    Matmul(gemm, lambda _: tile)(a, b, out=out)
    assert torch.allclose(out.float(), a.float() @ b.float(), rtol=2e-2, atol=0.3)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("shape", [(2, 1), (2, 2), (4, 1), (4, 2)])
def test_parts_of_a_sum(shape: tuple[int, int], swapped: bool) -> None:
    """The last of which is shorter, and of fewer steps than there are stages."""
    tile = Tile(128, 96, 64, 4, 8, 4, swapped, 384, shape[0], across=shape[1])
    m, n, k = 312, 1000, 824
    a = torch.randn(m, k, device="cuda").bfloat16()
    b = torch.randn(n, k, device="cuda").bfloat16()
    out = Matmul(gemm, lambda _: tile)(a, b.t(), out_dtype=torch.float32)
    torch.testing.assert_close(out, a.float() @ b.float().t(), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("rows", [1, 7, 4000])
def test_blocks_read_of_one_another(rows: int) -> None:
    x = torch.randn(rows, 1024, device="cuda")
    out = torch.full_like(x, float("nan"))
    exchange(x, out)
    assert torch.equal(out, x.roll(512, 1))
