"""The result of each step: texts, the entries that apply to them, and the times that the performance model predicts.

Nothing is proved or run here, so that a learner can take thousands of steps. Each text is lowered once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from argus import compile
from argus.agents.task import changed_task
from argus.diagnostic import ArgusError
from argus.frontend import Options
from argus.knowledge import Entry, Fact, entries, facts_of_text, rewrite
from argus.knowledge.entry import FOLDER
from argus.source import SourceFile
from argus.tuning.model import MODELS, estimate, occupancy
from argus.tuning.work import work_of

ACTIONS: tuple[Entry, ...] = tuple(e for e in entries() if e.steps)
"""The entries of the knowledge base that rewrites carry out. An action is the index of one of them."""
FLOAT = 0.125


@dataclass(frozen=True, slots=True)
class Task:
    """A naive kernel of the knowledge base, and the sizes at which it is to be fast."""

    kernel: str
    sizes: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, kernel: str, **sizes: int) -> Task:
        """Return the task of a kernel at some sizes."""
        return cls(kernel, tuple(sizes.items()))


TRAINING = (
    Task.of("product", M=4096, N=4096, K=4096), Task.of("product", M=1024, N=1024, K=1024),
    Task.of("product", M=8192, N=2048, K=4096), Task.of("softmax", M=16384, N=4096),
    Task.of("softmax", M=65536, N=1024), Task.of("rmsnorm", M=16384, N=4096), Task.of("rmsnorm", M=4096, N=8192),
    Task.of("gated", M=16384, N=4096),
)  # fmt: skip
HELD_OUT = (
    Task.of("product", M=2048, N=8192, K=2048), Task.of("product", M=6144, N=6144, K=1536),
    Task.of("softmax", M=32768, N=2048), Task.of("rmsnorm", M=8192, N=2048), Task.of("gated", M=8192, N=14336),
)  # fmt: skip
"""Sizes that no training has seen."""


@dataclass(slots=True)
class Known:
    """What is known of a text: whether it lowers, its facts, the text to which each action leads, and the lowered
    kernel, if this process lowered it."""

    lowers: bool
    facts: dict[str, Fact]
    leads: dict[int, str | None] = field(default_factory=dict)
    explicit: compile.ExplicitKernel | None = None


class World:
    """The texts that are reached from naive kernels on one target. `best` holds the least time known of a task.

    `texts`, `times` and `counted` are what is known of texts, their times, and their facts at the sizes of a task.
    """

    def __init__(self, target: str = "sm_90a") -> None:
        self.target = target
        self._model = MODELS[target]
        self._authors: dict[str, compile.TileKernel] = {}
        self.texts: dict[tuple[str, str], Known] = {}
        self.times: dict[tuple[Task, str], float] = {}
        self.counted: dict[tuple[Task, str], dict[str, Fact]] = {}
        self.best: dict[Task, float] = {}

    def take(self, other: World) -> None:
        """Take over what another world knows of texts."""
        for key, known in other.texts.items():
            self.texts.setdefault(key, known).leads.update(known.leads)
        self.times.update(other.times)
        self.counted.update(other.counted)
        self.best.update(other.best)

    def naive(self, task: Task) -> str:
        """Return the text from which a task starts."""
        return (FOLDER / "kernels" / f"{task.kernel}.py").read_text(encoding="utf-8")

    def time(self, task: Task, text: str) -> float:
        """Return the microseconds that the model predicts; infinity for what does not lower or fit the machine."""
        if (task, text) not in self.times:
            self.times[task, text] = self._predicted(task, text)
        return self.times[task, text]

    def _predicted(self, task: Task, text: str) -> float:
        explicit = self._explicit(task, text)
        if explicit is None:
            return math.inf
        found = estimate(work_of(explicit, self._values(task)), self._model)
        return found.seconds * 1e6 if not found.reason else math.inf

    def facts(self, task: Task, text: str) -> dict[str, Fact]:
        """Return the facts of a text at the sizes of a task, with what bounds it."""
        if (task, text) not in self.counted:
            self.counted[task, text] = self._counted(task, text)
        return self.counted[task, text]

    def _counted(self, task: Task, text: str) -> dict[str, Fact]:
        known, explicit = self._text(task, text), self._explicit(task, text)
        if explicit is None:
            return dict(known.facts)
        work = work_of(explicit, self._values(task))
        resident, _ = occupancy(work, self._model.machine)
        rounds = work.blocks / max(1, resident * self._model.machine.multiprocessors)
        return {**known.facts, "registers": work.registers, "shared_bytes": work.shared_bytes, "rounds": rounds,
                "bytes_per_flop": work.all_bytes / max(1.0, work.blocks * (work.matrix_flops + work.scalar_flops)),
                "bound": estimate(work, self._model).bound.replace(" ", "-")}  # fmt: skip

    def actions(self, task: Task, text: str) -> list[bool]:
        """Return, for each action, whether it applies to a text and leads to another one."""
        facts = self.facts(task, text)
        return [entry.applies(facts) and self.step(task, text, place) is not None
                for place, entry in enumerate(ACTIONS)]  # fmt: skip

    def step(self, task: Task, text: str, action: int) -> str | None:
        """Return the text that an action makes, or None if it changes nothing."""
        known = self._text(task, text)
        if action not in known.leads:
            new = rewrite(text, task.kernel, *ACTIONS[action].steps)
            known.leads[action] = None if new == text else new
        return known.leads[action]

    def _text(self, task: Task, text: str) -> Known:
        key = (task.kernel, text)
        if key not in self.texts:
            self.texts[key] = self._read(task, text)
        return self.texts[key]

    def _explicit(self, task: Task, text: str) -> compile.ExplicitKernel | None:
        """Return the lowered kernel; None if the text does not lower. What a file told of is lowered once it is asked
        for."""
        known = self._text(task, text)
        if known.lowers and known.explicit is None:
            known.explicit = self._read(task, text).explicit
        return known.explicit

    def _read(self, task: Task, text: str) -> Known:
        options = Options(target=self.target)
        try:
            tile = compile.elaborate(SourceFile("kernel.py", text), task.kernel, options)
            author = self._author(task)
            facts = facts_of_text(text, task.kernel, self.target)
            if changed_task(author, tile):
                return Known(False, facts)
            return Known(True, facts, {}, compile.lower(tile, self.target))
        except ArgusError:
            return Known(False, {})

    def _author(self, task: Task) -> compile.TileKernel:
        if task.kernel not in self._authors:
            source = SourceFile("kernel.py", self.naive(task))
            self._authors[task.kernel] = compile.elaborate(source, task.kernel, Options(target=self.target))
        return self._authors[task.kernel]

    def _values(self, task: Task) -> Mapping[str, float]:
        return {**dict(task.sizes), "scale": FLOAT, "eps": FLOAT}
