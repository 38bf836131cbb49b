"""What goes wrong around a run: a full disk, a lost device, an interruption. Nothing that was found is lost."""

from __future__ import annotations

import errno
from dataclasses import asdict
from pathlib import Path

import pytest

import argus.agents.optimize.examine as examining
from argus.agents.optimize import Folder, Limits, Problem, Run, State, Trial, problem_of, prover
from argus.agents.optimize import folder as folders
from argus.agents.optimize import run as running
from argus.agents.optimize.service import Answer, Worker
from argus.agents.optimize.timer import Timer
from argus.diagnostic import ArgusError, Diagnostic
from argus.source import SourceFile

KERNELS = Path(__file__).parents[2] / "argus" / "knowledge" / "kernels"


@pytest.fixture(scope="module")
def problem() -> Problem:
    text = (KERNELS / "scaled_rows.py").read_text()
    return problem_of(SourceFile("scaled_rows.py", text), "scaled_rows", "cpu", {})


def begun(problem: Problem, where: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a run with one trial, the author's kernel, in a folder; no process has started."""
    monkeypatch.setattr(running, "place_of_timing", lambda target: "cpu")
    run = Run(problem, Folder(where), Limits(workers=1))
    for part in ("candidates", "results"):
        (where / part).mkdir(exist_ok=True)
    run._note(Trial(0, "start", "the author's kernel", 0, "a", us=10.0, compared=True), problem.text)
    return run


def candidate() -> Trial:
    return Trial(1, "step", "another", 0, "b", us=5.0, compared=True)


def test_a_full_disk_has_one_message_and_keeps_the_state(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(problem, tmp_path, monkeypatch)

    def full(path: Path, data: bytes, durable: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(folders, "write_whole", full)
        with pytest.raises(ArgusError) as raised:
            run._note(candidate(), "text")
    (found,) = raised.value.diagnostics
    assert "No space left on device" in found.message and "give the same command again" in str(found.help)
    kept = Folder(tmp_path).load(problem.digest, "cpu")
    assert kept is not None and len(kept.trials) == 1
    (tmp_path / "log.txt").unlink()
    (tmp_path / "log.txt").mkdir()
    with pytest.raises(ArgusError, match="cannot be written"):
        Folder(tmp_path).log("a line")


@pytest.mark.parametrize("point", ["keep", "save", "log"])
def test_an_interruption_at_any_point_of_a_step_loses_no_step_before(
    point: str, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(problem, tmp_path, monkeypatch)

    def stop(self: Folder, *arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(Folder, point, stop)
        with pytest.raises(KeyboardInterrupt):
            run._note(candidate(), "text")
    kept = Folder(tmp_path).load(problem.digest, "cpu")
    assert kept is not None and len(kept.trials) == (2 if point == "log" else 1)
    assert all(Folder(tmp_path).text(trial.number) for trial in kept.trials)
    with Folder(tmp_path).locked():  # an interrupted run holds no lock
        pass


@pytest.mark.parametrize("gone", [True, False])
def test_a_device_that_disappears_ends_the_run_and_blames_no_candidate(
    gone: bool, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(problem, tmp_path, monkeypatch)

    def ask(self: Worker, request: Answer, limit: float | None = None) -> Answer:
        if gone or request["text"] == "wrong":
            return {"error": "RuntimeError: CUDA error: device unavailable"}
        return {"us": 10.0}

    monkeypatch.setattr(Worker, "ask", ask)
    trial = Trial(1, "step", "another", 0, "b")
    if gone:
        with pytest.raises(ArgusError, match="no longer runs a kernel that it ran before"):
            run._measure(trial, "wrong")
    else:
        run._measure(trial, "wrong")
    assert trial.refused == ("" if gone else "run")
    kept = Folder(tmp_path).load(problem.digest, "cpu")
    assert isinstance(kept, State) and len(kept.trials) == 1


def test_a_disk_that_takes_no_results_blames_no_candidate(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(problem, tmp_path, monkeypatch)

    def ask(self: Worker, request: Answer, limit: float | None = None) -> Answer:
        return {"unwritten": "No space left on device"} if request["step"] == "run" else {"us": 5.0}

    monkeypatch.setattr(Worker, "ask", ask)
    trial = candidate()
    with pytest.raises(ArgusError, match="No space left on device") as raised:
        run._measure(trial, "text")
    assert "give the same command again" in str(raised.value.diagnostics[0].help)
    assert trial.refused == "" and run.state.best == 0


def test_the_process_that_runs_candidates_says_when_the_disk_is_full(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    timer = Timer()
    timer._built = {problem.text: lambda *values: None}
    request = {"problem": asdict(problem), "text": problem.text, "device": "cpu", "step": "run", "seed": 1}
    sized = {**request["problem"], "sizes": {"M": 4, "N": 8}}
    request |= {"problem": sized, "folder": str(tmp_path)}
    assert timer.handle(request) == {"ran": True}

    def full(found: object, path: Path) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc] . PytorchStreamWriter failed writing file data/0")

    monkeypatch.setattr(torch, "save", full)
    assert "failed writing" in timer.handle(request)["unwritten"]


@pytest.mark.parametrize("full", [True, False])
def test_a_compiler_without_room_blames_no_candidate(
    full: bool, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(explicit: object, report: object) -> None:
        raise ArgusError(Diagnostic("compiler-failed", "C++ compiler failed with status 4"))

    def no_room() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(examining.CachedSource, "cached", lambda *_: None)
    monkeypatch.setattr(examining.compile, "build", failed)
    if full:
        monkeypatch.setattr(examining.tempfile, "TemporaryFile", no_room)
    request = {"problem": asdict(problem), "text": problem.text, "build": True}
    answer = prover.handle(request)
    assert answer.get("refused") == (None if full else "build")
    run = begun(problem, tmp_path, monkeypatch)
    monkeypatch.setattr(Worker, "ask", lambda self, request, limit: answer)
    if full:
        with pytest.raises(ArgusError, match="No space left on device"):
            run._examined(run._provers[0], "text", None)
    else:
        assert run._examined(run._provers[0], "text", None).code == "compiler-failed"


def test_results_that_are_gone_are_computed_again(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(problem, tmp_path, monkeypatch)
    asked: list[str] = []

    def ask(self: Worker, request: Answer, limit: float | None = None) -> Answer:
        asked.append(request["step"])
        if request["step"] == "run":
            for place in range(4):
                (Path(request["folder"]) / f"{place}.pt").touch()
        return {}

    monkeypatch.setattr(Worker, "ask", ask)
    run._again()
    run._again()
    assert asked == ["build", "run"]


def test_times_of_different_things_are_not_compared(problem: Problem, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.save(State(problem.digest, "model", [Trial(0, "start", "", 0, "d", us=2.0)]))
    assert folder.load(problem.digest, "model") is not None
    with pytest.raises(ArgusError, match="has times of the model; here they would be of the gpu"):
        folder.load(problem.digest, "gpu")


def test_a_run_that_goes_on_shortly_forgets_no_count(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(problem, tmp_path, monkeypatch)
    run.state.looked = {"refused": 3, "slower": 4, "open": 5}
    run._count()
    assert run.state.looked == {"refused": 3, "slower": 4, "open": 5}
    run.state.looked = {}
    run._count()
    assert run.state.looked == {"refused": 0, "slower": 0, "open": 0}


def test_a_run_whose_lock_was_removed_leaves_the_folder_to_the_next(problem: Problem, tmp_path: Path) -> None:
    first, second = Folder(tmp_path), Folder(tmp_path)
    state = State(problem.digest, "model", [Trial(0, "start", "", 0, "d", us=2.0)])
    with first.locked():
        (tmp_path / "lock").unlink()
        first.save(state)  # nobody else is here yet
        with second.locked():
            second.save(State(problem.digest, "model", [Trial(0, "start", "", 0, "d", us=1.0)]))
            with pytest.raises(ArgusError, match="another run works in"):
                first.save(state)
    kept = second.load(problem.digest, "model")
    assert kept is not None and kept.trials[0].us == 1.0
