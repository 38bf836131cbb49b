"""What the interpreter refuses in machine code: a wait or a barrier that is missing, and accesses out of bounds."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.machine import cases
from tests.machine.cases import Case
from tests.machine.gfx942.code import Code, Instruction, load
from tests.machine.gfx942.wave import Hazard
from tests.machine.kernels import built, run
from tests.verify.test_wave_turns import rows

pytestmark = pytest.mark.slow

GEMM = (64, 64, 4, 72, 72, 72)


def edited(code: Code, at: int, name: str, operands: str) -> Code:
    """Replace the instruction at an address by another of the same size."""
    changed = tuple(replace(i, name=name, operands=operands) if i.address == at else i for i in code.instructions)
    return replace(code, instructions=changed)


def executed(case: Case) -> list[Instruction]:
    """The barriers that a run passes, and the waits that wait for something; the run itself is right."""
    visited: set[int] = set()
    code = load(built(case.kernel))
    case.check(code, visited)
    return [i for i in code.instructions if i.address in visited and i.name in ("s_waitcnt", "s_barrier")]


def missed(edit: str, *runs: Case) -> list[str]:
    """The edits, one at a time, that neither a rule nor the result catches in any run of the same code.

    Without steps the first loads are waited for elsewhere, so that one run does not need every wait.
    """
    code = load(built(runs[0].kernel))
    passed = {i.address: i for case in runs for i in executed(case)}
    return [
        f"{i.text} -> {name} {operands}"
        for i in passed.values()
        for name, operands in edits(i, edit)
        if not any(caught(case, edited(code, i.address, name, operands)) for case in runs)
    ]


def caught(case: Case, code: Code) -> bool:
    try:
        case.check(code)
    except (Hazard, AssertionError):
        return True
    return False


def edits(i: Instruction, edit: str) -> list[tuple[str, str]]:
    if edit == "left out":
        return [("s_nop", "0")]
    if i.name == "s_barrier":
        return []
    return [
        (i.name, i.operands.replace(text, f"{name}({int(count) + 1})"))
        for text, name, count in re.findall(r"((\w+)\((\d+)\))", i.operands)
    ]


@pytest.mark.parametrize("edit", ["left out", "one too few"])
def test_every_wait_and_barrier_of_a_product_is_needed(edit: str) -> None:
    assert missed(edit, cases.gemm(*GEMM), cases.gemm(*GEMM[:5], 0)) == []


@pytest.mark.parametrize("near", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["addresses", "offsets"])
@pytest.mark.parametrize(
    ("edit", "harmless"),
    [
        ("left out", ["s_waitcnt vmcnt(0) -> s_nop 0"]),
        (
            "one too few",
            [
                "s_waitcnt vmcnt(8) lgkmcnt(0) -> s_waitcnt vmcnt(8) lgkmcnt(1)",
                "s_waitcnt vmcnt(0) -> s_waitcnt vmcnt(1)",
            ],
        ),
    ],
)
def test_counted_waits_of_loads_to_lds_are_needed(edit: str, harmless: list[str], near: bool) -> None:
    """Loads two steps ahead, and the waits that the kernel's author wrote.

    Two are there for every path, and not needed on this one: the last, because the end of a program waits by itself;
    and that for LDS, because the compiler has waited for the operands of the products before.
    """
    assert missed(edit, cases.example("gemm_waves", 64, 72, 64, 168, near)) == harmless


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("edit", "harmless"),
    [
        ("left out", ["s_waitcnt lgkmcnt(0) -> s_nop 0"]),
        ("one too few", ["s_waitcnt lgkmcnt(0) -> s_waitcnt lgkmcnt(1)"]),
    ],
)
def test_waits_and_barriers_of_attention_are_needed(edit: str, harmless: list[str]) -> None:
    """All but one, before the barrier behind the loop: only reads for an iteration that does not come are under way."""
    assert missed(edit, cases.attention(128, True, 1, 70, 75)) == harmless


def test_a_barrier_before_the_wait_is_caught() -> None:
    """Writes to LDS are waited for, then all meet: the other way round a wave reads what is not there yet."""
    case = cases.gemm(*GEMM)
    code = load(built(case.kernel))
    places = {i.address: n for n, i in enumerate(code.instructions)}
    barrier = next(i for i in executed(case) if i.name == "s_barrier")
    wait = code.instructions[places[barrier.address] - 1]
    assert wait.text == "s_waitcnt lgkmcnt(0)"
    swapped = edited(edited(code, wait.address, "s_barrier", ""), barrier.address, "s_waitcnt", wait.operands)
    with pytest.raises(Hazard, match="written by wave"):
        case.check(swapped)


def test_stores_out_of_bounds_are_caught() -> None:
    case = cases.gemm(*GEMM)
    short = replace(case, named={**case.named, "c": np.zeros((71, 72), np.uint16)}, right={"c": case.right["c"][:71]})
    with pytest.raises(Hazard, match="outside of what the launch allows"):
        short.check()
    replace(short, named={**short.named, "M": 71}).check()


def test_stores_to_inputs_are_caught() -> None:
    case = cases.gemm(*GEMM)
    with pytest.raises(Hazard, match="are written, outside of what the launch allows"):
        replace(case, right={}).check()


def test_halves_that_take_turns_are_seen_to_race() -> None:
    """The half that is behind writes the next row while the other half reads it."""
    x = np.arange(5 * 256, dtype=np.float32).reshape(5, 256)
    y = np.zeros_like(x)
    run(rows(), (1,), ("y",), x=x, y=y, N=5)
    np.testing.assert_array_equal(y, x[:, ::-1])
    with pytest.raises(Hazard):
        run(rows(early=False), (1,), ("y",), x=x, y=y, N=5)
