"""What Python runs when it imports the file of a candidate. The compiler reads kernels and skips all else in a file.

Readers do import the best file. So a candidate adds nothing to the author's file that Python would run there: it may
add imports of the language and of helpers that ship, constants, and functions that Argus decorates. What a name stands
for is followed, because `argus.kernel` decorates only if `argus` is this package. Python's own parser reads both texts,
because it decides about encodings and equal names. Nothing of them runs.
"""

from __future__ import annotations

import ast
import builtins
import io
import operator
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from argus import language

_DECORATORS = ("kernel", "func", "program")
_OURS = {("argus", name) for name in (*_DECORATORS, "language")}
_LANGUAGE = "argus.language"
Number = int | float
_RESERVED = frozenset({"argus", *_DECORATORS, *dir(builtins)})
"""Names that a candidate may not give another meaning: the author's Python may use them, and this module reads them."""

_KERNELS = Path(__file__).parents[1] / "kernels"
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_SHOWN = 80


def foreign(author: str, text: str) -> str:
    """Say what Python would run of a candidate that the author's text does not have; "" if there is nothing."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode()).readline)
        if encoding != "utf-8":
            return f"it says that its encoding is {encoding}, so Python would read another text"
        theirs = ast.parse(author).body
        ours = ast.parse(text).body
        compile(text, "<candidate>", "exec", dont_inherit=True)  # finds what the grammar alone admits; runs nothing
        return _foreign(theirs, ours)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"Python cannot read it: {type(error).__name__}"


def _foreign(theirs: list[ast.stmt], ours: list[ast.stmt]) -> str:
    known = Counter(map(ast.dump, theirs))
    seen = _Names(frozenset(name for stmt in theirs for name in _bound(stmt)))
    for stmt in ours:
        said = ast.dump(stmt)
        if known[said]:
            known[said] -= 1
        elif not _inert(stmt, seen):
            return f"Python would run `{_shown(stmt)}` when it imports the file (line {stmt.lineno})"
        seen.note(stmt)
    before, after = (Counter(name for stmt in body for name in _bound(stmt)) for body in (theirs, ours))
    twice = next((name for name, times in after.items() if times > max(1, before[name])), "")
    return f"it binds `{twice}` more than once, and Python keeps the last" if twice else ""


@dataclass
class _Names:
    """What names stand for at one place of a file: this package, the language's module, decorators, and numbers.

    `authors`: the names that the author's text binds, to which a candidate may give another body.
    """

    authors: frozenset[str] = frozenset()
    packages: set[str] = field(default_factory=set)
    language: set[str] = field(default_factory=set)
    decorators: set[str] = field(default_factory=set)
    numbers: dict[str, Number] = field(default_factory=dict)

    def free(self, name: str) -> bool:
        """Return True if a candidate may bind a name."""
        return name in self.authors or name not in _RESERVED

    def note(self, stmt: ast.stmt) -> None:
        """Take note of what a statement binds."""
        for name in _bound(stmt):
            for known in (self.packages, self.language, self.decorators):
                known.discard(name)
            self.numbers.pop(name, None)
        match stmt:
            case ast.Import(names):
                self.packages |= {a.asname or "argus" for a in names if a.name == "argus"}
                self.packages |= {"argus" for a in names if a.name == _LANGUAGE and a.asname is None}
                self.language |= {a.asname for a in names if a.name == _LANGUAGE and a.asname is not None}
            case ast.ImportFrom("argus", names, 0):
                self.language |= {a.asname or a.name for a in names if a.name == "language"}
                self.decorators |= {a.asname or a.name for a in names if a.name in _DECORATORS}
            case ast.Assign([ast.Name(name)], value):
                number = _number(value, self)
                self.numbers |= {} if number is None else {name: number}


def _shown(stmt: ast.stmt) -> str:
    lines = ast.unparse(stmt).strip().splitlines()
    body = next((n for n, line in enumerate(lines) if line.startswith(("def ", "async def ", "class "))), 0)
    text = " ".join(lines[: body + 1])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _bound(stmt: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds, except those of `import argus` and `import argus.language`."""
    if isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield stmt.name
        return
    for part in ast.walk(stmt):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            yield part.id
        elif isinstance(part, ast.alias) and (part.name, part.asname) not in (("argus", None), (_LANGUAGE, None)):
            yield part.asname or part.name.partition(".")[0]


def _inert(stmt: ast.stmt, seen: _Names) -> bool:
    """Return True if Python runs nothing but Argus' own code for a statement, and the statement hides no name."""
    match stmt:
        case ast.Expr(ast.Constant()):
            return True
        case ast.Import(names):
            return all(a.name in ("argus", _LANGUAGE) and _keeps(a, seen) for a in names)
        case ast.ImportFrom(str() as module, names, 0):
            return all(_offered(module, a.name) and _keeps(a, seen) for a in names)
        case ast.Assign([ast.Name(name)], value):
            return seen.free(name) and _constant(value, seen)
        case ast.FunctionDef(name=name, decorator_list=[decorator], returns=None):
            plain = seen.free(name) and not getattr(stmt, "type_params", ())
            return plain and _decorates(decorator, seen) and _signature(stmt.args, seen)
        case _:
            return False


def _keeps(imported: ast.alias, seen: _Names) -> bool:
    """Return True if an import gives no reserved name another meaning."""
    name = imported.asname or imported.name.partition(".")[0]
    return seen.free(name) or (name in ("argus", *_DECORATORS) and imported.name in (name, f"{name}.language"))


def _offered(module: str, name: str) -> bool:
    """Return True for what a candidate may import: words of the language, and helpers and constants that ship."""
    if module == "__future__":
        return name == "annotations"
    return (module, name) in _OURS or (module == _LANGUAGE and name in language.__all__) or name in _shipped(module)


@lru_cache(maxsize=64)
def _shipped(module: str) -> frozenset[str]:
    """Return the functions and constants that a file of `argus.kernels` defines, and none that it imports."""
    package, _, name = module.rpartition(".")
    if package != "argus.kernels" or not name.isidentifier():
        return frozenset()
    try:
        body = ast.parse((_KERNELS / f"{name}.py").read_text(encoding="utf-8")).body
    except OSError:
        return frozenset()
    functions = {stmt.name for stmt in body if isinstance(stmt, ast.FunctionDef)}
    found, seen = functions, _Names()
    for stmt in body:
        seen.note(stmt)
    return frozenset(name for name in found | set(seen.numbers) if not name.startswith("_"))


def _decorates(decorator: ast.expr, seen: _Names) -> bool:
    match decorator:
        case ast.Call(function, [], keywords):
            return _decorates(function, seen) and all(k.arg is not None and _constant(k.value, seen) for k in keywords)
        case ast.Attribute(ast.Name(package), name):
            return package in seen.packages and name in _DECORATORS
        case ast.Name(name):
            return name in seen.decorators
        case _:
            return False


def _signature(arguments: ast.arguments, seen: _Names) -> bool:
    """Return True if defaults are constants, and annotations name types."""
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    defaults = [d for d in (*arguments.defaults, *arguments.kw_defaults) if d is not None]
    plain = arguments.vararg is None and arguments.kwarg is None and all(_constant(d, seen) for d in defaults)
    return plain and all(a.annotation is None or _type(a.annotation, seen) for a in every)


def _constant(value: ast.expr, seen: _Names) -> bool:
    """Return True for constants, names, words of the language, arithmetic of numbers, and tuples of these."""
    match value:
        case ast.Constant() | ast.Name():
            return True
        case ast.Tuple(parts):
            return all(_constant(part, seen) for part in parts)
        case _:
            return _word(value, seen) or _number(value, seen) is not None


def _number(value: ast.expr, seen: _Names) -> Number | None:
    """Return the value of a number: a constant, a name of one, `float("inf")`, or arithmetic of these; else None."""
    match value:
        case ast.Constant(bool()):
            return None
        case ast.Constant(int() | float() as number):
            return number
        case ast.Name(name):
            return seen.numbers.get(name)
        case ast.Call(ast.Name("float"), [ast.Constant(str() as text)], []):
            return float(text)
        case ast.UnaryOp(ast.USub() | ast.UAdd() as op, operand):
            of = _number(operand, seen)
            return None if of is None else -of if isinstance(op, ast.USub) else of
        case ast.BinOp(left, op, right):
            return _computed(op, _number(left, seen), _number(right, seen))
        case _:
            return None


def _computed(op: ast.operator, left: Number | None, right: Number | None) -> Number | None:
    """Return what Python computes of two numbers; None for other operators, and where it would raise an error."""
    work = _ARITHMETIC.get(type(op))
    if work is None or left is None or right is None:
        return None
    try:
        return work(left, right)
    except ArithmeticError:
        return None


def _type(annotation: ast.expr, seen: _Names) -> bool:
    """Return True if an annotation names a type: `al.Tensor[al.float32, "M N"] | None`, for example."""
    match annotation:
        case ast.Constant() | ast.Name():
            return True
        case ast.Subscript(value, part):
            return _type(value, seen) and _type(part, seen)
        case ast.Tuple(parts):
            return all(_type(part, seen) for part in parts)
        case ast.BinOp(left, ast.BitOr(), right):
            return _type(left, seen) and _type(right, seen)
        case ast.Call(function, values, keywords):
            return _word(function, seen) and all(_constant(v, seen) for v in (*values, *(k.value for k in keywords)))
        case _:
            return _word(annotation, seen)


def _word(value: ast.expr, seen: _Names) -> bool:
    """Return True for a word of the language, such as `al.float32`."""
    match value:
        case ast.Attribute(ast.Name(module), word):
            return module in seen.language and word in language.__all__
        case ast.Attribute(ast.Attribute(ast.Name(package), "language"), word):
            return package in seen.packages and word in language.__all__
        case _:
            return False
