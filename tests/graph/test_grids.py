"""Grids of generated kernels, and what a report says of launches that were refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from argus.graph import report
from argus.graph.capture import Meta
from argus.graph.grids import MOST_BLOCKS, blocks, grid
from argus.graph.report import Entry, Graph, Report, measure

ENTRY = Entry("copy", ("clone.default",), "proved", True, "", "argus", 1.0, path="copy.py")


@pytest.mark.parametrize(
    ("rows", "options", "wanted"),
    [
        (MOST_BLOCKS * 64, "", "pb, pa = al.grid(al.cdiv(B, WIDTH), al.cdiv(A, HEIGHT))"),
        (MOST_BLOCKS * 64 + 1, "", "pb, pa, one0, one1 = al.grid(al.cdiv(B, WIDTH), al.cdiv(A, HEIGHT), 1, 1)"),
        (MOST_BLOCKS * 64 + 1, ", persistent=True",
         "pb, pa = al.grid(al.cdiv(B, WIDTH), al.cdiv(A, HEIGHT), persistent=True)"),
    ],
)  # fmt: skip
def test_rows_of_tiles_may_be_more_than_an_axis_of_the_hardware_has(rows: int, options: str, wanted: str) -> None:
    axes = [blocks("pb", "B", 12, "WIDTH", 16), blocks("pa", "A", rows, "HEIGHT", 64)]
    assert grid(axes, options) == wanted


def test_a_kernel_whose_launch_was_refused_is_not_counted_as_proved() -> None:
    refused = replace(ENTRY, refused=["the grid is too large"])
    found = Report([Graph("inference", (ENTRY, refused), lambda: None)], False)
    assert found.proved_share == 0.5 and found.rows[1]["reason"] == "the grid is too large"


def test_equal_kernels_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [1.0, 2.0]
    monkeypatch.setattr(report, "measured", lambda *_: times.pop(0))
    small, large = (Meta((n,), (1,), "float32", "cuda:0", False) for n in (4, 8))
    entries = [replace(ENTRY, tensors=(size,)) for size in (small, small, large)]
    measure(entries, "cuda")
    assert [entry.seconds for entry in entries] == [1.0, 1.0, 2.0]
