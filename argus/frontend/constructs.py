"""Python constructs outside the language, by name, each with its replacement."""

from __future__ import annotations

from argus.diagnostic import Diagnostic
from argus.frontend.scan import Line, Token
from argus.source import SourceFile, Span

_STATEMENTS: dict[str, tuple[str, str]] = {
    "while": ("a `while` loop", "write `for i in range(lo, hi):`; its bounds may be read from a tensor"),
    "try": ("exception handling", "nothing raises inside a kernel; guard the access with a mask or an `if`"),
    "except": ("exception handling", "nothing raises inside a kernel; guard the access with a mask or an `if`"),
    "finally": ("exception handling", "nothing raises inside a kernel; leave `finally` out"),
    "with": ("a `with` statement", "nothing needs closing inside a kernel; write its body directly"),
    "class": ("a class", "use tuples and `@argus.func` helpers"),
    "def": ("a nested function", "move it to the top level of the file, under `@argus.func`"),
    "import": ("an import inside a kernel", "import at the top of the file"),
    "from": ("an import inside a kernel", "import at the top of the file"),
    "global": ("a `global` statement", "module-level constants can be read without it, and nothing else is shared"),
    "nonlocal": ("a `nonlocal` statement", "pass the value as an argument and return the new one"),
    "del": ("a `del` statement", "leave the name alone: registers are reused by themselves"),
    "raise": ("a `raise` statement", "check constants with `assert`, sizes with `al.requires(...)`"),
    "yield": ("a generator", "return a tuple, or write the loop where it is used"),
    "async": ("an `async` construct", 'asynchronous copies are `al.copy(..., instruction="cp.async")`'),
    "await": ("`await`", "wait for asynchronous copies with `al.cp_async_wait(pending)`"),
    "break": ("`break`", "put the condition into the loop's bounds, or guard the rest of the body with `if`"),
    "continue": ("`continue`", "guard the rest of the body with `if`"),
    "match": ("a `match` statement", "write `if` and `elif`"),
    "print": ("a `print` statement", "store the value to a tensor and print it outside of the kernel"),
    "@": ("a decorated nested function", "move it to the top level of the file"),
}
_HEADERS = ("if", "elif", "else", "for", "def")


def name_construct(source: SourceFile, line: Line, at: Token | None) -> Diagnostic:
    """Diagnose a statement that the grammar refuses at token `at` (None: at the end of the statement)."""
    found = _statement(line, at) or _inside(line, at)
    if found is not None:
        token, what, remedy = found
        return Diagnostic("unsupported-syntax", f"{what} is not part of the language", token.span(source), help=remedy)
    if at is None:
        end = line.last
        span = Span(source, end.end_line, end.end_column, end.end_line, end.end_column + 1)
        if line.first.text in _HEADERS and line.last.text != ":":
            return Diagnostic("syntax-error", "a `:` is missing at the end of this line", span, help="add `:`")
        return Diagnostic(
            "syntax-error", "this statement ends too early", span, help=f"something must follow `{end.text}`"
        )
    return _unexpected(source, line, at)


def _statement(line: Line, at: Token | None) -> tuple[Token, str, str] | None:
    """Parse a statement that its first word identifies."""
    first = line.first
    if first.text in ("match", "print") and (at is None or at is first or at is not line.tokens[1]):
        return None  # The word is an ordinary name there.
    if first.text == "else" and at is first:
        return None
    if first.text in _STATEMENTS and first.kind in ("name", "op"):
        if first.text == "def" and (at is None or first.column == 1):
            return None
        return (first, *_STATEMENTS[first.text])
    return None


def _inside(line: Line, at: Token | None) -> tuple[Token, str, str] | None:
    """Parse a construct that starts somewhere within the statement."""
    depth = 0
    for token in line.tokens:
        if token.kind == "op":
            depth += (token.text in "([{") - (token.text in ")]}")
        found = _always(token, depth, line.first)
        if found is not None:
            return (token, *found)
    met = _when_met(line, at) if at is not None else None
    return (at, *met) if at is not None and met is not None else None


def _always(token: Token, depth: int, first: Token) -> tuple[str, str] | None:
    """Diagnose a construct that a token identifies wherever the token stands."""
    if token.kind == "string":
        prefix = token.text[: len(token.text) - len(token.text.lstrip("rRbBuUfF"))].lower()
        if "f" in prefix:
            return "an f-string", "write a plain string: messages are constant"
        if "b" in prefix:
            return "a bytes literal", "write a plain string"
    if token.kind == "name" and token.text == "for" and depth > 0:
        return "a comprehension", "write a `for` loop, or `al.static_range(...)` to unroll it"
    if token.kind == "name" and token.text in ("yield", "await", "async"):
        return _STATEMENTS[token.text]
    match token.text:
        case ":=":
            return "an assignment expression (`:=`)", "bind the name in a statement of its own"
        case "{":
            return "a dict or set display", "write `dict(name=value)` in a tag function, a tuple elsewhere"
        case "...":
            return "`...`", "write every index out: `a[i, :]`"
        case "->" if first.text != "def":
            return "`->`", "annotations stand in the function's header only"
        case _:
            return None


def _when_met(line: Line, token: Token) -> tuple[str, str] | None:
    """Diagnose a construct that starts at the token at which the grammar stopped."""
    before = _before(line, token)
    simple = line.first.text not in _HEADERS
    match token.text:
        case "lambda":
            return "a `lambda` outside of a call", "pass it directly: `al.tag(x, lambda i, j: (i, j))`"
        case "[":
            return "a list", "write a tuple: `(a, b)`"
        case "*" | "**":
            return "argument unpacking with `*`", "write every argument out"
        case "@":
            return "the matrix product `@`", "write `acc = al.mma(a, b, acc)`"
        case "=" if simple and sum(t.text == "=" for t in line.tokens) > 1:
            return "chained assignment", "assign each name in a statement of its own"
        case ":" if simple and before is line.first:
            return "an annotated assignment", "leave the annotation out"
        case "else" if line.first.text == "else":
            return "`else` without its `if`", "`for` has no `else` here; indent it like the `if` that it belongs to"
        case "/" if line.first.text == "def":
            return "a positional-only parameter", "leave the `/` out"
        case "not" | "in" | "is":
            return None
        case _ if token.kind == "number" and token.text[-1:] in "jJ":
            return "a complex number", "kernels compute with real numbers"
        case _ if token.kind == "name" and token.text in _STATEMENTS and token.text not in ("match", "print", "from"):
            return _STATEMENTS[token.text]
        case _:
            return None


def _before(line: Line, token: Token) -> Token | None:
    index = line.tokens.index(token)
    return line.tokens[index - 1] if index else None


def _unexpected(source: SourceFile, line: Line, at: Token) -> Diagnostic:
    before = _before(line, at)
    span = at.span(source)
    if at.text == "=" and line.first.text in ("if", "elif", "assert"):
        return Diagnostic("syntax-error", "`=` binds a name, it does not compare", span, help="write `==`")
    if before is not None and {before.kind, at.kind} <= {"name", "number", "string"}:
        return Diagnostic(
            "syntax-error",
            f"`{at.text}` cannot follow `{before.text}` directly",
            span,
            help="put an operator or a comma between them",
        )
    place = f"after `{before.text}`" if before is not None else "at the start of a statement"
    return Diagnostic(
        "syntax-error", f"`{at.text}` cannot stand {place}", span, help="complete or remove what stands there"
    )
