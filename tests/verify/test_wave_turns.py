"""Halves of a block's waves that take turns: one loads while the other computes, one barrier apart."""

from __future__ import annotations

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.diagnostic import SourceError, Verdict
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.simulate import simulate
from argus.verify import verify
from tests.backend.host import run
from tests.verify.waves import FULL, LIMIT_S, judged, kernel, refuted

TO_LDS = ["s_waitcnt lgkmcnt 0", "s_barrier"]


def fetch(row: str) -> list[str]:
    """A row of `x` into registers."""
    return [f"copy r[c0] <- x[{row}, c0] shape 256 if {row} < N else 0.0 layout {FULL} via buffer_load"]


def deposit(row: str) -> list[str]:
    return [f"copy s[{row} % 2, c0] <- r[c0] shape 256 layout {FULL} via ds_write"]


def take(row: str) -> list[str]:
    """What every thread reads was written by the other wave."""
    return [f"copy r[c0] <- s[{row} % 2, 255 - c0] shape 256 layout {FULL} via ds_read"]


def store(row: str) -> list[str]:
    asserted = "assert (l) in 256 {r[c0] carries [" + f"{row}, 255 - c0]" + "}"
    return [asserted, f"copy y[{row}, c0] <- r[c0] shape 256 layout {FULL} via buffer_store"]


def rows(*, turns: bool = True, early: bool = True, wait: bool = True, full: bool = False) -> Kernel:
    """Two steps an iteration: row i comes to registers, and goes to memory. The next row goes to LDS in the first step
    (`early`) or in the second. `wait`: accesses to LDS are done before a barrier. `full`: with full barriers."""
    meet = ["barrier"] if full else TO_LDS if wait else ["s_barrier"]
    ahead = [*fetch("(i + 1)"), *deposit("(i + 1)")]
    # Only one register tile: what is stored comes after the tile was used for the row ahead.
    first = [*(ahead if early else ()), *take("i")]
    second = [*store("i"), *(() if early else ahead)]
    loop = ["for i in 0 .. N step 1 {", *first, *meet, *second, *meet, "}"]
    begin, end = (["begin_turns"], ["end_turns"]) if turns else ([], [])
    return kernel([*fetch("0"), *deposit("0"), "barrier", *begin, *loop, *end], 2)


@pytest.mark.parametrize("full", [False, True], ids=["bare", "full"])
def test_accesses_two_barriers_apart_are_ordered(full: bool) -> None:
    assert verify(rows(full=full), LIMIT_S).verdict is Verdict.PROVED


@pytest.mark.parametrize("full", [False, True], ids=["bare", "full"])
def test_a_write_beside_the_reads_of_the_other_half(full: bool) -> None:
    """The half that is behind writes the next row while the other half reads it. Without turns, one barrier is
    enough."""
    assert refuted(rows(early=False, full=full)).code == "data-race"
    assert verify(rows(early=False, full=full, turns=False), LIMIT_S).verdict is Verdict.PROVED


def test_a_barrier_before_reads_are_done() -> None:
    """The race of triton#11696: the other half overwrites a tile whose reads are still under way."""
    assert refuted(rows(wait=False)).code == "data-race"


def test_halves_that_share_nothing_need_no_second_barrier() -> None:
    """Each wave reads what it wrote: one barrier is enough, because nothing passes from one half to the other."""

    def own(index: str) -> Kernel:
        return parse_kernel(print_kernel(rows(early=False)).replace("255 - c0", index))

    assert verify(own("c0"), LIMIT_S).verdict is Verdict.PROVED
    assert refuted(own("(c0 + 64) % 256")).code == "data-race"


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("  end_turns\n", "", "from one `begin_turns` to one `end_turns`"),
        ("  begin_turns\n", "", "from one `begin_turns` to one `end_turns`"),
        ("  begin_turns\n", "  if 0 < N {\n    begin_turns\n  }\n", "from one `begin_turns` to one `end_turns`"),
        ("  end_turns\n", "  end_turns\n  begin_turns\n  end_turns\n", "from one `begin_turns` to one `end_turns`"),
        ("target gfx942", "target sm_80", "has no s_barrier"),
    ],
)
def test_ill_formed(right: str, wrong: str, message: str) -> None:
    text = print_kernel(rows())
    assert right in text
    text = text.replace(right, wrong)
    if "sm_80" in text:
        text = text.replace("warps 2 of 64", "warps 4 of 32")
    with pytest.raises(SourceError, match=message):
        verify(parse_kernel(text), LIMIT_S)


@pytest.mark.parametrize("schedule", ["program", "reverse", "lazy", "random(3)"])
def test_simulated_values(schedule: str) -> None:
    x = np.arange(5 * 256, dtype=np.float32).reshape(5, 256)
    outcome = simulate(rows(), {"x": x, "y": np.zeros_like(x)}, schedule=schedule)
    assert not outcome.violations
    np.testing.assert_array_equal(outcome.tensors["y"], x[:, ::-1])
    assert simulate(rows(early=False), {"x": x, "y": np.zeros_like(x)}, schedule=schedule).violations


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
def test_the_emitted_text_on_the_host() -> None:
    x = np.arange(5 * 256, dtype=np.float32).reshape(5, 256)
    y = np.zeros_like(x)
    run(rows(), (1,), x=x, y=y, N=5)
    np.testing.assert_array_equal(y, x[:, ::-1])


def test_mutants_are_judged_alike() -> None:
    """Waits, barriers and turns left out or moved: what is proved breaks nothing in the simulator."""
    seen = judged(rows(), ("wait", "barrier", "turns"))
    assert seen[Verdict.PROVED] >= 1 and seen[Verdict.REFUTED] >= 4, seen
