"""The tuning of tiles, on the CPU target with a timer that is told what to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from argus.kernels import tile_times, tune
from argus.kernels.product_tile import ProductShape, Tile
from argus.kernels.table import from_json, to_json
from argus.tuning.build import BuildRequest

SHAPE = tune.Shape(16, 24, 32)
SLOW, QUICK = Tile(32, 32, 32, 2, 1, 0), Tile(16, 32, 32, 2, 1, 0, swapped=True)


def told(calls: Sequence[Callable[[int], object]], sets: int) -> list[float]:
    """The later the quicker; every call is made on the last set of operands."""
    for call in calls:
        call(sets - 1)
    return [1.0 / (i + 1) for i, _ in enumerate(calls)]


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    monkeypatch.setattr(tune, "candidates", lambda problem: [SLOW, QUICK])


def test_the_fastest_tile_of_each_class_is_kept(two: None) -> None:
    built: list[BuildRequest] = []
    table, lines = tune.tune((SHAPE, SHAPE), "cpu", told, lambda order: built.append(order) or "")
    assert table == {"cpu plain 16->16 kk 1x16x24x32": QUICK} == from_json(to_json(table))
    assert len(built) == 2 and {o.options.constexprs["C"] for o in built} == {"M N", "N M"}
    assert len(lines) == 4 and all("us, " in line for line in lines)


def test_tiles_that_cannot_be_built_are_told(two: None) -> None:
    table, lines = tune.tune(
        (SHAPE,), "cpu", told, lambda order: "" if order.options.constexprs["C"] == "M N" else "no"
    )
    assert list(table.values()) == [SLOW] and f"{SHAPE}: {QUICK}: no" in lines


def test_candidates_are_what_the_model_prefers() -> None:
    problem = ProductShape(4096, 4096, 4096, 1, 16, 16, "sm_90a", True)
    found = tune.candidates(problem)
    assert found == [tile for tile, _ in tile_times.ranked(problem)][: len(found)] and 2 <= len(found) <= tune.TRIED


def test_every_shape_is_named_once() -> None:
    assert len(set(map(str, tune.SHAPES))) == len(tune.SHAPES)
