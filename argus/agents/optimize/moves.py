"""The next steps from one text: the knowledge entries that apply, and other values of its constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from argus.knowledge import Entry, Fact, entries, rewrite
from argus.knowledge.draft import Draft
from argus.knowledge.rewrites.constants import COLUMNS, DEPTH, ROWS, set_constants, warps

TUNE = "tune"
"""The name of the optimisation that changes constants."""

_TILES = {"rows": (64, 128, 192, 256), "columns": (64, 96, 128, 160, 192, 224, 256), "depth": (32, 64, 128),
          "stages": (2, 3, 4, 5, 6)}  # fmt: skip
_CPU_TILES = {"rows": (16, 32, 64, 128), "columns": (16, 32, 64, 128), "depth": (16, 32, 64), "stages": (2, 3)}
_WARPS, _TALL, _GROUPS = (1, 2, 4, 8, 16, 32), (4, 8, 12, 16), (4, 8, 16)
_ROWS_OF_VECTORS, _MOST_ELEMENTS = (1, 2, 4, 8, 16), 32768
_ACCUMULATED = 200  # largest number of registers of a thread for accumulators
_SHARED = 227 * 1024


@dataclass(frozen=True, slots=True)
class Move:
    """A text to try: how it is made from its parent, and the speed-up that its entry promises (1 for constants)."""

    name: str
    how: str
    text: str
    gain: float = 1.0


def moves(
    text: str, name: str, target: str, facts: dict[str, Fact], sizes: dict[str, int], part: int = 0, of: int = 1
) -> list[Move]:
    """Return all steps from a text, each leading to a different text, in no particular order.

    With `of` above 1, return only every `of`-th step from number `part` on, so that processes can share the work.
    """
    named = [*_entries(facts)][part::of]
    numbers = [*_numbers(text, name, target, facts, sizes)][part::of]
    found = [m for m in (*(_by_entry(text, name, e) for e in named), *(_by_numbers(text, name, n) for n in numbers))
             if m is not None]  # fmt: skip
    return list({m.text: m for m in reversed(found) if m.text != text}.values())


def _entries(facts: dict[str, Fact]) -> Iterator[Entry]:
    yield from (entry for entry in entries() if entry.steps and entry.applies(facts))


def _by_entry(text: str, name: str, entry: Entry) -> Move | None:
    new = rewrite(text, name, *entry.steps)
    return None if new is None else Move(entry.name, entry.title, new, entry.gain)


def _by_numbers(text: str, name: str, values: dict[str, int]) -> Move | None:
    draft = Draft.of(text, name)
    set_constants(draft, **values)
    return Move(TUNE, ", ".join(f"{n}={v}" for n, v in values.items()), draft.result()) if draft.edits else None


def _numbers(
    text: str, name: str, target: str, facts: dict[str, Fact], sizes: dict[str, int]
) -> Iterator[dict[str, int]]:
    draft = Draft.of(text, name)
    known = {n: v for n, v in draft.constants().items() if isinstance(v, int) and not isinstance(v, bool)}
    if facts.get("products"):
        yield from _products(known, warps(draft), facts, target)
    else:
        yield from _vectors(known, warps(draft), sizes)


def _named(known: dict[str, int], names: tuple[str, ...]) -> str:
    return next((n for n in names if n in known), "")


def _products(known: dict[str, int], now: int, facts: dict[str, Fact], target: str) -> Iterator[dict[str, int]]:
    """Yield other tiles of a matrix product, and, for the current tile, other depths and numbers of stages.

    The accumulators fit into the registers, and the stages fit into shared memory.
    """
    rows, columns, depth = _named(known, ROWS), _named(known, COLUMNS), _named(known, DEPTH)
    stages = "STAGES" if "STAGES" in known else ""
    if not rows or not columns:
        return
    menu = _CPU_TILES if target == "cpu" else _TILES
    m, n, k, s = known[rows], known[columns], known[depth] if depth else 0, known[stages] if stages else 1
    results = 2 if facts.get("gathers") else 1
    for m2, n2, w in product(menu["rows"], menu["columns"], _TALL if facts.get("producers") else _WARPS):
        held = results * m2 * n2 / (32 * w)
        split = not facts.get("producers") or (m2 % (16 * w) == 0)
        if 8 <= held <= _ACCUMULATED and split and s * (m2 + n2) * k * 2 <= _SHARED:
            yield {rows: m2, columns: n2, "num_warps": w}
    for k2, s2 in product(menu["depth"] if depth else (k,), menu["stages"] if stages else (s,)):
        if s2 * (m + n) * k2 * 2 <= _SHARED:
            yield {**({depth: k2} if depth else {}), **({stages: s2} if stages else {})}
    if "GROUP" in known:
        yield from ({"GROUP": g} for g in _GROUPS)
    yield {"num_warps": now * 2 if now < _WARPS[-1] else now // 2}


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
