"""Places in messages by what stands there instead of by line numbers, which each edit of a file moves."""

from __future__ import annotations

import re
from collections.abc import Callable

_PLACE = re.compile(r"([\w/]+\.\w+):(\d+)(?=:\d)")
_EXCERPT = re.compile(r"^ +(-->.*\n) +\|\n *\d+ (\| .*\n) +(\| .*)$", re.MULTILINE)
"""The lines of a message that show a place; their margin is as wide as the line's number."""
_CALL = re.compile(r"^ +(= called from)", re.MULTILINE)


def quoted(message: str, text_of: Callable[[str], str]) -> str:
    """Return the message with a letter for the number of each line, and at its end what these lines are.

    `text_of(path)` is the text of a file. Before: `gemm.py:50:18`. After: `gemm.py:A:18`, and `A  staged = ...`.
    """
    letters: dict[tuple[str, int], str] = {}

    def lettered(found: re.Match[str]) -> str:
        key = found[1], int(found[2])
        return f"{found[1]}:{letters.setdefault(key, _letter(len(letters)))}"

    message = _PLACE.sub(lettered, _CALL.sub(r"  \1", _EXCERPT.sub(r"  \1   |\n   \2   \3", message)))
    lines = [f"  {letter}  {text_of(path).splitlines()[line - 1].strip()}" for (path, line), letter in letters.items()]
    return message + ("lines\n" + "\n".join(lines) + "\n" if lines else "")


def _letter(place: int) -> str:
    assert place < 26, "a message names more than 26 lines"
    return chr(ord("A") + place)
