"""Parts that all commands share: exit codes, consoles, errors of the input, and files that are written whole."""

from __future__ import annotations

import stat
import sys
import traceback
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from rich.console import Console

from argus import environment
from argus.diagnostic import ArgusError, Diagnostic
from argus.render import diagnostics_text
from argus.written import write_whole

PROVED, REFUTED, UNUSABLE, UNKNOWN, DISAGREED = 0, 1, 2, 3, 4
_PRECEDENCE = (DISAGREED, UNUSABLE, REFUTED, UNKNOWN)


def out() -> Console:
    """Return a console that writes to standard output."""
    return Console(soft_wrap=True, highlight=False)


def err() -> Console:
    """Return a console that writes to standard error."""
    return Console(stderr=True, soft_wrap=True, highlight=False)


def progress(message: str) -> AbstractContextManager[object]:
    """Show progress on a terminal. Show nothing elsewhere."""
    console = err()
    return console.status(message) if console.is_terminal else nullcontext()


def worst(codes: Iterable[int]) -> int:
    """Return the exit code that takes precedence over the others."""
    found = set(codes)
    return next((code for code in _PRECEDENCE if code in found), PROVED)


def bad_input(code: str, message: str, help: str) -> ArgusError:
    """Return the error of an input that cannot be used."""
    return ArgusError(Diagnostic(code, message, property="input", help=help))


def report(diagnostics: Iterable[Diagnostic]) -> int:
    """Print diagnostics to standard error, if it is open, and return the exit code of unusable input."""
    if sys.stderr is not None:
        err().print(diagnostics_text(diagnostics), end="")
    return UNUSABLE


def unwritable(path: Path | str, error: OSError) -> ArgusError:
    """Return the error of an output that cannot be written."""
    return bad_input("unwritable-output", f"cannot write `{path}`: {error.strerror or error}", "choose another place")


def internal(error: Exception) -> Diagnostic:
    """Return the diagnostic of an exception that Argus did not expect."""
    if environment.debug_level() >= 1:
        traceback.print_exception(error)
    message = f"{type(error).__name__}: {error}"
    help = "this is a mistake in Argus, not in the input; ARGUS_DEBUG=1 shows where it happened"
    return Diagnostic("internal-error", message, property="internal", help=help)


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises `ArgusError` if the path is no regular file, which is not replaced."""
    try:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise bad_input("unwritable-output", f"cannot write `{path}`: it is no regular file",
                                "name a new file, or one that may be replaced")  # fmt: skip
        write_whole(path, content, mode=0o644)
    except OSError as error:
        raise unwritable(path, error) from error
