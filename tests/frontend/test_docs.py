"""The documents' kernels are kernels, and the functions and dtypes that they name are the language's."""

import re
from pathlib import Path

import pytest

from argus import language
from argus.diagnostic import SourceError
from argus.frontend import Options, check, parse
from argus.frontend.calls import signature
from argus.frontend.checker import HANDLERS
from argus.frontend.habits import FUNCTIONS
from argus.ir.types import DType
from argus.source import SourceFile

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "language.md").read_text() + (DOCS / "tags.md").read_text()


def test_the_kernels_of_the_language_reference_check():
    blocks = [b for b in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "@argus.kernel" in b]
    assert blocks
    for block in blocks:
        module = parse(SourceFile("language.md", block))
        assert [check(module, f.name, Options()).name for f in module.functions if f.kind == "kernel"]


def test_every_function_of_the_language_has_a_handler_and_is_documented():
    functions = {n for n in vars(language) if signature(n) is not None}
    assert functions == set(HANDLERS)
    dtypes = {n for n, v in vars(language).items() if isinstance(v, DType)}
    assert functions | dtypes | {"Tensor", "constexpr"} == set(language.__all__)
    words = set(re.findall(r"\w+", TEXT))
    assert {n for n in language.__all__ if n not in words} == set()


def test_what_other_libraries_have_is_made_of_what_there_is():
    assert not {*FUNCTIONS} & set(HANDLERS)
    assert {n for remedy in FUNCTIONS.values() for n in re.findall(r"\bal\.(\w+)", remedy)} <= set(language.__all__)


@pytest.mark.parametrize("name", ["load", "mma", "grid", "tag"])
def test_functions_of_the_language_do_nothing_in_python(name):
    with pytest.raises(SourceError) as caught:
        getattr(language, name)()
    assert caught.value.diagnostics[0].code == "outside-kernel"
