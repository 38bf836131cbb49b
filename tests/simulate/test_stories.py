"""What witnesses tell of asynchronous faults: the steps that led there, and the order that is missing."""

from __future__ import annotations

import pytest

from argus.diagnostic import Diagnostic, Verdict
from argus.ir.nodes import Kernel
from argus.render import diagnostics_text, witness_json
from argus.simulate import Violation, replay
from argus.verify.findings import FailurePlace
from argus.verify.witness import witness
from tests.conftest import Golden
from tests.simulate.kernels import parse
from tests.simulate.test_persistent import COPY
from tests.simulate.test_persistent import REJECTED as STORES
from tests.simulate.test_roles import SIZES, first
from tests.verify.hopper_mutants import MUTANTS

ROLES = {
    "race_of_roles": ("release before the product is complete", "data-race"),
    "unfinished_product": ("no wait in the loop", "data-race"),
    "deadlock": ("no release", "deadlock"),
    "phase_overrun": ("producer does not wait", "phase-overrun"),
    "register_in_flight": ("no wait before the epilogue", "register-in-flight"),
    "mma_fence": ("no fence", "missing-mma-fence"),
}
PROGRAMS = {
    "proxy_fence": ("no fence between what the threads read and the next box", "missing-proxy-fence"),
    "store_source": ("the source is written while a store may read it", "data-race"),
    "programs_deadlock": ("the last buffer of a program is not handed back", "deadlock"),
    "programs": ("a box of another program", "block-race"),
}


def told(kernel: Kernel, sizes: dict[str, int], violation: Violation) -> str:
    """The diagnostic as a person reads it."""
    shown = witness(kernel, FailurePlace(sizes, violation.block), violation)
    found = Diagnostic(violation.code, violation.message, verdict=Verdict.REFUTED, witness=shown)
    return diagnostics_text([found]).plain


@pytest.mark.parametrize("name", ROLES)
def test_roles(name: str, golden: Golden) -> None:
    mutant, code = ROLES[name]
    kernel = MUTANTS[mutant]()
    violation = first(replay(kernel, SIZES, [(0, 0)], tags=False), code)
    assert len(violation.trace) <= 12
    golden(f"stories/{name}.txt", told(kernel, SIZES, violation))


def test_a_copy_that_is_not_waited_for(golden: Golden) -> None:
    kernel = parse(COPY, ("          mbarrier_wait full[n % 2] parity n // 2 % 2\n", ""))
    sizes = {"M": 16, "K": 64}
    violation = first(replay(kernel, sizes, None, tags=False, schedule="random(5)"), "uninitialised-read")
    golden("stories/unawaited.txt", told(kernel, sizes, violation))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, golden: Golden) -> None:
    edit, code = PROGRAMS[name][0], PROGRAMS[name][1]
    kernel, sizes = parse(COPY, STORES[edit][0]), {"M": 70, "K": 136}
    violation = first(replay(kernel, sizes, None, tags=False), code)
    golden(f"stories/{name}.txt", told(kernel, sizes, violation))


def test_a_story_for_programs() -> None:
    kernel = MUTANTS["release before the product is complete"]()
    violation = first(replay(kernel, SIZES, [(0, 0)], tags=False), "data-race")
    shown = witness_json(witness(kernel, FailurePlace(SIZES, (0, 0)), violation))
    assert [(e["role"], e["what"], e["barrier"], e["phase"]) for e in shown["trace"]] == [
        ("compute", "wait", "full[0]", 1),
        ("compute", "issue", None, None),
        ("compute", "arrive", "empty[0]", 1),
        ("producer", "wait", "empty[0]", 1),
        ("producer", "expect", "full[0]", 2),
        ("producer", "issue", "full[0]", 2),
    ]
    assert [e["iteration"] for e in shown["trace"]] == [{"k0": k} for k in (0, 0, 64, 192, 192, 192)]
    assert shown["missing"].startswith("nothing orders compute's asynchronous read of stage 0 of at (k0 = 0) before")


def test_long_stories_are_cut_in_the_middle() -> None:
    kernel = MUTANTS["no release"]()
    violation = first(replay(kernel, SIZES, [(0, 0)], tags=False), "deadlock")
    assert 2 < len(violation.trace) <= 12 and violation.trace[-1].what == "blocked"


@pytest.mark.parametrize("schedule", ["reverse", "lazy", "eager-producer", "random(3)"])
def test_every_schedule_names_the_same_order(schedule: str) -> None:
    kernel = MUTANTS["release before the product is complete"]()
    violation = first(replay(kernel, SIZES, [(0, 0)], tags=False, schedule=schedule), "data-race")
    assert violation.missing.endswith("producer waits for no arrival that compute makes after its wait for the product")
