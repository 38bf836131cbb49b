"""Operators that read at computed places, as kernels on the CPU target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.graph.compiled import left, same, taken  # noqa: E402

F = torch.nn.functional
x, y = torch.randn(3, 4, 5), torch.randn(3, 2, 5)
places = torch.tensor([[2, 0, 1], [0, 0, 2]])
CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "concatenation": (lambda a, b: torch.cat([a, b], 1).relu(), (x, y)),
    "of three": (lambda a, b: torch.cat([a, b, a * 2], -2) + 1, (x, y)),
    "of halves": (lambda a: torch.cat([-a[..., 2:], a[..., :2]], -1) * 2, (torch.randn(3, 5, 4),)),
    "of half precision": (lambda a, b: torch.cat([a, b], 1) * 2, (x.bfloat16(), y.bfloat16())),
    "of a row for all": (lambda a, b: torch.cat([b.expand(3, -1, -1), a], 1) * 2, (x, torch.randn(1, 1, 5))),
    "padding": (lambda a: F.pad(a, (1, 2, 0, 1), value=2.0) * 2, (x,)),
    "cropping": (lambda a: F.pad(a, (-1, 2)) + 1, (x,)),
    "flip": (lambda a: a.flip(0, 2).exp(), (x,)),
    "embedding": (lambda w, i: F.embedding(i, w) + 1, (torch.randn(3, 6), places)),
    "gather": (lambda a, i: a.gather(2, i) * 2, (x, torch.randint(0, 5, (3, 4, 2)))),
    "triangle": (lambda a: torch.tril(a * 2, -1) + 1, (x,)),
    "triangle of a product": (lambda a, b: torch.triu(a @ b), (torch.randn(9, 5), torch.randn(5, 12))),
    "triangle of a number": (lambda a: torch.where(torch.ones(4, 5, dtype=torch.bool).tril(), a, 0.0), (x,)),
    "index": (lambda a, i: a[:, i] * 2, (x, torch.tensor([[3, -1], [0, -4]]))),
    "slice scatter": (lambda a, b: a.slice_scatter(b, 1, 1, 3) * 2, (x, y)),
    "slice scatter with steps": (lambda a, b: a.slice_scatter(b, 1, 1, None, 2) * 2, (x, y)),
    "select scatter": (lambda a, b: a.select_scatter(b, 1, -1) * 2, (x, y[:, 0].contiguous())),
    "rows scattered": (lambda a, i, b: a.scatter_add(0, i[:, None].expand(-1, 5), b), (x[0], places[0], x[1, :3])),
    "index_select": (lambda a, i: a.index_select(1, i) * 2, (x, torch.tensor([3, 1]))),
}


@pytest.mark.parametrize("case", CASES)
def test_indexed_with_what_follows(case: str) -> None:
    function, inputs = CASES[case]
    report = same(function, *inputs)
    assert not left(report)
    assert {row["verdict"] for row in report.rows} == {"proved"}


def test_rows_are_added_by_a_proved_kernel_and_places_by_pytorch() -> None:
    at = torch.tensor([-1, 0, -1])
    report = same(lambda a, i, b: a.index_put((i,), b, True), x, at, torch.randn(3, 4, 5))
    assert "embedding_dense_backward" in taken(report)
    assert left(report) == ["add.Tensor", "where.self"]


def test_places_of_two_tensors_are_left() -> None:
    report = same(lambda a, i: a[i, i] * 2, x, torch.tensor([2, -1]))
    assert left(report) == ["index.Tensor"]


def test_elements_that_are_added_one_by_one_are_left() -> None:
    report = same(lambda a, i, b: a.scatter_add(1, i, b) * 2, x[0], places[:, :2], y[0])
    assert left(report) == ["scatter_add.default"]


def test_elements_that_replace_others_are_left() -> None:
    report = same(lambda a, i, b: a.index_put((i,), b) * 2, x, torch.tensor([2, 0]), y[:2, :1])
    assert left(report) == ["index_put.default"]


def test_a_place_that_there_is_not_is_seen() -> None:
    from tests.graph.compiled import compiled

    call, _ = compiled(lambda w, i: F.embedding(i, w) + 1, dynamic=False)
    found = call(torch.randn(3, 6), torch.tensor([1, 3]))
    assert found[0].isfinite().all()
    assert found[1].isnan().all()
    call, _ = compiled(lambda w, i: w[i] + 1, dynamic=False)
    found = call(torch.randn(3, 6), torch.tensor([-3, -4, 2, 3]))
    assert found.isnan().all(1).tolist() == [False, True, False, True]


def test_integers_at_places_of_a_tensor_are_left() -> None:
    report = same(lambda a, i: a.index_select(0, i) > 2, torch.arange(6), torch.tensor([3, 1]))
    assert left(report) == ["index_select.default"]
