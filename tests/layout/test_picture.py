"""Golden pictures, small enough to read here."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from argus.layout import FragmentLayout, Layout, LayoutError, atoms, parse, parse_fragment, picture, replicate

NESTED = """\
((2,4),8):((1,16),2)
  |  0  1  2  3  4  5  6  7
--+------------------------
0 |  0  2  4  6  8 10 12 14
1 |  1  3  5  7  9 11 13 15
2 | 16 18 20 22 24 26 28 30
3 | 17 19 21 23 25 27 29 31
4 | 32 34 36 38 40 42 44 46
5 | 33 35 37 39 41 43 45 47
6 | 48 50 52 54 56 58 60 62
7 | 49 51 53 55 57 59 61 63"""

SWIZZLED = """\
Sw<2,0,2> o 0 o (4,4):(4,1)
  |  0  1  2  3
--+------------
0 |  0  1  2  3
1 |  5  4  7  6
2 | 10 11  8  9
3 | 15 14 13 12"""

FRAGMENT = """\
[4x4 | t 2@1*2 2@0 2@_ | v 2@1]
  |       0       1       2       3
--+--------------------------------
0 | T0:V0+1 T0:V1+1 T1:V0+1 T1:V1+1
1 | T2:V0+1 T2:V1+1 T3:V0+1 T3:V1+1
2 |       -       -       -       -
3 |       -       -       -       -"""

LINE = """\
4:2
  | 0 1 2 3
--+--------
0 | 0 2 4 6"""


@pytest.mark.parametrize("expected", [NESTED, SWIZZLED, LINE])
def test_text_of_layouts(expected: str) -> None:
    assert picture.text(parse(expected.splitlines()[0])) == expected


def test_text_of_a_fragment() -> None:
    assert picture.text(parse_fragment(FRAGMENT.splitlines()[0])) == FRAGMENT


def test_text_of_a_scalar_and_of_three_dimensions() -> None:
    assert picture.text(replicate((), 4)).splitlines()[-1] == "0 | T0:V0+3"
    assert picture.text(FragmentLayout((2, 2, 2), (), ())).splitlines()[-1].startswith("1 |")
    assert picture.text(Layout((2, 2, 2), (1, 2, 4))).splitlines()[-1] == "1 | 1 3 5 7"


def test_colours_are_rich_markup_by_bank_or_thread() -> None:
    shown = picture.text(parse("(2,2):(32,1)"), color=True, element_bytes=4).splitlines()
    assert shown[-1] == "1 | [red]32[/red] [red]33[/red]"
    shown = picture.text(parse("(2,2):(4,8)"), color=True, element_bytes=4).splitlines()
    assert shown[-1] == "1 | [green] 4[/green] [blue]12[/blue]"
    shown = picture.text(parse_fragment("[2 | t 2@0 | v]"), color=True).splitlines()
    assert shown[0] == "\\[2 | t 2@0 | v]" and shown[-1] == "0 | [red]T0:V0[/red] [green]T1:V0[/green]"


@pytest.mark.parametrize(
    ("name", "layout"),
    [("nested.svg", "((2,4),8):((1,16),2)"), ("swizzled.svg", "Sw<2,0,2> o 0 o (4,4):(4,1)")],
)
def test_svg_of_layouts(name: str, layout: str, golden: Callable[[str, str], None]) -> None:
    golden(name, picture.svg(parse(layout), element_bytes=4 if name == "swizzled.svg" else None))


def test_svg_of_a_fragment(golden: Callable[[str, str], None]) -> None:
    golden("fragment.svg", picture.svg(parse_fragment(FRAGMENT.splitlines()[0])))


def test_svg_holds_every_cell() -> None:
    for layout, cells in ((parse(SWIZZLED.splitlines()[0]), 16), (atoms.MMA_M16N8K16.c, 128)):
        root = ElementTree.fromstring(picture.svg(layout))
        boxes = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if "stroke" in e.attrib]
        words = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
        assert len(boxes) == cells and str(layout) in words
    assert words.count("T31") == 4 and words.count("V3") == 32


def test_svg_by_bank_gives_one_bank_one_colour() -> None:
    root = ElementTree.fromstring(picture.svg(parse("(4,32):(32,1)"), element_bytes=4))
    fills = [e.attrib["fill"] for e in root.iter("{http://www.w3.org/2000/svg}rect") if "stroke" in e.attrib]
    assert len(set(fills)) == 32 and fills[:32] == fills[32:64] == fills[96:]


def test_refusals() -> None:
    with pytest.raises(LayoutError, match="pictures show at most 16384"):
        picture.text(parse("(256,128)"))
    with pytest.raises(LayoutError, match="element_bytes must be a positive integer"):
        picture.svg(parse("8:1"), element_bytes=0)
