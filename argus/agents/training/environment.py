"""The environment of a learner, in the form of Gymnasium: `reset`, `step`, and spaces where Gymnasium is installed.

A state is a kernel's text at some sizes, an action an entry of the knowledge base. A step tries the action on the best
text so far. The reward is the logarithm of the speed-up over the best text so far, minus a price for the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from argus.agents.training.world import ACTIONS, Task, World
from argus.knowledge import Fact

STEPS, PRICE = 12, 0.02
_COUNTED = ("products", "loads", "staged", "loaded_operands", "pipelines", "producers", "persistent", "grouped",
            "clusters", "scheduled", "reductions", "exponentials", "divisions", "selections", "loops", "axes",
            "gathers", "transposes")  # fmt: skip
_SCALED = ("warps", "stages", "registers", "shared_bytes", "rounds", "bytes_per_flop")
_BOUNDS = ("tensor-cores", "arithmetic", "shared-memory", "L2-cache", "L1-cache", "memory")
_SIZES = 4
WIDTH = len(_COUNTED) + len(_SCALED) + len(_BOUNDS) + _SIZES + len(ACTIONS)

Observation = NDArray[np.float32]


def observed(facts: dict[str, Fact], sizes: Sequence[int], refused: Sequence[bool]) -> Observation:
    """Return the features of a state: facts, the bottleneck, sizes, and the actions that failed on this text."""
    counted = [min(3.0, float(facts.get(name, 0))) for name in _COUNTED]
    scaled = [math.log1p(min(1e9, max(0.0, float(facts.get(name, 0))))) / 8 for name in _SCALED]
    bound = [float(facts.get("bound") == name) for name in _BOUNDS]
    large = [math.log2(max(1, n)) / 16 for n in (*sizes, *(1,) * _SIZES)[:_SIZES]]
    return np.asarray([*counted, *scaled, *bound, *large, *map(float, refused)], dtype=np.float32)


def _base() -> type[Any]:
    if find_spec("gymnasium") is None:
        return object
    import gymnasium

    found: type[Any] = gymnasium.Env
    return found


class OptimizeEnv(_base()):  # type: ignore[misc]
    """The environment. Tasks come in turn, or as `reset(options={"task": ...})` requests. `info` holds the mask of
    actions and the times."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, tasks: Sequence[Task], world: World | None = None, steps: int = STEPS) -> None:
        self.tasks, self.world, self.limit = list(tasks), world or World(), steps
        self._next = 0
        self.task = self.tasks[0]
        if find_spec("gymnasium") is not None:
            from gymnasium import spaces

            self.action_space = spaces.Discrete(len(ACTIONS))
            self.observation_space = spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32)
        self._begin(self.task)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start the next task, or the given one. Nothing is drawn at random, so a seed makes no difference."""
        task = (options or {}).get("task")
        if task is None:
            task = self.tasks[self._next % len(self.tasks)]
            self._next += 1
        self._begin(task)
        return self._observation(), self._info()

    def _begin(self, task: Task) -> None:
        self.task, self.text = task, self.world.naive(task)
        self.us = self.start = self.world.time(task, self.text)
        self.failed = [False] * len(ACTIONS)
        self.taken = 0
        self.times = [self.us]

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Try an action on the best text. Return what Gymnasium's `step` does; `truncated` after the last step."""
        new = self.world.step(self.task, self.text, int(action))
        us = math.inf if new is None else self.world.time(self.task, new)
        reward = -PRICE
        if new is not None and us <= self.us and math.isfinite(us):
            reward += math.log(self.us / us)
            self.text, self.us, self.failed = new, us, [False] * len(ACTIONS)
        else:
            self.failed[int(action)] = True
        self.taken += 1
        self.times.append(self.us)
        done = not any(self.mask())
        return self._observation(), reward, done, self.taken >= self.limit, self._info()

    def mask(self) -> list[bool]:
        """Return the actions that apply and have not failed on this text."""
        possible = self.world.actions(self.task, self.text)
        return [a and not f for a, f in zip(possible, self.failed, strict=True)]

    def _observation(self) -> Observation:
        sizes = [n for _, n in self.task.sizes]
        return observed(self.world.facts(self.task, self.text), sizes, self.failed)

    def _info(self) -> dict[str, Any]:
        return {"mask": self.mask(), "us": self.us, "start_us": self.start, "text": self.text}
