"""Where a decorated function's text comes from: the file, and nested functions cut out of it."""

import runpy
from pathlib import Path

import pytest

import argus
import argus.language as al
from argus.diagnostic import SourceError
from argus.frontend import Options, check, parse
from argus.frontend.decorator import FuncSource, file_of
from argus.frontend.decorator import kernel as source_of
from argus.ir.text import print_kernel
from argus.source import SourceFile

FACTOR = 2.0


@argus.func
def scaled(v):
    return v * FACTOR


@source_of
def outer(x: al.Tensor[al.float32, "N"]):
    """The one at top level."""
    al.store(x[0], 1.0)


if FACTOR > 1.0:

    @source_of
    def guarded(x: al.Tensor[al.float32, "N"]):
        al.store(x[0:64], scaled(al.load(x[0:64])))


def nested(first: bool):
    local = 3
    if first:

        @source_of(num_warps=2)
        def outer(x: al.Tensor[al.float32, "N"]):
            """The first."""
            al.store(x[0:64], scaled(al.load(x[0:64])))
    else:

        @source_of
        def outer(x: al.Tensor[al.float32, "N"]):
            al.store(x[0], local)

    return outer


def elaborate(source):
    return check(parse(source.file), source.name, Options())


def test_a_kernel_at_top_level_is_its_file():
    assert outer.doc == "The one at top level."
    assert outer.file.text.startswith('"""Where a decorated')
    assert elaborate(outer).num_warps == 4


def test_a_nested_kernel_sees_its_file_and_is_the_only_kernel():
    kernel = elaborate(nested(True))
    assert kernel.num_warps == 2 and len(kernel.body) == 3
    assert [f.name for f in parse(nested(True).file).functions] == ["scaled", "outer"]


def test_a_kernel_in_a_branch_of_its_file_is_found():
    assert len(elaborate(guarded).body) == 3
    assert [f.name for f in parse(guarded.file).functions] == ["scaled", "guarded"]


def test_a_nested_kernel_keeps_its_lines_and_columns():
    span = elaborate(nested(True)).body[0].span
    line = Path(__file__).read_text().split("\n")[span.line - 1]
    assert line[span.column - 1 : span.end_column - 1] == "al.load(x[0:64])"


def test_a_nested_kernel_sees_the_locals_around_it_and_a_text_does_not():
    assert "= 3.0" in print_kernel(elaborate(nested(False)))
    bare = SourceFile(nested(False).file.path, nested(False).file.text)
    with pytest.raises(SourceError) as caught:
        check(parse(bare), "outer", Options())
    (found,) = caught.value.diagnostics
    assert found.code == "unknown-name" and "`local`" in found.message


def test_helpers_are_not_called_from_python():
    assert isinstance(scaled, FuncSource)
    with pytest.raises(SourceError) as caught:
        scaled(1.0)
    assert caught.value.diagnostics[0].code == "outside-kernel"


def test_a_function_without_text_says_so():
    with pytest.raises(SourceError) as caught:
        file_of(eval("lambda: 0"))
    assert caught.value.diagnostics[0].code == "no-source"


OF_ONE_NAME = """\
import argus
import argus.language as al
from argus.frontend.decorator import kernel

@argus.func
def value(v):
    return v + 1.0

FIRST = value

@kernel
def fill(x: al.Tensor[al.float32, "32"]):
    al.store(x[al.grid(1) + al.arange(32)], 1.0)

first = fill

@argus.func
def value(v):
    return v + 2.0

@kernel
def fill(x: al.Tensor[al.float32, "32"]):
    al.store(x[al.grid(1) + al.arange(32)], 2.0)
"""


def test_of_several_functions_of_one_name_each_is_itself(tmp_path):
    place = tmp_path / "twice.py"
    place.write_text(OF_ONE_NAME)
    module = runpy.run_path(str(place))
    for name, number in (("first", "1.0"), ("fill", "2.0")):
        assert f" = {number}" in print_kernel(elaborate(module[name]))
    for name, number in (("FIRST", "v + 1.0"), ("value", "v + 2.0")):
        found = parse(module[name].file).function("value")
        assert found is not None
        lines = module[name].file.text.split("\n")
        assert number in lines[found.body[-1].span.line - 1]


@pytest.mark.parametrize(
    "after",
    [
        "N += 1.0",
        "if True: N = 3.0",
        "if True:\n    N = 3.0",
        "try:\n    N = 3.0\nexcept ValueError:\n    pass",
        "M = N = 3.0",
        "M, N = 3.0, 4.0",
        "M = 1.0; N = 3.0",
        "for N in range(3):\n    pass",
        "import math as N",
        "def change():\n    global N\n    N = 3.0",
        "if (N := 3.0) > 2.0: pass",
    ],
)
def test_a_constant_is_what_its_file_leaves_it(after):
    kernel = '@argus.kernel\ndef k(x: al.Tensor[al.float32, "32"]):\n    al.store(x[al.grid(1) + al.arange(32)], N)\n'

    def made(text):
        module = parse(SourceFile("k.py", f"{text}\n\n{kernel}"))
        return print_kernel(check(module, "k", Options(target="cpu")))

    with pytest.raises(SourceError, match="computed by Python"):
        made(f"N = 2.0\n{after}")
    assert " = 2.0" in made(f"{after}\nN = 2.0")
    local = "def change():\n    N = 3.0\n\n" + "M = [N for N in (1, 2)]\nM[N] = dict(N=3.0)\nM.N = 5.0"
    assert " = 2.0" in made(f"N = 2.0\n{local}")
