"""Where a decorated function's text comes from: the file, and nested functions cut out of it."""

from pathlib import Path

import pytest

import argus
import argus.language as al
from argus.diagnostic import SourceError
from argus.frontend import Options, check, parse
from argus.frontend.decorator import FuncSource, file_of
from argus.frontend.decorator import kernel as source_of

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


def test_a_nested_kernel_does_not_see_the_locals_around_it():
    with pytest.raises(SourceError) as caught:
        elaborate(nested(False))
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
