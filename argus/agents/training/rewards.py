"""Rewards by rules for a kernel's text, for GRPO and similar methods.

`reward` is that of StitchCUDA (arXiv 2603.02637): min(3, (min(speed-up, 5) + 0.3) (1 + lambda (r - 0.5))), where r is
the sum of four scores from 1 to 5, less 4, over 16. A text that is wrong, or that changes the task, gets 0. Here rules
give the scores, and a proof decides whether a text is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from argus import compile
from argus.agents.imported import foreign
from argus.agents.optimize.problem import Problem
from argus.agents.task import changed_task
from argus.diagnostic import ArgusError, Severity, Verdict
from argus.ir.nodes import Kernel, Mma, Spec
from argus.ir.visit import walk
from argus.tuning.model import MODELS, estimate
from argus.tuning.work import work_of

MOST, FASTEST, BASE = 3.0, 5.0, 0.3
_BLOCK = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judgement of one text: the stage that refused it ("" for none), its speed-up, and the scores from 1 to 5.

    `honest`: it states the author's task; `engineering`: proved without warnings of slow accesses; `coverage`: the
    share of specified outputs that it proves; `skill`: the answer is one block of text that holds one kernel.
    """

    refused: str
    speedup: float = 0.0
    honest: int = 1
    engineering: int = 1
    coverage: int = 1
    skill: int = 1

    @property
    def rubric(self) -> float:
        """The scores together, from 0 to 1."""
        return (self.honest + self.engineering + self.coverage + self.skill - 4) / 16


def reward(outcome: Outcome, weight: float = 1.0) -> float:
    """Return the reward of an outcome, or 0 if the text is wrong or changes the task. `weight` is the rubric's lambda.
    """
    if outcome.refused:
        return 0.0
    return min(MOST, (min(outcome.speedup, FASTEST) + BASE) * (1 + weight * (outcome.rubric - 0.5)))


def judged(problem: Problem, answer: str, limit_s: float = 10.0) -> Outcome:
    """Judge an answer: the text of a kernel, or prose with one block of text. Nothing of it runs."""
    blocks = _BLOCK.findall(answer)
    text = blocks[0] if blocks else answer
    skill = 5 if len(blocks) == 1 else 3 if not blocks else 2
    try:
        tile, author = problem.kernel(text), problem.kernel()
    except (ArgusError, AssertionError):
        return Outcome("parse", skill=skill)
    if foreign(problem.text, text) or changed_task(author, tile):
        return Outcome("task", skill=skill)
    try:
        explicit = compile.lower(tile, problem.target)
        report = compile.verify(explicit, limit_s)
    except ArgusError:
        return Outcome("lower", skill=skill)
    if report.verdict is not Verdict.PROVED:
        return Outcome("prove", skill=skill)
    warnings = sum(d.severity is Severity.WARNING for d in report.diagnostics)
    copied = text == problem.text
    return Outcome("", _speedup(problem, explicit), 1 if copied else 5, max(1, 5 - warnings), _covered(explicit), skill)


def _covered(explicit: Kernel) -> int:
    """Return 5 if there is a specification; 4 if a kernel that multiplies does so without matrix instructions."""
    specified = any(isinstance(s, Spec) for s in walk(explicit.body))
    plain = any(isinstance(s, Mma) and s.instr is None for s in walk(explicit.body))
    return 1 if not specified else 4 if plain else 5


def _speedup(problem: Problem, explicit: Kernel) -> float:
    """Return the predicted time of the author's kernel divided by that of this one; 0 if the machine cannot run it."""
    model = MODELS.get(problem.target)
    if model is None:
        return 1.0
    values = {**problem.sizes, **problem.numbers}
    before = estimate(work_of(compile.lower(problem.kernel(), problem.target), values), model)
    after = estimate(work_of(explicit, values), model)
    return before.seconds / after.seconds if not after.reason and not before.reason else 0.0


def grpo_reward(problems: Sequence[Problem], weight: float = 1.0) -> Callable[..., list[float]]:
    """Return a reward function as TRL's `GRPOTrainer` calls it.

    The data set has a column `problem`, the place of a problem in `problems`. Completions are texts or conversations.
    """

    def rewards(completions: Sequence[Any], problem: Sequence[int], **_: Any) -> list[float]:
        return [reward(judged(problems[place], _text(found)), weight)
                for found, place in zip(completions, problem, strict=True)]  # fmt: skip

    return rewards


def _text(completion: Any) -> str:
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
