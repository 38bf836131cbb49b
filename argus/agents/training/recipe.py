"""`python -m argus.agents.training.recipe COMMAND`: pairs, a policy, or a small language model by GRPO.

pairs  --count 50000 --out pairs.jsonl     supervised pairs of both skills, split by family
policy --episodes 2400 --out policy.json   a policy over knowledge entries, beside the bandit
grpo   --model NAME --out folder           a language model by TRL's GRPOTrainer; several GPUs by `accelerate launch`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import chain, count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from argus.agents.optimize.planner import Planner
from argus.agents.optimize.problem import problem_of
from argus.agents.training.curve import drawn
from argus.agents.training.pairs import Pair, Portion, better, distinct, families, some_repairs, split
from argus.agents.training.policy import Curve, bandit, explored, greedy, steps_of, taught, train
from argus.agents.training.rewards import grpo_reward
from argus.agents.training.world import Task, World
from argus.pages import example
from argus.source import SourceFile

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
_WAYS, _AHEAD = 8, 16
"""Pairs of one task in a round of work; portions of work that each process has at a time."""
_LESSONS = 3
"""How often the bandit takes the training tasks before it is measured."""
_ASK = "Write a faster kernel in the language of Argus that computes the same:\n\n"


def known_world(jobs: int) -> World:
    """Return a world in which processes have explored every task."""
    world = World()
    if jobs > 1:
        with get_context("spawn").Pool(jobs) as pool:
            for other in pool.imap_unordered(explored, (*TRAINING, *HELD_OUT)):
                world.take(other)
    return world


def compare(episodes: int, seed: int = 0, world: World | None = None,
            note: Callable[[dict[str, Any]], None] = lambda found: None) -> dict[str, Any]:  # fmt: skip
    """Teach the bandit and train the policy on the same tasks; return the steps of both on the held-out sizes.

    `note` is called with what is known so far, whenever the learning curve grows.
    """
    import torch

    world = world or World()
    planner = Planner()
    for _ in range(_LESSONS):
        steps_of(world, TRAINING, bandit(planner), taught(planner))
    other = steps_of(world, HELD_OUT, bandit(planner), taught(planner))

    def known(policy: list[int], curve: Curve) -> dict[str, Any]:
        return {"policy": policy, "bandit": other, "ratio": sum(policy) / max(1, sum(other)),
                "curve": {"episodes": curve.episodes, "steps": curve.steps, "rewards": curve.rewards}}  # fmt: skip

    every = max(8, episodes // 24)
    model, curve = train(world, TRAINING, HELD_OUT, episodes, seed, every, lambda curve: note(known([], curve)))
    return known(steps_of(world, HELD_OUT, greedy(torch, model)), curve)


def all_pairs(wanted: int, seed: int = 0, jobs: int = 1) -> Iterator[tuple[str, Pair]]:
    """Yield up to `wanted` different pairs, each with "train" or "test", by family; `jobs` processes make them.

    The pairs are the same for any number of processes, but not in the same order.
    """
    known = families(example("transpose.py").parent)
    texts = {family: Path(path).read_text(encoding="utf-8") for family, (path, _) in known.items()}
    training, _ = split(list(known), seed=seed, texts=texts)
    work = chain.from_iterable(_round(known, seed, number) for number in count())
    for pair in distinct(chain.from_iterable(_shared(work, jobs)), wanted):
        yield ("train" if pair.family in training else "test"), pair


_Work = tuple[Portion | Task, str]
_world: list[World] = []
"""The world of a process that makes pairs: it knows the texts that it has lowered."""


def _round(known: dict[str, tuple[str, str]], seed: int, number: int) -> Iterator[_Work]:
    """Yield one portion of every kernel's edits, and some ways from every task."""
    yield from ((Portion(family, *place, seed, number), "") for family, place in known.items())
    yield from ((task, f"{seed} {number}") for task in (*TRAINING, *HELD_OUT))


def _made(work: _Work) -> list[Pair]:
    what, seed = work
    if isinstance(what, Portion):
        return some_repairs(what)
    _world[:] = _world or [World()]
    return list(islice(better(what, _world[0], seed), _WAYS))


def _shared(work: Iterator[_Work], jobs: int) -> Iterator[list[Pair]]:
    """Do work in processes, some portions ahead of what is taken."""
    if jobs == 1:
        yield from map(_made, work)
        return
    with get_context("spawn").Pool(jobs) as pool:
        while True:
            yield from pool.imap_unordered(_made, list(islice(work, _AHEAD * jobs)))


def grpo(name: str, out: Path, steps: int, tiny: bool = False) -> None:
    """Train a language model by TRL. `tiny`: a model of two small layers with random weights, to try the recipe."""
    missing = next((n for n in ("trl", "transformers", "datasets") if find_spec(n) is None), None)
    if missing is not None:
        raise SystemExit(f'this needs `{missing}`: pip install "argus-tile[training]"')
    from datasets import Dataset
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    world = World()
    problems = [problem_of(SourceFile(f"{t.kernel}.py", world.naive(t)), t.kernel, "sm_90a", dict(t.sizes))
                for t in TRAINING]  # fmt: skip
    rows = [{"prompt": _ASK + p.text, "problem": place} for place, p in enumerate(problems)]
    tokenizer = AutoTokenizer.from_pretrained(name)
    model: Any = name
    if tiny:
        config = AutoConfig.from_pretrained(name)
        config.num_hidden_layers, config.hidden_size, config.intermediate_size = 2, 64, 128
        config.num_attention_heads = config.num_key_value_heads = 4
        model = AutoModelForCausalLM.from_config(config)
    arguments = GRPOConfig(output_dir=str(out), max_steps=steps, num_generations=4, per_device_train_batch_size=4)
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, reward_funcs=grpo_reward(problems),
        train_dataset=Dataset.from_list(rows), args=arguments,
    )  # fmt: skip
    trainer.train()
    trainer.save_model(str(out))


def main(given: list[str] | None = None) -> int:
    """Run one command. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m argus.agents.training.recipe", description="Training on proofs.")
    commands = parser.add_subparsers(dest="command", required=True)
    pairs = commands.add_parser("pairs", help="supervised pairs, a line of JSON each")
    pairs.add_argument("--count", type=int, default=50_000)
    pairs.add_argument("--jobs", type=int, default=1, help="processes")
    policy = commands.add_parser("policy", help="a policy over knowledge entries, beside the bandit")
    policy.add_argument("--episodes", type=int, default=2400)
    policy.add_argument("--jobs", type=int, default=1, help="processes that explore the tasks first")
    language = commands.add_parser("grpo", help="a language model by TRL's GRPOTrainer")
    language.add_argument("--model", required=True, help="a name or a folder that transformers reads")
    language.add_argument("--steps", type=int, default=200)
    language.add_argument("--tiny", action="store_true", help="random weights, two small layers")
    for command in (pairs, policy, language):
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(given)
    if options.command == "pairs":
        with options.out.open("w", encoding="utf-8") as file:
            for part, pair in all_pairs(options.count, options.seed, options.jobs):
                file.write(json.dumps({"split": part, **_object(pair)}) + "\n")
    elif options.command == "policy":

        def keep(found: dict[str, Any]) -> None:
            options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
            options.out.with_suffix(".svg").write_text(drawn(found), encoding="utf-8")

        keep(compare(options.episodes, options.seed, known_world(options.jobs), keep))
    else:
        grpo(options.model, options.out, options.steps, options.tiny)
    return 0


def _object(pair: Pair) -> dict[str, Any]:
    found = pair.as_json()
    assert isinstance(found, dict)
    return dict(found)


if __name__ == "__main__":
    raise SystemExit(main())
