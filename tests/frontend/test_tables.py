"""The tables that ship are those of the grammar; whatever else lies in their place changes nothing but the time."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lark.exceptions import UnexpectedInput

import argus.kernels
from argus.frontend import parser, tables
from argus.frontend.surface import Module
from argus.source import SourceFile

GRAMMAR = tables.PATH.with_suffix(".lark").read_text(encoding="utf-8")
KERNELS = Path(argus.kernels.__file__).parent
WRONG = (
    "@argus.kernel\ndef f(:\n    pass\n",
    "@argus.kernel\ndef f():\n    x ? 3\n",
    "@argus.kernel\ndef f():\n    while x:\n        pass\n",
    "@argus.kernel\ndef f():\n",
)


def read(name: str) -> Module:
    parser._parse.cache_clear()
    return parser.parse(SourceFile(name, (KERNELS / name).read_text(encoding="utf-8")))


@pytest.fixture
def anew() -> Any:
    """The parser is made again, before and after the test."""
    parser._parser.cache_clear()
    yield
    parser._parser.cache_clear()


def test_the_tables_that_ship_are_those_of_the_grammar() -> None:
    """Else `python -m argus.frontend.tables` makes them anew."""
    assert json.loads(tables.PATH.read_text(encoding="utf-8"))["identity"] == tables.identity(GRAMMAR)
    assert tables.load(GRAMMAR) is not None


@pytest.mark.parametrize("name", ["gemm.py", "attention.py"])
def test_both_parsers_read_the_same(name: str, anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    read_with_tables = read(name)
    parser._parser.cache_clear()
    monkeypatch.setattr(tables, "load", lambda *_: None)
    assert read(name) == read_with_tables


def test_both_parsers_refuse_the_same() -> None:
    made, loaded = tables.made_of(GRAMMAR), tables.load(GRAMMAR)
    assert loaded is not None
    for text in WRONG:
        found = []
        for one in (made, loaded):
            with pytest.raises(UnexpectedInput) as refusal:
                one.parse(text, start="function")
            found.append((type(refusal.value), refusal.value.line, refusal.value.column))
        assert found[0] == found[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: '{"identity": 3}',
        lambda text: text.replace('"data"', '"date"'),
        lambda text: text.replace('"memo"', '"mem"'),
        lambda text: text.replace('"states"', '"stated"'),
        lambda text: text.replace(tables.identity(GRAMMAR)[1], "0" * 64),
        lambda text: text.replace(f'["{tables.identity(GRAMMAR)[0]}"', '["0.0.0"'),
    ],
)
def test_other_tables_are_left_aside(damage: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "grammar.json"
    path.write_text(damage(tables.PATH.read_text(encoding="utf-8")), encoding="utf-8")
    assert tables.load(GRAMMAR, path) is None


def test_without_tables_the_grammar_is_read(anew: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    load = tables.load
    monkeypatch.setattr(tables, "load", lambda grammar: load(grammar, tmp_path / "absent"))
    assert read("transpose.py").functions


def test_saved_tables_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "grammar.json"
    tables.save(tables.made_of(GRAMMAR), GRAMMAR, path)
    assert tables.load(GRAMMAR, path) is not None


def test_threads_that_read_at_the_same_time() -> None:
    """Indentation is counted by the parser, of which there is one."""
    examples = Path(__file__).parents[2] / "examples"
    texts = [(examples / name).read_text(encoding="utf-8") for name in ("vector_add.py", "transpose.py")]
    files = [SourceFile(f"{number}.py", texts[number % 2]) for number in range(16)]  # none has been read before
    with ThreadPoolExecutor(8) as pool:
        assert all(module.functions for module in pool.map(parser.parse, files))
