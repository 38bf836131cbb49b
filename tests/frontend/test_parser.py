"""Syntax: what is read, what is skipped, and that every mistake of a file is reported at once, by name."""

import pytest

from argus.diagnostic import SourceError
from argus.frontend import parse
from argus.frontend.surface import Call, ForStmt, IfStmt, Literal, Name
from argus.source import SourceFile
from tests.frontend.kernels import errors, text_of

KERNEL = '''\
"""A module docstring."""
import argus as ag
from argus import language as lang, func

SIZE = 4 * (2 + 1)
OTHER: int = 3
ROWS = [row for row in range(3)]


class Python:
    """Anything at all: { [ ( are in a string."""

    def method(self):
        while True:
            yield {"a": lambda: 1}


@func
def helper(v, *, n=1):
    return v


@ag.kernel(num_warps=2)
def first(
    x: lang.Tensor[lang.float32, "N"],  # a comment
):
    """Its docstring."""
    y = (1,
         2)
    for i in range(3): pass

    # indented comment
    if y[0] == 1:
        z = 1; w = 2
    elif y[0] == 2:
        z = 2
    else:
        z = 3


def main():
    with open("f") as f:
        print(f"{f}")


if __name__ == "__main__":
    main()
'''


def syntax(text):
    with pytest.raises(SourceError) as caught:
        parse(SourceFile("file.py", text))
    return caught.value.diagnostics


def test_a_whole_python_file_is_read_and_only_its_kernels_are_parsed():
    module = parse(SourceFile("file.py", KERNEL.replace(", *, n=1", ", n=1")))
    assert [(f.name, f.kind) for f in module.functions] == [("helper", "func"), ("first", "kernel")]
    assert [(c.name, c.value is not None) for c in module.constants] == [
        ("SIZE", True), ("OTHER", True), ("ROWS", False),
    ]  # fmt: skip
    assert [f.name for f in module.foreign] == ["Python", "main"]
    first = module.function("first")
    assert [k.name for k in first.options] == ["num_warps"]
    assert isinstance(first.body[2], ForStmt) and isinstance(first.body[3], IfStmt)


def test_spans_are_the_file_s_own():
    module = parse(SourceFile("file.py", KERNEL.replace(", *, n=1", ", n=1"), first_line=101))
    first = module.function("first")
    docstring, assign, loop, branch = first.body
    assert (docstring.span.line, docstring.span.column) == (127, 5)
    assert (assign.span.line, assign.span.end_line) == (128, 129)
    assert (loop.span.line, loop.span.column, loop.span.end_column) == (130, 5, 22)
    assert branch.span.end_column == 17
    assert isinstance(loop.iterable, Call) and loop.iterable.span.column == 14


def test_carriage_returns_and_tabs():
    text = "import argus\r\n@argus.kernel\r\ndef k(\r\n):\r\n\tif True:\r\n\t\tx = 1\r\n"
    assert parse(SourceFile("file.py", text)).function("k") is not None


def test_python_constructs_outside_of_the_subset_are_named_all_at_once():
    body = """
while n > 0:
    n = n - 1
y = [i for i in range(3)]
z = f"{n}"
try:
    pass
except ValueError:
    pass
p = q = 3
s: int = 3
w = lambda v: v
foo(*args)
r = x @ y
with x:
    pass
global g
if (m := 3):
    pass
d = {1: 2}
class C:
    pass
def inner():
    pass
u = ...
import os
del x
raise x
yield x
break
v = 2j
t = [1, 2]
"""
    found = errors(body)
    said = [(d.span.line - 53, d.message.split(" is not part")[0]) for d in found]
    assert {d.code for d in found} == {"unsupported-syntax"}
    assert said == [
        (1, "a `while` loop"), (3, "a comprehension"), (4, "an f-string"), (5, "exception handling"),
        (7, "exception handling"), (9, "chained assignment"), (10, "an annotated assignment"),
        (11, "a `lambda` outside of a call"), (12, "argument unpacking with `*`"), (13, "the matrix product `@`"),
        (14, "a `with` statement"), (16, "a `global` statement"), (17, "an assignment expression (`:=`)"),
        (19, "a dict or set display"), (20, "a class"), (22, "a nested function"), (24, "`...`"),
        (25, "an import inside a kernel"), (26, "a `del` statement"), (27, "a `raise` statement"), (28, "a generator"),
        (29, "`break`"), (30, "a complex number"), (31, "a list"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "good", "code", "says", "column"),
    [
        ("if n > 0\n    pass", "if n > 0:\n    pass", "syntax-error", "`:` is missing", 13),
        ("if n = 3:\n    pass", "if n == 3:\n    pass", "syntax-error", "does not compare", 10),
        ("z = 1 2", "z = 1, 2", "syntax-error", "cannot follow `1` directly", 11),
        ("z = n +", "z = n + 1", "syntax-error", "ends too early", 12),
        ("z = (1", "z = (1)", "unmatched-bracket", "never closed", 9),
        ("z = 1)", "z = (1)", "unmatched-bracket", "nothing opened", 10),
        ("z = (1]", "z = (1)", "unmatched-bracket", "does not close", 11),
        ("z = 'a", "z = 'a'", "unterminated-string", "never closed", 9),
        ("z = $3", "z = 3", "syntax-error", "no meaning", 9),
        ("z = n \u2212 3", "z = n - 3", "syntax-error", "(MINUS SIGN) has no meaning", 11),
        ("z =\u00a03", "z = 3", "syntax-error", "(NO-BREAK SPACE) has no meaning", 8),
        ("if n > 0:\n\tz = 1", "if n > 0:\n    z = 1", "bad-indentation", "mixes tabs and spaces", 6),
        ("if n > 0:\nz = 1", "if n > 0:\n    z = 1", "bad-indentation", "missing here", 5),
        ("z = 1\n  w = 2", "z = 1\nw = 2", "bad-indentation", "for no reason", 7),
        ("if n > 0:\n    z = 1\n  w = 2", "if n > 0:\n    z = 1\nw = 2", "bad-indentation", "no block above", 7),
        ("if n > 0:", "if n > 0: pass", "bad-indentation", "below this line is missing", 5),
        ("x[0] = 1.0", "al.store(x[0], 1.0)", "not-assignable", "cannot be assigned", 5),
        ("z = twice(v=1, 2)", "z = fixed(1, n=2)", "syntax-error", "follows a keyword", 20),
        ("z = " + "(" * 60 + "1" + ")" * 60, "z = " + "(" * 40 + "1" + ")" * 40, "nesting-too-deep", "50 deep", 59),
        ("z = " + "-" * 200 + "1", "z = " + "-" * 50 + "1", "nesting-too-deep", "100 deep", 5),
        ("z = " + "1" * 5000, "z = " + "1" * 5, "syntax-error", "is not a number", 9),
    ],
)
def test_a_syntax_error_says_what_and_where(bad, good, code, says, column):
    found = errors(bad)
    assert [d.code for d in found] == [code]
    assert says in found[0].message and found[0].help
    assert found[0].span.column == column
    assert errors(good) == ()


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("@argus.kernl", "bad-decorator", "no decorator `argus.kernl`"),
        ("@argus.kernel\n@staticmethod", "bad-decorator", "`staticmethod` does not apply"),
        ("@argus.kernel\n@argus.func", "bad-decorator", "second Argus decorator"),
        ("@argus.kernel(4)", "bad-decorator", "by keyword"),
    ],
)
def test_decorators_are_checked(line, code, says):
    found = syntax(f"import argus\n{line}\ndef k():\n    pass\n")
    assert [d.code for d in found] == [code] and says in found[0].message


def test_a_decorator_without_function():
    assert "no function follows" in syntax("import argus\n@argus.kernel\n")[0].message


def test_only_plain_functions_are_kernels():
    for header in ("async def k():", "class K:"):
        assert "which is for plain functions" in syntax(f"import argus\n@argus.kernel\n{header}\n    pass\n")[0].message


def test_page_breaks_begin_a_line_anew():
    text = "import argus\n\f\n  \f@argus.kernel\n\fdef k():\n    pass\n"
    assert parse(SourceFile("file.py", text)).function("k") is not None


def test_a_function_outside_of_its_decorators_margin():
    assert "matches no block" in syntax("import argus\n  @argus.kernel\ndef k():\n    pass\n")[0].message


def test_tuning_decorators_are_python_s():
    text = "import argus\n@argus.autotune(configs=[{1: 2}])\n@argus.kernel\ndef k():\n    pass\n"
    assert parse(SourceFile("file.py", text)).function("k") is not None


def test_errors_of_several_functions_are_reported_together():
    text = text_of("while n: pass") + "\n@argus.func\ndef other():\n    del x\n"
    assert [d.code for d in syntax(text)] == ["unsupported-syntax", "unsupported-syntax"]


def test_an_unclosed_bracket_does_not_swallow_the_next_function():
    text = "import argus\n@argus.kernel\ndef k():\n    x = (1\n@argus.func\ndef other():\n    del x\n"
    assert [d.code for d in syntax(text)] == ["unmatched-bracket", "unsupported-syntax"]


def test_parsing_runs_nothing(tmp_path):
    marker = tmp_path / "ran"
    text = f"X = open({str(marker)!r}, 'w')\n" + text_of(f"z = open({str(marker)!r}, 'w')")
    parse(SourceFile("file.py", text))
    assert not marker.exists()


def test_literals():
    module = parse(SourceFile("f.py", "A = 0x1F\nB = 1_000\nC = 1e-3\nD = 'a' \"b\"\nE = (True, None)\nF = -X\n"))
    values = {c.name: c.value for c in module.constants}
    assert [values[n].value for n in "ABCD"] == [31, 1000, 0.001, "ab"]
    assert values["E"].items == (Literal(True), Literal(None))
    assert values["F"].operand == Name("X")
