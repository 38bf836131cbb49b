"""`complement`: ordered, disjoint, bounded and complete."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.layout import Layout, LayoutError, complement, parse
from argus.layout.core import flat_modes
from argus.layout.swizzle import offsets

from .strategies import compact, injective, law, layouts, small_layouts


def check(a: Layout, n: int) -> bool:
    try:
        r = complement(a, n)
    except LayoutError:
        return False
    steps = [d for s, d in flat_modes(r) if s > 1]
    assert steps == sorted(set(steps)) and all(d > 0 for d in steps)
    image = set(offsets(a).tolist())
    rest = offsets(r).tolist()
    assert len(set(rest)) == len(rest)
    assert not image & set(rest[1:])
    span = max([s * d for s, d in flat_modes(a) if s > 1 and d > 0], default=1)
    assert r.cosize() <= -(-n // span) * span
    return True


def test_every_small_layout() -> None:
    assert sum(check(a, n) for a in small_layouts() for n in (1, 7, 12, 36)) > 1000


@given(layouts() | injective(), st.integers(1, 200))
@law
def test_law(a: Layout, n: int) -> None:
    check(a, n)


@given(injective(), st.integers(1, 200))
@law
def test_together_they_are_injective_and_reach_far_enough(a: Layout, n: int) -> None:
    r = complement(a, n)
    both = {x + y for x in offsets(a).tolist() for y in offsets(r).tolist()}
    assert len(both) == a.size() * r.size() >= n


@given(compact(), st.integers(1, 5))
@law
def test_of_a_compact_layout_it_repeats_the_whole(a: Layout, k: int) -> None:
    r = complement(a, a.size() * k)
    assert offsets(r).tolist() == [a.size() * j for j in range(k)]


@pytest.mark.parametrize(
    ("text", "size", "golden"),
    [
        ("4:1", 24, "6:4"),
        ("4:2", 24, "(2,3):(1,8)"),
        ("(4,6):(1,4)", 24, "1:0"),
        ("(2,2):(1,6)", 24, "(3,2):(2,12)"),
        ("4:1", 10, "3:4"),
        ("4:0", 3, "3:1"),
    ],
)
def test_golden(text: str, size: int, golden: str) -> None:
    a = parse(text)
    assert isinstance(a, Layout)
    assert str(complement(a, size)) == golden
    assert complement(a, Layout(size, 7)) == complement(a, size)


@pytest.mark.parametrize("text", ["(2,2):(1,1)", "(4,2):(1,3)", "4:-1"])
def test_overlaps_are_refused(text: str) -> None:
    with pytest.raises(LayoutError, match="has no complement"):
        complement(parse(text), 10)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="must be a positive integer"):
        complement(Layout(4, 1), 0)
