"""What goes wrong around a run: a full disk, a lost device, an interruption. Nothing that was found is lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from argus.agents.optimize import Folder, Limits, Problem, Run, State, Trial, problem_of
from argus.agents.optimize import folder as folders
from argus.agents.optimize import run as running
from argus.agents.optimize.service import Answer, Worker
from argus.diagnostic import ArgusError
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
    kept = Folder(tmp_path).load(problem.digest)
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
    kept = Folder(tmp_path).load(problem.digest)
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
    kept = Folder(tmp_path).load(problem.digest)
    assert isinstance(kept, State) and len(kept.trials) == 1
