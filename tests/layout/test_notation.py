"""Reading and printing the notation of layouts and fragments."""

from __future__ import annotations

import pytest
from hypothesis import given

from argus.layout import FragmentLayout, Layout, LayoutError, Swizzle, SwizzledLayout, parse, parse_fragment

from .strategies import fragments, law, layouts, swizzled


@given(layouts(negative=True))
@law
def test_layout_round_trip(a: Layout) -> None:
    assert parse(str(a)) == a


@given(swizzled())
@law
def test_swizzled_round_trip(a: SwizzledLayout) -> None:
    assert parse(str(a)) == a


@given(fragments())
@law
def test_fragment_round_trip(f: FragmentLayout) -> None:
    assert parse_fragment(str(f)) == f


@pytest.mark.parametrize(
    ("text", "golden"),
    [
        ("((2,4),8):((1,16),2)", "((2,4),8):((1,16),2)"),
        (" ( ( 2 , 4 ) ,8) : ((1,16), 2)", "((2,4),8):((1,16),2)"),
        ("8", "8:1"),
        ("(4,(2,3))", "(4,(2,3)):(1,(4,8))"),
        ("(8):(1)", "(8):(1)"),
        ("(8,):(1,)", "(8):(1)"),
        ("():()", "():()"),
        ("4:-1", "4:-1"),
        ("Sw<3,4,3> o 0 o (8,64):(64,1)", "Sw<3,4,3> o 0 o (8,64):(64,1)"),
        ("Swizzle<3,4,3> o (8,64):(64,1)", "Sw<3,4,3> o 0 o (8,64):(64,1)"),
        ("Swizzle<2,0,-2> o 16 o 8:1", "Sw<2,0,-2> o 16 o 8:1"),
        ("Sw<3,4,3> o 8", "Sw<3,4,3> o 0 o 8:1"),
    ],
)
def test_golden(text: str, golden: str) -> None:
    assert str(parse(text)) == golden


def test_parsed_swizzle() -> None:
    assert parse("Sw<3,4,3> o 7 o 8:2") == SwizzledLayout(Swizzle(3, 4, 3), 7, Layout(8, 2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("((2,4),8):((1,x),2)", "position 14: expected an integer, found `x`\n  ((2,4),8):((1,x),2)\n{14}^"),
        ("(2,4:1", "position 4: expected `)`, found `:`\n  (2,4:1\n{4}^"),
        ("(2,4):(1", "position 8: expected `)`, found the end\n  (2,4):(1\n{8}^"),
        ("8:1 8", "position 4: expected the end of the text, found `8`\n  8:1 8\n{4}^"),
        ("8 8", "position 2: expected `:`, found `8`\n  8 8\n{2}^"),
        ("Sw<3,4> o 8:1", "position 6: expected `,`, found `>`\n  Sw<3,4> o 8:1\n{6}^"),
        ("Sw<3,4,3> 8:1", "position 10: expected `o`, found `8`\n  Sw<3,4,3> 8:1\n{10}^"),
        ("", "position 0: expected an integer, found the end\n  \n{0}^"),
    ],
)
def test_errors_point_at_the_place(text: str, message: str) -> None:
    head, column = message.split("{")
    with pytest.raises(LayoutError) as caught:
        parse(text)
    assert str(caught.value) == f"cannot read layout at {head}  {' ' * int(column[:-2])}^"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8", "position 33: expected `]`, found the end"),
        ("[16x8 t 4@1]", "position 6: expected `|`, found `t`"),
        ("[16x8 | v 4@1]", "position 8: expected `t`, found `v`"),
        ("[16x8 | t 4 | v]", "position 12: expected `@`, found `|`"),
    ],
)
def test_fragment_errors_point_at_the_place(text: str, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        parse_fragment(text)
    assert str(caught.value).startswith(f"cannot read fragment layout at {message}")


def test_other_types_are_refused() -> None:
    with pytest.raises(LayoutError, match="from int: pass a string"):
        parse(8)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="from int: pass a string"):
        parse_fragment(8)  # type: ignore[arg-type]
