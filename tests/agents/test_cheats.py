"""Ways to cheat are tried and fail: in the text, in the answers of workers, in results and in times."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from argus.agents.imported import foreign
from argus.agents.optimize import Folder, Problem, problem_of, service
from argus.agents.optimize.compare import difference, differences
from argus.agents.optimize.examine import examine
from argus.agents.optimize.prover import handle
from argus.agents.optimize.service import Worker, WorkerLost
from argus.backend.cache import DiskCache
from argus.diagnostic import ArgusError, Diagnostic
from argus.frontend.decorator import KernelSource
from argus.runtime.executable import CachedSource
from argus.source import SourceFile
from tests.agents.cheats import CHEATS, KERNEL, RESULT, ROW, Cheat

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problem_of(SourceFile("norm.py", KERNEL), "norm", "cpu", {"M": 8, "N": 100})


def test_the_honest_kernel_is_accepted(problem: Problem) -> None:
    faster = KERNEL.replace("scaled(values) * al.rsqrt(squares + 1.0)", "al.rsqrt(squares + 1.0) * scaled(values)")
    assert examine(problem, faster, build=False).refused == ""


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.title.replace(" ", "-"))
def test_a_text_that_cheats_is_refused(cheat: Cheat, problem: Problem) -> None:
    found = examine(problem, cheat.text, build=False)
    assert found.refused == cheat.stage, (found.refused, found.code, found.reason)


def test_there_are_enough_kinds() -> None:
    assert len(CHEATS) >= 40


def test_a_copy_is_reported_as_one(problem: Problem) -> None:
    assert examine(problem, KERNEL.replace("squares", "total"), build=False).code == "copy"


def test_nothing_of_a_candidate_runs_as_python(problem: Problem, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = f"open({str(mark)!r}, 'w')\n__import__('os').abort()\n{KERNEL.replace('squares', 'sums')}"
    examine(problem, text, build=False)
    assert not mark.exists()


@pytest.mark.parametrize(
    "added",
    [
        "from argus.kernels.attention_scores import raise_top\n",
        "from argus import kernel, func as helper\n\n\n@helper\ndef half(x):\n    return x / 2\n",
        "import argus\n",
        "HALF = TWICE * -0.5\n",
        "LEAST = -float('inf')\n",
        "TYPES = (al.float32, 'M N', 3)\n",
        "@argus.func\ndef half(x, by=2.0):\n    return x / by\n",
        "'a word'\n",
    ],
)
def test_a_candidate_may_add_what_is_only_argus(added: str) -> None:
    assert foreign(KERNEL, KERNEL.replace("TWICE = 2.0\n", f"TWICE = 2.0\n{added}")) == ""


def test_the_authors_own_python_stays_and_is_run_as_often() -> None:
    author = f"import os\nprint(os.name)\n{KERNEL}"
    assert foreign(author, author.replace("squares", "total")) == ""
    assert "print(os.name)" in foreign(author, f"{author}print(os.name)\n")
    assert "`os`" in foreign(author, f"{author}from argus import kernel as os\n")


def test_the_authors_names_are_followed() -> None:
    """A file may call the package, or a kernel, what it likes; a candidate may change that kernel, and nothing else."""
    author = KERNEL.replace("import argus\n", "import argus as tiles\n").replace("@argus.", "@tiles.")
    author = author.replace("def norm(", "def sum(")
    assert foreign(author, author.replace("squares", "total")) == ""
    assert "tiles" in foreign(author, author.replace("import argus as tiles\n", "import argus as tiles\ntiles = 3\n"))
    assert "def sum(x)" in foreign(KERNEL, f"{KERNEL}\n\n@argus.func\ndef sum(x):\n    return x\n")


def test_names_of_the_machine_are_names_like_others(problem: Problem) -> None:
    """A variable that is called like a function or register of the machine reads and calls nothing of it."""
    for squares, values in (("threadIdx", "printf"), ("__syncthreads", "asm"), ("NAN", "int"), ("main", "blockIdx")):
        text = KERNEL.replace("values", values).replace("squares", squares)
        text = text.replace(f"scaled({values}) * al.rsqrt({squares}", f"al.rsqrt({squares}")
        text = text.replace(f"al.rsqrt({squares} + 1.0)", f"al.rsqrt({squares} + 1.0) * scaled({values})")
        assert examine(problem, text, build=True).refused == "", (squares, values)


def test_a_printed_text_is_only_printed() -> None:
    author = KERNEL.replace(ROW, f"{ROW}    al.device_print('a\"); abort(); // %n%s', row)\n")
    prints = problem_of(SourceFile("norm.py", author), "norm", "cpu", {"M": 8, "N": 100})
    text = author.replace(RESULT, "al.rsqrt(squares + 1.0) * scaled(values)")
    assert text != author != KERNEL and examine(prints, text, build=True).refused == ""


def test_a_text_that_is_no_source_is_refused_before_its_proof(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    from argus.agents.optimize import examine as module

    text = KERNEL.replace("scaled(values) * al.rsqrt(squares + 1.0)", "al.rsqrt(squares + 1.0) * scaled(values)")

    def emitted(explicit: object) -> str:
        raise ArgusError(Diagnostic("register-varies", "held in different registers"))

    monkeypatch.setattr(module.compile, "emitted", emitted)
    monkeypatch.setattr(module.compile, "verify", lambda explicit: pytest.fail("proved"))
    assert module.examine(problem, text).refused == "emit"


def test_a_decorator_that_accepts_the_unknown_changes_no_verdict(problem: Problem) -> None:
    text = KERNEL.replace("@argus.kernel", '@argus.kernel(accept=("spec-unknown",))')
    wrong = text.replace(RESULT, "values")
    assert examine(problem, wrong, build=False).refused == "prove"


def test_less_precise_arithmetic_is_found_in_the_results() -> None:
    """Casts are transparent to a specification over the reals, so results are compared as well."""
    exact = torch.randn(1000)
    assert difference(torch, exact.half().float(), exact) != ""
    assert difference(torch, (exact + 1e30) - 1e30, exact) != ""
    assert difference(torch, exact * 1e-44 / 1e-44, exact) != ""
    assert difference(torch, exact + 1e-6 * exact, exact) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda t: t * math.nan, id="NaN"),
        pytest.param(lambda t: torch.where(t > 1, math.nan, t), id="NaN in some places"),
        pytest.param(lambda t: torch.where(t > 2, math.inf, t), id="infinity"),
        pytest.param(lambda t: t[:-1], id="another shape"),
        pytest.param(lambda t: t.double(), id="another type"),
        pytest.param(lambda t: -t, id="another sign"),
        pytest.param(lambda t: torch.zeros_like(t), id="zeros"),
        pytest.param(lambda t: torch.where(torch.arange(len(t)) == 7, 2 * t + 1, t), id="one element"),
    ],
)
def test_wrong_results_differ(wrong: object) -> None:
    right = torch.randn(1000, generator=torch.Generator().manual_seed(5))
    assert difference(torch, right.clone(), right) == ""
    assert difference(torch, wrong(right), right) != ""  # type: ignore[operator]


def test_every_distribution_counts_and_every_output(tmp_path: Path) -> None:
    right = {"out": torch.randn(64)}
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        for place in range(4):
            torch.save(right, tmp_path / name / f"{place}.pt")
    assert differences(tmp_path / "ours", tmp_path / "theirs", 4) == ""
    torch.save({"out": right["out"] * 1.5}, tmp_path / "ours" / "3.pt")  # right for three distributions of four
    assert "distribution 3" in differences(tmp_path / "ours", tmp_path / "theirs", 4)
    torch.save({}, tmp_path / "ours" / "3.pt")
    assert "other outputs" in differences(tmp_path / "ours", tmp_path / "theirs", 4)


def test_small_inputs_have_a_tolerance_of_their_own() -> None:
    """Errors of results that are all small are measured against these, and not against 1."""
    small = torch.randn(100) * 1e-2
    assert difference(torch, torch.zeros(100), small) != ""


# ---------------------------------------------------------------------------- processes, logs, folders


@pytest.mark.parametrize("way", ["die", "list", "hang"])
def test_a_process_without_an_answer_is_lost_and_replaced_and_printed_lines_are_no_answers(way: str) -> None:
    worker = Worker("tests.agents.forger")
    try:
        with pytest.raises(WorkerLost):
            worker.ask({way: True}, timeout_s=2.0 if way == "hang" else 60.0)
        assert worker.ask({"say": '{"refused": "", "us": 0.1}'}) == {"honest": True}
    finally:
        worker.close()


def test_a_process_is_ended_while_another_thread_waits_for_it() -> None:
    """What still runs when a run's time is over is not waited for."""
    worker = Worker("tests.agents.forger")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(worker.ask, {"hang": True})
        while worker._process is None:
            time.sleep(0.01)
        worker.end()
        with pytest.raises(WorkerLost):
            waiting.result(timeout=60)
    worker.close()


def test_a_process_that_is_ended_leaves_no_files() -> None:
    worker = Worker("tests.agents.forger")
    try:
        (folder,) = worker.ask({"folder": True}).values()
        assert Path(folder).is_dir()
        with pytest.raises(WorkerLost):
            worker.ask({"die": True})
        assert not Path(folder).exists()
    finally:
        worker.close()


def test_a_process_ends_with_the_one_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while a kernel hangs: it would keep the device from all later runs."""
    parents, sent = iter([7, 7, 1]), list[tuple[int, int]]()
    monkeypatch.setattr(service.os, "getppid", lambda: next(parents))
    monkeypatch.setattr(service.os, "kill", lambda *what: sent.append(what))
    monkeypatch.setattr(service, "_LOOK_S", 0.0)
    service._end_with(7)
    assert sent == [(os.getpid(), signal.SIGKILL)]


def test_a_process_that_hangs_ends_with_a_killed_run() -> None:
    text = ("from argus.agents.optimize.service import Worker; w = Worker('tests.agents.forger'); w.start(); "
            "print(w._process.pid, flush=True); w.ask({'hang': True})")  # fmt: skip
    run = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    worker = Path(f"/proc/{int(run.stdout.readline())}")
    while b"forger" not in (worker / "cmdline").read_bytes():
        time.sleep(0.1)
    run.kill()
    run.communicate()
    until = time.monotonic() + 60
    while _runs(worker) and time.monotonic() < until:
        time.sleep(0.1)
    assert not _runs(worker)


def _runs(process: Path) -> bool:
    try:
        return "State:\tZ" not in (process / "status").read_text()
    except OSError:
        return False


def test_words_are_no_truth(problem: Problem) -> None:
    """A refusal is a stage's name; a worker that errs refuses, whatever words it says."""
    with pytest.raises((TypeError, KeyError)):
        handle({"problem": {"refused": "false"}, "text": KERNEL})


def test_a_time_must_be_a_time(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from argus.agents.optimize import stopwatch as module

    one = module.Stopwatch({}, Folder(tmp_path), "cpu")
    for us in (math.nan, math.inf, -1.0, 0.0, "0.1", None, True):
        monkeypatch.setattr(module.Worker, "ask", lambda self, request, limit=None, us=us: {"us": us})
        with pytest.raises(RuntimeError):
            one.time(KERNEL, 1)


def test_inputs_come_after_the_build(problem: Problem, tmp_path: Path) -> None:
    from dataclasses import asdict

    from argus.agents.optimize.timer import Timer

    request = {"problem": asdict(problem), "text": KERNEL, "device": "cpu"}
    with pytest.raises(KeyError):  # what was not built does not run
        Timer().handle({**request, "step": "run", "seed": 1, "folder": str(tmp_path)})
    with pytest.raises(KeyError):  # and a run has a seed, which the build has not
        timer = Timer()
        timer.handle({**request, "step": "build"})
        timer.handle({**request, "step": "run", "folder": str(tmp_path)})


def test_outputs_are_poisoned_before_a_run() -> None:
    from argus.agents.optimize.timer import _poison

    held = torch.ones(8)
    _poison(torch, held)
    assert held.isnan().all()
    numbers = torch.ones(8, dtype=torch.int32)
    _poison(torch, numbers)
    assert not (numbers == 1).any()


def test_a_line_break_forges_no_line_of_the_log(tmp_path: Path) -> None:
    Folder(tmp_path).log("tune\n00:00:00 7 from 0: best: 0.1 us")
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 1


def test_builds_of_kernels_of_one_name_do_not_collide(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    texts = (KERNEL, KERNEL.replace("TWICE = 2.0", "TWICE = 3.0"))
    keys = {CachedSource(KernelSource("norm", SourceFile("norm.py", t)), cache)._key("executable", {}) for t in texts}
    assert len(keys) == 2


def test_a_state_that_was_written_by_hand_is_refused(problem: Problem, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for text in ('{"best_us": 0.1}', "not json", '{"schema": 1, "problem": "other", "timed_on": "cpu", "trials": []}'):
        folder.write("state.json", text)
        with pytest.raises(ArgusError):
            folder.load(problem.digest, "cpu")
