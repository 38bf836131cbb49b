"""Scans, products and places of extrema through the backend: short rows, rows in pieces, and columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.graph.backend import Backend  # noqa: E402
from tests.graph.compiled import left, same  # noqa: E402

short, long, columns = torch.randn(3, 70), torch.randn(2, 9000), torch.randn(2, 40, 33)
near_one = 1 + torch.randn(2, 9000) / 1000
special = torch.tensor([[1.0, 5.0, 5.0, -1.0], [0.0, -0.0, float("nan"), 9.0], [float("inf"), 1.0, float("nan"), 0.0]])


def exclusive(x: Any) -> Any:
    before = torch.cumsum(x.narrow(1, 0, x.size(1) - 1), 1)
    return torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), before), 1)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sums": (lambda x: torch.cumsum(x, 1), (short,)),
    "sums of long rows": (lambda x: torch.cumsum(x, -1), (long,)),
    "sums of columns": (lambda x: torch.cumsum(x, 1), (columns,)),
    "sums of half precision": (lambda x: torch.cumsum(x, 1), (short.to(torch.bfloat16),)),
    "masked sums": (lambda x, m: torch.cumsum(x * m, 1), (long, long > 0)),
    "sums before each": (exclusive, (long,)),
    "sums from the end": (lambda x: torch.cumsum(x.flip(1), 1).flip(1), (short,)),
    "sums from the end of long rows": (lambda x: torch.cumsum(x.flip(1) * 0.5, 1).flip(1), (long,)),
    "sums from the end of long rows, turned": (lambda x: torch.cumsum(x.flip(-1), -1).flip(1).exp(), (long / 1000,)),
    "sums from the end of columns": (lambda x: torch.cumsum(x.flip(1), 1).flip(1), (columns,)),
    "sums from the end, turned once": (lambda x: torch.cumsum(x.flip(1), 1), (short,)),
    "sums with what follows": (lambda x: torch.cumsum(x / x.abs().sum(1, keepdim=True), 1).abs(), (short,)),
    "products up to each": (lambda x: torch.cumprod(x, 1), (short,)),
    "products up to each in long rows": (lambda x: torch.cumprod(x, 1), (near_one,)),
    "products of long rows": (lambda x: torch.prod(x, 1), (near_one,)),
    "products of columns": (lambda x: torch.prod(x, 1), (columns,)),
    "products": (lambda x: torch.prod(x, 1), (short,)),
    "products of all": (torch.prod, (short,)),
    "places of maxima": (lambda x: torch.argmax(x, 1), (short,)),
    "places of minima": (lambda x: torch.argmin(x, 1, keepdim=True), (short,)),
    "places in long rows": (lambda x: torch.argmax(x, 1), (long,)),
    "places in columns": (lambda x: torch.argmin(x, 1), (columns,)),
    "maxima and their places": (lambda x: torch.max(x, 1), (short,)),
    "the first of equals, and of NaN": (lambda x: torch.argmax(x, 1), (special,)),
    "the first of least, and of NaN": (lambda x: torch.argmin(x, 1), (special,)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_proved_and_equal(case: str) -> None:
    function, inputs = CASES[case]
    half = inputs[0].dtype is torch.bfloat16
    report = same(function, *inputs, tolerance=2e-2 if half else 1e-4)
    assert not left(report)
    assert {(row["verdict"], row["specified"]) for row in report.rows} == {("proved", True)}


def test_places_are_of_numbers_in_memory() -> None:
    """A computed row is stored before its elements are ordered: rounding would decide otherwise."""
    report = same(lambda x: torch.argmax(x.exp() * 3, 1), short)
    assert not left(report)
    assert len(report.rows) == 2


def test_what_is_made_of_places_is_left() -> None:
    report = same(lambda x: torch.argmax(x, 1) * 2, short)
    assert left(report) == ["mul.Tensor"]


@pytest.mark.parametrize(
    ("function", "name"),
    [(lambda x: torch.cumsum(x.long(), 1), "cumsum.default"), (lambda x: torch.argmax(x), "argmax.default"),
     (lambda x: torch.argmax(x.long(), 1), "argmax.default")],
)  # fmt: skip
def test_what_is_left(function: Callable[..., Any], name: str) -> None:
    assert name in left(same(function, short))


@pytest.mark.parametrize(
    ("scan", "whole"),
    [
        (lambda x: torch.cumsum(x[:, :60], 1).abs(), True),
        (lambda x: torch.cumsum(x[:, 10:], 1).abs(), False),
        (lambda x: torch.cumsum(x[:, :20], 1).abs(), False),
        (lambda x: torch.cumsum(x[:2], 1).abs(), False),
        (lambda x: torch.cumsum(x[:, :60], 1), False),
    ],
    ids=["most of a row", "not from the front", "a small part", "another dimension", "returned as it is"],
)
def test_scans_of_most_of_a_row_are_scans_of_rows(scan: Callable[..., Any], whole: bool) -> None:
    torch._dynamo.reset()
    backend = Backend()
    torch.testing.assert_close(torch.compile(scan, backend=backend, dynamic=False)(short), scan(short))
    read = {m.shape for g in backend.graphs for e in g.entries if e.kernel.startswith("cumsum") for m in e.tensors}
    assert ((3, 70) in read) == whole


@pytest.mark.parametrize(("rows", "held"), [(40, True), (200, False)])
def test_few_rows_are_reduced_in_registers(rows: int, held: bool) -> None:
    report = same(lambda x: torch.softmax(x, 1) * 2 - x.amin(1, keepdim=True), torch.randn(2, rows, 33))
    assert {row["verdict"] for row in report.rows} == {"proved"}
    texts = [Path(row["path"]).read_text(encoding="utf-8") for row in report.rows]
    assert all(("for b0" not in text) == held for text in texts)
