"""Cut a file into top-level blocks: functions of the language, and other Python code. The grammar is not used, so
cutting is fast."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from argus.diagnostic import Diagnostic, SourceError
from argus.frontend import scan
from argus.frontend.blocks import DEFAULT_ALIASES, Block, bindings, blocks, dotted, imports, resolve
from argus.source import SourceFile

DECORATORS = ("kernel", "program", "func", "autotune")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"\w+")
_PAGE_BREAK = re.compile(r"^[ \t]*\f", re.MULTILINE)
"""A form feed at the beginning of a line. Indentation after it counts from zero."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A file cut into blocks. Each of `functions` has its decorator's line and kind; `rest` is the other Python code.
    """

    source: SourceFile
    functions: tuple[tuple[Block, tuple[scan.Line, str]], ...]
    rest: tuple[Block, ...]
    aliases: tuple[tuple[str, str], ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def names(self) -> set[str]:
        """The names of the file's functions and constants."""
        own = {name_of(block) for block, _ in self.functions}
        return own.union(token.text for block in self.rest for token in bindings(block))


@lru_cache(maxsize=64)
def outline(source: SourceFile) -> Outline:
    """Cut a file into blocks. Raises `SourceError` if its contents are not text."""
    if _SURROGATE.search(source.text):
        raise SourceError(Diagnostic("unreadable-file", f"`{source.path}` is not UTF-8 text", property="input",
                                     help="the text holds half of a character (a surrogate): remove it"))  # fmt: skip
    text = _PAGE_BREAK.sub("", source.text.replace("\r\n", "\n").replace("\r", "\n"))
    if text != source.text:
        source = SourceFile(source.path, text, source.first_line)
    lines = scan.scan(source)
    aliases = (*DEFAULT_ALIASES, *(a for line in lines for a in imports(line)))
    names = dict(aliases)
    diagnostics: list[Diagnostic] = []
    found: list[tuple[Block, tuple[scan.Line, str]]] = []
    rest: list[Block] = []
    for block in blocks(lines):
        decorator = _argus_decorator(source, block, names, diagnostics)
        if decorator is None:
            rest.append(block)
        else:
            found.append((block, decorator))
    return Outline(source, tuple(found), tuple(rest), aliases, tuple(diagnostics))


def name_of(block: Block) -> str:
    """Return the name of a function's block."""
    tokens = block.header.tokens if block.header is not None else ()
    return tokens[1].text if len(tokens) > 1 else ""


def reachable(outline: Outline, only: Iterable[str]) -> set[str]:
    """Return every word that the functions and constants in `only` may use: the words of their text, and of the
    functions and constants that these words name."""
    text: dict[str, list[Block]] = {}
    for block, _ in outline.functions:
        text.setdefault(name_of(block), []).append(block)
    for block in outline.rest:
        for token in bindings(block):
            text.setdefault(token.text, []).append(block)
    found, todo = set(only), [*only]
    while todo:
        for block in text.get(todo.pop(), ()):
            words = {word for line in block.lines for token in line.tokens for word in _WORD.findall(token.text)}
            todo.extend(words - found)
            found |= words
    return found


def _argus_decorator(
    source: SourceFile, block: Block, names: dict[str, str], diagnostics: list[Diagnostic]
) -> tuple[scan.Line, str] | None:
    """Find the line with the language's decorator and its kind, or None. Other decorators are checked."""
    found: tuple[scan.Line, str] | None = None
    strangers: list[scan.Line] = []
    for line in block.decorators:
        package, _, name = resolve(dotted(line.tokens[1:]), names).rpartition(".")
        ours = package.split(".")[0] == "argus"
        if ours and name in ("kernel", "program", "func"):
            if found is not None:
                diagnostics.append(_bad_decorator(source, line, "a second Argus decorator", "keep one of the two"))
            found = (line, name)
        elif ours and name not in DECORATORS:
            near = difflib.get_close_matches(name, DECORATORS, 1)
            remedy = f"did you mean `@argus.{near[0]}`?" if near else "write `@argus.kernel` or `@argus.func`"
            diagnostics.append(_bad_decorator(source, line, f"there is no decorator `argus.{name}`", remedy))
        elif not ours:
            strangers.append(line)
    if found is not None:
        for line in strangers:
            message = f"the decorator `{dotted(line.tokens[1:])}` does not apply to kernels"
            diagnostics.append(_bad_decorator(source, line, message, "remove it"))
        if block.header is None or block.header.first.text != "def":
            message, remedy = "no function follows this decorator", "write `def name(...):` below it"
            if block.header is not None and block.header.first.text in ("async", "class"):
                message = f"`{block.header.first.text}` follows this decorator, which is for plain functions"
            diagnostics.append(_bad_decorator(source, found[0], message, remedy))
            return None
    return found


def _bad_decorator(source: SourceFile, line: scan.Line, message: str, remedy: str) -> Diagnostic:
    return Diagnostic("bad-decorator", message, line.span(source), help=remedy)
