"""Tests that `make nightly` runs, and `make test` does not, because they take long and others check the same rule.

The files of tests/night name them by the beginning of their ids, a file for each folder of tests. What stays in
`make test` is said above each group.

Of a test with the mark `product`, which runs for every combination of several parameters, `make test` runs as many
combinations as it takes to show each value of each parameter (`left_out`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the combinations of tests with the mark `product` that show no value that others do not show.

    Combinations for a GPU are a set of their own, because they are skipped where there is none. Those with the mark
    `nightly` do not count; those that tests/night lists do, so that no other combination takes their place.
    """
    sets: dict[tuple[str, bool], list[pytest.Function]] = defaultdict(list)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if isinstance(item, pytest.Function) and "product" in marks and "nightly" not in marks:
            sets[item.nodeid.partition("[")[0], "gpu" in marks].append(item)
    return [item for rows in sets.values() for item in _superfluous(rows)]


def _superfluous(rows: list[pytest.Function]) -> list[pytest.Function]:
    """All rows but a few that hold each value of each axis; values that were used seldom are combined first."""
    values = {row: tuple(enumerate(row.callspec._idlist)) for row in rows}
    used: Counter[tuple[int, str]] = Counter()
    rest = list(rows)
    while any(value not in used for row in rest for value in values[row]):
        row = max(rest, key=lambda r: (sum(v not in used for v in values[r]), -sum(used[v] for v in values[r])))
        used.update(values[row])
        rest.remove(row)
    return rest


def _listed(path: Path) -> list[str]:
    """Return the beginnings of ids in a file of tests/night."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


LONG: tuple[str, ...] = tuple(
    name for path in sorted((Path(__file__).parent / "night").glob("*.txt")) for name in _listed(path)
)


def stale(items: Iterable[pytest.Item]) -> list[str]:
    """Return what tests/night lists of these tests and begins no id: cases that were renamed or removed."""
    ids: dict[str, list[str]] = defaultdict(list)
    for item in items:
        ids[item.nodeid.partition("[")[0]].append(item.nodeid)
    cases = [(name, ids.get(name.partition("[")[0])) for name in LONG]
    return [name for name, of_test in cases if of_test and not any(case.startswith(name) for case in of_test)]
