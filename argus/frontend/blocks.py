"""Top-level blocks of a Python file: which lines belong to a decorated function, and what imports mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from argus.frontend.scan import Line, Token, scan
from argus.source import SourceFile

DEFAULT_ALIASES = (("argus", "argus"), ("al", "argus.language"))
"""Names that mean the language where a text does not import it."""


@dataclass(frozen=True, slots=True)
class Block:
    """Decorator lines, the line below them (None at the end of a file), and the lines indented under it."""

    decorators: tuple[Line, ...]
    header: Line | None
    body: tuple[Line, ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """All of its lines, in order."""
        return (*self.decorators, *([] if self.header is None else [self.header]), *self.body)


def blocks(lines: tuple[Line, ...]) -> Iterator[Block]:
    """The blocks of a file. An indented line that no header owns starts one, as in a function cut out of a file."""
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
    """The dotted name that `tokens` start with."""
    text = ""
    for token in tokens:
        if token.kind != "name" and token.text != ".":
            break
        text += token.text
    return text


def imports(line: Line) -> Iterator[tuple[str, str]]:
    """(name, what it stands for) of an import statement of one line."""
    if line.first.text not in ("import", "from"):
        return
    words = [t.text for t in line.tokens if t.text not in "()"]
    package = ""
    if line.first.text == "from":
        if "import" not in words:
            return
        at = words.index("import")
        package = "".join(words[1:at]) + "."
        words = words[at:]
    for clause in " ".join(words[1:]).split(","):
        path, _, name = clause.strip().partition(" as ")
        path, name = path.replace(" ", ""), name.strip()
        if path:
            yield (name or path.split(".")[0], package + path if name or package else path.split(".")[0])


def resolve(name: str, aliases: dict[str, str]) -> str:
    """A dotted name with its first part replaced by what an import binds it to."""
    head, dot, rest = name.partition(".")
    return aliases.get(head, head) + dot + rest


def cut_out(source: SourceFile, first: int, count: int) -> SourceFile:
    """A file as seen by the function in its lines `first` to `first + count - 1`, which is nested in other Python.

    Line numbers stay. Imports, constants and helpers at top level stay; other Python is blank, and so are
    kernels, so that the function is the file's only one.
    """
    text = source.text.split("\n")
    keep = set(range(first, first + count))
    for block in blocks(scan(source)):
        lines = block.lines
        last = lines[-1].last.end_line
        helper = any(dotted(d.tokens[1:]).rpartition(".")[2] == "func" for d in block.decorators)
        simple = block.header is not None and not block.header.opens_block and not block.decorators
        if not (helper or simple) or lines[0].indent:
            for number in range(lines[0].first.line, last + 1):
                if number not in keep:
                    text[number - source.first_line] = ""
    text[first - 1 - source.first_line] = "pass"  # the function is not the body of what stands above it
    return SourceFile(source.path, "\n".join(text), source.first_line)
