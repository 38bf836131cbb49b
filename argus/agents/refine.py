"""One kernel that evolves: a model proposes line patches and the verifier decides. Steps and repairs are limited.

An answer is a JSON object with `patches`, each `{"old": lines, "new": lines}`. It is treated like any other proposal.
The specification stays; a text that changes the task is refused before it is proved. What a model says about itself,
verdicts or times is not read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from argus.agents.models.chat import ASSISTANT, SYSTEM, USER, BudgetError, Message, Model, ModelError
from argus.agents.optimize.examine import Examined, examine
from argus.agents.optimize.problem import Problem
from argus.knowledge import applicable, facts_of_text

REPAIRS, STEPS = 5, 10
_BLOCK = re.compile(r"```(?:json)?\s{0,9}(?=\{)")
_MOST_PATCHES, _MOST_TEXT = 20, 100_000
TASK = (
    "You make GPU kernels in the language Argus faster. The text is proved before it runs. Never change the "
    "specification, the parameters, the preconditions, the promises or the tags of parameters. Make one optimisation "
    'at a time. Answer with one JSON object: {"patches": [{"old": "lines as they are", "new": "lines instead"}], '
    '"why": "one sentence"}. Each `old` stands exactly once in the text.'
)


class AnswerError(ValueError):
    """The answer is not a list of patches that fit the text."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer: the stage that refused it ("" for none), the reason, and the text that it made ("" for none)."""

    refused: str
    reason: str
    text: str = ""
    predicted_us: float | None = None


@dataclass(slots=True)
class Refined:
    """The best text, its predicted time, all attempts, and the reason why the loop ended."""

    text: str
    predicted_us: float | None
    attempts: list[Attempt] = field(default_factory=list)
    ended: str = ""


def refine(problem: Problem, model: Model, *, steps: int = STEPS, repairs: int = REPAIRS) -> Refined:
    """Let a model improve a proved kernel, in at most `steps` optimisations with at most `repairs` repairs each.

    A step counts if its text is proved and the performance model expects it to be at most 1% slower.
    """
    start = examine(problem, problem.text, build=False)
    found = Refined(problem.text, start.predicted_us)
    if start.refused:
        found.ended = f"the author's kernel is refused at {start.refused}: {start.reason}"
        return found
    for _ in range(steps):
        try:
            better = _step(problem, model, found, repairs)
        except BudgetError as error:
            found.ended = str(error)
            return found
        except ModelError as error:
            found.ended = f"the model gave no answer: {error}"
            return found
        if not better:
            found.ended = "a step brought nothing"
            return found
    found.ended = "all steps are done"
    return found


def _step(problem: Problem, model: Model, found: Refined, repairs: int) -> bool:
    """Ask for one optimisation, and for repairs while it is refused. Return True if a text was accepted."""
    talk = [Message(SYSTEM, TASK), Message(USER, question(problem, found.text))]
    for _ in range(repairs + 1):
        reply = model.reply(talk)
        if reply.refused:
            found.attempts.append(Attempt("model", "it refused"))
            return False
        try:
            text = patched(found.text, reply.text)
        except AnswerError as error:
            attempt = Attempt("answer", str(error))
        else:
            attempt = _attempt(text, examine(problem, text, found.predicted_us, build=False))
        found.attempts.append(attempt)
        if not attempt.refused:
            slower = (attempt.predicted_us or 0.0) > (found.predicted_us or 0.0) * 1.01
            if slower or attempt.text == found.text:
                return False
            found.text, found.predicted_us = attempt.text, attempt.predicted_us
            return True
        said = f"Refused at {attempt.refused}: {attempt.reason}\nAnswer with patches of the first text."
        talk = [*talk, Message(ASSISTANT, reply.text[:_MOST_TEXT]), Message(USER, said)]
    return False


def _attempt(text: str, found: Examined) -> Attempt:
    return Attempt(found.refused, f"{found.code}: {found.reason}" if found.refused else "", text, found.predicted_us)


def question(problem: Problem, text: str) -> str:
    """Return what a model is told about a text: its purpose, and the entries of the knowledge base that apply."""
    facts = facts_of_text(text, problem.name, problem.target)
    known = "\n".join(f"- {e.title}. {e.prose}\n{e.change}" for e in applicable(facts)[:4])
    sizes = ", ".join(f"{k} = {v}" for k, v in problem.sizes.items())
    return f"Kernel `{problem.name}` for {problem.target}, {sizes}. What may apply:\n{known}\n\nThe text:\n{text}"


def patched(text: str, answer: str) -> str:
    """Apply the patches of an answer to a text. Raises AnswerError if the answer is anything else."""
    for patch in _patches(answer):
        old, new = patch.get("old"), patch.get("new")
        if not isinstance(old, str) or not isinstance(new, str) or not old:
            raise AnswerError("a patch has the texts `old` and `new`")
        if text.count(old) != 1:
            raise AnswerError(f"`old` stands {text.count(old)} times in the text: {old[:80]!r}")
        text = text.replace(old, new)
    if len(text) > _MOST_TEXT:
        raise AnswerError("the text is too long")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AnswerError("the text has characters that no file can hold") from error
    return text


def _patches(answer: str) -> list[dict[str, object]]:
    block = _BLOCK.search(answer)
    try:
        data = json.JSONDecoder().raw_decode(answer, block.end())[0] if block else json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise AnswerError("the answer is no JSON object") from error
    found = data.get("patches") if isinstance(data, dict) else None
    if not isinstance(found, list) or not found or len(found) > _MOST_PATCHES:
        raise AnswerError(f"`patches` is no list of 1 to {_MOST_PATCHES} patches")
    if not all(isinstance(patch, dict) for patch in found):
        raise AnswerError("a patch is an object")
    return found
