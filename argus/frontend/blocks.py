"""Top-level blocks of a Python file: the lines of each decorated function, and the meaning of imports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from argus.frontend.scan import Line, Token, scan
from argus.source import SourceFile

DEFAULT_ALIASES = (("argus", "argus"), ("al", "argus.language"))
"""Names that mean the language in a text that does not import it."""


def of_language(path: str) -> bool:
    """Return True if a dotted path belongs to the language: `argus`, its decorators, and the names in `argus.language`.
    """
    decorators = (f"argus.{name}" for name in ("kernel", "program", "func", "autotune"))
    return path in ("argus", "argus.language", *decorators) or path.startswith("argus.language.")


HEADERS = ("if", "elif", "else", "for", "while", "with", "try", "except", "finally", "def", "class")
"""First words of Python's statements that end with a colon."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block: decorator lines, the line below them (None at the end of a file), and the lines indented under that
    line."""

    decorators: tuple[Line, ...]
    header: Line | None
    body: tuple[Line, ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines of the block, in order."""
        return (*self.decorators, *([] if self.header is None else [self.header]), *self.body)


def blocks(lines: tuple[Line, ...]) -> Iterator[Block]:
    """Yield the top-level blocks of a file. An indented line without a header above it starts a block, as in a function
    cut out of a file."""
    decorators: list[Line] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if line.first.text == "@":
            decorators.append(line)
            continue
        start = index
        owns = line.opens_block or decorators
        while owns and index < len(lines) and lines[index].indent > line.indent:
            index += 1
        yield Block(tuple(decorators), line, lines[start:index])
        decorators = []
    if decorators:
        yield Block(tuple(decorators), None, ())


def dotted(tokens: Sequence[Token]) -> str:
    """Return the dotted name that `tokens` start with."""
    text = ""
    for token in tokens:
        if token.kind != "name" and token.text != ".":
            break
        text += token.text
    return text


def imports(line: Line) -> Iterator[tuple[str, str]]:
    """Yield the pairs (name, imported path) of an import statement of one line."""
    if line.first.text not in ("import", "from"):
        return
    words = [t.text for t in line.tokens if t.text not in "()"]
    package = ""
    if line.first.text == "from":
        if "import" not in words:
            return
        at = words.index("import")
        package = "".join(words[1:at])
        package += "" if set(package) == {"."} else "."
        words = words[at:]
    for clause in " ".join(words[1:]).split(","):
        path, _, name = clause.strip().partition(" as ")
        path, name = path.replace(" ", ""), name.strip()
        if path:
            yield (name or path.split(".")[0], package + path if name or package else path.split(".")[0])


def bindings(block: Block) -> Iterator[Token]:
    """Yield the names that a top-level block of Python may bind in its module, including those bound in branches, in
    loops, by several targets, or through `global` in functions. The result may contain names that are never bound."""
    inner: int | None = None  # Lines that are indented further belong to a nested function or class.
    for line in block.lines:
        words = [t for t in line.tokens if t.text != "async"]
        if inner is not None and line.indent > inner:
            yield from (t for t in words[1:] if words[0].text == "global" and t.kind == "name")
            continue
        inner = line.indent if words and words[0].text in ("def", "class") else None
        for statement in _statements(words):
            yield from _bound(statement)


def _statements(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the parts of a line between semicolons, and the part behind the colon of a header."""
    start, depth = 0, 0
    for i, token in enumerate(tokens):
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        header = token.text == ":" and tokens[start].text in HEADERS
        if depth == 0 and (token.text == ";" or header):
            yield tokens[start:i]
            start = i + 1
    yield tokens[start:]


def _bound(tokens: list[Token]) -> Iterator[Token]:
    texts = [t.text for t in tokens]
    match texts:
        case ["def" | "class", _, *_]:
            yield tokens[1]
        case ["for", *_] if "in" in texts:
            yield from _names(tokens[1 : texts.index("in")])
        case ["del", *_]:
            yield from _names(tokens[1:])
        case ["import" | "from", *_]:
            yield from _names(tokens[texts.index("import") + 1 :])
        case _:
            yield from _assigned(tokens)
    yield from (after for word, after in pairwise(tokens) if word.text == "as" and after.kind == "name")
    yield from (name for name, sign in pairwise(tokens) if sign.text == ":=" and name.kind == "name")


def _assigned(tokens: list[Token]) -> Iterator[Token]:
    """Yield the targets of an assignment: `a = b = c`, `a, b = c`, `a += b`, `a: b = c`."""
    depth, start = 0, 0
    for i, token in enumerate(tokens):
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if depth == 0 and token.kind == "op" and token.text.endswith("=") and token.text not in _COMPARISONS:
            yield from _names(tokens[start:i])
            start = i + 1


_COMPARISONS = ("==", "!=", "<=", ">=", ":=")


def _names(tokens: list[Token]) -> Iterator[Token]:
    """Yield the plain names among the tokens of a target.

    Left out are attributes (`b` in `a.b`), names before `.`, `[` or `(`, and everything inside such brackets.
    """
    depth = 0
    for i, token in enumerate(tokens):
        before, after = tokens[i - 1] if i else None, tokens[i + 1].text if i + 1 < len(tokens) else ""
        applied = before is not None and (before.kind == "name" or before.text in (")", "]"))
        if token.text in ("(", "[", "{") and (depth or applied):
            depth += 1
        elif token.text in (")", "]", "}") and depth:
            depth -= 1
        elif token.kind == "name" and not depth and after not in (".", "[", "(") and getattr(before, "text", "") != ".":
            yield token


def resolve(name: str, aliases: dict[str, str]) -> str:
    """Return a dotted name in which the imported path replaces the first part."""
    head, dot, rest = name.partition(".")
    return aliases.get(head, head) + dot + rest


def cut_out(source: SourceFile, name: str, first: int, count: int) -> SourceFile:
    """Return a file as the function `name` in lines `first` to `first + count - 1` sees it. The function may be nested
    in other Python code, or share its name with other functions.

    Line numbers stay the same. The text around the function is blank. Other kernels are blank too, unless the function
    is a program, so that the file has only one kernel.
    """
    text = source.text.split("\n")
    keep = set(range(first, first + count))
    of_program = re.match(r"\s*@(\w+\.)*program\b", text[first - source.first_line]) is not None
    for block in blocks(scan(source)):
        lines = block.lines
        own = range(lines[0].first.line, lines[-1].last.end_line + 1)
        kinds = {dotted(d.tokens[1:]).rpartition(".")[2] for d in block.decorators}
        helper = "func" in kinds or (of_program and "kernel" in kinds)
        called = block.header is not None and [t.text for t in block.header.tokens[1:2]] == [name]
        other = helper and not called if block.decorators else keep.isdisjoint(own)
        if not other or lines[0].indent:
            for number in own:
                if number not in keep:
                    text[number - source.first_line] = ""
    text[first - 1 - source.first_line] = "pass"  # otherwise the function would become the body of the line above it
    return SourceFile(source.path, "\n".join(text), source.first_line)
