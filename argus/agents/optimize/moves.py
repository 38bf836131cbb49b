"""The next steps from one text: the knowledge entries that apply, and other values of its constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from argus.knowledge import Fact, entries, rewrite
from argus.knowledge.draft import Draft
from argus.knowledge.rewrites.constants import COLUMNS, DEPTH, ROWS, set_constants, warps

TUNE = "tune"
"""The name of the optimisation that changes constants."""

_PRODUCT = {"rows": (64, 128, 192, 256), "columns": (64, 128, 160, 192, 256), "depth": (32, 64, 128),
            "stages": (2, 3, 4, 5, 6)}  # fmt: skip
_WARPS, _GROUPS = (1, 2, 4, 8, 16, 32), (4, 8, 16)
_ROWS_OF_VECTORS, _MOST_ELEMENTS = (1, 2, 4, 8, 16), 32768
_ACCUMULATED = 200  # the most registers of a thread for accumulators
_SHARED = 227 * 1024


@dataclass(frozen=True, slots=True)
class Move:
    """A text to try: how it is made from its parent, and the speed-up that its entry promises (1 for constants)."""

    name: str
    how: str
    text: str
    gain: float = 1.0


def moves(text: str, name: str, target: str, facts: dict[str, Fact], sizes: dict[str, int]) -> list[Move]:
    """Return all steps from a text, each leading to a different text, in no particular order."""
    found = [*_entries(text, name, facts), *_numbers(text, name, target, facts, sizes)]
    return list({m.text: m for m in reversed(found) if m.text != text}.values())


def _entries(text: str, name: str, facts: dict[str, Fact]) -> Iterator[Move]:
    for entry in entries():
        if entry.steps and entry.applies(facts):
            new = rewrite(text, name, *entry.steps)
            if new is not None:
                yield Move(entry.name, entry.title, new, entry.gain)


def _numbers(text: str, name: str, target: str, facts: dict[str, Fact], sizes: dict[str, int]) -> Iterator[Move]:
    draft = Draft.of(text, name)
    known = {n: v for n, v in draft.constants().items() if isinstance(v, int) and not isinstance(v, bool)}
    wanted = _products(known, facts, target) if facts.get("products") else _vectors(known, warps(draft), sizes)
    for values in wanted:
        new = Draft.of(text, name)
        set_constants(new, **values)
        if new.edits:
            yield Move(TUNE, ", ".join(f"{n}={v}" for n, v in values.items()), new.result())


def _named(known: dict[str, int], names: tuple[str, ...]) -> str:
    return next((n for n in names if n in known), "")


def _products(known: dict[str, int], facts: dict[str, Fact], target: str) -> Iterator[dict[str, int]]:
    """Yield tiles of a matrix product whose accumulators fit the registers and whose stages fit shared memory."""
    rows, columns, depth = _named(known, ROWS), _named(known, COLUMNS), _named(known, DEPTH)
    stages = "STAGES" if "STAGES" in known else ""
    if not rows or not columns:
        return
    menu = dict(_PRODUCT)
    if target == "cpu":
        menu = {"rows": (16, 32, 64, 128), "columns": (16, 32, 64, 128), "depth": (16, 32, 64), "stages": (2, 3)}
    axes = [menu["rows"], menu["columns"], menu["depth"] if depth else (0,), menu["stages"] if stages else (0,), _WARPS]
    accumulators = 2 if facts.get("gathers") else 1
    for m, n, k, s, w in product(*axes):
        held = accumulators * m * n / (32 * w)
        if held > _ACCUMULATED or held < 8 or (depth and max(s, 1) * (m + n) * k * 2 > _SHARED):
            continue
        if facts.get("producers") and (w % 4 or m % (16 * w) or w > 16):
            continue
        values = {rows: m, columns: n, "num_warps": w}
        yield {**values, **({depth: k} if depth else {}), **({stages: s} if stages else {})}
    if "GROUP" in known:
        yield from ({"GROUP": g} for g in _GROUPS)


def _vectors(known: dict[str, int], now: int, sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    """Yield tiles of rows of elements: how many rows at a time, how long the tile is, and how many warps share it."""
    rows, block = _named(known, ROWS), _named(known, ("BLOCK", "BLOCK_N", "COLUMNS", "TILE"))
    if not block:
        yield from ({"num_warps": w} for w in _WARPS if w != now)
        return
    lengths = sorted({known[block], known[block] * 2, max(16, known[block] // 2), *_lengths(sizes)})
    for length, count, w in product(lengths, _ROWS_OF_VECTORS if rows else (1,), _WARPS):
        each = length * count / (32 * w)
        if 1 <= each <= 128 and length * count <= _MOST_ELEMENTS:
            yield {block: length, "num_warps": w, **({rows: count} if rows else {})}


def _lengths(sizes: dict[str, int]) -> list[int]:
    """Return tile lengths that cover a dimension, rounded up to whole vectors of a warp."""
    return [-(-size // 256) * 256 for size in sizes.values() if 256 <= size <= _MOST_ELEMENTS]
