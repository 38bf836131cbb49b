"""Clauses are comparisons and nothing else; entries are found by words and by kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from argus.cli import main
from argus.knowledge import FACTS, applicable, facts_of_text, rewrite, search
from argus.knowledge.clause import clauses

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "argus" / "knowledge" / "kernels" / "product.py"


def test_clauses_compare_facts() -> None:
    facts = {"products": 1, "target": "sm_90a"}
    assert all(c.holds(facts) for c in clauses("products >= 1; target in sm_80 sm_90a; target not in cpu", FACTS))
    assert not any(c.holds(facts) for c in clauses("products > 1; target in cpu; loops == 0", FACTS))


@pytest.mark.parametrize(
    "text", ["__import__('os')", "products", "products >= 1 or 1", "products ** 2", "nothing >= 1", "target in"]
)
def test_anything_else_is_no_clause(text: str) -> None:
    with pytest.raises(ValueError):
        clauses(text, FACTS)


def test_words_find_entries() -> None:
    assert search("bank conflicts")[0].name == "swizzle-shared"
    assert search("pipeline-loop")[0].name == "pipeline-loop"
    assert not search("quaternions")


def test_what_applies_depends_on_the_kernel() -> None:
    text = PRODUCT.read_text()
    names = {e.name for e in applicable(facts_of_text(text, "product", "sm_90a"))}
    assert {"stage-operands", "warp-specialise"} <= names
    assert "pipeline-loop" not in names  # nothing is staged yet
    staged = rewrite(text, "product", "stage_operands")
    assert staged is not None
    again = {e.name for e in applicable(facts_of_text(staged, "product", "sm_90a"))}
    assert "pipeline-loop" in again and "stage-operands" not in again


def test_a_rewrite_that_finds_nothing_does_not_apply() -> None:
    assert rewrite(PRODUCT.read_text(), "product", "stage_transpose") is None
    assert rewrite("no kernel at all", "product", "stage_operands") is None


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [word for name in "MNK" for word in ("--size", f"{name}=4096")]
    assert main(["knowledge", f"{PRODUCT}::product", *sizes, "--json"]) == 0
    found = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert "products >= 1 (1)" in found["stage-operands"]["why"]
    assert main(["knowledge", "quaternions"]) == 2
    assert "no entry speaks of" in capsys.readouterr().err
    assert main(["knowledge", "copy", "engine"]) == 0
    assert "vectors-by-the-copy-engine" in capsys.readouterr().out
