"""Training: the environment, rewards by rules, pairs that are labelled by proof, and a policy that learns."""

from __future__ import annotations

import fcntl
import json
import math
import xml.etree.ElementTree as ET
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from argus import compile
from argus.agents.optimize import problem_of
from argus.agents.optimize.planner import Planner
from argus.agents.text_edits import text_vocabulary
from argus.agents.training import (
    OptimizeEnv,
    Outcome,
    World,
    better,
    curve,
    judged,
    policy,
    production,
    repairs,
    reward,
    split,
)
from argus.agents.training import pairs as pairs_made
from argus.agents.training.environment import PRICE, WIDTH
from argus.agents.training.kept_world import keep, read
from argus.agents.training.leakage import audited
from argus.agents.training.pairs import COMPILER, RUN, Pair, Portion, alike, distinct, families, some_repairs
from argus.agents.training.policy import bandit, best_known, greedy, steps_of, taught, train
from argus.agents.training.recipe import main
from argus.agents.training.rewards import grpo_reward
from argus.agents.training.world import ACTIONS, HELD_OUT, TRAINING, Task
from argus.diagnostic import ArgusError, Verdict
from argus.frontend import Options
from argus.knowledge import rewrite
from argus.pages import example
from argus.source import SourceFile

KERNELS = Path(__file__).parents[2] / "argus" / "knowledge" / "kernels"
ROWS = Task.of("gated", M=4096, N=4096)
WORLD = World()


def test_the_environment_has_gymnasiums_form() -> None:
    env = OptimizeEnv([ROWS], WORLD, steps=3)
    seen, info = env.reset(seed=1)
    assert seen.shape == (WIDTH,) and seen.dtype == np.float32 and np.isfinite(seen).all()
    assert len(info["mask"]) == len(ACTIONS) and any(info["mask"]) and not all(info["mask"])
    before, action = info["us"], info["mask"].index(True)
    seen, got, _ended, cut, info = env.step(action)
    assert got == pytest.approx(math.log(before / info["us"]) - PRICE) and not cut
    assert WORLD.time(ROWS, info["text"]) == info["us"] <= before


def test_a_step_that_fails_costs_its_price_and_is_not_offered_again() -> None:
    env = OptimizeEnv([ROWS], WORLD)
    _, info = env.reset()
    wrong = info["mask"].index(False)
    _, got, _, _, info = env.step(wrong)
    assert got == -PRICE and env.us == env.start and not info["mask"][wrong]


def test_rewards_are_those_of_the_formula() -> None:
    fair = Outcome("", 2.0, 5, 5, 5, 5)
    assert reward(fair) == min(3.0, 2.3 * 1.5) == 3.0
    assert reward(Outcome("", 1.0, 3, 3, 3, 3)) == pytest.approx(1.3)
    assert reward(Outcome("", 9.0, 1, 1, 1, 1), weight=0.7) == pytest.approx(min(3.0, 5.3 * 0.65))
    assert reward(Outcome("prove", 9.0, 5, 5, 5, 5)) == 0.0


def problem():  # type: ignore[no-untyped-def]
    text = (KERNELS / "softmax.py").read_text()
    return problem_of(SourceFile("softmax.py", text), "softmax", "sm_90a", {"M": 4096, "N": 4096})


def test_what_is_wrong_or_changes_the_task_is_worth_nothing() -> None:
    task = problem()
    faster = rewrite(task.text, "softmax", "narrower_tile", "divide_once")
    assert faster is not None
    wrong = faster.replace("weights * inverse", "weights + inverse")
    without = faster.replace("al.softmax(lambda k: x[i, k])[j]", "x[i, j]")
    good = judged(task, f"Here it is:\n```python\n{faster}```")
    assert good.refused == "" and good.speedup > 1 and good.skill == 5 and reward(good) > 1
    assert [judged(task, text).refused for text in (wrong, without, "no kernel")] == ["prove", "task", "parse"]
    assert judged(task, task.text).honest == 1  # a copy of the author's kernel


def test_trl_calls_the_reward() -> None:
    task = problem()
    rewards = grpo_reward([task])
    found = rewards(prompts=["", ""], completions=[task.text, [{"role": "assistant", "content": "x"}]], problem=[0, 0])
    assert found[0] > 0.0 and found[1] == 0.0


@pytest.mark.usefixtures("small_portions")
def test_pairs_of_repairs_are_wrong_and_proved() -> None:
    """What a run refutes, a proof refutes; what the compiler refuses has no proof."""
    path = KERNELS / "scaled_rows.py"
    options = Options(target="sm_80")

    def verdict(text: str) -> Verdict | None:
        try:
            return compile.prove(SourceFile("k.py", text), "scaled_rows", options).verdict
        except ArgusError:
            return None

    made = list(islice(repairs("scaled_rows", str(path), "scaled_rows", seed=3), 16))
    for by, found, begins in ((RUN, Verdict.REFUTED, "refuted["), (COMPILER, None, "error[")):
        pair = next(pair for pair in made if pair.by == by)
        assert [verdict(pair.text), verdict(pair.answer)] == [found, Verdict.PROVED]
        assert pair.feedback.startswith(begins) and "scaled_rows.py:" in pair.feedback


def test_machines_share_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(item: production.Item) -> tuple[str, list[Pair]]:
        return item.name, [Pair("repair", "softmax", item.name, "", "", "run")]

    known = {name: (str(KERNELS / f"{name}.py"), name) for name in ("scaled_rows", "softmax")}
    monkeypatch.setattr(production, "families", lambda root: known)
    monkeypatch.setattr(production, "_made", made)
    files = [tmp_path / f"{place}.jsonl" for place in range(3)]
    for place, file in enumerate(files[:2]):
        assert production.produced(file, 30, share=(place, 2)) == 30
    assert production.produced(files[2], 60) == 60
    one, other, both = ([pair.text for pair in production.Production(file).kept()] for file in files)
    assert not set(one) & set(other) and set(one) | set(other) == set(both)
    made_items = production.Production(files[0]).progress
    text = made_items.read_text()
    made_items.write_text(f"{text}0 9 softm")  # half of a name, or the name of another item
    assert production.Production(files[0]).done(0) == set(text.splitlines()) and made_items.read_text() == text
    for wrong in ("0/2", "3/2", "2", "a/b"):
        with pytest.raises(SystemExit):
            main(["pairs", "--share", wrong, "--out", str(files[0])])


def test_pairs_of_faster_kernels_are_faster_and_different() -> None:
    found = list(distinct(islice(better(ROWS, WORLD, seed=1), 40), 5, patience=40))
    assert len({p.digest for p in found}) == len(found) >= 3
    assert all(WORLD.time(ROWS, p.answer) < WORLD.time(ROWS, p.text) for p in found)


def test_no_family_is_on_both_sides_of_a_split() -> None:
    names = list(families())
    training, held = split(names, seed=4)
    assert training and held and not training & held and training | held == set(names)
    pairs = list(distinct(islice(better(ROWS, WORLD, seed=2), 30), 10, patience=30))
    sides = {p.digest: p.family in training for p in pairs}
    assert len(set(sides.values())) == 1  # one family, one side
    spaced = pairs[0].__class__(
        pairs[0].skill, pairs[0].family, pairs[0].text.replace("\n\n", "\n"), "", pairs[0].answer, pairs[0].by
    )
    assert spaced.digest == pairs[0].digest  # blank lines make no new pair


def test_kin_are_never_on_two_sides() -> None:
    """No kernel that is held out is like one for training; without their texts, some are."""
    known = families(example("transpose.py").parent)
    texts = {family: Path(path).read_text(encoding="utf-8") for family, (path, _) in known.items()}
    for seed in range(4):
        training, held = split(list(known), seed=seed, texts=texts)
        assert len(held) >= len(known) // 6 and not training & held
        assert max(alike(texts[a], texts[b]) for a in training for b in held) < 0.5
    parts = [split(list(known), seed=seed) for seed in range(4)]
    assert any(alike(texts[a], texts[b]) >= 0.5 for training, held in parts for a in training for b in held)


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_PORTIONS", 1000), ("_PORTION", 12), ("_BOTH", 3)):
        monkeypatch.setattr(pairs_made, name, value)


@pytest.mark.usefixtures("small_portions")
def test_portions_of_edits_differ_and_never_end() -> None:
    place = ("scaled_rows", str(KERNELS / "scaled_rows.py"), "scaled_rows", 1)
    some, others = (some_repairs(Portion(*place, number)) for number in (0, 1))
    again = some_repairs(Portion(*place, 10_000))  # after all single edits: two at a time alone
    digests = [{p.digest for p in pairs} for pairs in (some, others, again)]
    assert all(digests) and not digests[0] & digests[1] and not digests[0] & digests[2]
    text = Path(place[1]).read_text()
    single = {edit.apply(text) for edit in text_vocabulary(text, "scaled_rows")}
    assert again and not any(p.text in single for p in again)
    assert 0 < sum(p.text not in single for p in some) <= 6 < len(some)


@pytest.mark.usefixtures("small_portions")
def test_a_file_of_pairs_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the last line was not written whole: what is there stays, and nothing comes twice."""
    known = {"scaled_rows": (str(KERNELS / "scaled_rows.py"), "scaled_rows"),
             "transpose": (str(KERNELS / "transpose.py"), "transpose")}  # fmt: skip
    monkeypatch.setattr(production, "families", lambda root: known)
    out = tmp_path / "pairs.jsonl"
    assert production.produced(out, 3) == 3
    before = out.read_text()
    out.write_text(before + '{"half of a li')
    made: list[str] = []
    monkeypatch.setattr(production, "_made", _watched(production._made, made))
    done = set((tmp_path / "pairs.jsonl.done").read_text().splitlines())
    assert production.produced(out, 12) == 12
    after = out.read_text()
    digests = {p.digest for p in production.Production(out).kept()}
    assert after.startswith(before) and len(after.splitlines()) == 12 == len(digests)
    assert made and not done & set(made)
    assert production.produced(out, 12) == 12 and out.read_text() == after


def _watched(work, names):  # type: ignore[no-untyped-def]
    def call(item):  # type: ignore[no-untyped-def]
        names.append(item.name)
        return work(item)

    return call


def test_one_process_at_a_time_writes_a_file_of_pairs(tmp_path: Path) -> None:
    out = tmp_path / "pairs.jsonl"
    with (tmp_path / "pairs.jsonl.done").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ArgusError, match="another process writes"):
            production.produced(out, 1)
        assert main(["pairs", "--count", "1", "--out", str(out)]) == 2


def test_a_faster_text_counts_only_if_it_is_proved(tmp_path: Path) -> None:
    item = production.Item("0", ROWS, "", tmp_path)
    text = WORLD.naive(ROWS)
    wrong = text.replace("al.store(out[", "al.store(out[1 + ", 1)
    assert wrong != text
    assert [production._proved(item, t, "sm_90a") for t in (text, wrong, "no kernel")] == [True, False, False]
    kept = sorted(p.read_text() for p in tmp_path.iterdir())
    assert len(kept) == 3 and kept.count("proved") == 1


def test_a_learning_curve_is_drawn_beside_the_bandit() -> None:
    found = {"bandit": [10, 20], "curve": {"episodes": [10, 20], "steps": [12.0, 6.0], "rewards": [0.0, 1.0]}}
    drawn = ET.fromstring(curve.drawn(found))
    points = [e for e in drawn if e.tag.endswith("circle")]
    assert len(points) == 2 and float(points[0].attrib["cy"]) < float(points[1].attrib["cy"])
    assert any("bandit: 15.0" in (e.text or "") for e in drawn)


def test_held_out_sizes_are_none_that_were_trained_on() -> None:
    assert not set(TRAINING) & set(HELD_OUT)


def test_a_policy_learns_and_needs_fewer_steps_than_before() -> None:
    torch = pytest.importorskip("torch")
    other = Task.of("gated", M=8192, N=2048)
    untrained, _ = train(WORLD, [ROWS], [], 0, seed=5)
    model, curve = train(WORLD, [ROWS], [other], 96, seed=5, every=48)
    assert curve.episodes == [48, 96] and len(curve.steps) == 2 and curve.rewards[1] > curve.rewards[0]
    before, after = (steps_of(WORLD, [other], greedy(torch, m))[0] for m in (untrained, model))
    assert after <= before
    planner = Planner()
    assert steps_of(WORLD, [other], bandit(planner), taught(planner))[0] <= 41 and planner.lessons
    assert best_known(WORLD, other) < WORLD.time(other, WORLD.naive(other))


def test_what_a_world_knows_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A world of a file lowers nothing again, except a text at sizes at which nobody asked for it."""
    naive = WORLD.naive(ROWS)
    us, facts, may = WORLD.time(ROWS, naive), WORLD.facts(ROWS, naive), WORLD.actions(ROWS, naive)
    path = tmp_path / "policy.world"
    keep(WORLD, path)
    found = read(path)
    with monkeypatch.context() as changed:
        changed.setattr(compile, "lower", lambda *_: pytest.fail("lowered"))
        assert (found.time(ROWS, naive), found.facts(ROWS, naive), found.actions(ROWS, naive)) == (us, facts, may)
    other = Task.of("gated", M=8192, N=4096)
    assert found.time(other, naive) == WORLD.time(other, naive) > us
    path.write_text(path.read_text().replace('"sources": {', '"sources": {"more": "", ', 1))
    assert not read(path).times and not read(tmp_path / "none").times


def test_the_best_policy_is_kept_and_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks that it learns from choose it; held-out ones choose nothing."""
    pytest.importorskip("torch")
    other = Task.of("gated", M=8192, N=2048)
    states, taken = list[object](), iter([9.0, 4.0, 7.0])

    def steps(world: World, tasks: list[Task], choose: object) -> list[float]:
        if tasks == [other]:
            return [20.0 - len(states)]  # the held-out task would choose the last one
        states.append(choose)
        return [next(taken)]

    monkeypatch.setattr(policy, "_episode", lambda *_: ([], [], []))
    monkeypatch.setattr(policy, "_update", lambda torch, optimizer, ways: _moved(torch, optimizer))
    monkeypatch.setattr(policy, "greedy", lambda torch, model: float(model[0].bias.detach().sum()))
    monkeypatch.setattr(policy, "steps_of", steps)
    best, curve = train(WORLD, [ROWS], [other], 24, every=8)
    assert curve.trained == [9.0, 4.0, 7.0] and curve.episodes == [8, 16, 24]
    assert float(best[0].bias.detach().sum()) == states[1] != states[2]


def _moved(torch, optimizer) -> None:  # type: ignore[no-untyped-def]
    with torch.no_grad():
        for group in optimizer.param_groups:
            for weights in group["params"]:
                weights.add_(1.0)


def test_what_both_parts_share_is_told(tmp_path: Path) -> None:
    def line(part: str, family: str, text: str, answer: str, skill: str = "repair") -> str:
        pair = Pair(skill, family, text, "", answer, "run")
        return json.dumps({"split": part, **production._object(pair)}) + "\n"

    rows, columns = "y = al.load(x) + one two three four", "z = al.store(x) * five six seven eight"
    fair = [line("train", "rows", f"{rows} 1", rows), line("train", "rows", f"{rows} 2", rows),
            line("train", "rows", f"{rows} 2  # again", rows),
            line("train", "rows", f"{rows} 2".replace("y", "w"), rows.replace("y", "w")),
            line("test", "columns", f"{columns} 1", columns)]  # fmt: skip
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(fair) + '{"half of a li')
    found = audited([file])
    assert (found.pairs, found.different, found.renamed, found.both) == (5, 4, 3, []) and found.nearest == 0.0
    assert "4 different, 3 of them" in "\n".join(found.lines())
    file.write_text("".join(fair) + line("test", "rows", f"{rows} 3", rows))
    found = audited([file])
    assert found.both == ["rows", "1 texts"] and found.nearest == 1.0
