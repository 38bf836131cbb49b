"""The KernelBench harness on problems of our own, without a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks import kernelbench  # noqa: E402

GOOD = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
def get_inputs():
    return [torch.rand(64, 1000)]
def get_init_inputs():
    return []
"""
BAD = "raise RuntimeError('no problem')\n"


@pytest.fixture
def one() -> Any:
    """The module that runs one problem. It imports PyTorch's compiler, which takes seconds."""
    from benchmarks import kernelbench_problem

    return kernelbench_problem


@pytest.fixture
def plan(tmp_path: Path) -> kernelbench.Plan:
    level = tmp_path / "root" / "level1"
    level.mkdir(parents=True)
    (level / "2_Bad.py").write_text(BAD)
    (level / "10_Relu.py").write_text(GOOD)
    floors = tmp_path / "floors.json"
    floors.write_text(json.dumps([{"problem": "1/10_Relu", "floor_us": 7.0}]))
    return kernelbench.Plan(tmp_path / "root", (1,), tmp_path / "rows", floors, 300.0, 1, (0,), "generate")


def test_a_survey_has_a_row_for_each_of_two_problems_at_once_and_goes_on_where_it_stopped(
    plan: kernelbench.Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ARGUS_CACHE_DIR", str(tmp_path / "cache"))
    bad, good = kernelbench.run(replace(plan, workers=2)).rows
    assert (bad["problem"], good["problem"]) == ("1/2_Bad", "1/10_Relu")
    assert bad["correct"] == "no" and "no problem" in str(bad["note"])
    assert good["proved_share"] == pytest.approx(1) and good["floor_us"] == 7.0

    def never(*_: Any) -> None:
        raise AssertionError("a problem that has a row is run again")

    monkeypatch.setattr(kernelbench, "_one", never)
    assert len(kernelbench.run(plan).rows) == 2


def test_a_problem_that_lacks_memory_beside_others_is_run_again_alone(
    plan: kernelbench.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def crowded(_: Any, file: Path, free: list[int]) -> dict[str, Any]:
        tried.append(len(free))
        why = kernelbench.OUT_OF_MEMORY if len(tried) <= 2 and "Relu" in file.stem else ""
        return {"problem": kernelbench.name(file)} | kernelbench.EMPTY | {"note": why}

    monkeypatch.setattr(kernelbench, "_one", crowded)
    _, good = kernelbench.run(replace(plan, workers=2)).rows
    assert tried == [2, 2, 1] and good["note"] == ""


@pytest.mark.parametrize("order", [("check", "time"), ("time", "check")])
def test_checks_and_times_of_two_runs_make_one_row(
    plan: kernelbench.Plan, monkeypatch: pytest.MonkeyPatch, order: tuple[str, str]
) -> None:
    found = {
        "check": {"correct": "yes", "proved_share": 0.5, "note": "mm 100%"},
        "time": {"correct": "", "argus_us": 3.0},
    }
    only = replace(plan, survey="", only=("1/10",))

    def one(asked: kernelbench.Plan, file: Path, free: list[int]) -> dict[str, Any]:
        return {"problem": kernelbench.name(file)} | kernelbench.EMPTY | found[asked.part]

    monkeypatch.setattr(kernelbench, "_one", one)
    for part in order:
        (row,) = kernelbench.run(replace(only, part=part)).rows
    assert [row[key] for key in ("correct", "proved_share", "argus_us", "note")] == ["yes", 0.5, 3.0, "mm 100%"]


def test_a_problem_that_was_checked_stays_so_if_it_cannot_be_timed(
    plan: kernelbench.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"correct": "yes", "proved_share": 1.0}, {"note": "not done after 1 s"}]
    monkeypatch.setattr(kernelbench, "_one", lambda _, file, __: {"problem": kernelbench.name(file)}
                        | kernelbench.EMPTY | rows.pop(0))  # fmt: skip
    for part in ("check", "time"):
        (row,) = kernelbench.run(replace(plan, survey="", only=("1/10",), part=part)).rows
    assert (row["correct"], row["argus_us"], row["note"]) == ("yes", None, "not done after 1 s")


def test_only_some(plan: kernelbench.Plan) -> None:
    assert [kernelbench.name(f) for f in kernelbench.problems(replace(plan, only=("1/1",)))] == ["1/10_Relu"]


@pytest.mark.parametrize(("found", "close"), [([1.0, 2.001], True), ([1.0, 2.01], False), ([1.0, float("nan")], False)])
def test_the_tolerance(one: Any, found: list[float], close: bool) -> None:
    assert one._close(torch.tensor(found), torch.tensor([1.0, 2.0])) is close


def test_errors_of_pieces_are_those_of_the_whole(one: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = torch.rand(7, 9, dtype=torch.float64)
    found = (exact + 1e-4 * torch.rand(7, 9, dtype=torch.float64)).float()
    whole = one._error(found, exact)
    monkeypatch.setattr(one, "_PIECE", 10)
    assert one._error(found.t().contiguous().t(), exact) == pytest.approx(whole)
    assert one._close(found, exact)
    found[6, 8] += 0.1
    assert not one._close(found, exact)


def test_a_problem_whose_row_cannot_be_read_does_not_stop_the_others(
    plan: kernelbench.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any, file: Path, free: list[int]) -> dict[str, Any]:
        if "Bad" in file.stem:
            raise EOFError("the process is gone")
        return {"problem": kernelbench.name(file)} | kernelbench.EMPTY

    monkeypatch.setattr(kernelbench, "_one", broken)
    bad, good = kernelbench.run(plan).rows
    assert "the process is gone" in str(bad["note"]) and good["note"] == ""


def test_the_size_of_inputs_is_found_without_making_them(one: Any, tmp_path: Path) -> None:
    file = tmp_path / "large.py"
    file.write_text(GOOD.replace("64, 1000", "1 << 20, 1 << 20"))
    assert one._size(one.problem(file)) == 2**42


def test_means_count_correct_problems_only() -> None:
    row = {"eager_us": 20.0, "compile_us": 10.0, "argus_us": 5.0, "floor_us": 4.0, "peak_memory": 1.0,
           "proved_share": 1.0}  # fmt: skip
    rows = [{"problem": "1/1_A", "correct": "yes"} | row, {"problem": "1/2_B", "correct": "no"} | row]
    summary = kernelbench._summary(rows)
    assert summary["level 1: correct"] == "1 of 2"
    assert summary["level 1: over compile, 1 cases, geometric mean"] == pytest.approx(2.0)
