"""Bounds of integer terms: each term is looked at once, and what may leave its type is no exact result."""

from __future__ import annotations

import pytest

from argus.ir.text import parse_kernel
from argus.ir.types import int32, int64
from argus.verify.values.terms import Apply, Cases, Choice, Constant, Opaque, Term
from argus.verify.values.wrapping import Wrapping
from tests.verify.test_false_machine import NAMES

KERNEL = parse_kernel(NAMES.replace("EDIT", "1"))


def doubled(levels: int) -> Term:
    """A number that is added to itself again and again: as many terms as levels, and two to that power as a tree."""
    term: Term = Constant(1.0)
    for _ in range(levels):
        term = Apply("add", (term, term))
    return term


@pytest.mark.parametrize(("levels", "fits"), [(30, True), (31, False), (60, False)])
def test_sums_of_shared_terms(levels: int, fits: bool) -> None:
    found, term = Wrapping(KERNEL), doubled(levels)
    assert found.interval(term) == (2**levels, 2**levels)
    assert isinstance(found.exact(term, int32), Opaque) is not fits
    assert found.exact(term, int64) is term
    assert len(found._found) < 10 * levels


def test_choices_of_shared_terms() -> None:
    """What is chosen is within the hull of both values."""
    term: Term = Apply("neg", (Constant(3.0),))
    for _ in range(100):
        term = Choice(Constant(1.0), term, Apply("maximum", (term, Constant(5.0))))
    found = Wrapping(KERNEL)
    assert found.interval(term) == (-3, 5)
    assert found.exact(term, int32) is term


def test_an_element_without_bounds() -> None:
    found = Wrapping(KERNEL)
    assert found.interval(Cases(())) is None
    assert found.interval(Apply("exp", (Constant(1.0),))) is None
    assert found.interval(Constant(0.5)) is None
