"""Loads to LDS that waves count: what a wait covers, what a bare barrier orders, and what lanes may write."""

from __future__ import annotations

import numpy as np
import pytest

from argus.diagnostic import SourceError, Verdict
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.simulate import simulate
from argus.verify import verify
from tests.verify.waves import FULL, fetch, halves, judged, kernel, proved, refuted, ring, use

LIMIT_S = 120.0


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_a_wait_leaves_what_was_loaded_since(ahead: int) -> None:
    """Each row is two loads a wave: all but those of the `ahead - 1` younger rows must be there."""
    open_loads = 2 * (ahead - 1)
    assert proved(ring(f"s_waitcnt vmcnt {open_loads}", ahead=ahead))
    assert open_loads == 0 or proved(ring(f"s_waitcnt vmcnt {open_loads - 1}", ahead=ahead))
    weak = refuted(ring(f"s_waitcnt vmcnt {open_loads + 1}", ahead=ahead))
    assert weak.code == "data-race"
    assert "vmcnt" in weak.help


def test_no_wait() -> None:
    assert refuted(ring(wait="")).code == "data-race"


def test_no_barrier() -> None:
    assert refuted(ring(barrier="")).code == "data-race"


def test_statements_are_counted_by_their_loads() -> None:
    """A row in halves, the next in one: one and two loads; the wait leaves the whole younger row open."""

    def steps(open_loads: int) -> Kernel:
        loads = [*halves("i", "0"), fetch("i + 1", "1")]
        wait = [f"s_waitcnt vmcnt {open_loads}", "barrier"]
        return kernel(["for i in 0 .. N step 1 {", *loads, *wait, *use("i", "0"), "s_waitcnt vmcnt 0", "barrier", "}"])

    assert proved(steps(2))
    assert refuted(steps(3)).code == "data-race"


def test_younger_loads_of_a_branch_count_where_they_run() -> None:
    """A load that is not issued at the end leaves the wait too weak there: the count must not depend on it."""

    def body(inside: bool) -> Kernel:
        ahead = fetch("i + 1", "(i + 1) % 2")
        load = ["if i + 1 < N {", ahead, "}"] if inside else [ahead]
        loop = ["for i in 0 .. N step 1 {", *load, "s_waitcnt vmcnt 2", "barrier", *use("i", "i % 2"), "barrier", "}"]
        return kernel([fetch("0", "0"), *loop, "s_waitcnt vmcnt 0"], 2)

    assert proved(body(False))
    found = refuted(body(True))
    assert found.code == "data-race"
    assert found.witness is not None and found.witness.sizes["N"] == 1


def test_a_bare_barrier_orders_what_was_waited_for() -> None:
    assert proved(ring("s_waitcnt vmcnt 2 lgkmcnt 0", "s_barrier"))
    assert refuted(ring("s_waitcnt vmcnt 2", "s_barrier")).code == "data-race"
    assert refuted(ring("s_waitcnt vmcnt 2 lgkmcnt 1", "s_barrier")).code == "data-race"


def test_ordinary_accesses_to_lds_need_the_wait_before_a_bare_barrier() -> None:
    def turned(between: list[str]) -> Kernel:
        rows = ["for i in 0 .. N step 1 {", f"copy r[c0] <- x[i, c0] shape 256 layout {FULL} via buffer_load"]
        write = f"copy s[0, c0] <- r[c0] shape 256 layout {FULL} via ds_write"
        return kernel([*rows, write, *between, *use("i", "0"), "barrier", "}"], 1)

    assert proved(turned(["barrier"]))
    assert proved(turned(["s_waitcnt lgkmcnt 0", "s_barrier"]))
    assert refuted(turned(["s_barrier"])).code == "data-race"
    assert refuted(turned(["s_barrier", "s_waitcnt lgkmcnt 0"])).code == "data-race"


def test_a_load_is_in_order_with_no_lane() -> None:
    """Even what the same lane read before must have been waited for, at a barrier."""

    def again(between: list[str]) -> Kernel:
        own = f"copy r[c0] <- s[0, c0] shape 256 layout {FULL} via ds_read"
        rows = ["for i in 0 .. N step 1 {", fetch("i", "0"), "s_waitcnt vmcnt 0", own, *between]
        return kernel([*rows, f"copy y[i, c0] <- r[c0] shape 256 layout {FULL} via buffer_store", "}"], 1)

    assert proved(again(["barrier"]))
    assert refuted(again([])).code == "data-race"


def test_lanes_write_one_run() -> None:
    """Elements that do not lie side by side in the tile are elsewhere than where lanes write them."""
    assert proved(ring())
    text = print_kernel(ring()).replace("layout (3,256):(256,1)", "layout (3,(2,128)):(256,(128,1))")
    found = refuted(parse_kernel(text))
    assert (found.code, found.property) == ("lds-lane-order", "machine")


def test_every_wave_waits_by_itself() -> None:
    assert refuted(ring("if thread < 64 {\ns_waitcnt vmcnt 2\n}")).code == "data-race"


def test_lanes_of_a_wave_stay_together() -> None:
    codes = {d.code for d in verify(ring("if thread < 32 {\ns_waitcnt vmcnt 2\n}"), LIMIT_S).diagnostics}
    assert "divergent-collective" in codes


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("s_waitcnt vmcnt 2", "s_waitcnt vmcnt 64", "vmcnt of s_waitcnt is 0 to 63"),
        ("s_waitcnt vmcnt 2", "s_waitcnt", "a wait names a counter"),
        ("if i + 2 < N else 0.0", "if i + 2 < N else 1.0", "need `other` 0"),
        ("if i + 2 < N else 0.0", "if i + 2 < N", "need `other` 0"),
        (f"layout {FULL} via global_load_lds", "layout [256 | t 64@0 2@_ | v 4@0*64] via global_load_lds", "replicas"),
    ],
)
def test_ill_formed(right: str, wrong: str, message: str) -> None:
    text = print_kernel(ring())
    assert right in text
    with pytest.raises(SourceError, match=message):
        verify(parse_kernel(text.replace(right, wrong)), LIMIT_S)


def test_other_targets_have_no_waves() -> None:
    text = print_kernel(ring()).replace("target gfx942", "target sm_80").replace("warps 2 of 64", "warps 4 of 32")
    with pytest.raises(SourceError, match="sm_80 has no"):
        verify(parse_kernel(text), LIMIT_S)


def test_simulated_values() -> None:
    """Data lands at the wait, so the rows arrive reversed and whole."""
    x = np.arange(5 * 256, dtype=np.float32).reshape(5, 256)
    outcome = simulate(ring(), {"x": x, "y": np.zeros_like(x)})
    assert not outcome.violations
    np.testing.assert_array_equal(outcome.tensors["y"], x[:, ::-1])


def test_mutants_of_the_ring_are_judged_alike() -> None:
    """Waits and barriers left out, moved or counted otherwise: what is proved breaks nothing in the simulator."""
    seen = judged(ring("s_waitcnt vmcnt 2 lgkmcnt 0", "s_barrier"), ("wait", "barrier", "load less", "load more"))
    assert seen[Verdict.PROVED] >= 2 and seen[Verdict.REFUTED] >= 8 and not seen[Verdict.UNKNOWN], seen
