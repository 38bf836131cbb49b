"""Roles as one text with a number: put in for it, the text is that of each role; what does not fit is left alone."""

import re

import pytest

from argus.backend.emit.alike import NUMBER, as_one

PAIRS = [
    ("store(smem, 147456, m);", "store(smem, 180224, m);", "store(smem, (147456 + role_number * 32768), m);"),
    ("store(b * 256, a * 128);", "store(b * 256, a * 128 + 64);", "store(b * 256, a * 128 + role_number * 64);"),
    ("f((p ^ 32) + 8, &x[8 * v]);", "f((p ^ 32) + 24, &x[8 * v]);", "f((p ^ 32) + (8 + role_number * 16), &x[8 * v]);"),
    ("role_barrier<128>(2);", "role_barrier<128>(3);", "role_barrier<128>((2 + role_number * 1));"),
    ("if (n % 2 != 0) {", "if (n % 2 != 1) {", "if (n % 2 != (0 + role_number * 1)) {"),
    (
        "f(a + 4, b, 1);",
        "f(a + 8, b + 2, 5);",
        "f(a + (4 + role_number * 4), b + role_number * 2, (1 + role_number * 4));",
    ),
]


@pytest.mark.parametrize(("first", "second", "one"), PAIRS)
def test_numbers_that_differ_are_computed(first: str, second: str, one: str) -> None:
    assert as_one([[first], [second]], [{}, {}]) == [one]


@pytest.mark.parametrize(("first", "second", "one"), PAIRS)
def test_the_text_is_that_of_each_role(first: str, second: str, one: str) -> None:
    """With the sums worked out, and sums of nothing left out."""

    def of(number: int) -> str:
        def worked_out(match: re.Match[str]) -> str:
            return str(int(match["start"] or 0) + number * int(match["step"]))

        text = re.sub(rf"\((?P<start>\d+) \+ {NUMBER} \* (?P<step>\d+)\)", worked_out, one)
        return re.sub(rf"(?P<start>(?!))?{NUMBER} \* (?P<step>\d+)", worked_out, text).replace(" + 0", "")

    assert (of(0), of(1)) == (first, second)


def test_registers_take_the_names_of_the_first() -> None:
    texts = [["hold(acc);", "f(&acc[4], c_tile, 8);"], ["hold(acc1);", "f(&acc1[4], c_tile1, 24);"]]
    names = [{"acc": "acc", "c_tile": "c_tile"}, {"acc1": "acc", "c_tile1": "c_tile"}]
    assert as_one(texts, names) == ["hold(acc);", "f(&acc[4], c_tile, (8 + role_number * 16));"]
    assert as_one(texts, [{}, {}]) is None


def test_numbers_of_three_grow_evenly() -> None:
    lines = [[f"f({n});"] for n in (4, 6, 8)]
    assert as_one(lines, [{}] * 3) == [["f((4 + role_number * 2));"][0]]
    assert as_one([*lines[:2], ["f(9);"]], [{}] * 3) is None
    assert as_one([["f(m);"], ["f(m + 8);"], ["f(m + 16);"]], [{}] * 3) == ["f(m + role_number * 8);"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("f<2>(x);", "f<3>(x);"),  # arguments of templates
        ("g(f<2>(x));", "g(f<3>(x));"),
        ("g(argus::f<bf16, 2>(x));", "g(argus::f<bf16, 3>(x));"),
        ("f(x[1]);", "f(x[2]);"),  # registers
        ("for (int i = 0; i < 2; ++i) {", "for (int i = 0; i < 4; ++i) {"),  # what is unrolled
        ("alignas(16) float x[8];", "alignas(16) float x[16];"),
        ("const int x = 8;", "const int x = 16;"),
        ("f(x * 4);", "f(x + 64 * 4);"),  # which is another product
        ("f(x);", "f(y);"),
        ("f(1.0f);", "f(2.0f);"),
        ("f(8u);", "f(16u);"),
        ("f(8);", "f(4);"),
        ("f(0);", "f(4294967296);"),
        ("f(x);", "g(x);"),
        ("f(x);", "f(x, 8);"),
        ("f(x + 8);", "f(x);"),
        ("f(x);", "f(x - 8);"),
    ],
)
def test_what_is_not_alike(first: str, second: str) -> None:
    assert as_one([[first], [second]], [{}, {}]) is None
    assert as_one([[first], [first]], [{}, {}]) == [first]


def test_texts_of_other_lengths_are_not_alike() -> None:
    assert as_one([["f();"], ["f();", "g();"]], [{}, {}]) is None
