"""The loop with a model: recorded answers, malformed ones, stalls, refusals, budgets; and keys that show nowhere."""

from __future__ import annotations

import json
import sys
import threading
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

from argus.agents.models.chat import Budget, BudgetError, Careful, Message, ModelError, Replayed, Reply
from argus.agents.models.openai_server import OpenAIServer
from argus.agents.optimize import Problem, problem_of
from argus.agents.refine import AnswerError, patched, refine
from argus.source import SourceFile

TEXT = (Path(__file__).parents[2] / "argus" / "knowledge" / "kernels" / "transpose.py").read_text()
LOADED = "al.trans(al.load(x[m0 : m0 + TILE, n0 : n0 + TILE], boundary_check=(0, 1)))"
STAGED = "al.load(al.trans(al.stage(x[m0 : m0 + TILE, n0 : n0 + TILE], boundary_check=(0, 1))))"


class Scripted:
    """A model that gives these replies, and raises those that are errors."""

    def __init__(self, *replies: str | Exception | Reply) -> None:
        self.replies, self.asked = list(replies), list[Sequence[Message]]()

    def reply(self, messages: Sequence[Message]) -> Reply:
        self.asked.append(messages)
        found = self.replies.pop(0)
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, Reply) else Reply(found, 100, 20)


def patch(old: str, new: str) -> str:
    return json.dumps({"patches": [{"old": old, "new": new}], "why": "trust me: it is proved"})


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problem_of(SourceFile("transpose.py", TEXT), "transpose", "sm_90a", {"M": 1024, "N": 1024})


def test_a_wrong_proposal_is_repaired_and_a_right_one_kept(problem: Problem) -> None:
    wrong, right = patch(LOADED, STAGED.replace("n0 : n0", "m0 : n0")), f"```json\n{patch(LOADED, STAGED)}\n```"
    model = Scripted(wrong, right, "I am done.", *["no"] * 9)
    found = refine(problem, model, steps=2, repairs=2)
    assert STAGED in found.text
    assert [a.refused for a in found.attempts][:2] == ["parse", ""]
    assert found.attempts[2].refused == "answer" and found.ended == "a step brought nothing"
    assert "Refused at parse" in model.asked[1][-1].text


def test_what_a_model_says_of_itself_is_not_read(problem: Problem) -> None:
    spec = "    al.spec(out, lambda n, m: x[m, n])\n"
    zeros = "al.zeros((TILE, TILE), al.float32)"
    model = Scripted(patch(spec, "    al.spec(out, lambda n, m: 0.0)\n"), patch(LOADED, zeros))
    found = refine(problem, model, steps=1, repairs=1)
    assert [a.refused for a in found.attempts] == ["task", "prove"]
    assert found.text == TEXT


@pytest.mark.parametrize(
    "answer",
    ["", "{", "[]", '{"patches": []}', '{"patches": ["x"]}', '{"patches": [{"old": 1, "new": ""}]}', "[" * 100_000,
     '{"patches": [{"old": "", "new": "x"}]}', '{"patches": [{"old": "TILE", "new": "x"}]}',
     '{"patches": [{"old": "not there", "new": "x"}]}', "```{" * 20_000, "```json\n{} and more```",
     json.dumps({"patches": [{"old": LOADED, "new": "\ud800"}]})],
)  # fmt: skip
def test_malformed_answers_change_nothing(answer: str) -> None:
    with pytest.raises(AnswerError):
        patched(TEXT, answer)


def test_refusals_and_errors_end_the_loop(problem: Problem) -> None:
    assert refine(problem, Scripted(Reply("I cannot help with that", refused=True)), steps=3).ended
    found = refine(problem, Scripted(ModelError("the server gave no answer: APITimeoutError")), steps=3)
    assert "APITimeoutError" in found.ended and found.text == TEXT


def test_stalls_are_tried_again_and_then_told() -> None:
    slept: list[float] = []
    stalled = ModelError("stalled", again=True)
    model = Careful(Scripted(stalled, stalled, "yes"), retries=2, sleep=slept.append)
    assert model.reply([Message("user", "?")]).text == "yes" and slept == [1.0, 2.0]
    with pytest.raises(ModelError):
        Careful(Scripted(stalled, stalled), retries=1, sleep=slept.append).reply([])
    with pytest.raises(ModelError):  # what will not change is not tried again
        Careful(Scripted(ModelError("no such model"), "yes"), sleep=slept.append).reply([])


def test_a_server_that_never_finishes_its_answer_is_left() -> None:
    class Dripping:
        def reply(self, messages: object) -> Reply:
            threading.Event().wait()
            return Reply("never")

    with pytest.raises(ModelError, match=r"no answer in 0.05 s") as raised:
        Careful(Dripping(), retries=1, sleep=lambda s: None, limit_s=0.05).reply([])
    assert raised.value.again


@pytest.mark.parametrize("counted", [0, -1_000_000])
def test_a_server_that_counts_no_tokens_spends_some(counted: int) -> None:
    model = Careful(Scripted(Reply("y" * 400, counted, counted), "z"), Budget(tokens=150))
    model.reply([Message("user", "x" * 400)])
    assert model.budget.spent_tokens == 200
    with pytest.raises(BudgetError):
        model.reply([])


def test_a_transcript_that_is_not_whole_replays_what_it_has(tmp_path: Path) -> None:
    record = tmp_path / "talk.jsonl"
    Careful(Scripted("yes"), record=record).reply([Message("user", "?")])
    record.write_text(record.read_text() + '{"messages": [], "rep')
    replayed = Replayed(record)
    assert replayed.reply([]).text == "yes"
    with pytest.raises(ModelError, match="at its end"):
        replayed.reply([])
    with pytest.raises(ModelError, match="cannot be written"):  # the folder is no file
        Careful(Scripted("yes"), record=tmp_path).reply([])


def test_a_budget_ends(problem: Problem) -> None:
    model = Careful(Scripted("no", "no", "no"), Budget(tokens=150, price_in=1.0))
    found = refine(problem, model, steps=3)
    assert "the budget is spent" in found.ended and model.budget.spent_tokens == 240
    with pytest.raises(BudgetError):
        Careful(Scripted("x"), Budget(money=0.0)).reply([])


def test_a_transcript_replays(problem: Problem, tmp_path: Path) -> None:
    record = tmp_path / "talk.jsonl"
    first = refine(problem, Careful(Scripted(patch(LOADED, STAGED)), record=record), steps=1)
    again = refine(problem, Replayed(record), steps=1)
    assert first.text == again.text and STAGED in again.text
    ended = Replayed(record)
    ended.reply([])
    with pytest.raises(ModelError):
        ended.reply([])


def test_no_key_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = "sk-this-is-secret"

    class Client:
        def __init__(self, **given: object) -> None:
            assert given["api_key"] == key
            self.chat = types.SimpleNamespace(completions=self)

        def create(self, **_: object) -> None:
            raise ConnectionError(f"401 for {key}")

    monkeypatch.setitem(sys.modules, "openai", types.SimpleNamespace(OpenAI=Client, __spec__=object()))
    monkeypatch.setenv("OPENAI_API_KEY", key)
    server = OpenAIServer("some-model")
    with pytest.raises(ModelError) as raised:
        Careful(server, record=tmp_path / "talk").reply([Message("user", "?")])
    assert key not in str(raised.value) + repr(server) and raised.value.__cause__ is None
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModelError) as raised:
        OpenAIServer("some-model")
    assert "OPENAI_API_KEY" in str(raised.value)
