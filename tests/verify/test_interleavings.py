"""All orders of events of hand-built kernels, which are right, and of what is wrong with their order, which are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from tests.verify.hopper import gemm
from tests.verify.hopper_mutants import MUTANTS
from tests.verify.interleavings import explore
from tests.verify.test_named_barriers import REFUTED, TEXTS, edited
from tests.verify.test_turns import RELAY, TURNS, relay
from tests.verify.turns import text

FENCES_AND_REGISTERS = {"no fence", "no wait before the epilogue"}
"""What is wrong with these is nothing that the order of events shows."""


def explored(kernel: Kernel, k: int) -> str | None:
    return explore(kernel, {"M": 128, "N": 128, "K": k}, [(0, 0)], 20000)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("k", [0, 64, 320])
def test_accepted(stages: int, k: int) -> None:
    wrong = explored(gemm(stages), k)
    if stages == 1 and k > 64:
        assert wrong is not None and wrong.startswith("deadlock"), "a buffer comes back an iteration late"
    else:
        assert wrong == ""


@pytest.mark.parametrize("name", sorted(set(MUTANTS) - FENCES_AND_REGISTERS))
def test_rejected(name: str) -> None:
    assert explored(MUTANTS[name](), 448)


def test_too_many_states() -> None:
    kernel = gemm()
    assert explore(kernel, {"M": 128, "N": 128, "K": 640}, [(0, 0)], 10) is None
    assert explored(replace(kernel, barriers=tuple(replace(b, count=1) for b in kernel.barriers)), 640)


# ---------------------------------------------------------------------------- named barriers


PROGRAMS = [(0, 0), (0, 1), (0, 2)]
NO_DATA_DEPENDS_ON_IT = {"a role does not wait for its turn", "a role has two turns at first"}
"""Their phases are told apart no more, and yet nobody waits for ever, and nobody touches what is another's."""


def turned(kernel_text: str, k: int) -> str | None:
    return explore(parse_kernel(kernel_text), {"M": 1, "N": 150, "K": k}, PROGRAMS, 20000)


@pytest.mark.parametrize("k", [0, 64, 192])
def test_turns_accepted(k: int) -> None:
    assert turned(text(), k) == ""


@pytest.mark.parametrize("name", sorted(set(TURNS) - NO_DATA_DEPENDS_ON_IT))
def test_turns_rejected(name: str) -> None:
    old, new, _ = TURNS[name]
    assert turned(text().replace(old, new), 192)


def met(kernel: Kernel, n: int) -> str | None:
    return explore(kernel, {"M": 1, "N": n}, [(i,) for i in range(3)], 20000)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("n", [0, 32, 160])
def test_meetings_accepted(name: str, n: int) -> None:
    assert met(edited(name), n) == ""
    assert met(parse_kernel(relay()), n) == ""


A_TILE_TOO_EARLY = "relay: the wrong barrier at first"
"""Reads and writes alternate, though the first read comes before the first write."""


@pytest.mark.parametrize("name", sorted(set(REFUTED) - {A_TILE_TOO_EARLY}))
def test_meetings_rejected(name: str) -> None:
    assert met(edited(*REFUTED[name][0]), 160)


@pytest.mark.parametrize("name", RELAY)
def test_relay_rejected(name: str) -> None:
    *edits, _ = RELAY[name]
    changed = relay()
    for old, new in edits:
        changed = changed.replace(old, new)
    assert met(parse_kernel(changed), 160)
