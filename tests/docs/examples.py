"""Fenced blocks of the documentation, and what their info strings ask for.

```python rejected [--target T ...]   a kernel file that `argus check` refuses; the next ```text block quotes it
```python warned                      the same, proved but with a warning
```python accepted [--target T ...]   a kernel file that is proved
```python raises, ```python runs      a program; the first ends with an ArgusError that the text block quotes
```sh rejected, ```sh accepted        `argus ...` commands, run in an empty folder
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from argus.cli import main
from argus.diagnostic import ArgusError
from argus.render import diagnostics_text

_BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = ("rejected", "warned", "accepted", "raises", "runs")


@dataclass(frozen=True)
class Example:
    """A block that is executed. `quoted` are the lines of the message that the page shows."""

    language: str
    kind: str
    arguments: tuple[str, ...]
    body: str
    line: int
    quoted: tuple[str, ...]


def examples(page: Path) -> list[Example]:
    """All executed blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Example] = []
    for match in _BLOCK.finditer(text):
        language, _, rest = match["info"].partition(" ")
        words = shlex.split(rest)
        line = text.count("\n", 0, match.start()) + 1
        if words and words[0] in KINDS:
            found.append(Example(language, words[0], tuple(words[1:]), match["body"], line, ()))
        elif language == "text" and found and not found[-1].quoted:
            last = found[-1]
            quoted = tuple(line.strip() for line in match["body"].splitlines() if line.strip() not in ("", "..."))
            found[-1] = Example(last.language, last.kind, last.arguments, last.body, last.line, quoted)
    return found


def execute(example: Example, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and output (both streams) of an example; 2 for an ArgusError."""
    if example.language == "sh":
        codes = [main(shlex.split(line)[1:]) for line in example.body.splitlines() if line.startswith("argus ")]
        code = max(codes)
    elif example.kind in ("raises", "runs"):
        code = _program(example.body, folder / "example.py")
    else:
        path = folder / "example.py"
        path.write_text(example.body, encoding="utf-8")
        code = main(["check", str(path), *example.arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def _program(body: str, path: Path) -> int:
    path.write_text(body, encoding="utf-8")
    try:
        exec(compile(body, str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})
    except ArgusError as error:
        print(diagnostics_text(error.diagnostics).plain)
        return 2
    return 0


def missing(example: Example, output: str) -> list[str]:
    """Quoted lines that the output does not have."""
    lines = {line.strip() for line in output.splitlines()}
    return [line for line in example.quoted if not any(line in whole for whole in lines)]
