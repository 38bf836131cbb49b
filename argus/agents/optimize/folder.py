"""The folder of a run: its state, texts and log, written so that an interruption at any point loses nothing."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from argus.diagnostic import ArgusError, Diagnostic
from argus.written import write_whole

SCHEMA = "argus.agents.optimize/1"


@dataclass(slots=True)
class Trial:
    """One candidate: how it was made from its parent, what refused it, the predicted time and the measured time."""

    number: int
    name: str
    how: str
    parent: int
    digest: str
    refused: str = ""
    reason: str = ""
    code: str = ""
    predicted_us: float | None = None
    us: float | None = None
    at_s: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    specialised: bool = False
    compared: bool = False


@dataclass(slots=True)
class State:
    """Everything that a run knows. `trials[0]` is the author's kernel.

    `looked` counts the texts that the search ahead examined and nobody compiled: those that a stage refused, those that
    are expected to be slower than the best kernel, and those that may be faster.
    """

    problem: str
    timed_on: str
    trials: list[Trial] = field(default_factory=list)
    best: int = 0
    spent_s: float = 0.0
    planner: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    looked: dict[str, int] = field(default_factory=dict)

    def refused(self) -> dict[str, int]:
        """Count the refused candidates by stage."""
        counts: dict[str, int] = {}
        for trial in self.trials:
            if trial.refused:
                counts[trial.refused] = counts.get(trial.refused, 0) + 1
        return counts


class Folder:
    """A run's folder: `state.json`, `log.txt`, `candidates/`, `results/`, and the files that are written at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: TextIO | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder. Raises `ArgusError` if another run holds the lock; a run that died holds none."""
        for part in ("candidates", "results"):
            (self.path / part).mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise self._shared() from None
            self._lock = file
            try:
                yield
            finally:
                self._lock = None

    def _insist_on_lock(self) -> None:
        """Raise `ArgusError` if another run has begun because somebody removed the lock of this one."""
        here = self.path / "lock"
        if self._lock is None or not here.exists():
            return
        if not os.path.samestat(os.fstat(self._lock.fileno()), here.stat()):
            raise self._shared()

    def _shared(self) -> ArgusError:
        help = "wait for it, or choose another folder with `--out`"
        return ArgusError(Diagnostic("bad-option", f"another run works in `{self.path}`", property="input", help=help))

    def load(self, problem: str, timed_on: str) -> State | None:
        """Return the state of an earlier run, or None. Raises `ArgusError` if it belongs to another problem, or if its
        times are of something else: times of a GPU and of the model are not compared."""
        try:
            data = json.loads((self.path / "state.json").read_text(encoding="utf-8"))
            trials = [Trial(**t) for t in data.pop("trials")]
            data.pop("schema")
            state = State(trials=trials, **data)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise self._foreign(f"is not readable: {error}") from error
        if state.problem != problem:
            raise self._foreign("is of another kernel, target or sizes")
        if state.timed_on != timed_on:
            raise self._foreign(f"has times of the {state.timed_on}; here they would be of the {timed_on}")
        return state

    def _foreign(self, what: str) -> ArgusError:
        help = "choose another folder with `--out`"
        return ArgusError(Diagnostic("bad-option", f"the state in `{self.path}` {what}", property="input", help=help))

    def save(self, state: State) -> None:
        """Write the state completely, or leave the old one."""
        self.write("state.json", json.dumps({"schema": SCHEMA, **asdict(state)}, indent=1))

    def write(self, name: str, text: str) -> None:
        """Write a file completely, or leave the old one. Raises `ArgusError` if the disk takes no more, or if another
        run works here."""
        self._insist_on_lock()
        try:
            write_whole(self.path / name, text.encode(), durable=True)
        except OSError as error:
            raise self.unusable(error.strerror or str(error)) from error

    def text(self, number: int) -> str:
        """Return the text of a candidate."""
        return (self.path / "candidates" / f"{number:04}.py").read_text(encoding="utf-8")

    def keep(self, number: int, text: str) -> None:
        """Store the text of a candidate."""
        self.write(f"candidates/{number:04}.py", text)

    def results(self, name: str) -> Path:
        """Make a folder for the results of one run of a candidate, and return it."""
        path = self.path / "results" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def log(self, line: str) -> None:
        """Append a line to the log. Line breaks in it are escaped, so that no text can forge a line."""
        escaped = line.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        try:
            with (self.path / "log.txt").open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%H:%M:%S')} {escaped}\n")
        except OSError as error:
            raise self.unusable(error.strerror or str(error)) from error

    def unusable(self, why: str) -> ArgusError:
        """Return the error that the folder cannot be written."""
        message = f"`{self.path}`, or the folder of temporary files, cannot be written: {why}"
        help = "what was found so far is kept; make room, and give the same command again"
        return ArgusError(Diagnostic("bad-option", message, property="input", help=help))
