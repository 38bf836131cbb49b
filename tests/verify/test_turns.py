"""Named barriers in nested loops: roles that take turns in every iteration of every program, and a persistent relay.

Proved for any number of programs and iterations, also where their number depends on the program; refuted with a
replayed witness after every single edit.
"""

from __future__ import annotations

import numpy as np
import pytest

from argus.diagnostic import Severity, Verdict
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.wellformed import check_explicit
from argus.simulate import simulate
from argus.verify import verify
from tests.reject.case import ROOT
from tests.verify.turns import text

pytestmark = pytest.mark.slow

CAUSAL = ("maximum(minimum(K, program_id(0) * 64 + 64), 1)", "minimum(K, program_id(0) * 64 + 64)")
OWN, OTHER = "          barrier_sync 5 count 256\n", "          barrier_sync 6 count 256\n"
GIVEN, BACK = "          barrier_arrive 6 count 256\n", "          barrier_arrive 5 count 256\n"
FIRST = "      barrier_arrive 5 count 256\n      programs"
BEGINS = "    role compute0 warps 4 from 0 registers 200 {\n"
LATE = "          if k0 + 64 < K {\n            barrier_arrive 6 count 256\n          }\n"
OTHER_TRIPS = "for k0 in 0 .. K step 64 counter turn wrap 4 {\n          barrier_sync 6"

TURNS = {
    "nobody has the first turn": (FIRST, "      programs", "deadlock"),
    "a role does not wait for its turn": (OWN, "", "arrival-count"),
    "a role keeps its turn": (GIVEN, "", "arrival-count"),
    "a role keeps its turn in the last iteration": (GIVEN, LATE, "barrier-protocol"),
    "a role hands its turn to itself": (GIVEN, BACK, "barrier-protocol"),
    "a role waits for the other's turn": (OWN, OTHER, "barrier-protocol"),
    "both have the first turn": (BEGINS, BEGINS + GIVEN, "phase-overrun"),
    "a role has two turns at first": (FIRST, BACK + FIRST, "phase-overrun"),
    "the first turn comes in each program": (FIRST + " {\n", "      programs {\n" + BACK, "barrier-protocol"),
    "a role has more turns": (OTHER_TRIPS, OTHER_TRIPS.replace("K", "K + 64"), "barrier-protocol"),
}


def refuted(kernel_text: str, code: str) -> None:
    report = verify(parse_kernel(kernel_text), 120.0)
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    found = [d for d in report.diagnostics if d.verdict is Verdict.REFUTED and d.severity is Severity.ERROR]
    assert code in {d.code for d in found}, found
    assert all(d.witness is not None and d.witness.replayed for d in found), found


@pytest.mark.parametrize("lengths", [("K", "K"), CAUSAL], ids=["alike", "of each program"])
def test_accepted(lengths: tuple[str, str]) -> None:
    kernel = parse_kernel(text(*lengths))
    assert not check_explicit(kernel) and print_kernel(kernel) == text(*lengths)
    report = verify(kernel, 240.0)
    assert report.verdict is Verdict.PROVED, report.diagnostics


@pytest.mark.parametrize("name", TURNS)
def test_rejected(name: str) -> None:
    old, new, code = TURNS[name]
    assert text().count(old) == 1
    refuted(text().replace(old, new), code)


def test_lengths_of_each_program_are_those_of_both_roles() -> None:
    old = f"0 .. {CAUSAL[0]} step 64 counter turn wrap 4 {{\n          barrier_sync 6"
    assert text(*CAUSAL).count(old) == 1
    edited = text(*CAUSAL).replace(old, old.replace(CAUSAL[0], "maximum(K, 1)"))
    assert verify(parse_kernel(edited), 240.0).verdict is not Verdict.PROVED


def test_a_program_without_turns_is_refused() -> None:
    """Loops without a count of a ring's places: the first program takes no turn of the barriers, others do."""
    stop = "minimum(N, program_id(0) * 64)"
    found = verify(parse_kernel(relay(stop)), 240.0)
    assert found.verdict is Verdict.UNKNOWN and any("may take no turn" in d.message for d in found.diagnostics)
    assert verify(parse_kernel(relay(f"maximum({stop}, 1)")), 240.0).verdict is Verdict.PROVED


def test_simulated() -> None:
    rng = np.random.default_rng(5)
    m, n, k = 66, 8, 128
    a, b = rng.integers(-2, 3, (m, k)).astype(np.float32), rng.integers(-2, 3, (n, k)).astype(np.float32)
    for schedule in ("program", "reverse", "eager-compute1"):
        given = {"a": a, "b": b, "c": np.zeros((m, n), np.float32)}
        outcome = simulate(parse_kernel(text()), given, schedule=schedule)
        assert outcome.ok, outcome.violations
        assert np.array_equal(outcome.tensors["c"], a @ b.T)


# ---------------------------------------------------------------------------- data that barriers hand over


def relay(stop: str = "N") -> str:
    """The relay of `test_named_barriers` in a persistent kernel. With a `stop` of its own it stores nothing."""
    found = (ROOT / "tests/reject/kernels/relay.ir").read_text(encoding="utf-8")
    found = found.replace("grid [(M + 127) // 128]", "grid [(M + 127) // 128] persistent")
    if stop != "N":
        kept = (line for line in found.splitlines(keepends=True) if not line.lstrip().startswith(("spec", "copy out[")))
        found = "".join(kept).replace("0 .. N", f"0 .. {stop}")
    found = found.replace("      for n0", "      programs {\n        for n0")
    found = found.replace("      }\n    }", "}\n      }\n    }")
    return print_kernel(parse_kernel(found))


FULL, EMPTY = "          barrier_sync 3 count 256\n", "          barrier_sync 4 count 256\n"
GIVE, TAKE = "          barrier_arrive 3 count 256\n", "          barrier_arrive 4 count 256\n"
RELAY = {
    "the reader does not wait": ((FULL, ""), "arrival-count"),
    "the writer does not wait": ((EMPTY, ""), "arrival-count"),
    "nothing is handed over": ((GIVE, ""), "arrival-count"),
    "nothing is given back": ((TAKE, ""), "deadlock"),
    "not empty at first": (("      barrier_arrive 4 count 256\n      programs", "      programs"), "deadlock"),
    "handed over before it is written": ((GIVE, ""), (EMPTY, EMPTY + GIVE), "data-race"),
    "given back before it is read": ((TAKE, ""), (FULL, FULL + TAKE), "data-race"),
    "given back before it is waited for": ((TAKE, ""), (FULL, TAKE + FULL), "data-race"),
    "given back twice": ((FULL, FULL + TAKE), "barrier-protocol"),
    "the writer arrives and does not wait": ((EMPTY, EMPTY.replace("sync", "arrive")), "phase-overrun"),
}


def test_relay_accepted() -> None:
    assert verify(parse_kernel(relay()), 120.0).verdict is Verdict.PROVED


@pytest.mark.parametrize("name", RELAY)
def test_relay_rejected(name: str) -> None:
    *edits, code = RELAY[name]
    edited = relay()
    for old, new in edits:
        assert edited.count(old) == 1
        edited = edited.replace(old, new)
    refuted(edited, str(code))
