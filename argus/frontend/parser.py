"""Parse a file's text to its surface tree. No part of the text is executed.

The file is cut into top-level blocks. Decorated functions and module-level constants go to the grammar; the rest of
the file is left to Python. If the grammar refuses a statement, the parser records the mistake and parses the function
again without the statement, so that all mistakes are reported together.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from argus.diagnostic import Diagnostic, SourceError
from argus.frontend import scan, tables
from argus.frontend.blocks import HEADERS, Block, bindings, imports, of_language
from argus.frontend.build import Builder
from argus.frontend.constructs import name_construct
from argus.frontend.linking import linked
from argus.frontend.outline import name_of, outline, reachable
from argus.frontend.surface import Foreign, Function, Module, ModuleConstant
from argus.source import SourceFile

MAX_DEPTH = 100
"""Deepest nesting of expressions and statements together."""

MAX_FUNCTION_WORDS = 40_000
"""Largest number of words in one function."""

MAX_FILE_WORDS = 120_000
"""Largest number of words in the functions that are read at a time."""

MAX_CONSTANTS = 5000
"""Largest number of constants of a file that are read at a time."""

MAX_REREAD_WORDS = 200_000
"""Largest number of words of a function that are read again, in total, to find further refused statements."""

_MAX_CONSTANT_TOKENS = 200


def parse(source: SourceFile, only: str = "") -> Module:
    """Return the surface tree of a file. Raises `SourceError` with every syntax error in it.

    The text may be a whole file, a part of one, or the indented lines of one function. `only` names one function to
    read, together with the helpers and constants that it can reach; the others are listed as `unread`.
    """
    whole = linked(source)
    module = _parse(replace(whole, around=None), only)
    return replace(module, around=whole.around) if whole.around else module


def functions(source: SourceFile) -> tuple[tuple[str, str], ...]:
    """Return the name and kind ("kernel" or "func") of a file's functions, without reading their bodies."""
    return tuple((name_of(block), kind) for block, (_, kind) in outline(replace(source, around=None)).functions)


@lru_cache(maxsize=64)
def _parse(source: SourceFile, only: str) -> Module:
    cut = outline(source)
    source = cut.source
    wanted = reachable(cut, [only]) if only in cut.names else None
    read = [f for f in cut.functions if wanted is None or name_of(f[0]) in wanted]
    unread = tuple((name_of(b), kind) for b, (_, kind) in cut.functions if wanted and name_of(b) not in wanted)
    diagnostics = list(cut.diagnostics) if wanted is None else []
    _insist_on_few_words(source, read)
    functions: list[Function] = []
    for block, decorator in read:
        function = _Reader(source, block, *decorator, diagnostics).function()
        functions.extend([function] if function is not None else [])
    constants: list[ModuleConstant] = []
    foreign: list[Foreign] = []
    for block in cut.rest:
        if block.header is not None:
            if wanted is not None and wanted.isdisjoint(t.text for line in block.lines for t in line.tokens):
                continue
            if len(constants) > MAX_CONSTANTS:
                message = f"`{source.path}` has more than {MAX_CONSTANTS} constants"
                raise SourceError(Diagnostic("unreadable-file", message, block.header.span(source), property="input",
                                             help="split the file"))  # fmt: skip
            constant = _constant(source, block.header)
            own = set() if constant is None else {constant.name}
            known = {c.name for c in constants} - own  # A name that other code binds too belongs to Python.
            constants.extend(ModuleConstant(t.text, None, t.span(source)) for t in bindings(block) if t.text in known)
            constants.extend([] if constant is None else [constant])
            foreign.extend(_foreign(source, block.header))
    if diagnostics:
        raise SourceError(*sorted(diagnostics, key=lambda d: (d.span.line, d.span.column)))
    return Module(source, tuple(functions), tuple(constants), tuple(foreign), cut.aliases, unread)


def _insist_on_few_words(source: SourceFile, read: Sequence[tuple[Block, tuple[scan.Line, str]]]) -> None:
    """Reject functions that would take long to read. The grammar reads about 30,000 words per second."""
    words = [sum(len(line.tokens) for line in block.lines) for block, _ in read]
    for (block, _), count in zip(read, words, strict=True):
        if count > MAX_FUNCTION_WORDS and block.header is not None:
            message = f"`{name_of(block)}` has {count} words, and a function has at most {MAX_FUNCTION_WORDS}"
            raise SourceError(Diagnostic("unreadable-file", message, block.header.span(source), property="input",
                                         help="write loops instead of repeated statements"))  # fmt: skip
    if sum(words) > MAX_FILE_WORDS and read[0][0].header is not None:
        message = f"the {len(read)} functions of `{source.path}` have {sum(words)} words, more than {MAX_FILE_WORDS}"
        first = name_of(read[0][0])
        raise SourceError(Diagnostic("unreadable-file", message, read[0][0].header.span(source), property="input",
                                     help=f"name one kernel, as in `FILE::{first}`, or split the file"))  # fmt: skip


# ---------------------------------------------------------------------------- top-level blocks


def _constant(source: SourceFile, header: scan.Line) -> ModuleConstant | None:
    """Parse the line if it is `NAME = value` or `NAME: annotation = value`."""
    tokens = header.tokens
    if len(tokens) < 2 or tokens[0].kind != "name" or tokens[1].text not in ("=", ":"):
        return None
    equals = next((i for i, t in enumerate(tokens) if t.text == "="), None)
    if equals is None or equals + 1 >= len(tokens):
        return None
    first, last = tokens[equals + 1], tokens[-1]
    span = header.span(source)
    if header.broken is not None or len(tokens) > _MAX_CONSTANT_TOKENS:
        return ModuleConstant(tokens[0].text, None, span)
    lines = list(source.lines[first.line - source.first_line : last.end_line - source.first_line + 1])
    lines[-1] = lines[-1][: last.end_column - 1]
    lines[0] = " " * (first.column - 1) + lines[0][first.column - 1 :]
    try:
        tree = _tree("\n".join(lines), "constant")
    except UnexpectedInput:
        return ModuleConstant(tokens[0].text, None, span)
    builder = Builder(source, first.line, 0)
    value = builder.expression(tree.children[0]) if _depth(tree)[0] <= MAX_DEPTH and tree.children[0] else None
    return ModuleConstant(tokens[0].text, None if builder.diagnostics else value, span)


def _foreign(source: SourceFile, header: scan.Line) -> Iterator[Foreign]:
    kinds = {"def": "a Python function", "class": "a Python class"}
    words = [t for t in header.tokens if t.text != "async"]
    if words and words[0].text in kinds and len(words) > 1:
        yield Foreign(words[1].text, kinds[words[0].text], header.span(source))
    for name, path in imports(header):
        if not of_language(path):
            yield Foreign(name, f"imported from `{path}`", header.span(source))


# ---------------------------------------------------------------------------- one function


_ALONE = Lock()
"""Held while parsing. The parser counts indentation as it goes, so only one thread may parse at a time."""


def _tree(text: str, start: str) -> Tree[Token]:
    with _ALONE:
        return _parser().parse(text, start=start)


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return tables.load(grammar) or tables.made_of(grammar)


class _Reader:
    """Reads one function block: notes each refused statement, replaces it by a harmless one, and reads the block again.
    """

    def __init__(
        self, source: SourceFile, block: Block, decorator: scan.Line, kind: str, diagnostics: list[Diagnostic]
    ) -> None:
        assert block.header is not None
        self.source = source
        self.diagnostics = diagnostics
        self.errors = 0
        self.refused: set[int] = set()
        self.base = decorator.indent
        self.lines = (decorator, block.header, *block.body)
        self.words = sum(len(line.tokens) for line in self.lines)
        self.kind = kind
        self.first_line = decorator.first.line
        last = self.lines[-1].last.end_line
        text = source.lines[self.first_line - source.first_line : last - source.first_line + 1]
        self.text = [line[self.base :] if line[: self.base].isspace() else line for line in text]
        for other in block.decorators:
            if other is not decorator and other.first.line > self.first_line:
                self._replace(other, "")

    def function(self) -> Function | None:
        """Parse a function, or return None if errors were noted."""
        indentation = self._indentation()
        for line in self.lines:
            broken = line.broken or _foreign_letters(self.source, line)
            if broken is not None:
                self._note(line, broken)
                self.refused.add(id(line))
        if indentation is not None:
            self.diagnostics.append(indentation)
            return None
        tree = self._tree()
        if tree is None:
            return None
        depth, deepest = _depth(tree)
        if depth > MAX_DEPTH:
            message = f"expressions or blocks are nested more than {MAX_DEPTH} deep"
            remedy = "bind parts of long expressions to names; move inner blocks to `@argus.func` helpers"
            span = self._line_at(self.first_line + deepest.meta.line - 1).span(self.source)
            self.diagnostics.append(Diagnostic("nesting-too-deep", message, span, help=remedy))
            return None
        builder = Builder(self.source, self.first_line, self.base)
        function = builder.function(tree, self.kind)
        self.diagnostics.extend(builder.diagnostics)
        return None if builder.diagnostics or self.errors else function

    def _tree(self) -> Tree[Token] | None:
        done = self.refused
        while True:
            try:
                return _tree("\n".join(self.text) + "\n", "function")
            except UnexpectedInput as refusal:
                line, at = self._locate(refusal)
                if id(line) in done:
                    if not self.errors:
                        self._note(line, name_construct(self.source, line, at))
                    return None
                done.add(id(line))
                self._note(line, name_construct(self.source, line, at))
                if len(done) * self.words > MAX_REREAD_WORDS:
                    return None

    def _locate(self, refusal: UnexpectedInput) -> tuple[scan.Line, scan.Token | None]:
        """Return the statement and the token at which the parser stopped. The token is None at the end of the
        statement."""
        number = self.first_line + refusal.line - 1
        column = refusal.column + self.base
        line = self._line_at(number)
        ended = isinstance(refusal, UnexpectedToken) and refusal.token.type in (
            "$END", "_NEWLINE", "_INDENT", "_DEDENT",
        )  # fmt: skip
        if ended and not isinstance(refusal, UnexpectedCharacters):
            return line, None
        at = next((t for t in line.tokens if (t.end_line, t.end_column) > (number, column)), None)
        return line, at

    def _line_at(self, number: int) -> scan.Line:
        return next((x for x in reversed(self.lines) if x.first.line <= number), self.lines[0])

    def _note(self, line: scan.Line, diagnostic: Diagnostic) -> None:
        """Keep the diagnostic. Its statement is replaced, and the replacement is never refused."""
        self.errors += 1
        self.diagnostics.append(diagnostic)
        header = self._has_body(line)
        match line.first.text:
            case "@":
                text = "@argus.kernel"
            case "def" if line is self.lines[1]:
                text = "def unreadable():" + ("" if header else " pass")
            case "elif" | "else" | "except" | "finally":
                text = "elif True:" if header else "elif True: pass"
            case _:
                text = "if True:" if header else "pass"
        self._replace(line, text)

    def _replace(self, line: scan.Line, text: str) -> None:
        start, end = line.first.line - self.first_line, line.last.end_line - self.first_line
        self.text[start] = " " * (line.first.column - 1 - self.base) + text if text else ""
        for index in range(start + 1, min(end + 1, len(self.text))):
            self.text[index] = ""

    def _has_body(self, line: scan.Line) -> bool:
        index = self.lines.index(line)
        return index + 1 < len(self.lines) and self.lines[index + 1].indent > line.indent

    def _indentation(self) -> Diagnostic | None:
        """Return the first indentation mistake. The rest of the function has no meaning after such a mistake."""
        levels = [self.base]
        margins = set[str]()
        for above, line in zip(self.lines, self.lines[1:], strict=False):
            margins |= set(self.source.line(line.first.line)[: line.indent])
            if {"\t", " "} <= margins:
                return self._misplaced(line, "the indentation mixes tabs and spaces", "use spaces only")
            if above.opens_block and line.indent <= levels[-1]:
                return self._misplaced(line, "an indented block is missing here", "indent this line, or write `pass`")
            if line.indent > levels[-1]:
                if above.first.text in HEADERS and not above.opens_block:
                    self._note(above, name_construct(self.source, above, None))
                elif not above.opens_block:
                    return self._misplaced(line, "this line is indented for no reason", "align it with the line above")
                levels.append(line.indent)
            while len(levels) > 1 and line.indent < levels[-1]:
                levels.pop()
            if line.indent != levels[-1]:
                return self._misplaced(
                    line, "the indentation matches no block above", "align it with the block that it belongs to"
                )
        if self.lines[-1].opens_block:
            return self._misplaced(self.lines[-1], "the block below this line is missing", "write it, or `pass`")
        return None

    def _misplaced(self, line: scan.Line, message: str, remedy: str) -> Diagnostic:
        return Diagnostic("bad-indentation", message, line.first.span(self.source), help=remedy)


def _foreign_letters(source: SourceFile, line: scan.Line) -> Diagnostic | None:
    """Return the error for a name that is not ASCII. Names become C++ names, and letters of different scripts may look
    alike."""
    for token in line.tokens:
        if token.kind == "name" and not token.text.isascii():
            letter = next(c for c in token.text if not c.isascii())
            called = unicodedata.name(letter, f"U+{ord(letter):04X}")
            message = f"the name `{token.text}` has the letter {letter!r} ({called})"
            remedy = "names in kernels are of the letters a to z and A to Z, digits and underscores"
            return Diagnostic("syntax-error", message, token.span(source), help=remedy)
    return None


def _depth(tree: Tree[Token]) -> tuple[int, Tree[Token]]:
    """Return the depth of the deepest node that has a position, and that node."""
    found, todo = (0, tree), [(1, tree)]
    while todo:
        depth, node = todo.pop()
        if depth > found[0] and not node.meta.empty:
            found = (depth, node)
        todo.extend((depth + 1, child) for child in node.children if isinstance(child, Tree))
    return found
