"""Roles that are alike but for the turns that they take: proved as one role without turns, and nothing wrong so."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest

from argus.diagnostic import Severity, Verdict
from argus.ir.nodes import BarrierArrive, BarrierSync, Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.visit import walk
from argus.verify import verify
from argus.verify.reductions.alike import alone
from tests.passes.test_apart import lowered
from tests.passes.test_turns import TURNS
from tests.verify.test_alike import roles


@cache
def product(groups: int = 2) -> str:
    return print_kernel(lowered(TURNS, BLOCK_M=64 * groups))


def comes(kernel: Kernel) -> bool:
    return any(isinstance(s, BarrierSync | BarrierArrive) for s in walk(kernel.body))


@pytest.mark.parametrize("groups", [2, 3])
def test_accepted(groups: int) -> None:
    kernel = parse_kernel(product(groups))
    one = alone(kernel)
    assert comes(kernel) and not comes(one) and roles(one) == ["producer", "compute"]
    assert verify(kernel, 120.0).verdict is Verdict.PROVED


OWN, OTHER = "          barrier_sync 4 count 256\n", "          barrier_sync 5 count 256\n"
GIVEN, BACK = "          barrier_arrive 5 count 256\n", "          barrier_arrive 4 count 256\n"
FIRST = "      barrier_arrive 4 count 256\n      programs"
DONE = "          mma_wait 1\n"
LAST = "          if k0 + 64 < K {\n            barrier_arrive 5 count 256\n          }\n"


def both(old: str, new: str) -> str:
    """In both roles, that differ in what they come to."""
    swapped = str.maketrans("45", "54")
    return product().replace(old, new).replace(old.translate(swapped), new.translate(swapped))


def edited(*pairs: tuple[str, str]) -> str:
    text = product()
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


WRONG: dict[str, tuple[Callable[[], str], str]] = {
    "nobody has the first turn": (lambda: edited((FIRST, "      programs")), "deadlock"),
    "the first turn comes in each program": (
        lambda: edited((FIRST + " {\n", "      programs {\n" + BACK)), "barrier-protocol"),
    "both roles begin": (lambda: product().replace(
        "240 {\n      programs", "240 {\n      barrier_arrive 5 count 256\n      programs", 1), "phase-overrun"),
    "a role keeps its turn": (lambda: edited((GIVEN, "")), "arrival-count"),
    "a role keeps its turn in the last iteration": (lambda: edited((GIVEN, LAST)), "barrier-protocol"),
    "a role does not wait for its turn": (lambda: edited((OWN, "")), "arrival-count"),
    "each hands its turn to itself": (lambda: both(GIVEN, BACK), "barrier-protocol"),
    "each waits for its turn behind it": (
        lambda: edited((OWN, ""), (OTHER, ""), (GIVEN, GIVEN + OWN), (BACK, BACK + OTHER)), "phase-overrun"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_rejected(name: str) -> None:
    make, code = WRONG[name]
    text = make()
    kernel = parse_kernel(text)
    assert text != product() and comes(alone(kernel)), "its turns are looked at one by one"
    report = verify(kernel, 120.0)
    found = [d for d in report.diagnostics if d.verdict is Verdict.REFUTED and d.severity is Severity.ERROR]
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    assert code in {d.code for d in found}, found
    assert all(d.witness is not None and d.witness.replayed for d in found), found


def test_a_turn_may_wait_for_a_tile() -> None:
    kernel = parse_kernel(re.sub(r"( +mbarrier_wait full.*\n.*\n)( +barrier_sync .*\n)", r"\2\1", product()))
    assert kernel != parse_kernel(product()) and not comes(alone(kernel))
    assert verify(kernel, 120.0).verdict is Verdict.PROVED


def test_a_turn_that_waits_for_the_next_one_is_refused() -> None:
    """In its turn each role asks the producer for leave, which gives it when both have asked."""
    turn = (
        r"\1          mbarrier_arrive asked[turn % 1]\n          mbarrier_wait leave[turn % 1] parity turn // 1 % 2\n"
    )
    text = re.sub(r"( +barrier_sync . count 256\n)", turn, product())
    given = (
        r"\1          mbarrier_wait asked[turn % 1] parity turn // 1 % 2\n          mbarrier_arrive leave[turn % 1]\n"
    )
    text = re.sub(r"(.*bt\[turn.*<~ b.*\n)", given, text)
    declared = "mbarrier asked count 1 arrivals 8 at 98304\nmbarrier leave count 1 arrivals 1 at 98312\n"
    text = re.sub(r"(mbarrier empty .*\n)", rf"\1{declared}", text)
    text = text.replace("mbarrier_init empty\n", "mbarrier_init empty\n  mbarrier_init asked\n  mbarrier_init leave\n")
    kernel = parse_kernel(text)
    assert not comes(alone(kernel))
    report = verify(kernel, 120.0)
    found = [d for d in report.diagnostics if d.verdict is Verdict.REFUTED and d.severity is Severity.ERROR]
    assert "deadlock" in {d.code for d in found}, report.diagnostics
    assert all(d.witness is not None and d.witness.replayed for d in found), found


UNLIKE = {
    "turns are at other places": edited((GIVEN + DONE, DONE + GIVEN)),
    "each waits for its next turn": edited((OWN, ""), (OTHER, ""), (GIVEN, GIVEN + OWN), (BACK, BACK + OTHER)),
    "another barrier is used": product().replace(FIRST, "      barrier_arrive 6 count 256\n" + FIRST),
    "other threads are counted": product().replace("count 256", "count 288"),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_other_turns_are_not_left_out(name: str) -> None:
    """Whether they are right or wrong, the rule that leaves turns out does not speak of them."""
    kernel = parse_kernel(UNLIKE[name])
    assert UNLIKE[name] != product() and alone(kernel) is kernel
