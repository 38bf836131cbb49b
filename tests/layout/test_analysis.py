"""Equality, injectivity, vector width, the F2 and ISL forms."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.layout import Layout, LayoutError, coalesce, parse, table
from argus.layout.analysis import F2Form, equal, f2_matrix, from_f2, is_injective, to_isl, vector_width
from argus.layout.swizzle import Swizzle, SwizzledLayout, offsets

from .strategies import injective, law, layouts, small_layouts, swizzled, swizzles

pytestmark = pytest.mark.slow


@given(layouts(negative=True) | swizzled() | injective())
@law
def test_injective(a: Layout | SwizzledLayout) -> None:
    assert is_injective(a) == (len({a(i) for i in range(a.size())}) == a.size())


def test_injective_of_every_small_layout() -> None:
    for a in small_layouts():
        assert is_injective(a) == (len(set(offsets(a).tolist())) == a.size())


@given(layouts() | swizzled(), layouts() | swizzled())
@law
def test_equal(a: Layout | SwizzledLayout, b: Layout | SwizzledLayout) -> None:
    assert equal(a, b) == ([a(i) for i in range(a.size())] == [b(i) for i in range(b.size())])
    assert equal(a, coalesce(a))


def test_a_swizzle_that_reaches_no_bit_is_equal_to_none() -> None:
    assert equal(parse("Sw<3,4,3> o 0 o 64:1"), parse("64:1"))
    assert not equal(parse("Sw<3,4,3> o 0 o 256:1"), parse("256:1"))


def moves_at_once(a: Layout | SwizzledLayout, width: int) -> bool:
    """Return True if each aligned run of `width` elements has consecutive offsets from a multiple of `width`."""
    starts = range(0, a.size(), width)
    return all(a(i) % width == 0 and all(a(i + j) == a(i) + j for j in range(width)) for i in starts)


@given(layouts(negative=True) | injective() | swizzled(), st.sampled_from([1, 3, 4, 1 << 30]))
@law
def test_vector_width_is_the_largest(a: Layout | SwizzledLayout, limit: int) -> None:
    widths = [w for w in range(1, min(a.size(), limit) + 1) if a.size() % w == 0 and moves_at_once(a, w)]
    assert vector_width(a, limit) == widths[-1]


def test_vector_width_of_every_small_layout() -> None:
    few = (Swizzle(0, 0, 0), Swizzle(1, 0, 3), Swizzle(1, 0, 1), Swizzle(1, 1, -1), Swizzle(2, 0, 2))
    for inner in small_layouts():
        for a in (inner, *(SwizzledLayout(s, offset, inner) for s in few for offset in (0, 2, 5))):
            widths = [w for w in range(1, a.size() + 1) if a.size() % w == 0 and moves_at_once(a, w)]
            assert vector_width(a) == widths[-1], a


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("(64,8):(1,64)", 512),
        ("(64,8):(1,72)", 8),
        ("Sw<3,3,3> o 0 o (64,8):(1,64)", 8),
        ("Sw<3,3,3> o 4 o (64,8):(1,64)", 4),
        ("Sw<1,0,3> o 0 o 4:1", 4),
        ("Sw<1,0,3> o 0 o 16:1", 1),
        ("Sw<1,0,1> o 0 o 4:1", 1),
        ("Sw<1,0,1> o 2 o 2:3", 1),
        ("(8,64):(64,1)", 1),
        ("4:0", 1),
    ],
)
def test_vector_width_golden(text: str, width: int) -> None:
    assert vector_width(parse(text)) == width


@st.composite
def binary(draw: st.DrawFn) -> Layout | SwizzledLayout:
    """A layout of powers of two without carries, perhaps swizzled."""
    bits = draw(st.integers(1, 4))
    order = draw(st.permutations(range(6)))[:bits]
    modes = Layout((2,) * bits, tuple(1 << b for b in order))
    if draw(st.booleans()):
        return modes
    free = [b for b in range(7) if b not in order]
    offset = sum(1 << b for b in free if draw(st.booleans()))
    return SwizzledLayout(draw(swizzles()), offset, modes)


@given(binary())
@law
def test_f2_form(a: Layout | SwizzledLayout) -> None:
    form = f2_matrix(a)
    assert [form(i) for i in range(a.size())] == [a(i) for i in range(a.size())]
    assert (form.rank() == len(form.columns)) == is_injective(a)


@given(binary())
@law
def test_back_from_f2(a: Layout | SwizzledLayout) -> None:
    form = f2_matrix(a)
    back = from_f2(form)
    assert f2_matrix(back) == form and equal(back, a)


def test_f2_refusals() -> None:
    with pytest.raises(LayoutError, match="its extent 6 is not a power of two"):
        f2_matrix(Layout(6, 1))
    with pytest.raises(LayoutError, match="carries into bits already in use"):
        f2_matrix(Layout((2, 2), (1, 1)))
    with pytest.raises(LayoutError, match="is negative"):
        f2_matrix(Layout(2, -1))
    with pytest.raises(LayoutError, match="no layout with one XOR swizzle"):
        from_f2(F2Form((0b0011, 0b0111, 0b1101, 0b1110, 0b1011)))


def points(a: Layout | SwizzledLayout) -> dict[tuple[int, ...], int]:
    """The ISL map, enumerated."""
    found: dict[tuple[int, ...], int] = {}

    isl = pytest.importorskip("islpy")
    rank = len(tuple(a))

    def flat(point) -> None:  # type: ignore[no-untyped-def]
        values = [int(point.get_coordinate_val(isl.dim_type.set, i).to_python()) for i in range(rank + 1)]
        key = tuple(values[:-1])
        assert key not in found
        found[key] = values[-1]

    to_isl(a).wrap().foreach_point(flat)
    return found


def small(a: Layout | SwizzledLayout) -> bool:
    return a.size() <= 64


@given(layouts(negative=True).filter(small))
@law
def test_isl_form(a: Layout) -> None:
    full = table(a)
    assert points(a) == {c: int(full[c]) for c in product(*(range(n) for n in full.shape))}


@pytest.mark.parametrize(
    "text",
    [
        "Sw<2,1,2> o 0 o (8,4):(4,1)",
        "Sw<1,0,-2> o 3 o (4,(2,2)):(2,(1,8))",
        "Sw<3,0,3> o 0 o (8,8):(8,1)",
        "Sw<0,0,0> o 5 o 6:3",
    ],
)
def test_isl_form_of_swizzled_layouts(text: str) -> None:
    a = parse(text)
    full = table(a)
    assert points(a) == {c: int(full[c]) for c in product(*(range(n) for n in full.shape))}


def test_isl_refuses_another_shape() -> None:
    with pytest.raises(LayoutError, match="describes a tile of shape"):
        to_isl(Layout((2, 3), (1, 2)), (3, 2))


def test_the_128_byte_swizzle_has_full_rank() -> None:
    a = SwizzledLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1)))
    assert f2_matrix(a).rank() == 9
