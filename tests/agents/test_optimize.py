"""Optimisation without a model: steps, the planner, the folder, a whole run that is interrupted, and the command."""

from __future__ import annotations

import fcntl
import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

from argus.agents.optimize import Folder, Limits, Planner, Run, State, Trial, examine, problem_of, write
from argus.agents.optimize import run as running
from argus.agents.optimize.ahead import Node
from argus.agents.optimize.alone import alone
from argus.agents.optimize.examine import Examined
from argus.agents.optimize.looked import counts, sample
from argus.agents.optimize.moves import TUNE, moves
from argus.agents.optimize.planner import context_of
from argus.agents.optimize.report import history, rejected
from argus.agents.optimize.stopwatch import Stopwatch
from argus.cli import main
from argus.diagnostic import ArgusError, Diagnostic, Verdict
from argus.knowledge import facts_of_text
from argus.runtime.executable import CachedSource
from argus.source import SourceFile
from argus.verify.report import Report

KERNELS = Path(__file__).parents[2] / "argus" / "knowledge" / "kernels"
SIZES = {"M": 1024, "N": 1024, "K": 1024}


def source(name: str) -> SourceFile:
    return SourceFile(f"{name}.py", (KERNELS / f"{name}.py").read_text())


def test_steps_are_other_texts_each_once() -> None:
    text = source("product").text
    found = moves(text, "product", "sm_90a", facts_of_text(text, "product", "sm_90a"), SIZES)
    assert {"warp-specialise", "stage-operands", TUNE} <= {m.name for m in found}
    assert len({m.text for m in found}) == len(found) and text not in {m.text for m in found}


def test_the_planner_learns_from_outcomes_and_forgets_none() -> None:
    planner = Planner()
    before = planner.expected("stage", "product", math.log(2))
    for _ in range(4):
        planner.learn("stage", "product", math.log(2), None, "prove data-race", "")
        planner.learn("pipeline", "product", 0.0, math.log(3), "", "")
    assert planner.expected("stage", "product", math.log(2)) < before
    assert planner.expected("pipeline", "product", 0.0) > planner.expected("stage", "product", math.log(2))
    again = Planner.from_json(json.loads(json.dumps(planner.as_json())))
    assert again == planner
    assert "refused: prove data-race" in planner.lessons[0] and "measured x3.00" in planner.lessons[1]


def test_what_was_not_tried_is_worth_more_than_its_mean() -> None:
    planner = Planner()
    for _ in range(8):
        planner.learn("known", "rows", 0.0, 0.0, "", "")
    assert planner.expected("new", "rows", 0.0) > planner.expected("known", "rows", 0.0)


def test_contexts_tell_kinds_apart() -> None:
    facts = {n: facts_of_text(source(n).text, n, "sm_90a") for n in ("product", "attention", "rmsnorm", "transpose")}
    assert [context_of(f).split()[0] for f in facts.values()] == ["product", "attention", "rows", "elements"]


def test_problems_that_cannot_be_worked_on() -> None:
    text = source("rmsnorm").text
    without = text.replace(text[text.index("    al.spec(") : text.index("    row =")], "")
    for wrong, sizes in ((without, {}), (text, {"N": 9000}), (text, {"Q": 3})):
        with pytest.raises(ArgusError) as raised:
            problem_of(SourceFile("k.py", wrong), "rmsnorm", "sm_90a", sizes)
        assert raised.value.diagnostics[0].help


def test_one_run_at_a_time_in_a_folder(tmp_path: Path) -> None:
    with Folder(tmp_path).locked():
        with pytest.raises(ArgusError) as raised, Folder(tmp_path).locked():
            pass
        assert "another run works" in raised.value.diagnostics[0].message
    with Folder(tmp_path).locked():  # the first one is over
        pass


def test_an_interrupted_write_leaves_the_old_state(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with folder.locked():
        folder.save(State("problem", "model", [Trial(0, "start", "", 0, "d", us=2.0)]))
        (tmp_path / ".partial-state").write_text('{"half')
    loaded = folder.load("problem", "model")
    assert loaded is not None and loaded.trials[0].us == 2.0
    with pytest.raises(ArgusError):
        folder.load("another problem", "model")


def test_a_run_is_resumed_and_leaves_a_proved_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timed by the model, whatever GPU is here; the second command continues where the first was stopped."""
    monkeypatch.setattr(running, "place_of_timing", lambda target: "model")
    problem = problem_of(source("rmsnorm"), "rmsnorm", "sm_90a", {"M": 64})  # a product compiles ten times as long
    folder = Folder(tmp_path)

    def stop(state: State, line: str) -> None:
        if len(state.trials) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run(problem, folder, Limits(60, 3, 1), stop).go()
    first = folder.load(problem.digest, "model")
    assert first is not None and len(first.trials) == 2
    state = Run(problem, folder, Limits(60, 3, 1)).go()
    assert [t.digest for t in state.trials[:2]] == [t.digest for t in first.trials]
    assert len(state.trials) == 4 and len({t.digest for t in state.trials}) == 4
    write(folder, problem, state)
    assert main(["check", f"{tmp_path / 'best.py'}::rmsnorm", "--target", "sm_90a"]) == 0
    assert "performance model" in (tmp_path / "report.md").read_text()
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 4


def test_an_audit_draws_only_texts_that_were_expected_to_be_slower() -> None:
    nodes = [Node(str(us), Examined("", predicted_us=us)) for us in (5.0, 11.0, 12.0, 13.0)]
    nodes.append(Node("refused", Examined("model", predicted_us=99.0)))
    nodes.append(Node("tried", Examined("", predicted_us=99.0), trial=3))
    assert counts(nodes, lambda node: 10.0) == {"refused": 1, "slower": 3, "open": 1}
    assert sorted(sample(nodes, lambda node: 10.0, 9, seed=1)) == ["11.0", "12.0", "13.0"]
    assert len(sample(nodes, lambda node: 10.0, 2, seed=1)) == 2
    assert sample(nodes, lambda node: None, 9, seed=1) == []


@pytest.mark.parametrize("times,rightly", [((30.0, 20.0), 2), ((5.0, 20.0), 1), ((5.0, 9.0), 0)])
def test_an_audit_counts_what_the_model_rejected_rightly(
    times: tuple[float, float], rightly: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "place_of_timing", lambda target: "gpu")
    problem = problem_of(source("rmsnorm"), "rmsnorm", "sm_90a", {"M": 64})
    run = Run(problem, Folder(tmp_path), Limits(workers=2))
    run.state.trials.append(Trial(0, "start", "", 0, "d", us=10.0, compared=True))
    texts = ("first", "second")
    monkeypatch.setattr(running, "sample", lambda nodes, limit, count, seed: list(texts))
    monkeypatch.setattr(Run, "_examined", lambda self, worker, text, best_us: Examined(""))
    monkeypatch.setattr(Stopwatch, "takes", lambda self, text, seed: dict(zip(texts, times, strict=True))[text])
    assert run.audit(2) == (2, rightly)
    monkeypatch.setattr(Run, "_examined", lambda self, worker, text, best_us: Examined("prove"))
    assert run.audit(2) == (2, 2)  # what is not proved is no candidate


def test_the_report_counts_what_was_rejected() -> None:
    trials = [Trial(0, "start", "", 0, "a", us=10.0), Trial(1, "x", "<b>", 0, "b", "prove", "race"),
              Trial(2, "y", "", 0, "c", us=12.0), Trial(3, "z", "", 0, "d", us=5.0),
              Trial(4, "w", "", 3, "e", "compare", "differs")]  # fmt: skip
    state = State("p", "gpu", trials, best=3)
    assert state.refused() == {"prove": 1, "compare": 1}
    assert rejected(state) == (3, 1)
    drawn = ET.fromstring(history(state))
    assert len([e for e in drawn if e.tag.endswith("circle")]) == 5


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(running, "place_of_timing", lambda target: "model")
    where = [f"{KERNELS / 'transpose.py'}::transpose", "--target", "sm_90a", "--out", str(tmp_path)]
    assert main(["optimize", *where, "--steps", "1", "--workers", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"kernel", "target", "start_us", "best_us", "steps", "refused", "best"} <= set(found)
    assert found["steps"] == 1 and found["timed_on"] == "model" and Path(found["best"]).is_file()
    assert main(["optimize", *where, "--size", "M=64"]) == 2  # the folder is of other sizes
    assert "choose another folder" in capsys.readouterr().err


def test_what_the_cache_has_is_not_proved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a proof counts there: a kernel whose author accepts what is unknown is proved in full, or refused."""
    problem = problem_of(source("scaled_rows"), "scaled_rows", "cpu", {"M": 8, "N": 64})
    finding = {"code": "bank-conflicts"}
    kept = SimpleNamespace(report={"verdict": "proved", "diagnostics": [finding, finding]})
    monkeypatch.setattr(CachedSource, "cached", lambda *_: kept)
    with monkeypatch.context() as changed:
        changed.setattr(examine.compile, "verify", lambda *_: pytest.fail("proved again"))
        found = examine.examine(problem, problem.text)
    assert found.refused == "" and found.facts["bank_conflicts"] == 2
    kept.report["verdict"] = "unknown"
    unknown = Diagnostic("spec-mismatch", "nobody knows", verdict=Verdict.UNKNOWN)
    report = Report("scaled_rows", Verdict.UNKNOWN, (unknown,), (), 0.0, ())
    monkeypatch.setattr(examine.compile, "verify", lambda *_: report)
    assert examine.examine(problem, problem.text).refused == "prove"


def test_a_device_is_timed_on_by_one_run_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGUS_CACHE_DIR", str(tmp_path))

    def taken() -> bool:
        with next(tmp_path.glob("timing-cuda-0.lock")).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    with alone("cuda:0"):
        assert taken()
        with alone("cuda:1"):  # another device is free
            pass
    assert not taken()
    monkeypatch.setenv("ARGUS_CACHE_DIR", "/proc/nowhere")
    with alone("cuda:0"):  # nothing can be locked: the run goes on
        pass
