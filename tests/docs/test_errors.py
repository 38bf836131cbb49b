"""Every error code has a page, every page an error code, and every example on it does what the page says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from argus import pages
from tests.docs.examples import Example, examples, execute, missing

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs" / "errors").glob("*.md"))

NOT_CODES = frozenset({
    "async-bulk", "async-group", "async-mma", "bulk-read", "bulk-write", "utf-8", "utf-8-sig", "utf-32-le",
    "utf-16-le", "z3-solver", "llvm-objdump", "argus-tile", "range-of-64-bits",
    "tensor-cores", "hidden-text", "max-autotune", "max-autotune-no-cudagraphs", "reduce-overhead",
})  # fmt: skip
"""Words with a hyphen in argus/ that are no error codes."""

OUTSIDE = "No kernel text causes this"
"""What a page says instead of an example: the cause is the machine, or Argus itself."""


@cache
def codes() -> frozenset[tuple[str, Path]]:
    """Every string that looks like a code, with the module that has it."""
    return frozenset(_codes())


def _codes() -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / "argus").rglob("*.py")):
        if "examples" in path.relative_to(ROOT).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            word = node.value if isinstance(node, ast.Constant) else None
            if isinstance(word, str) and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", word) and word not in NOT_CODES:
                yield word, path


def test_every_code_has_a_page() -> None:
    known = set(pages.codes())
    lacking = {f"{code} ({path.relative_to(ROOT)})" for code, path in codes() if code not in known}
    assert not lacking


def test_every_page_has_a_code() -> None:
    used = {code for code, _ in codes()}
    assert not [page.stem for page in PAGES if page.stem not in used]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_form(page: Path) -> None:
    """Its title is the code; it has a wrong example with its message and a right one, or says why not."""
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem}\n\n")
    kinds = [example.kind for example in examples(page)]
    if OUTSIDE in text:
        assert not kinds
        return
    assert {"rejected", "warned", "raises"} & set(kinds), "no wrong example"
    assert {"accepted", "runs"} & set(kinds), "no right example"
    for example in examples(page):
        if example.kind in ("rejected", "warned", "raises"):
            assert any(page.stem in line for line in example.quoted), f"line {example.line}: no message quoted"


EXAMPLES = [
    pytest.param(example, id=f"{page.stem}-{example.line}-{example.kind}")
    for page in PAGES
    for example in examples(page)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = execute(example, tmp_path, capsys)
    if example.kind in ("accepted", "runs", "warned"):
        assert code == 0, output
    else:
        assert code != 0, output
    assert not missing(example, output), output
