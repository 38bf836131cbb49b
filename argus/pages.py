"""The files that ship with Argus: a page for every error code, and the example kernels."""

from __future__ import annotations

import difflib
from pathlib import Path

from argus.diagnostic import ArgusError, Diagnostic

# In a checkout these folders are links to docs and examples; an installed package contains copies.
_ERRORS = Path(__file__).parent / "docs" / "errors"
_EXAMPLES = Path(__file__).parent / "examples"


def codes() -> tuple[str, ...]:
    """Return all documented error codes, sorted."""
    return tuple(sorted(page.stem for page in _ERRORS.glob("*.md")))


def explanation(code: str) -> str:
    """Return the Markdown page of an error code. Raises `ArgusError` (code `unknown-code`) if there is none."""
    if code not in codes():
        near = difflib.get_close_matches(code, codes(), n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "`argus explain` lists all codes"
        raise ArgusError(Diagnostic("unknown-code", f"`{code}` is not an error code of Argus", help=hint))
    return (_ERRORS / f"{code}.md").read_text(encoding="utf-8")


def example(name: str) -> Path:
    """Return the example kernel file `name`, such as "gemm.py" or "rejected/gemm.py"."""
    return _EXAMPLES / name
