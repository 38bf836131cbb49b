"""Measured tiles: a shipped table by target and class of shape. The model serves all other products."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from argus.kernels.product_tile import LINE, ProductShape, Tile
from argus.kernels.tile_times import ranked

PATH = Path(__file__).parent / "tiles.json"
TRUSTED = 1.08
"""Largest time that the model may expect of a measured tile, relative to the model's best tile."""


def shape_class(problem: ProductShape) -> str:
    """Return the class of a problem. Problems of one class share a tile: m, n, k and the batch are equal when
    `rounded`, and everything else is equal."""
    sizes = "x".join(str(rounded(size)) for size in (problem.batch, problem.m, problem.n, problem.k))
    layout = ("k" if problem.a_rows else "m") + ("k" if problem.b_rows else "n")
    way = ("bulk" if problem.bulk else "plain") + (f", {problem.loaded} loaded" if problem.loaded else "")
    held = ("" if problem.bulk_out else "+scattered") + ("+residual" if problem.residual else "")
    lines = "".join(f"{name}{line}" for name, line in (("a", problem.a_line), ("b", problem.b_line)) if line < LINE)
    held += f"+{lines}" if lines else ""
    return f"{problem.target} {way} {problem.bits}->{problem.out_bits} {layout}{held} {sizes}"


def rounded(size: int) -> int:
    """Return `size` rounded up to a power of two, or to three quarters of one."""
    power = 1 << max(size - 1, 0).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 and power >= 8 else power


@lru_cache(maxsize=1)
def shipped() -> Mapping[str, Tile]:
    """Return the table of this package, or an empty table if it cannot be read."""
    try:
        return from_json(json.loads(PATH.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def tile_for(problem: ProductShape) -> Tile:
    """Return the measured tile of the problem's class, unless the model expects another tile to be much faster for this
    problem; then return the model's tile. A class has many sizes, and tiles divide some of them better than others."""
    expected = ranked(problem)
    found = shipped().get(shape_class(problem))
    trusted = any(t == found and e.seconds <= TRUSTED * expected[0][1].seconds for t, e in expected)
    return found if found is not None and trusted else expected[0][0]


def to_json(table: Mapping[str, Tile]) -> Any:
    """Return `table` as a JSON value."""
    return {
        key: {**tile.constants, "swapped": tile.swapped, "packed": tile.packed} for key, tile in sorted(table.items())
    }


def from_json(data: Any) -> dict[str, Tile]:
    """Return the table that the JSON value of `to_json` describes. Raises KeyError, TypeError or ValueError for other
    values."""
    return {key: _tile(entry) for key, entry in data.items()}


def _tile(entry: Any) -> Tile:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "STAGES", "num_warps", "PRODUCERS")
    rows, columns, depth, stages, warps, producers = (int(entry[name]) for name in names)
    part, cluster = int(entry.get("DEPTH", 0)), int(entry.get("CLUSTER", 1))
    swapped, packed, across = bool(entry["swapped"]), bool(entry.get("packed", False)), int(entry.get("ACROSS", 1))
    schedule = str(entry.get("SCHEDULE", "rows"))
    shift = int(entry.get("SHIFT", 0))
    return Tile(rows, columns, depth, stages, warps, producers, swapped, part, cluster, packed, across, schedule, shift)
