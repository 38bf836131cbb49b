"""Distributed shared memory on the hardware: blocks of a cluster that write to one another, and read of one another."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

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


@pytest.mark.parametrize("rows", [1, 7, 4000])
def test_blocks_read_of_one_another(rows: int) -> None:
    x = torch.randn(rows, 1024, device="cuda")
    out = torch.full_like(x, float("nan"))
    exchange(x, out)
    assert torch.equal(out, x.roll(512, 1))
