"""A policy over the entries of the knowledge base, trained by its own rewards, and the bandit that it is measured with.

Both learn on the same tasks and take their steps in the same environment. What counts is how many steps each needs on
held-out sizes until the kernel has 95 % of the best speed that is known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from argus.agents.optimize.planner import Planner, context_of
from argus.agents.training.environment import STEPS, WIDTH, Observation, OptimizeEnv
from argus.agents.training.world import ACTIONS, Task, World

NEAR = 0.95
_HIDDEN, _RATE, _DECAY, _ENTROPY, _GROUP = 64, 3e-3, 0.95, 0.01, 8

Chooser = Callable[[OptimizeEnv, Observation, list[bool]], int]
Learner = Callable[[OptimizeEnv, str, int, float], None]


@dataclass(slots=True)
class Curve:
    """Measurements during training, each after a number of episodes.

    `trained`: the average number of steps of the policy of that moment on the tasks that it learns from; `steps`: the
    average number on the held-out tasks of the policy that is kept, which is the best so far on the former.
    """

    episodes: list[int] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    trained: list[float] = field(default_factory=list)


def network(torch: Any) -> Any:
    """Return a small network from features to a number for each action."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(WIDTH, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, _HIDDEN), nn.Tanh(),
                         nn.Linear(_HIDDEN, len(ACTIONS)))  # fmt: skip


def train(world: World, tasks: Sequence[Task], held: Sequence[Task], episodes: int, seed: int = 0,
          every: int = 200, note: Callable[[Curve], None] = lambda curve: None) -> tuple[Any, Curve]:  # fmt: skip
    """Train a network by policy gradients; groups of episodes of one task are each other's baseline, as in GRPO.

    Training is not steady. So the network that needs the fewest steps on `tasks`, measured every so many episodes, is
    kept and returned, and not the last one. Tasks in `held` are measured and choose nothing.

    Needs PyTorch. With the same seed, the result is the same. `note` is called with the curve when it grows.
    """
    import torch

    torch.manual_seed(seed)
    model = network(torch)
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE)
    env, curve = OptimizeEnv(tasks, world), Curve()
    best, best_steps, done = network(torch), math.inf, 0
    best.load_state_dict(model.state_dict())
    while done < episodes:
        task = tasks[(done // _GROUP) % len(tasks)]
        ways = [_episode(torch, model, env, task) for _ in range(_GROUP)]
        done += _GROUP
        _update(torch, optimizer, ways)
        if done % every < _GROUP or done >= episodes:
            curve.episodes.append(done)
            curve.trained.append(_mean(steps_of(world, tasks, greedy(torch, model))))
            curve.rewards.append(sum(sum(r) for _, _, r in ways) / len(ways))
            if curve.trained[-1] <= best_steps:
                best.load_state_dict(model.state_dict())
                best_steps = curve.trained[-1]
            curve.steps.append(_mean(steps_of(world, held, greedy(torch, best))))
            note(curve)
    return best, curve


_Way = tuple[list[Any], list[Any], list[float]]
"""Logarithms of the chosen actions' probabilities, entropies, and rewards."""


def _episode(torch: Any, model: Any, env: OptimizeEnv, task: Task) -> _Way:
    seen, info = env.reset(options={"task": task})
    chances, entropies, rewards = list[Any](), list[Any](), list[float]()
    over = not any(info["mask"])
    while not over:
        found = torch.distributions.Categorical(logits=_logits(torch, model, seen, info["mask"]))
        action = found.sample()
        seen, reward, ended, cut, info = env.step(int(action))
        chances.append(found.log_prob(action))
        entropies.append(found.entropy())
        rewards.append(reward)
        over = ended or cut
    return chances, entropies, rewards


def _logits(torch: Any, model: Any, seen: Observation, mask: list[bool]) -> Any:
    logits = model(torch.from_numpy(seen))
    return logits.masked_fill(~torch.tensor(mask), -1e9)


def _update(torch: Any, optimizer: Any, ways: Sequence[_Way]) -> None:
    """Increase the probability of actions that led to more reward than the rest of the group from the same step on."""
    returns = [_returns(rewards) for _, _, rewards in ways]
    longest = max(map(len, returns), default=0)
    middle = [_mean([r[at] for r in returns if at < len(r)]) for at in range(longest)]
    spread = max(0.1, _spread([r[0] for r in returns if r]))
    terms = [-(chance * (found[at] - middle[at]) / spread + _ENTROPY * entropies[at])
             for (chances, entropies, _), found in zip(ways, returns, strict=True)
             for at, chance in enumerate(chances)]  # fmt: skip
    if terms:
        optimizer.zero_grad()
        torch.stack(terms).mean().backward()
        optimizer.step()


def _returns(rewards: Sequence[float]) -> list[float]:
    found: list[float] = []
    total = 0.0
    for reward in reversed(rewards):
        total = reward + _DECAY * total
        found.append(total)
    return found[::-1]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _spread(values: Sequence[float]) -> float:
    middle = _mean(values)
    return math.sqrt(_mean([(v - middle) ** 2 for v in values]))


# ---------------------------------------------------------------------------- choosing


def greedy(torch: Any, model: Any) -> Chooser:
    """Choose the action with the highest probability."""

    def choose(env: OptimizeEnv, seen: Observation, mask: list[bool]) -> int:
        with torch.no_grad():
            return int(_logits(torch, model, seen, mask).argmax())

    return choose


def bandit(planner: Planner) -> Chooser:
    """Choose the action from which the planner expects most. The prior is the gain that the entry promises."""

    def choose(env: OptimizeEnv, seen: Observation, mask: list[bool]) -> int:
        context = context_of(env.world.facts(env.task, env.text))
        possible = [place for place, may in enumerate(mask) if may]
        return max(possible, key=lambda p: planner.expected(ACTIONS[p].name, context, math.log(ACTIONS[p].gain)))

    return choose


def taught(planner: Planner) -> Learner:
    """Tell the planner of each outcome."""

    def learn(env: OptimizeEnv, context: str, action: int, gain: float) -> None:
        entry = ACTIONS[action]
        told = gain if math.isfinite(gain) else None
        planner.learn(entry.name, context, math.log(entry.gain), told, "model", entry.invariant)

    return learn


def steps_of(world: World, tasks: Sequence[Task], choose: Chooser, learn: Learner | None = None,
             most: int = 40) -> list[int]:  # fmt: skip
    """Return the number of steps until `NEAR` of the best known speed of each task, or `most` + 1 if it is not reached.
    """
    found = []
    for task in tasks:
        env = OptimizeEnv([task], world, most)
        found.append(_steps(env, task, choose, learn, best_known(world, task), most))
    return found


def _steps(env: OptimizeEnv, task: Task, choose: Chooser, learn: Learner | None, best: float, most: int) -> int:
    seen, info = env.reset(options={"task": task})
    for step in range(most):
        if env.us * NEAR <= best:
            return step
        if not any(info["mask"]):
            break
        action = choose(env, seen, info["mask"])
        context, before = context_of(env.world.facts(task, env.text)), env.us
        new = env.world.step(task, env.text, action)
        us = math.inf if new is None else env.world.time(task, new)
        seen, _, _, _, info = env.step(action)
        if learn is not None:
            learn(env, context, action, math.log(before / us) if math.isfinite(us) else math.inf)
    return most if env.us * NEAR <= best else most + 1


def explored(task: Task, world: World | None = None, ways: int = 24, seed: int = 0) -> World:
    """Return a world, or the given one, that knows the best time of a task and the texts on some random ways from it.
    """
    world, chance = world or World(), random.Random(seed)
    best_known(world, task)
    env = OptimizeEnv([task], world)
    for _ in range(ways):
        _, info = env.reset(options={"task": task})
        over = False
        while not over and any(info["mask"]):
            possible = [place for place, may in enumerate(info["mask"]) if may]
            _, _, ended, cut, info = env.step(chance.choice(possible))
            over = ended or cut
    return world


def best_known(world: World, task: Task) -> float:
    """Return the least predicted time that a beam search finds on ways on which no step makes the kernel slower."""
    if task not in world.best:
        world.best[task] = _searched(world, task)
    return world.best[task]


def _searched(world: World, task: Task, beam: int = 4, depth: int = STEPS) -> float:
    front = [world.naive(task)]
    seen, best = set(front), world.time(task, front[0])
    for _ in range(depth):
        new: list[str] = []
        for text in front:
            for place, may in enumerate(world.actions(task, text)):
                led = world.step(task, text, place) if may else None
                if led is not None and led not in seen and world.time(task, led) <= world.time(task, text):
                    seen.add(led)
                    new.append(led)
        timed = sorted((world.time(task, text), text) for text in new)
        front = [text for us, text in timed[:beam] if math.isfinite(us)]
        if not front:
            break
        best = min(best, timed[0][0])
    return best
