"""Proposals of a language model in an optimisation: line patches of one text. The planner treats them like other
moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from argus.agents.models.chat import SYSTEM, USER, Message, Model, ModelError
from argus.agents.optimize.moves import Move
from argus.agents.optimize.problem import Problem
from argus.agents.refine import TASK, AnswerError, patched, question

MODEL = "model"
"""The name of the optimisation in which a model proposes the change."""
_REMEMBERED = 6


@dataclass(slots=True)
class Proposer:
    """Asks a model for one step at a time. `refused` holds the reasons why its texts were refused, and `ended` the
    reason why it is no longer asked."""

    model: Model
    refused: list[str] = field(default_factory=list)
    ended: str = ""

    def propose(self, problem: Problem, text: str, lessons: list[str]) -> Move | None:
        """Return a step from a text, or None if the answer is no patch, or if the model is no longer asked."""
        if self.ended:
            return None
        said = "\n".join(f"- {line}" for line in (*lessons[-_REMEMBERED:], *self.refused[-_REMEMBERED:]))
        asked = f"{question(problem, text)}\n\nWhat was tried, and what became of it:\n{said or '- nothing yet'}"
        try:
            reply = self.model.reply([Message(SYSTEM, TASK), Message(USER, asked)])
        except ModelError as error:
            self.ended = str(error)
            return None
        if reply.refused:
            self.ended = "the model refused"
            return None
        try:
            new = patched(text, reply.text)
        except AnswerError as error:
            self.refused.append(f"an answer was no list of patches: {error}")
            return None
        return Move(MODEL, "patches of a model", new) if new != text else None
