"""The interface to a chat model, and what every model shares: a budget, retries and a transcript."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
_LETTERS = 4
"""Letters of a token, about."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `role` is "system", "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer, and the tokens that it took. `refused`: the model declined to answer."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    refused: bool = False


class ModelError(Exception):
    """A model returned no answer. `again`: the same request may succeed later."""

    def __init__(self, message: str, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


class BudgetError(ModelError):
    """The tokens or the money of a run are used up."""


class Model(Protocol):
    """A chat model, which answers conversations."""

    def reply(self, messages: Sequence[Message]) -> Reply:
        """Answer a conversation. Raises ModelError."""
        ...


@dataclass(slots=True)
class Budget:
    """The tokens and money of a run. Prices are per million tokens; a price of 0 counts no money."""

    tokens: int = 500_000
    money: float = float("inf")
    price_in: float = 0.0
    price_out: float = 0.0
    spent_tokens: int = 0
    spent_money: float = 0.0

    def insist(self) -> None:
        """Raise BudgetError if nothing is left."""
        if self.spent_tokens >= self.tokens or self.spent_money >= self.money:
            raise BudgetError(f"the budget is spent: {self.spent_tokens} tokens, {self.spent_money:.2f} of money")

    def spend(self, messages: Sequence[Message], reply: Reply) -> None:
        """Count a reply. Where the model counts no tokens, a token for every few letters is counted."""
        asked = sum(len(m.text) for m in messages)
        tokens_in = reply.tokens_in if reply.tokens_in > 0 else -(-asked // _LETTERS)
        tokens_out = reply.tokens_out if reply.tokens_out > 0 else -(-len(reply.text) // _LETTERS)
        self.spent_tokens += tokens_in + tokens_out
        self.spent_money += (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6


@dataclass(slots=True)
class Careful:
    """A model with a budget, a time limit for each answer, and retries. If `record` is a path, the conversation is
    appended to that file."""

    model: Model
    budget: Budget = field(default_factory=Budget)
    retries: int = 3
    record: Path | None = None
    sleep: Callable[[float], None] = time.sleep
    limit_s: float = 300.0

    def reply(self, messages: Sequence[Message]) -> Reply:
        """Answer a conversation. Raises ModelError if the model keeps failing, BudgetError if nothing is left."""
        for attempt in range(self.retries + 1):
            self.budget.insist()
            try:
                found = self._in_time(messages)
            except ModelError as error:
                if not error.again or attempt == self.retries:
                    raise
                self.sleep(2.0**attempt)
                continue
            self.budget.spend(messages, found)
            self._note(messages, found)
            return found
        raise ModelError("no attempt was made")

    def _in_time(self, messages: Sequence[Message]) -> Reply:
        """Return the model's answer. Raises ModelError if none has come after `limit_s` seconds.

        The time limits of SDKs start again with every byte, so a server that sends one now and then never ends them.
        """
        found: list[Reply | BaseException] = []

        def ask() -> None:
            try:
                found.append(self.model.reply(messages))
            except BaseException as error:
                found.append(error)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(self.limit_s)
        if not found:
            raise ModelError(f"the model gave no answer in {self.limit_s:g} s", again=True)
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def _note(self, messages: Sequence[Message], reply: Reply) -> None:
        """Append to the transcript. Raises ModelError if the disk takes no more."""
        if self.record is None:
            return
        line = json.dumps({"messages": [asdict(m) for m in messages], "reply": asdict(reply)})
        try:
            with self.record.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise ModelError(f"the transcript cannot be written: {error.strerror}") from error


class Replayed:
    """The replies of a transcript, in order, without a network. A last line that was not written whole is left out."""

    def __init__(self, transcript: Path) -> None:
        lines = transcript.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.strip() and line.endswith("\n")]
        self._replies = [Reply(**json.loads(line)["reply"]) for line in whole]

    def reply(self, messages: Sequence[Message]) -> Reply:
        """Return the next reply. Raises ModelError at the end of the transcript."""
        if not self._replies:
            raise ModelError("the transcript is at its end")
        return self._replies.pop(0)
