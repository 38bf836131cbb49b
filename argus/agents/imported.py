"""What Python runs when it imports the file of a candidate. The compiler reads kernels and skips all else in a file.

Readers do import the best file. So a candidate adds nothing to the author's file that Python would run there: it may
add imports of the language, constants, and functions that Argus decorates. Python's own parser reads both texts,
because it decides about encodings and equal names. Nothing of them runs.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator

_DECORATORS = ("kernel", "func", "program")
_MODULES = ("argus", "argus.language")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv)
_SHOWN = 80


def foreign(author: str, text: str) -> str:
    """Say what Python would run of a candidate that the author's text does not have; "" if there is nothing."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode()).readline)
        if encoding != "utf-8":
            return f"it says that its encoding is {encoding}, so Python would read another text"
        theirs = ast.parse(author).body
        ours = ast.parse(text).body
        return _foreign(theirs, ours)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"Python cannot read it: {type(error).__name__}"


def _foreign(theirs: list[ast.stmt], ours: list[ast.stmt]) -> str:
    known = Counter(map(ast.dump, theirs))
    added = []
    for stmt in ours:
        said = ast.dump(stmt)
        if known[said]:
            known[said] -= 1
        else:
            added.append(stmt)
    for stmt in added:
        if not _inert(stmt):
            return f"Python would run `{_shown(stmt)}` when it imports the file (line {stmt.lineno})"
    before, after = (Counter(name for stmt in body for name in _bound(stmt)) for body in (theirs, ours))
    twice = next((name for name, times in after.items() if times > max(1, before[name])), "")
    return f"it binds `{twice}` more than once, and Python keeps the last" if twice else ""


def _shown(stmt: ast.stmt) -> str:
    lines = ast.unparse(stmt).strip().splitlines()
    body = next((n for n, line in enumerate(lines) if line.startswith(("def ", "async def ", "class "))), 0)
    text = " ".join(lines[: body + 1])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _bound(stmt: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds. To import the language again changes nothing."""
    if isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield stmt.name
        return
    for part in ast.walk(stmt):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            yield part.id
        elif isinstance(part, ast.alias) and part.name not in _MODULES[: 1 if part.asname is None else 0]:
            yield part.asname or part.name.partition(".")[0]


def _inert(stmt: ast.stmt) -> bool:
    """Return True if Python runs nothing but Argus' own code for a statement."""
    match stmt:
        case ast.Expr(ast.Constant()):
            return True
        case ast.Import(names):
            return all(alias.name in _MODULES for alias in names)
        case ast.ImportFrom(module, names, 0):
            plain = all(not alias.name.startswith(("_", "*")) for alias in names)
            return module == "__future__" or (plain and (module in _MODULES or _ships(module)))
        case ast.Assign([ast.Name()], value):
            return _constant(value)
        case ast.FunctionDef(decorator_list=[decorator], returns=None):
            return _decorates(decorator) and _signature(stmt.args)
        case _:
            return False


def _ships(module: str | None) -> bool:
    return module is not None and (module == "argus.kernels" or module.startswith("argus.kernels."))


def _decorates(decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(function, [], keywords):
            return _decorates(function) and all(k.arg is not None and _constant(k.value) for k in keywords)
        case ast.Attribute(ast.Name("argus"), name) | ast.Name(name):
            return name in _DECORATORS
        case _:
            return False


def _signature(arguments: ast.arguments) -> bool:
    """Return True if defaults are constants, and annotations name types."""
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    defaults = [d for d in (*arguments.defaults, *arguments.kw_defaults) if d is not None]
    simple = arguments.vararg is None and arguments.kwarg is None
    return simple and all(map(_constant, defaults)) and all(a.annotation is None or _type(a.annotation) for a in every)


def _constant(value: ast.expr) -> bool:
    """Return True for constants, for arithmetic of numbers and names, for tuples of these, and for `float("inf")`."""
    match value:
        case ast.Constant() | ast.Attribute(ast.Name(), attr=_) if not _hidden(value):
            return True
        case ast.Tuple(parts):
            return all(map(_constant, parts))
        case ast.Call(ast.Name("float"), [ast.Constant(str())], []):
            return True
        case _:
            return _number(value)


def _number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(int() | float()) | ast.Name() | ast.Call(ast.Name("float"), [ast.Constant(str())], []):
            return True
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            return _number(operand)
        case ast.BinOp(left, op, right):
            return isinstance(op, _ARITHMETIC) and _number(left) and _number(right)
        case _:
            return False


def _type(annotation: ast.expr) -> bool:
    """Return True if an annotation names a type: `al.Tensor[al.float32, "M N"] | None`, for example."""
    match annotation:
        case ast.Constant() | ast.Name():
            return True
        case ast.Attribute(ast.Name()):
            return not _hidden(annotation)
        case ast.Subscript(value, part):
            return _type(value) and _type(part)
        case ast.Tuple(parts):
            return all(map(_type, parts))
        case ast.BinOp(left, ast.BitOr(), right):
            return _type(left) and _type(right)
        case ast.Call(ast.Attribute(ast.Name()) as function, values, keywords):
            return not _hidden(function) and all(map(_constant, [*values, *(k.value for k in keywords)]))
        case _:
            return False


def _hidden(value: ast.expr) -> bool:
    """Return True for attributes that begin with an underscore: a way to what a module keeps to itself."""
    return isinstance(value, ast.Attribute) and value.attr.startswith("_")
