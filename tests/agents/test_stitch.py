"""Whole programs: a PyTorch file is compiled, compared and timed in a process of its own, and its kernels are tuned."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from argus import compile
from argus.agents.optimize import Folder
from argus.agents.optimize.service import Answer
from argus.agents.stitch import Choice, Limits, loop, prepare, stitch
from argus.agents.stitch.loop import predicted, ranked
from argus.agents.stitch.reference import Reference
from argus.agents.stitch.tuned import Item, key_of, neighbours, read, stored
from argus.cli import main
from argus.diagnostic import ArgusError, Verdict
from argus.frontend import Options
from argus.knowledge.entry import FOLDER
from argus.source import SourceFile

torch = pytest.importorskip("torch")
MODEL = """import torch


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(n))

    def forward(self, x):
        return torch.nn.functional.silu(x * self.w) + x


def get_inputs():
    return [torch.randn(8, 64)]


def get_init_inputs():
    return [64]
"""


def item(target: str = "sm_90a") -> Item:
    text = (FOLDER / "kernels" / "gated.py").read_text()
    return Item(key_of(text), "gated", text, target, Choice({"BLOCK": 256}, 4), {"M": 8192, "N": 4096}, 0.0)


def test_choices_are_near_and_others() -> None:
    now = Choice({"WIDTH": 64, "HEIGHT": 8}, 4)
    found = list(neighbours(now))
    assert now not in found and len(found) == 63 and Choice({"WIDTH": 128, "HEIGHT": 8}, 4) in found
    assert all(c.warps in (2, 4, 8, 16) for c in found)
    assert read(stored({"k": now})) == {"k": now}


def test_what_is_tried_is_proved_and_expected_to_be_faster() -> None:
    kernel = item()
    now, found = predicted(kernel, kernel.now), ranked(kernel)
    assert now is not None and 1 <= len(found) <= 3
    for choice in found:
        then = predicted(kernel, choice)
        assert then is not None and then < now
        options = Options(target="sm_90a", num_warps=choice.warps, constexprs=dict(choice.constants))
        assert compile.prove(SourceFile("kernel.py", kernel.text), "gated", options).verdict is Verdict.PROVED


def test_a_choice_that_is_not_proved_is_not_tried() -> None:
    kernel = item()
    kernel.text = kernel.text.replace("g / below * u", "g / below + u")
    assert ranked(kernel) == []


def test_a_target_without_a_model_has_its_nearest_choices() -> None:
    assert predicted(item("cpu"), item().now) is None
    assert len(ranked(item("cpu"))) == 3


class Inside:
    """The worker of a reference in this process; `test_the_command_takes_a_model` has one of its own."""

    def __init__(self, module: str) -> None:
        self.reference = Reference()

    def ask(self, request: Answer, timeout_s: float) -> Answer:
        try:
            return self.reference.handle(request)
        except Exception as error:
            return {"error": str(error)}

    def close(self) -> None:
        pass


def _spoilt(x: torch.Tensor) -> torch.Tensor:
    """Return twice the input, and leave something else in its place."""
    result = x * 2
    x.fill_(7.0)
    return result


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _infinite(x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(64) == 3, math.inf, x * 2)


@pytest.mark.parametrize(
    "theirs,ours,said",
    [
        pytest.param(_doubled, _doubled, "", id="the same"),
        pytest.param(_doubled, _spoilt, "", id="inputs are nobody else's"),
        pytest.param(_spoilt, _doubled, "", id="what the reference does to its inputs reaches nobody"),
        pytest.param(_infinite, _infinite, "", id="infinite in the same place"),
        pytest.param(_infinite, lambda x: torch.full_like(x, math.inf), "finite", id="all infinite for one"),
        pytest.param(_infinite, lambda x: _infinite(x) * 1.5, "more than rounding", id="wrong beside an infinity"),
        pytest.param(lambda x: (x, x), lambda x: (x,), "1 results for 2", id="fewer results"),
        pytest.param(lambda x: {"a": x}, lambda x: {"a": -x}, "more than rounding", id="a value of a dictionary"),
        pytest.param(lambda x: [x, 3], lambda x: [x, 4], "4 for 3", id="a number"),
        pytest.param(_doubled, lambda x: _doubled(x).double(), "torch.float64", id="another type"),
        pytest.param(
            lambda x: torch.where(torch.arange(64) == 3, 1e4, x),
            lambda x: torch.where(torch.arange(64) == 3, 1e4, x * 1e9),
            "more than rounding",
            id="far off beside one large element",
        ),
    ],
)
def test_a_draft_is_compared_with_the_reference(theirs: object, ours: object, said: str) -> None:
    one = Reference()
    one._model, one._module = theirs, SimpleNamespace(get_inputs=lambda: [torch.randn(8, 64)])
    found = one._difference(torch, ours, 5)
    assert (said in found) if said else found == ""


def test_a_draft_runs_before_the_reference_leaves_its_results_in_memory() -> None:
    one, order = Reference(), list[str]()

    def noted(name: str, result: object) -> object:
        order.append(name)
        return result

    one._model = lambda x: noted("reference", x)
    one._module = SimpleNamespace(get_inputs=lambda: [torch.randn(4)])
    assert one._difference(torch, lambda x: noted("draft", x), 1) == ""
    assert order == ["draft", "reference"] * 4


@pytest.mark.parametrize(
    "text", ["x = 1\n", "raise RuntimeError('no')\n", MODEL.replace("x * self.w", "x @ self.w.T.T.T")]
)
def test_files_that_are_no_model(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Worker", Inside)
    (tmp_path / "reference.py").write_text(text)
    with pytest.raises(ArgusError) as raised:
        stitch(tmp_path / "reference.py", "cpu", Folder(tmp_path / "run"))
    assert "Model" in raised.value.diagnostics[0].help


def test_a_first_draft_that_differs_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"load": {"us": 100.0}, "choices": {"different": "an element is off by 1.0"}}
    monkeypatch.setattr(loop._Loop, "_ask", lambda self, request, *limits, **how: answers[next(iter(request))])
    with pytest.raises(ArgusError, match="does not compute what PyTorch does: an element is off by 1"):
        stitch(tmp_path / "reference.py", "cpu", Folder(tmp_path / "run"))


@pytest.mark.parametrize(("minutes", "drafts"), [(math.inf, 7), (0.0, 1)])
def test_no_numbers_are_tried_twice(
    minutes: float, drafts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each draft is faster here, so every plan is followed by another, and goes on from the best numbers."""
    kernel, asked = item("cpu"), list[str]()
    made = {"key": kernel.key, "name": kernel.name, "text": kernel.text, "target": "cpu", "sizes": {},
            "constants": dict(kernel.now.constants), "warps": kernel.now.warps}  # fmt: skip

    def ask(self: object, request: dict[str, object], limit_s: float, fatal: bool = True) -> dict[str, object]:
        if "choices" in request:
            asked.append(json.dumps(request["choices"], sort_keys=True))
        return {"us": 100.0 / (1 + len(asked)), "items": [made]}

    monkeypatch.setattr(loop._Loop, "_ask", ask)
    monkeypatch.setattr(loop, "_proved", lambda item, choice: True)
    found = stitch(tmp_path / "reference.py", "cpu", Folder(tmp_path / "run"), Limits(attempts=2, minutes=minutes))
    assert len(asked) == len(set(asked)) == drafts, asked
    assert found.best_us == 100.0 / (1 + drafts)


def test_what_was_prepared_is_not_ranked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, asked = item("cpu"), list[dict[str, object]]()
    made = {"key": kernel.key, "name": kernel.name, "text": kernel.text, "target": "cpu", "sizes": {},
            "constants": dict(kernel.now.constants), "warps": kernel.now.warps}  # fmt: skip

    def ask(self: object, request: dict[str, object], limit_s: float, fatal: bool = True) -> dict[str, object]:
        asked.append(request)
        return {"us": 100.0, "items": [made]}

    ranks = [Choice({"BLOCK": 128}, 4), Choice({"BLOCK": 512}, 4)]
    monkeypatch.setattr(loop._Loop, "_ask", ask)
    monkeypatch.setattr(loop, "ranked", lambda item, over, tried: ranks)
    folder, limits = Folder(tmp_path / "run"), Limits(attempts=1, replans=0)
    assert prepare(tmp_path / "reference.py", "cpu", folder, limits) == 1
    assert [request["choices"] for request in asked] == [{}, {kernel.key: {"constants": {"BLOCK": 128}, "warps": 4}}]
    monkeypatch.setattr(loop, "ranked", lambda *_: pytest.fail("ranked again"))
    before = asked.copy()
    stitch(tmp_path / "reference.py", "cpu", folder, limits)
    drafts = [request["choices"] for request in asked[len(before):] if "choices" in request]
    assert drafts == [request["choices"] for request in before]
    (folder.path / "plan.json").write_text('{"half of a pl')
    monkeypatch.setattr(loop, "ranked", lambda item, over, tried: ranks[1:])
    found = stitch(tmp_path / "reference.py", "cpu", folder, limits)
    assert any("BLOCK = 512" in step for step in found.steps)  # a damaged plan is made again


@pytest.mark.slow
def test_a_model_is_stitched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the processor. The draft agrees with the reference; what is kept is never slower than the draft."""
    (tmp_path / "reference.py").write_text(MODEL)
    said: list[str] = []
    found = stitch(tmp_path / "reference.py", "cpu", Folder(tmp_path / "run"), Limits(1, 0, 1), said.append)
    assert found.reference_us > 0 and 0 < found.best_us <= found.draft_us and len(found.kernels) == 1
    assert any(line.startswith("plan 1") for line in said) and len(said) >= 4
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    kept = read((tmp_path / "run" / "choices.json").read_text())
    assert report["best_us"] == found.best_us and set(kept) == set(report["choices"])


def test_the_command_takes_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "reference.py").write_text("class Model:\n    pass\n\n\ndef get_inputs():\n    return []\n")
    assert main(["optimize", str(tmp_path / "reference.py"), "--target", "cpu", "--out", str(tmp_path / "run")]) == 2
    assert "get_init_inputs" in capsys.readouterr().err
