"""Run one command of the command line. The module of a command is imported when the command is run."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence

from argus.cli.parser import parser
from argus.diagnostic import ArgusError
from argus.garbage import seldom


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. `arguments` default to the arguments of the process."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that the encoding of a terminal or file cannot represent are escaped.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    options = parser().parse_args(arguments)
    from argus.cli.common import UNUSABLE, internal, report, unwritable

    if sys.stdout is None:  # The shell closed the output by `>&-`.
        return report(unwritable("standard output", OSError(errno.EBADF, "it is closed")).diagnostics)
    try:
        with seldom():
            code: int = importlib.import_module(f"argus.cli.{options.module}").run(options)
        if not sys.stdout.closed:  # A server closes the output at the end of its session.
            sys.stdout.flush()
        return code
    except ArgusError as error:
        return report(error.diagnostics)
    except BrokenPipeError:
        # The reader of the output is gone, so nobody would see an error message.
        _discard_output()
        return UNUSABLE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT):
            return report([internal(error)])
        _discard_output()
        return report(unwritable("standard output", error).diagnostics)
    except Exception as error:  # An internal error is reported as a diagnostic, not as a traceback.
        return report([internal(error)])


def _discard_output() -> None:
    """Discard the rest of the output, because Python flushes it when it exits and would report the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
