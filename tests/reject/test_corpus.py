"""The corpus of wrong kernels: every one is refused for what is wrong with it, and proved without it.

One file of `classes` a class of mistakes that people and compilers really made. `docs/rejections.md` lists them all.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from argus.diagnostic import ArgusError, Diagnostic, Verdict
from argus.render import diagnostics_text
from argus.verify import verify
from tests.conftest import Golden
from tests.places import quoted
from tests.reject.case import ROOT, Case

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent / "classes"
CLASSES = sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))
LIMIT_S = 120.0

_ROUNDED = re.compile(r"-?\d+\.\d{2,}(e[-+]\d+)?|(?<=arrived) +")
"""Computed values, whose last digits are the machine's, and the room that their column takes."""


def cases(of: str) -> tuple[Case, ...]:
    found: tuple[Case, ...] = import_module(f"tests.reject.classes.{of}").CASES
    return found


SLOW = {"gemm_hopper", "gemm_pingpong", "split_k"}
"""The kernels that take the longest to prove and to replay; every class has a quicker one."""


def marks(case: Case) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if case.name in SLOW else []


CASES = [
    pytest.param(name, case, id=f"{name}-{case.name}-{number}", marks=marks(case))
    for name in CLASSES
    for number, case in enumerate(cases(name))
]


def twin(case: Case) -> str:
    """What the accepted kernel of a case is called."""
    chosen = "".join(f"-{name}{value}" for name, value in case.constants.items())
    return f"{case.name}-{case.target}{chosen}" + ("-edited" if case.also else "")


ACCEPTED = {twin(c): c for name in CLASSES for c in cases(name)}


@pytest.mark.parametrize("case", [pytest.param(c, id=name, marks=marks(c)) for name, c in ACCEPTED.items()])
def test_accepted(case: Case) -> None:
    report = verify(case.accepted(), LIMIT_S)
    assert report.verdict is Verdict.PROVED, report.diagnostics


@pytest.mark.parametrize(("of", "case"), CASES)
def test_rejected(of: str, case: Case, golden: Golden) -> None:
    found = [d for d in _refusal(case) if d.code == case.code]
    assert found, f"not refused for {case.code}"
    if case.property != "refused":
        assert all(d.property == case.property and d.verdict is Verdict.REFUTED for d in found)
        assert all(d.witness is not None and d.witness.replayed for d in found)
    number = [c for c in cases(of) if c.name == case.name].index(case)
    text = _ROUNDED.sub("<number>", diagnostics_text(found[:1]).plain)
    golden(f"{of}/{case.name}{number or ''}.txt", quoted(text, case.text))


def _refusal(case: Case) -> tuple[Diagnostic, ...]:
    """What is said of the wrong kernel; of one that no launch could run, why not."""
    try:
        report = verify(case.rejected(), LIMIT_S)
    except ArgusError as error:
        assert case.property == "refused", error
        return error.diagnostics
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    return report.diagnostics


@pytest.mark.parametrize("of", CLASSES)
def test_a_class_has_two_kernels(of: str) -> None:
    assert len({case.name for case in cases(of)}) >= 2


def test_the_index_names_every_class() -> None:
    text = (ROOT / "docs" / "rejections.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\(\.\./tests/reject/classes/(\w+)\.py\)", text))
    assert listed == set(CLASSES)
    rows = {m[1]: m[0] for m in re.findall(r"^(\|.*classes/(\w+)\.py.*\|)$", text, re.MULTILINE)}
    for of in CLASSES:
        assert all(f"`{case.code}`" in rows[of] for case in cases(of)), of
