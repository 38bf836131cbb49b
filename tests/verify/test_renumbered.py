"""Programs numbered otherwise: counted from the end of an axis, or by quotient and remainder, and wrong twins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus.diagnostic import Verdict
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_expr, print_kernel
from argus.verify import verify
from argus.verify.reductions.renumbered import renumbered

BACK = "((M + 63) // 64 - 1 - program_id(0)) * 64"
PART, PLACE = "((M + 63) // 64 * 4 - 1 - program_id(0)) % 4", "((M + 63) // 64 * 4 - 1 - program_id(0)) // 4 * 64"


def copies(extent: str, part: str, first: str, persistent: str = " persistent") -> Kernel:
    """A kernel that doubles parts of rows: y[part, row] = 2 * x[part, row]."""
    return parse_kernel(f"""kernel copies
target sm_90a
warps 2 of 32
size M
tensor x: float32[4, M] strides [x.stride0:int64, 1:int64] align 4
tensor y: float32[4, M] strides [y.stride0:int64, 1:int64] align 4
grid [{extent}]{persistent}
fragment t: float32 64 layout [64 | t 64@0 | v]
body {{
  spec y(p, m) = x[c0, c1] * 2.0
  programs {{
    copy t[c0] <- x[{part}, {first} + c0] shape 64 if {first} + c0 < M else 0.0 layout [64 | t 64@0 | v] via ld.global
    map t[c0] = t[c0] * 2.0 shape 64 layout [64 | t 64@0 | v] scope thread
    copy y[{part}, {first} + c0] <- t[c0] shape 64 if {first} + c0 < M layout [64 | t 64@0 | v] via st.global
  }}
}}
""")


PARTS = copies("(M + 63) // 64 * 4", PART, PLACE)


def places(kernel: Kernel) -> str:
    return next(line.split("<-")[1].split(" if")[0] for line in print_kernel(kernel).splitlines() if "copy t" in line)


def test_an_axis_is_divided_and_turned_round() -> None:
    form = renumbered(PARTS)
    assert [print_expr(e) for e in form.grid or ()] == ["(M + 63) // 64", "4"]
    assert places(form).strip() == "x[3 + program_id(1) * -1, program_id(0) * 64 + c0] shape 64"


def test_other_places_keep_their_numbers() -> None:
    """Quotients by other numbers, and places counted from the beginning, are as they were."""
    by_three = copies("(M + 63) // 64 * 4", "program_id(0) % 3", "program_id(0) // 3 * 64")
    assert renumbered(by_three) is by_three
    plain = copies("(M + 63) // 64", "0", "program_id(0) * 64")
    assert renumbered(plain) is plain
    assert renumbered(replace(PARTS, cluster=2)).grid == PARTS.grid


def test_proved() -> None:
    assert verify(PARTS, 60.0).verdict is Verdict.PROVED


@pytest.mark.parametrize(
    ("part", "place"),
    [
        (PART.replace("% 4", "% 2"), PLACE),
        (PART, PLACE.replace("- 1 -", "-")),
        (PART, PLACE.replace("// 4 * 64", "// 4 * 32")),
        ("program_id(0) % 4", PLACE.replace("// 4 * 64", "// 5 * 64")),
    ],
)
def test_refuted(part: str, place: str) -> None:
    report = verify(copies("(M + 63) // 64 * 4", part, place), 60.0)
    assert report.verdict is Verdict.REFUTED


def test_the_number_may_be_a_value() -> None:
    """It is replaced in values, too: a program that adds its own number is not what is specified."""
    text = print_kernel(PARTS).replace("t[c0] * 2.0", "t[c0] + float32(program_id(0))", 1)
    form = renumbered(parse_kernel(text))
    (value,) = (line for line in print_kernel(form).splitlines() if "map t" in line)
    assert "program_id(1)" in value
    assert verify(parse_kernel(text), 60.0).verdict is Verdict.REFUTED
