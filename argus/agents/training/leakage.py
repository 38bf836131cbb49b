"""Files of pairs: how many pairs are different, and whether anything of the test part is in the training part."""

from __future__ import annotations

import json
import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from argus import language
from argus.agents.training.pairs import REPAIR, Pair, alike
from argus.agents.training.production import pair_of

_TOKEN = re.compile(r"#[^\n]*|\s+|(\w+|[^\w\s])")
_KEPT = frozenset({*keyword.kwlist, *language.__all__, "al", "argus"})


@dataclass
class Audit:
    """The counts of some files. `renamed`: pairs that differ in more than their authors' names; `both`: families and
    texts that are in both parts; `nearest`: the largest share of runs of words that two right texts of different parts
    have in common."""

    pairs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    families: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    different: int = 0
    renamed: int = 0
    both: list[str] = field(default_factory=list)
    nearest: float = 0.0

    def lines(self) -> Iterator[str]:
        """Say it in words, a line for each count."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        yield f"{self.pairs} pairs: {kinds}"
        yield f"{self.different} different, {self.renamed} of them in more than the names of variables"
        sides = ", ".join(f"{part} {len(names)}" for part, names in sorted(self.families.items()))
        yield f"families: {sides}; on both sides: {', '.join(self.both) or 'none'}"
        yield f"the most alike right texts of both sides share {self.nearest:.0%} of their runs of words"


def audited(files: Iterable[Path]) -> Audit:
    """Count the pairs of files that `recipe pairs` wrote. Different shares of the same work may be in several files."""
    found, digests, shapes = Audit(), set[str](), set[bytes]()
    texts, right = defaultdict[str, set[bytes]](set), defaultdict[str, dict[bytes, str]](dict)
    for line in _lines(files):
        pair, part = pair_of(line), str(line["split"])
        found.pairs += 1
        if pair.digest in digests:
            continue
        digests.add(pair.digest)
        shapes.add(_shape(pair))
        found.kinds[f"{pair.skill} by {pair.by}"] += 1
        found.families[part].add(pair.family)
        texts[part] |= {_digest(pair.text), _digest(pair.answer)}
        if pair.skill == REPAIR:
            right[part].setdefault(_digest(pair.answer), pair.answer)
    found.different, found.renamed = len(digests), len(shapes)
    found.both = sorted(found.families["train"] & found.families["test"])
    found.both += [f"{len(shared)} texts" for shared in [texts["train"] & texts["test"]] if shared]
    couples = product(right["train"].values(), right["test"].values())
    found.nearest = max((alike(one, other) for one, other in couples), default=0.0)
    return found


def _lines(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of all files."""
    for path in files:
        with path.open(encoding="utf-8") as file:
            yield from (json.loads(line) for line in file if line.endswith("\n"))


def _digest(text: str) -> bytes:
    return sha256("".join(_TOKEN.findall(text)).encode()).digest()[:12]


def _shape(pair: Pair) -> bytes:
    """Return a digest of both texts in which each name of the author is replaced by its number."""
    numbers: dict[str, str] = {}
    words = (word for text in (pair.text, "\0", pair.answer) for word in _TOKEN.findall(text) if word)
    named = (numbers.setdefault(w, f"v{len(numbers)}") if w.isidentifier() and w not in _KEPT else w for w in words)
    return sha256(" ".join(named).encode()).digest()[:12]
