"""`python -m argus.agents.training.recipe COMMAND`: pairs, a policy, or a small language model by GRPO.

pairs  --count 50000 --out pairs.jsonl     supervised pairs of both skills, split by family; resumed where it ended
audit  pairs.jsonl                         how many pairs are different, and whether the parts of the split share any
policy --episodes 2400 --out policy.json   a policy over knowledge entries, beside the bandit
grpo   --model NAME --out folder           a language model by TRL's GRPOTrainer; several GPUs by `accelerate launch`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from argus.agents.optimize.planner import Planner
from argus.agents.optimize.problem import problem_of
from argus.agents.training.curve import drawn
from argus.agents.training.kept_world import keep, read
from argus.agents.training.leakage import audited
from argus.agents.training.policy import Curve, bandit, explored, greedy, steps_of, taught, train
from argus.agents.training.production import produced
from argus.agents.training.rewards import grpo_reward
from argus.agents.training.world import HELD_OUT, TRAINING, World
from argus.diagnostic import ArgusError
from argus.source import SourceFile
from argus.written import write_whole

_LESSONS = 3
"""How often the bandit takes the training tasks before it is measured."""
_ASK = "Write a faster kernel in the language of Argus that computes the same:\n\n"


def known_world(jobs: int, path: Path | None = None) -> World:
    """Return a world in which every task was explored, by processes if there are several.

    What is known is kept in a file, after each task, so the same command goes on where it ended.
    """
    world = World() if path is None else read(path)
    left = [task for task in (*TRAINING, *HELD_OUT) if task not in world.best]
    if jobs > 1:
        with get_context("spawn").Pool(jobs) as pool:
            for other in pool.imap_unordered(explored, left):
                world.take(other)
                _keep(world, path)
    elif path is not None:
        for task in left:
            explored(task, world)
            _keep(world, path)
    return world


def _keep(world: World, path: Path | None) -> None:
    if path is not None:
        keep(world, path)


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
                "curve": asdict(curve)}

    every = max(8, episodes // 24)
    model, curve = train(world, TRAINING, HELD_OUT, episodes, seed, every, lambda curve: note(known([], curve)))
    return known(steps_of(world, HELD_OUT, greedy(torch, model)), curve)


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


def _share(text: str) -> tuple[int, int]:
    """Return (i - 1, n) for "i/n"."""
    place, _, of = text.partition("/")
    if not (place.isdecimal() and of.isdecimal() and 1 <= int(place) <= int(of)):
        raise argparse.ArgumentTypeError(f"`{text}` is no share: write 1/3, 2/3 or 3/3, for example")
    return int(place) - 1, int(of)


def _pairs(options: argparse.Namespace) -> int:
    try:
        made = produced(options.out, options.count, options.seed, options.jobs, options.share)
    except OSError as error:
        print(f"{options.out} cannot be written: {error.strerror}; make room, and give the same command again")
        return 2
    except ArgusError as error:
        print(f"{error.diagnostics[0].message}; {error.diagnostics[0].help}")
        return 2
    print(f"{made} pairs in {options.out}")
    return 0


def main(given: list[str] | None = None) -> int:
    """Run one command. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m argus.agents.training.recipe", description="Training on proofs.")
    commands = parser.add_subparsers(dest="command", required=True)
    pairs = commands.add_parser("pairs", help="supervised pairs, a line of JSON each")
    pairs.add_argument("--count", type=int, default=50_000)
    pairs.add_argument("--jobs", type=int, default=1, help="processes")
    pairs.add_argument("--share", type=_share, default=(0, 1), metavar="I/N", help="the work of machine I of N")
    audit = commands.add_parser("audit", help="how many pairs are different, and what both parts share")
    audit.add_argument("files", type=Path, nargs="+")
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
        return _pairs(options)
    elif options.command == "audit":
        print(*audited(options.files).lines(), sep="\n")
    elif options.command == "policy":

        def told(found: dict[str, Any]) -> None:
            write_whole(options.out, json.dumps(found, indent=1).encode(), mode=0o644)
            write_whole(options.out.with_suffix(".svg"), drawn(found).encode(), mode=0o644)

        world = known_world(options.jobs, options.out.with_suffix(".world"))
        told(compare(options.episodes, options.seed, world, told))
    else:
        grpo(options.model, options.out, options.steps, options.tiny)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
