"""Every entry of the knowledge base: its pair is executed and proved, its rewrites make that pair, its names exist."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from argus import compile
from argus.agents.task import changed_task, missing_task
from argus.compile import TileKernel
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.knowledge import Entry, entries, facts_of_text, rewrite
from argus.source import SourceFile

ROOT = Path(__file__).parents[2]
ENTRIES = [pytest.param(entry, id=entry.name) for entry in entries()]


def tile(text: str, entry: Entry) -> TileKernel:
    return compile.elaborate(SourceFile("kernel.py", text), entry.kernel, Options(target=entry.target))


@lru_cache(maxsize=64)
def verdict(text: str, name: str, target: str) -> Verdict:
    return compile.prove(SourceFile("kernel.py", text), name, Options(target=target)).verdict


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_pair_is_proved_and_keeps_its_task(entry: Entry) -> None:
    before, after = entry.before(), entry.after()
    assert before != after
    author = tile(before, entry)
    assert not missing_task(author)
    assert changed_task(author, tile(after, entry)) == ""
    for text in (before, after):
        assert verdict(text, entry.kernel, entry.target) is Verdict.PROVED


@pytest.mark.parametrize("entry", [p for p in ENTRIES if p.values[0].steps])
def test_rewrites_make_the_pair(entry: Entry) -> None:
    assert rewrite(entry.before(), entry.kernel, *entry.steps) == entry.after()


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_applies_to_its_own_kernel(entry: Entry) -> None:
    """Facts of the text alone; what takes a model or a proof is taken for given."""
    facts = facts_of_text(entry.before(), entry.kernel, entry.target)
    assert all(clause.holds(facts) for clause in entry.when if clause.fact in facts)


@pytest.mark.parametrize("entry", ENTRIES)
def test_names_exist(entry: Entry) -> None:
    assert not [code for code in entry.wrong if not (ROOT / "docs" / "errors" / f"{code}.md").is_file()]
    assert "://" in entry.source or (ROOT / entry.source).is_file()
    assert entry.gain > 0 and entry.prose and entry.title[0].isupper()


def test_layers_and_number() -> None:
    assert {e.layer for e in entries()} == {"global", "local", "instruction"}
    assert len(entries()) >= 60 and len({e.name for e in entries()}) == len(entries())
