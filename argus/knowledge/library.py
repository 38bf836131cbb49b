"""The search for entries: by words, or by the facts of a kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from argus.knowledge.clause import Clause, Facts
from argus.knowledge.entry import FOLDER, LAYERS, Entry, read
from argus.render import Json

SCHEMA = "argus.knowledge/1"
"""The version of `entry_json`. It changes when a field is removed or changes its meaning."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A clause of an entry, the kernel's value of its fact, and True if the clause holds."""

    clause: Clause
    value: str
    holds: bool

    def __str__(self) -> str:
        return f"{self.clause} ({'' if self.holds else 'not: '}{self.value})"


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """Return every entry, by layer and name. Raises ValueError for a file that is not an entry."""
    return tuple(read(path) for layer in LAYERS for path in sorted((FOLDER / "entries" / layer).glob("*.md")))


def search(query: str) -> list[Entry]:
    """Return the entries that contain words of the query, the best match first; words of titles count double."""
    words = set(re.findall(r"[a-z0-9]+", query.lower()))
    scored = [(_score(entry, words), entry) for entry in entries()]
    return [e for score, e in sorted(scored, key=lambda pair: (-pair[0], pair[1].name)) if score]


def _score(entry: Entry, words: set[str]) -> int:
    title = set(re.findall(r"[a-z0-9]+", f"{entry.name} {entry.title}".lower()))
    text = " ".join((entry.prose, entry.measured, entry.cost, entry.layer, " ".join(entry.wrong)))
    return sum(2 * (w in title) + (w in text.lower()) for w in words)


def reasons(entry: Entry, facts: Facts) -> tuple[Reason, ...]:
    """List every clause of an entry with the kernel's value: they show why the entry applies or does not."""
    return tuple(Reason(c, _shown(facts.get(c.fact)), c.holds(facts)) for c in entry.when)


def _shown(value: object) -> str:
    return "not known" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def applicable(facts: Facts) -> list[Entry]:
    """Return the entries that apply to a kernel, those with the largest expected gain first."""
    return sorted((e for e in entries() if e.applies(facts)), key=lambda e: (-e.gain, e.name))


def entry_json(entry: Entry, why: Sequence[Reason] = ()) -> Json:
    """Return an entry as a JSON object. `why`: its clauses with a kernel's values."""
    return {
        "schema": SCHEMA, "name": entry.name, "layer": entry.layer, "title": entry.title,
        "when": [str(c) for c in entry.when], "rewrites": list(entry.steps), "gain": entry.gain,
        "measured": entry.measured, "source": entry.source, "cost": entry.cost, "invariant": entry.invariant,
        "errors": list(entry.wrong), "prose": entry.prose, "change": entry.change, "why": [str(r) for r in why],
    }  # fmt: skip
