"""Files that Python itself can read."""

from __future__ import annotations

import ast
import platform
import warnings

from argus.diagnostic import Diagnostic, SourceError
from argus.source import SourceFile, Span


def insist_on_python(source: SourceFile) -> None:
    """Raise `SourceError` for a file that Python cannot read, because its kernels cannot be imported.

    Nothing of the file is run. The language's own limits apply to a file that is too deeply nested for Python's
    reader.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source.text.removeprefix("\ufeff"), source.path)
    except SyntaxError as error:
        line, column = error.lineno or 1, max(1, error.offset or 1)
        end = error.end_offset or 0
        same = error.end_lineno == error.lineno and end > column
        span = Span(source, line, column, line, end if same else column + 1)
        message = f"Python {platform.python_version()} cannot read this file: {error.msg}"
        help = "correct the text, or check the file with the release of Python that is to import it"
        raise SourceError(Diagnostic("syntax-error", message, span, property="input", help=help)) from None
    except (ValueError, RecursionError, MemoryError):
        return
