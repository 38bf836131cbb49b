"""Run compilers with a time limit, away from the user's files, and report their failures as diagnostics."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from argus import environment
from argus.diagnostic import Diagnostic, Note, ToolchainError

TIMEOUT_S = 300.0
"""Time limit of one compiler run, in seconds. The largest shipped kernel takes a few seconds."""

_LOG_LINES = 40
_CHECK = "check its installation; if it is a wrapper script, whether it passes its arguments on"


@dataclass(frozen=True, slots=True)
class Completed:
    """The output of a program that succeeded."""

    stdout: str
    stderr: str


def missing(tool: str, help: str) -> ToolchainError:
    """Return the error for a compiler that is not installed; `help` names the package to install."""
    text = f"no {tool} was found"
    if not environment.search_path():
        text += ", and PATH, which names the folders of programs, is empty"
    return ToolchainError(Diagnostic("compiler-missing", text, property="toolchain", help=help))


def failed(tool: str, what: str, log: str, help: str = "") -> ToolchainError:
    """Return the error for a compiler that refused its input, with the first errors of its log."""
    notes = (Note(trimmed(log)),) if log.strip() else ()
    return ToolchainError(Diagnostic("compiler-failed", f"{tool} {what}", property="toolchain", notes=notes, help=help))


def trimmed(log: str, lines: int = _LOG_LINES) -> str:
    """Return the first errors of a compiler's log: at most `lines` lines, from the first that contains "error"."""
    everything = log.strip().splitlines()
    start = next((i for i, line in enumerate(everything) if "error" in line.lower()), 0)
    kept = everything[start : start + lines]
    left = len(everything) - start - len(kept)
    return "\n".join([*kept, f"... {left} more lines"] if left else kept)


def output(tool: str, path: Path) -> bytes:
    """Return the file that a successful program wrote to `path`. Raises `ToolchainError` if it is missing or empty."""
    content = path.read_bytes() if path.is_file() else b""
    if not content:
        raise failed(tool, "reported success and wrote no machine code", "", _CHECK)
    return content


def run(
    tool: str,
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Completed:
    """Run `command` (named `tool` in messages) to its end, with no input.

    After `timeout_s` seconds the program and all programs that it started are killed. Raises `ToolchainError`:
    "compiler-missing" if it cannot start, "compiler-failed" for a nonzero status, a signal, or a timeout.
    """
    return start(tool, command, cwd=cwd).finish(timeout_s=timeout_s)


def start(tool: str, command: Sequence[str], *, cwd: Path | None = None) -> Running:
    """Start `command`, which may wait for its input. Raises `ToolchainError` "compiler-missing" if it cannot start."""
    try:
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=environment.for_programs(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise missing(tool, f"{command[0]} could not be started ({error.strerror}); check its installation") from None
    return Running(tool, process)


@dataclass(frozen=True, slots=True)
class Running:
    """A program that was started."""

    tool: str
    process: subprocess.Popen[str]

    def finish(self, text: str = "", *, timeout_s: float = TIMEOUT_S) -> Completed:
        """Pass `text` to the program as its whole input and wait for its end, with the same errors as `run`."""
        try:
            out, err = self.process.communicate(text, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise failed(self.tool, f"did not finish within {timeout_s:g} s", "") from None
        except BaseException:
            self.end()
            raise
        if self.process.returncode < 0:
            raise failed(self.tool, f"was ended by signal {-self.process.returncode}", err or out)
        if self.process.returncode:
            log = err or out
            raise failed(self.tool, f"failed with status {self.process.returncode}", log, _unable(log))
        return Completed(out, err)

    def end(self) -> None:
        """Kill the program's process group if it still runs. Compilers start helper programs, which end with it."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


_UNABLE = re.compile(
    r"cannot find .(?P<gcc>ld|collect2)\b|cannot exec\w* .(?P<execvp>[\w.+-]+).?:|"  # g++
    r"unable to execute command: .*?\"(?P<clang>[\w./+-]+)\" doesn't exist|"
    r"invalid linker name in .*-fuse-ld=(?P<linker>\w+)|"
    r"\b(?P<sh>gcc|g\+\+|cicc|ptxas|cudafe\+\+|nvlink): (?:command )?not found|"  # the shell that nvcc starts
    r"Failed to preprocess (?P<host>host compiler) properties"
)
"""Messages of compilers that cannot start one of their programs."""


def _unable(log: str) -> str:
    """Return the help text for a compiler that did not find one of its helper programs; "" for other failures."""
    found = _UNABLE.search(log)
    if found is None:
        return ""
    helper = next(name for name in found.groups() if name)
    return (
        f"the compiler did not find its {helper!r}, which it looks for on PATH: that is "
        f"{environment.search_path()!r} here. Add the folder of {helper!r} to it (often /usr/bin), or install it "
        "(Debian and Ubuntu: binutils and g++ for the host, lld for clang)"
    )
