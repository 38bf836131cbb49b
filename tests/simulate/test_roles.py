"""Roles, mbarriers, bulk copies and asynchronous products: the hand-built GEMM and everything that can break it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.simulate import Outcome, Violation, replay, simulate
from tests.verify.hopper import gemm
from tests.verify.hopper_mutants import MUTANTS

pytestmark = pytest.mark.slow

SCHEDULES = ("program", "reverse", "lazy", "eager-compute", "eager-producer", "random(1)")
SIZES = {"M": 128, "N": 128, "K": 400}


def gemm_run(kernel: Kernel, m: int, n: int, k: int, schedule: str) -> tuple[Outcome, bool]:
    """The outcome, and whether the result is NumPy's."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, (rows, k)).astype(np.float32) for rows in (m, n))
    arguments = {"a": a, "b": b, "c": np.full((m, n), np.nan, np.float32)}
    outcome = simulate(kernel, arguments, tags=True, schedule=schedule)
    return outcome, bool(np.array_equal(outcome.tensors["c"], a @ b.T))


@pytest.mark.product
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("m", "n", "k"), [(4, 4, 0), (5, 12, 8), (132, 8, 120), (8, 20, 456)])
def test_accepted(schedule: str, m: int, n: int, k: int) -> None:
    outcome, right = gemm_run(gemm(), m, n, k, schedule)
    assert outcome.ok and outcome.complete, [str(v) for v in outcome.violations]
    assert right


@pytest.mark.parametrize("stages", [2, 4])
def test_other_numbers_of_stages(stages: int) -> None:
    assert gemm_run(gemm(stages), 4, 4, 392, "lazy")[1]
    assert not replay(gemm(stages), SIZES, [(0, 0)])


CAUGHT = {
    "consumer does not wait": {"uninitialised-read", "data-race", "phase-overrun"},
    "producer does not wait": {"data-race", "phase-overrun"},
    "wrong parity of full": {"uninitialised-read", "data-race"},
    "wrong parity of empty": {"deadlock"},
    "wrong stage read": {"data-race"},
    "wrong stage filled": {"data-race"},
    "wrong slot released": {"deadlock"},
    "too many bytes expected": {"deadlock"},
    "too few bytes expected": {"phase-overrun", "deadlock"},
    "bytes of one copy expected": {"phase-overrun", "uninitialised-read"},
    "a copy is missing": {"deadlock"},
    "no expectation": {"deadlock"},
    "no release": {"deadlock"},
    "release before the product is complete": {"data-race"},
    "release of what was not taken": {"data-race", "phase-overrun"},
    "no fence": {"missing-mma-fence"},
    "no wait before the epilogue": {"register-in-flight"},
    "no wait in the loop": {"data-race"},
    "wait leaves one too many": {"data-race"},
    "no commit": {"data-race", "register-in-flight"},
    "fewer buffers than the ring": {"out-of-bounds"},
    "fewer mbarriers than the ring": {"out-of-bounds"},
    "two buffers behind a ring of three": {"data-race"},
    "too many arrivals initialised": {"deadlock"},
    "too few arrivals initialised": {"phase-overrun"},
    "one arrival for four warps": {"phase-overrun"},
    "two arrivals for one expectation": {"deadlock"},
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str) -> None:
    violations = replay(MUTANTS[name](), SIZES, [(0, 0)])
    assert CAUGHT[name] <= {v.code for v in violations}, [str(v) for v in violations]


@pytest.mark.product
@pytest.mark.parametrize("schedule", ["reverse", "lazy", "eager-compute", "eager-producer", "random(7)"])
@pytest.mark.parametrize("name", ["release before the product is complete", "no wait in the loop", "no release"])
def test_no_schedule_hides_a_mistake(name: str, schedule: str) -> None:
    assert replay(MUTANTS[name](), SIZES, [(0, 0)], tags=False, schedule=schedule)


def test_a_slip_shows_from_the_first_reuse_on() -> None:
    early = MUTANTS["release before the product is complete"]()
    assert not replay(early, SIZES | {"K": 192}, [(0, 0)]), "three iterations use no buffer twice"
    found = first(replay(early, SIZES | {"K": 200}, [(0, 0)]), "data-race")
    assert found.property == "races" and found.iteration == {"k0": 192}
    assert found.other is not None and found.other["iteration"] == {"k0": 0}


def test_a_deadlock_tells_who_waits() -> None:
    found = first(replay(MUTANTS["no release"](), SIZES, [(0, 0)]), "deadlock")
    assert found.property == "progress" and found.object == "full[0]"
    blocked = [(e.role, e.barrier, e.phase) for e in found.trace if e.what == "blocked"]
    assert blocked == [("compute", "full[0]", 2), ("producer", "empty[0]", 1)]
    assert found.missing == (
        "phase 2 of full[0] lacks 1 of 1 arrivals, to come from producer, which waits for phase 1 of empty[0]; "
        "phase 1 of empty[0] lacks 4 of 4 arrivals, which no role brings"
    )
    assert replay(MUTANTS["no release"](), SIZES, [(0, 0)]) == replay(MUTANTS["no release"](), SIZES, [(0, 0)])


def first(violations: tuple[Violation, ...], code: str) -> Violation:
    """The violation of that code, which must be there."""
    found = [v for v in violations if v.code == code]
    assert found, [str(v) for v in violations]
    return found[0]


def test_tags_come_through_copies_and_products() -> None:
    text = print_kernel(gemm())
    more = parse_kernel(text.replace("once(0, K)", "once(0, K + 1)"))
    found = first(replay(more, {"M": 128, "N": 128, "K": 136}, [(0, 0)]), "tag-mismatch")
    assert found.arrived == "k = 0 to 135" and found.expected == "each of 0 to 136 once"
    shifted = "a[program_id(0) * 128 + c0, k0 + c1]", "a[program_id(0) * 128 + c0, k0 // 2 + c1]"
    assert first(replay(parse_kernel(text.replace(*shifted)), {"M": 128, "N": 128, "K": 128}, [(0, 0)]), "tag-mismatch")


PROXIES = """
kernel proxies
target sm_90a
warps 8 of 32
tensor x: bfloat16[64, 64] strides [64:int64, 1:int64] align 16
tensor out: float32[64, 8] strides [8:int64, 1:int64] align 16
grid [1]
shared s: bfloat16 64x64 layout Sw<3,3,3> o 0 o (64,64):(64,1) at 0
shared y: bfloat16 8x64 layout Sw<3,3,3> o 0 o (8,64):(64,1) at 8192
mbarrier full count 1 arrivals 1 at 9216
mbarrier empty count 1 arrivals 4 at 9224
fragment f: bfloat16 8x64 layout [8x64 | t 16@1*4 8@0 | v 4@1]
fragment acc: float32 64x8 layout [64x8 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8]
body {
  mbarrier_init full
  mbarrier_init empty
  mbarrier_fence
  barrier
  roles {
    role compute warps 4 from 0 {
      map f[c0, c1] = 1.0:bfloat16 shape 8x64 layout [8x64 | t 16@1*4 8@0 | v 4@1] scope thread
      copy y[c0, c1] <- f[c0, c1] shape 8x64 layout [8x64 | t 16@1*4 8@0 | v 4@1] via st.shared vector 4
      copy s[c0, c1] <- f[c0, c1] shape 8x64 layout [8x64 | t 16@1*4 8@0 | v 4@1] via st.shared vector 4
      proxy_fence
      barrier
      mbarrier_arrive empty[0]
      map acc[c0, c1] = 0.0 shape 64x8 layout [64x8 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8] scope thread
      mbarrier_wait full[0] parity 0
      mma_fence
      mma acc[c0, c1] += s[c0, c2] * y[c1, c2] shape 64x8x64 via wgmma_m64n8k16 warps 4x1
      mma_commit
      mma_wait 0
      copy out[c0, c1] <- acc[c0, c1] shape 64x8 layout [64x8 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8] via st.global vector 2
    }
    role producer warps 1 from 4 {
      mbarrier_wait empty[0] parity 0
      mbarrier_expect full[0] bytes 8192
      copy s[c0, c1] <~ x[c0, c1] shape 64x64 via tma.load signal full[0]
    }
  }
}
"""


def proxies(*lines: str) -> Kernel:
    """The kernel without these lines."""
    text = PROXIES
    for line in lines:
        assert line in text
        text = text.replace(line, "", 1)
    return parse_kernel(text)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ordinary_and_asynchronous_accesses_meet(schedule: str) -> None:
    x = np.arange(4096, dtype=np.float32).reshape(64, 64) % 7
    outcome = simulate(proxies(), {"x": x, "out": np.zeros((64, 8), np.float32)}, schedule=schedule)
    assert outcome.ok, [str(v) for v in outcome.violations]
    np.testing.assert_array_equal(outcome.tensors["out"], np.repeat(x.sum(axis=1, keepdims=True), 8, axis=1))


def test_proxy_fences_barriers_and_arrivals_are_all_needed() -> None:
    unfenced = replay(proxies("      proxy_fence\n"), {}, [(0,)])
    assert {(v.property, v.code, v.object) for v in unfenced} == {
        ("races", "missing-proxy-fence", "y"),
        ("races", "missing-proxy-fence", "s"),
    }
    assert not replay(proxies("      barrier\n"), {}, [(0,)]), "the phases order the threads of the role as well"
    handshake = ("      mbarrier_arrive empty[0]\n", "      mbarrier_wait empty[0] parity 0\n")
    assert {(v.code, v.object) for v in replay(proxies(*handshake), {}, [(0,)])} == {("data-race", "s")}
    apart = replay(proxies("      barrier\n", *handshake), {}, [(0,)])
    assert {(v.code, v.object) for v in apart} == {("data-race", "s"), ("data-race", "y")}
    late = PROXIES.replace("      proxy_fence\n      barrier\n", "      barrier\n      proxy_fence\n")
    assert not replay(parse_kernel(late), {}, [(0,)]), "whoever is ordered after an access may fence it"


def test_warps_of_roles_are_counted_in_the_block() -> None:
    kernel = proxies("      mma_wait 0\n")
    *before, roles = kernel.body
    swapped = replace(roles, roles=(replace(roles.roles[0], first_warp=4), replace(roles.roles[1], first_warp=0)))  # type: ignore[union-attr]
    found = first(replay(replace(kernel, body=(*before, swapped)), {}, [(0,)]), "register-in-flight")
    assert found.thread == 128
