"""Named barriers between roles: proved as they stand, refuted with a replayed witness after every single edit.

`relay` hands a tile from one role to another, which arrive at one barrier and wait at the other; in `swap` two roles
wait for each other.
"""

from __future__ import annotations

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.diagnostic import ArgusError, Severity, SourceError, Verdict
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.wellformed import check_explicit
from argus.simulate import explore, simulate
from argus.verify import verify
from tests.backend.host import run
from tests.reject.case import ROOT

TEXTS = {name: (ROOT / f"tests/reject/kernels/{name}.ir").read_text(encoding="utf-8") for name in ("relay", "swap")}
FULL, EMPTY = "        barrier_sync 3 count 256\n", "        barrier_sync 4 count 256\n"
BEFORE = "      barrier_arrive 4"
GIVE, TAKE = "        barrier_arrive 3 count 256\n", "        barrier_arrive 4 count 256\n"
host = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


def edited(name: str, old: str = "", new: str = "", which: int = 0) -> Kernel:
    """A kernel in whose text one occurrence of `old` became `new`."""
    parts = TEXTS[name].split(old) if old else [TEXTS[name]]
    at = which + 1
    return parse_kernel(new.join([old.join(parts[:at]), old.join(parts[at:])]) if old else parts[0])


REFUTED = {
    "relay: the reader does not wait": (("relay", FULL, ""), {"arrival-count"}),
    "relay: the writer does not wait": (("relay", EMPTY, ""), {"arrival-count"}),
    "relay: nothing is handed over": (("relay", GIVE, ""), {"arrival-count"}),
    "relay: nothing is given back": (("relay", TAKE, ""), {"deadlock"}),
    "relay: not empty at first": (("relay", BEFORE + " count 256\n", ""), {"deadlock"}),
    "relay: the wrong barrier at first": (("relay", BEFORE, "      barrier_arrive 3"), {"deadlock"}),
    "relay: the reader waits for the wrong barrier": (("relay", FULL, EMPTY), {"barrier-protocol"}),
    "relay: the reader gives back too early": (("relay", FULL, FULL + TAKE), {"barrier-protocol"}),
    "relay: the writer arrives and does not wait": (
        ("relay", EMPTY, EMPTY.replace("sync", "arrive")),
        {"phase-overrun", "progress-unknown", "data-race"},
    ),
    "relay: handed over before it is written": (("relay", EMPTY, EMPTY + GIVE), {"barrier-protocol"}),
    "relay: one count is wrong": (("relay", "barrier_sync 3 count 256", "barrier_sync 3 count 128"), {"arrival-count"}),
    "swap: one does not come": (("swap", FULL, ""), {"uninitialised-read", "data-race", "arrival-count"}),
    "swap: one does not wait": (("swap", FULL, FULL.replace("sync", "arrive")), {"uninitialised-read", "data-race"}),
    "swap: in another order": (("swap", EMPTY, FULL, 1), {"barrier-protocol"}),
    "swap: the buffers are free too early": (("swap", EMPTY, EMPTY.replace("sync", "arrive"), 0), {"data-race"}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_accepted(name: str) -> None:
    kernel = edited(name)
    assert print_kernel(kernel) == TEXTS[name] and not check_explicit(kernel)
    report = verify(kernel, 120.0)
    assert report.verdict is Verdict.PROVED, report.diagnostics


@pytest.mark.parametrize("name", REFUTED)
def test_rejected(name: str) -> None:
    edit, codes = REFUTED[name]
    report = verify(edited(*edit), 120.0)
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    refuted = [d for d in report.diagnostics if d.verdict is Verdict.REFUTED and d.severity is Severity.ERROR]
    assert codes & {d.code for d in refuted}, refuted
    assert all(d.witness is not None and d.witness.replayed for d in refuted), refuted


ILL_FORMED = {
    "a role's own barrier": ("barrier_sync 3", "barrier_sync 2"),
    "no barrier of the block": ("barrier_sync 3", "barrier_sync 16"),
    "half a warp": ("barrier_sync 3 count 256", "barrier_sync 3 count 240"),
    "more threads than there are": ("barrier_sync 3 count 256", "barrier_sync 3 count 288"),
    "outside of roles": ("  roles {\n", "  barrier_arrive 3 count 256\n  roles {\n"),
    "another target": ("target sm_90a", "target sm_80"),
}


@pytest.mark.parametrize("name", ILL_FORMED)
def test_ill_formed(name: str) -> None:
    problems = check_explicit(edited("relay", *ILL_FORMED[name]))
    assert problems and all(p.code == "ill-formed-ir" for p in problems)
    with pytest.raises(SourceError):
        verify(edited("relay", *ILL_FORMED[name]))


# ---------------------------------------------------------------------------- what runs


def arguments(kernel: Kernel, m: int, n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    given = {t.name: np.full((m, n), np.nan, np.float32) for t in kernel.tensors}
    return given | {name: rng.standard_normal((m, n)).astype(np.float32) for name in ("x", "y") if name in given}


def right(name: str, given: dict[str, np.ndarray], result: dict[str, np.ndarray]) -> bool:
    wanted = {"out": 2 * given["x"]} if name == "relay" else {"u": given["y"], "v": given["x"]}
    return all(np.array_equal(result[key], value) for key, value in wanted.items())


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("n", [0, 32, 96])
def test_simulated(name: str, n: int) -> None:
    kernel = edited(name)
    roles = ("load", "compute") if name == "relay" else ("left", "right")
    given = arguments(kernel, 130, n)
    for schedule in ("program", "reverse", "lazy", *(f"eager-{role}" for role in roles), "random(1)"):
        outcome = simulate(kernel, given, schedule=schedule)
        assert outcome.ok and right(name, given, outcome.tensors), (schedule, outcome.violations)


@pytest.mark.parametrize("name", TEXTS)
def test_every_schedule(name: str) -> None:
    kernel = edited(name)
    given = arguments(kernel, 4, 40)
    outcomes = list(explore(kernel, given))
    assert len(outcomes) > 2
    assert all(o.ok and right(name, given, o.tensors) for o in outcomes)
    broken = edited(name, EMPTY, "")
    assert all(not o.ok for o in explore(broken, given))


@host
@pytest.mark.parametrize("name", TEXTS)
def test_on_the_host(name: str) -> None:
    kernel = edited(name)
    given = arguments(kernel, 130, 96)
    run(kernel, (2,), False, **given, M=130, N=96)
    assert right(name, given, given)


@host
def test_the_host_tells_what_hangs() -> None:
    kernel = edited("relay", TAKE, "")
    given = arguments(kernel, 4, 96)
    with pytest.raises(ArgusError, match="128 threads wait at barrier 4, where 128 of 256 are"):
        run(kernel, (1,), False, **given, M=4, N=96)
