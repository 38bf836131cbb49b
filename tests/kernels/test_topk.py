"""The greatest elements of rows: against PyTorch, ties, special values, proofs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import topk  # noqa: E402
from argus.kernels.topk import tile_of  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import TARGETS, assert_proved, random, source_of  # noqa: E402


def in_order(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of equal elements, the first first."""
    values, places = torch.sort(x, dim=-1, descending=True, stable=True)
    return values[..., :k], places[..., :k]


@pytest.mark.product
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "k"), [((0, 8), 3), ((7, 1), 1), ((5, 13), 8), ((2, 3, 128), 8), ((3, 300), 16)])
def test_topk(device: str, shape: tuple[int, ...], k: int, dtype: str) -> None:
    x = random(*shape, dtype=dtype, device=device)
    values, places = topk(x, k)
    wanted, at = in_order(x, k)
    assert torch.equal(values, wanted) and torch.equal(places, at)


def test_ties_and_special_values(device: str) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[1, 3, 3, -1, 3, 1], [-0.0, 0, -1, -0.0, 0, -2], [-inf] * 6, [nan, inf, -inf, 1, -nan, 2]]
    x = torch.tensor(rows, dtype=torch.bfloat16, device=device)
    values, places = topk(x, 5)
    assert places.tolist() == [[1, 2, 4, 0, 5], [0, 1, 3, 4, 2], [0, 1, 2, 3, 4], [0, 4, 1, 5, 3]]
    assert torch.equal(values[:3], in_order(x[:3], 5)[0]) and bool(values[3, :2].isnan().all())


def test_rows_any_distance_apart(device: str) -> None:
    wide = random(6, 50, dtype="bfloat16", device=device)
    for x in (wide[:, 3:40], wide[::2, :24], wide.mT):
        assert torch.equal(topk(x, 4)[1], in_order(x, 4)[1])


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(LaunchError, match="the 5 greatest of rows of 4"):
        topk(torch.zeros(3, 4, dtype=torch.bfloat16), 5)
    with pytest.raises(LaunchError, match="`x` is a tensor of float32"):
        topk(torch.zeros(3, 4), 2)


@pytest.mark.parametrize(("columns", "k"), [(128, 8), (256, 6), (20, 1)])
def test_proved_in_few_lanes(columns: int, k: int) -> None:
    for kernel in ("topk_rows", "router_rows"):
        assert_proved("topk", kernel, "sm_90a", **tile_of("sm_90a", columns, k))


@pytest.mark.parametrize("target", TARGETS)
def test_proved(target: str) -> None:
    assert_proved("topk", "topk_rows", target)
    assert_proved("topk", "topk_rows", target, DTYPE="float16", K=3, BLOCK=512, SPAN=512, ROWS=4, alignment=2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("last = al.max(al.where(keys < last", "last = al.max(al.where(keys <= last"),
        ("found = al.where(al.arange(K) == i, last", "found = al.where(al.arange(K) == K - 1 - i, last"),
        ("keys_of(loaded.to(al.float32), cols", "keys_of(-loaded.to(al.float32), cols"),
    ],
)
def test_other_orders_are_not_proved(old: str, new: str) -> None:
    """The first round again, ranks from the last to the first, and the least elements."""
    whole = source_of("topk")
    before, kernel = whole.text.split("def topk_rows")
    assert old in kernel
    text = before + "def topk_rows" + kernel.replace(old, new, 1)
    report = prove(SourceFile(whole.path, text), "topk_rows", Options("sm_80", 4, {"K": 2}))
    assert report.verdict is Verdict.REFUTED
