"""Hover texts for the word under the cursor: the layout of a tile, and the lowered form of a line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence

from argus import language
from argus.ir.nodes import Fragment, Kernel, Shared, Stmt
from argus.ir.text import print_stmt
from argus.ir.visit import walk
from argus.source import SourceFile

_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?")
_LONGEST = 12
"""Largest number of statements that a hover shows."""


def hover(source: SourceFile, kernels: Sequence[Kernel], line: int, column: int) -> str:
    """Return Markdown about the word at a line and column (from 1) and about the lowered form of its line, or "" for
    nothing."""
    parts: list[str] = []
    word = _word(source.line(line), column)
    if word.startswith("al."):
        parts += _function(word.removeprefix("al."))
    for kernel in kernels:
        if kernel.span.known and _owns(kernel, line):
            parts += [*_objects(kernel, word), *_lowered(kernel, line)]
    return "\n\n".join(parts)


def _word(text: str, column: int) -> str:
    return next((m[0] for m in _WORD.finditer(text) if m.start() < column <= m.end() + 1), "")


def _function(name: str) -> Iterator[str]:
    function = getattr(language, name, None)
    if inspect.isfunction(function) and name in language.__all__:
        signature = str(inspect.signature(function)).replace("'", "")
        yield f"```python\nal.{name}{signature}\n```"
        yield inspect.getdoc(function) or ""


def _owns(kernel: Kernel, line: int) -> bool:
    """Return True if a line belongs to a kernel: to its header, or to a statement that was made from it."""
    last = max((_last(s) for s in walk(kernel.body)), default=kernel.span.line)
    return kernel.span.line <= line <= max(last, kernel.span.line)


def _last(stmt: Stmt) -> int:
    return max(stmt.span.end_line, stmt.span.line)


def _objects(kernel: Kernel, word: str) -> Iterator[str]:
    """Return type, shape and layout of the tile or tensor that a word names."""
    for tensor in kernel.tensors:
        if tensor.name == word:
            yield f"`{word}`: tensor of {tensor.dtype}, aligned to {tensor.alignment} bytes"
    tiles: tuple[Shared | Fragment, ...] = (*kernel.shared, *kernel.fragments)
    for tile in tiles:
        if tile.name == word:
            where = "shared memory" if isinstance(tile, Shared) else "registers"
            shape = "×".join(map(str, tile.shape)) or "one value"
            yield f"`{word}`: {shape} of {tile.dtype} in {where}, layout `{tile.layout}`"


def _lowered(kernel: Kernel, line: int) -> Iterator[str]:
    """Return the explicit statements that a line became."""
    mine = [s for s in walk(kernel.body) if s.span.line <= line <= _last(s)]
    shown = [print_stmt(s, kernel).split("\n", 1)[0] for s in mine]
    if shown:
        more = f"\n… {len(shown) - _LONGEST} more" if len(shown) > _LONGEST else ""
        text = "\n".join(shown[:_LONGEST])
        yield f"`{kernel.name}` on {kernel.target} does here:\n\n```\n{text}{more}\n```"
