"""Runs compilers: with a time limit, away from the user's files, and with failures as diagnostics."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from argus.diagnostic import Diagnostic, Note, ToolchainError

TIMEOUT_S = 300.0
"""How long one compiler run may take. The largest shipped kernel takes a few seconds."""

_LOG_LINES = 40


@dataclass(frozen=True, slots=True)
class Completed:
    """What a program that succeeded wrote."""

    stdout: str
    stderr: str


def missing(tool: str, help: str) -> ToolchainError:
    """The error for a compiler that is not installed; `help` says what to install."""
    return ToolchainError(Diagnostic("compiler-missing", f"no {tool} was found", property="toolchain", help=help))


def failed(tool: str, what: str, log: str, help: str = "") -> ToolchainError:
    """The error for a compiler that refused its input, with the end of what it said."""
    notes = (Note(trimmed(log)),) if log.strip() else ()
    return ToolchainError(Diagnostic("compiler-failed", f"{tool} {what}", property="toolchain", notes=notes, help=help))


def trimmed(log: str, lines: int = _LOG_LINES) -> str:
    """The first errors of a compiler's log: at most `lines` lines, from the first that says "error"."""
    everything = log.strip().splitlines()
    start = next((i for i, line in enumerate(everything) if "error" in line.lower()), 0)
    kept = everything[start : start + lines]
    left = len(everything) - start - len(kept)
    return "\n".join([*kept, f"... {left} more lines"] if left else kept)


def run(
    tool: str,
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Completed:
    """Run `command` (named `tool` in messages) to its end, with no input.

    The program and all it starts are ended when `timeout_s` seconds have passed. Raises `ToolchainError`:
    "compiler-missing" if it cannot start, "compiler-failed" for a nonzero status, a signal, or the limit.
    """
    try:
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise missing(tool, f"{command[0]} could not be started ({error.strerror}); check its installation") from None
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        raise failed(tool, f"did not finish within {timeout_s:g} s", "") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode < 0:
        raise failed(tool, f"was ended by signal {-process.returncode}", err or out)
    if process.returncode:
        raise failed(tool, f"failed with status {process.returncode}", err or out)
    return Completed(out, err)


def _end(process: subprocess.Popen[str]) -> None:
    """End the program's whole process group: compilers start helpers of their own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
