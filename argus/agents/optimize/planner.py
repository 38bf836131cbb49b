"""The planner: a bandit over (optimisation, context). Its prior is the gain that entries and the performance model
promise.

Its table holds what it has learned: for each pair the number of outcomes, the mean of what was gained beyond the
promise (logarithms of speed-ups) and their spread. A file passes the table on to the next task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from argus.knowledge import Fact

_PRIOR, _EXPLORE = 2.0, 0.15
"""`_PRIOR`: the number of outcomes that the prior counts as; `_EXPLORE`: the weight of the uncertainty."""
_REFUSED = -0.7
"""The gain that counts for a refused candidate: as if it were half as fast."""


@dataclass(slots=True)
class Score:
    """Outcomes of one optimisation in one context: their number, mean gain and sum of squared differences from it."""

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0
    invariant: str = ""

    def note(self, gain: float) -> None:
        """Add an outcome (Welford's update)."""
        self.count += 1
        before = gain - self.mean
        self.mean += before / self.count
        self.spread += before * (gain - self.mean)

    @property
    def deviation(self) -> float:
        """The standard deviation of outcomes; 0.5 while there are fewer than two."""
        return math.sqrt(self.spread / (self.count - 1)) if self.count > 1 else 0.5


@dataclass(slots=True)
class Planner:
    """The scores, by "optimisation in context", and the lessons in words."""

    table: dict[str, Score] = field(default_factory=dict)
    lessons: list[str] = field(default_factory=list)

    def expected(self, name: str, context: str, prior: float) -> float:
        """Return an optimistic estimate of the gain, a logarithm. `prior` is what the entry and the model promise."""
        mean, doubt = self.residual(name, context)
        return prior + mean + doubt

    def residual(self, name: str, context: str) -> tuple[float, float]:
        """Return the expected gain beyond the promise according to past outcomes, and a bonus that grows with the
        uncertainty."""
        known = self.table.get(f"{name} in {context}", Score())
        mean = known.count * known.mean / (_PRIOR + known.count)
        return mean, _EXPLORE * max(known.deviation, 0.1) * 2 / math.sqrt(1 + known.count)

    def learn(self, name: str, context: str, prior: float, gain: float | None, why: str, invariant: str) -> None:
        """Record an outcome: the measured gain, or None for a refused candidate, and why it was refused."""
        known = self.table.setdefault(f"{name} in {context}", Score(invariant=invariant))
        known.note(_REFUSED if gain is None else max(-2.0, min(2.0, gain - prior)))
        expected = f"expected x{math.exp(prior):.2f}, "
        said = f"refused: {why}" if gain is None else f"{expected}measured x{math.exp(gain):.2f}"
        self.lessons.append(f"{name} in {context}: {said}")

    def as_json(self) -> dict[str, object]:
        """Return the table and the lessons in the form in which they are stored."""
        return {"table": {key: asdict(score) for key, score in self.table.items()}, "lessons": self.lessons}

    @classmethod
    def from_json(cls, data: dict[str, object]) -> Planner:
        """Read what `as_json` returned. Raises TypeError or AttributeError for anything else."""
        table, lessons = data.get("table", {}), data.get("lessons", [])
        assert isinstance(table, dict) and isinstance(lessons, list)
        return cls({key: Score(**value) for key, value in table.items()}, [str(lesson) for lesson in lessons])


def context_of(facts: Mapping[str, Fact]) -> str:
    """Describe a kernel by its kind, its structure, its target and its bottleneck. Outcomes are shared in a context."""
    return f"{kind_of(facts)} {facts.get('target', '')} {facts.get('bound', 'unknown')}"


def kind_of(facts: Mapping[str, Fact]) -> str:
    """Describe a kernel by what it computes and how far it is specialised."""
    products, reductions = facts.get("products", 0), facts.get("reductions", 0)
    kind = "attention" if products and reductions else "product" if products else "rows" if reductions else "elements"
    staged = "specialised" if facts.get("producers") else "pipelined" if facts.get("pipelines") else "plain"
    return f"{kind} {staged}"
