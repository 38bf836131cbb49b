"""Products of float32 as tf32: operands are rounded to nearest on every way to the instruction, not cut off."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

from argus import kernels  # noqa: E402


def nearest(x: torch.Tensor) -> torch.Tensor:
    """The nearest number of 10 mantissa bits, ties away from zero."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("k", [1024, 1021], ids=["by the copy engine", "by threads"])
@pytest.mark.parametrize("turned", [False, True], ids=["rows of k", "columns of k"])
def test_operands_are_rounded_to_nearest(k: int, turned: bool) -> None:
    """Positive operands: cut off, each would lose half of its last place on average, and the sum shows that."""
    generator = torch.Generator().manual_seed(k)
    a, b = (torch.rand(n, k, generator=generator).cuda() + 1 for n in (200, 136))
    given = (x.t().contiguous().t() if turned else x for x in (a, b))
    got = kernels.matmul(next(given), next(given).t())
    exact = nearest(a).double() @ nearest(b).double().t()
    worst = ((got.double() - exact).abs() / exact).max().item()
    assert worst < 2e-5  # the sums of 128 products of depth 8, each cut off; operands cut off would be 5e-4 away
