"""`composition`: R(i) == A(B(i)), or a refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.layout import Layout, LayoutError, Swizzle, SwizzledLayout, coalesce, composition, parse
from argus.layout.swizzle import offsets

from .strategies import compact, injective, law, layouts, small_layouts


def check(a: Layout, b: Layout) -> bool:
    """The law when there is a result; past the end `a` continues along its last coalesced mode."""
    try:
        r = composition(a, b)
    except LayoutError:
        return False
    longer = coalesce(a)
    assert [m.size() for m in r] == [m.size() for m in b]
    assert offsets(r).tolist() == [longer(int(x)) for x in offsets(b)]
    return True


def test_every_pair_of_small_layouts() -> None:
    some = [a for a in small_layouts() if a.size() <= 9]
    assert sum(check(a, b) for a in some[::2] for b in some[::3]) > 5000


@given(layouts(), layouts() | injective() | compact())
@law
def test_law(a: Layout, b: Layout) -> None:
    check(a, b)


@given(injective(), compact())
@law
def test_law_on_permutations(a: Layout, b: Layout) -> None:
    check(a, b)


@given(compact(), compact(), st.data())
@law
def test_associative_where_defined(a: Layout, b: Layout, data: st.DataObject) -> None:
    c = data.draw(compact())
    if max(b.size(), c.size()) > min(a.size(), b.size()):
        return
    try:
        left, right = composition(composition(a, b), c), composition(a, composition(b, c))
    except LayoutError:
        return
    assert offsets(left).tolist() == offsets(right).tolist()


@given(layouts())
@law
def test_identity_on_the_right(a: Layout) -> None:
    assert offsets(composition(a, Layout(a.size(), 1))).tolist() == offsets(a).tolist()


def test_by_mode() -> None:
    a = parse("(12,(4,8)):(59,(13,1))")
    r = composition(a, (Layout(3, 4), Layout(8, 2)))
    assert str(r) == "(3,(2,4)):(236,(26,1))"
    assert composition(a, (3,)) == Layout((3, (4, 8)), (59, (13, 1)))
    assert r[0] == composition(a[0], Layout(3, 4)) and r[1] == composition(a[1], Layout(8, 2))


def test_a_truncated_mode_need_not_divide() -> None:
    assert composition(Layout((6, 4), (1, 10)), Layout(2, 4)) == Layout(2, 4)


def test_swizzled_left_operand_keeps_its_swizzle() -> None:
    a = SwizzledLayout(Swizzle(3, 4, 3), 0, Layout((8, 64), (64, 1)))
    b = Layout((4, 16), (2, 8))
    r = composition(a, b)
    assert isinstance(r, SwizzledLayout)
    assert offsets(r).tolist() == [a(int(x)) for x in offsets(b)]


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ("(6,4):(1,10)", "4:4", "the step 4 over 4 elements meets the extent 6"),
        ("(4,4):(1,5)", "(3,2):(1,3)", "carry into each other"),
        ("(4,4):(1,8)", "4:-1", "has the stride -1"),
        ("(4,4):(1,8)", "6:1", "the step 1 over 6 elements meets the extent 4"),
    ],
)
def test_refusals(a: str, b: str, why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        composition(parse(a), parse(b))  # type: ignore[arg-type]


def test_bad_tilers() -> None:
    with pytest.raises(LayoutError, match="3 tilers for layout"):
        composition(Layout((2, 3), (1, 2)), (1, 1, 1))
    with pytest.raises(LayoutError, match="is not an integer, a layout or a tuple"):
        composition(Layout((2, 3), (1, 2)), "2:1")  # type: ignore[arg-type]
