"""Persistent kernels, bulk stores and proxy fences: a copy through shared memory both ways, and its twins."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from argus.ir.wellformed import check_explicit
from argus.layout import blocked
from argus.simulate import NotReplayable, Outcome, Violation, explore, replay, simulate
from argus.simulate.run import share, walk_grid
from tests.simulate.kernels import Edit, parse

pytestmark = pytest.mark.slow

SCHEDULES = ("program", "reverse", "lazy", "eager-compute", "eager-load", "random(1)", "random(2)")
LAYOUT = blocked((16, 64), 128, vector=8)
INSIDE = "(program_id(0) * 16 + c0 < M) & (k + c1 < K)"
COPY = f"""
kernel copy
target sm_90a
warps 8 of 32
size M
size K
tensor x: bfloat16[M, K] strides [x.stride0:int64, 1:int64] align 16
tensor y: bfloat16[M, K] strides [y.stride0:int64, 1:int64] align 16
grid [(M + 15) // 16] persistent
shared s: bfloat16 2x16x64 layout Sw<3,3,3> o 0 o (2,16,64):(1024,64,1) at 0
shared t: bfloat16 16x64 layout Sw<3,3,3> o 0 o (16,64):(64,1) at 4096
mbarrier full count 2 arrivals 1 at 6144
mbarrier empty count 2 arrivals 4 at 6160
fragment f: bfloat16 16x64 layout {LAYOUT}
body {{
  tag x[M, K] = {{m = c0, k = c1}}
  mbarrier_init full
  mbarrier_init empty
  mbarrier_fence
  barrier
  roles {{
    role compute warps 4 from 0 {{
      programs {{
        for k in 0 .. K step 64 counter n wrap 4 {{
          mbarrier_wait full[n % 2] parity n // 2 % 2
          copy f[c0, c1] <- s[n % 2, c0, c1] shape 16x64 layout {LAYOUT} via ld.shared vector 8
          proxy_fence
          mbarrier_arrive empty[n % 2]
          bulk_wait_read 0
          barrier
          copy t[c0, c1] <- f[c0, c1] shape 16x64 layout {LAYOUT} via st.shared vector 8
          proxy_fence
          barrier
          copy y[program_id(0) * 16 + c0, k + c1] <~ t[c0, c1] shape 16x64 if {INSIDE} via tma.store
          bulk_commit
        }}
        bulk_wait 0
      }}
    }}
    role load warps 1 from 4 {{
      programs {{
        for k in 0 .. K step 64 counter n wrap 4 {{
          mbarrier_wait empty[n % 2] parity (n // 2 + 1) % 2
          mbarrier_expect full[n % 2] bytes 2048
          copy s[n % 2, c0, c1] <~ x[program_id(0) * 16 + c0, k + c1] shape 16x64 if {INSIDE} else 0.0:bfloat16 via tma.load signal full[n % 2]
        }}
      }}
    }}
  }}
}}
"""  # noqa: E501


def run(kernel: Kernel, m: int, k: int, schedule: str, resident: int = 2) -> tuple[Outcome, bool]:
    """The outcome, and whether y is x."""
    x = (np.arange(m * k) % 251).astype(np.float32).reshape(m, k)
    arguments = {"x": x, "y": np.full_like(x, np.nan)}
    outcome = simulate(kernel, arguments, tags=True, schedule=schedule, resident=resident)
    return outcome, bool(np.array_equal(outcome.tensors["y"], x))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("m", "k"), [(0, 8), (16, 0), (35, 200), (100, 72)])
def test_accepted(m: int, k: int, schedule: str) -> None:
    kernel = parse(COPY)
    assert not check_explicit(kernel)
    outcome, right = run(kernel, m, k, schedule)
    assert outcome.ok and outcome.complete, [str(v) for v in outcome.violations]
    assert right and outcome.blocks == -(-m // 16)


@pytest.mark.parametrize("resident", [1, 3, 100])
def test_any_number_of_resident_blocks(resident: int) -> None:
    outcome, right = run(parse(COPY), 70, 136, "lazy", resident)
    assert outcome.ok and right, [str(v) for v in outcome.violations]


@given(st.tuples(*[st.integers(0, 5)] * 3), st.integers(1, 9))
def test_grids_are_walked_in_groups(grid: tuple[int, int, int], group: int) -> None:
    """Rows are all axes but the last one, the first axis the fastest."""
    x, y, z = grid
    rows = [(i, j) for j in range(y) for i in range(x)]
    order = sorted(
        ((number // group, column, number % group, row) for number, row in enumerate(rows) for column in range(z))
    )
    if group > 1:
        assert walk_grid(grid, group) == [(*row, column) for _, column, _, row in order]
    else:
        assert walk_grid(grid, group) == [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    assert walk_grid((x, z), max(2, group)) == [(i, k) for i, j, k in walk_grid((x, 1, z), max(2, group))]


@given(st.integers(0, 60), st.integers(1, 9))
def test_programs_are_shared_out_back_and_forth(count: int, blocks: int) -> None:
    shares = [share(range(count), block, blocks) for block in range(blocks)]
    assert sorted(number for each in shares for number in each) == list(range(count))
    for block, each in enumerate(shares):
        assert all(number // blocks == turn for turn, number in enumerate(each))
        for number, following in pairwise(each):
            assert following - number == (2 * (blocks - block) - 1 if number // blocks % 2 == 0 else 2 * block + 1)


STORED = "via tma.store"
REJECTED: dict[str, tuple[Edit, set[tuple[str, str]]]] = {
    "places by the loop, which begins anew with every program": (
        ("full[n % 2] parity n // 2 % 2", "full[k // 64 % 2] parity k // 128 % 2"), {("data-race", "s")}),
    "no fence between what the threads wrote and the store": (
        ("          proxy_fence\n          barrier\n", "          barrier\n"), {("missing-proxy-fence", "t")}),
    "no barrier between what the threads wrote and the store": (
        ("          proxy_fence\n          barrier\n", "          proxy_fence\n"), {("data-race", "t")}),
    "the source is written while a store may read it": (("          bulk_wait_read 0\n", ""), {("data-race", "t")}),
    "only thread 0 knows that the store has read": (
        ("bulk_wait_read 0\n          barrier\n", "bulk_wait_read 0\n"), {("data-race", "t")}),
    "the wait leaves the last store open": (("bulk_wait_read 0", "bulk_wait_read 1"), {("data-race", "t")}),
    "no store is in a group": (("          bulk_commit\n", ""), {("data-race", "t")}),
    "no fence between what the threads read and the next box": (
        ("          proxy_fence\n          mbarrier_arrive", "          mbarrier_arrive"),
        {("missing-proxy-fence", "s")}),
    "a fence of one thread orders only what it did itself": (
        ("          proxy_fence\n          barrier\n",
         "          if thread == 0 {\n            proxy_fence\n          }\n          barrier\n"),
        {("missing-proxy-fence", "t")}),
    "buffers are not handed back": (
        ("          mbarrier_arrive empty[n % 2]\n", ""), {("deadlock", "full[0]")}),
    "the last buffer of a program is not handed back": (
        ("          mbarrier_arrive empty[n % 2]\n",
         "          if k + 64 < K {\n            mbarrier_arrive empty[n % 2]\n          }\n"),
        {("deadlock", "full[0]")}),
    "a box of another program": (
        ("copy y[program_id(0) * 16 + c0", "copy y[program_id(0) // 2 * 16 + c0"),
        {("block-race", "y"), ("output-not-covered", "y"), ("output-written-twice", "y")}),
    "a box is stored beyond the tensor": ((f"if {INSIDE} {STORED}", STORED), {("out-of-bounds", "y")}),
}  # fmt: skip


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str) -> None:
    edit, expected = REJECTED[name]
    found = replay(parse(COPY, edit), {"M": 70, "K": 136}, None)
    assert expected <= {(v.code, v.object) for v in found}, [str(v) for v in found]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", [n for n in REJECTED if "source is" in n or "only what" in n or "next box" in n])
def test_no_schedule_hides_a_mistake(name: str, schedule: str) -> None:
    edit, expected = REJECTED[name]
    found = replay(parse(COPY, edit), {"M": 70, "K": 136}, None, schedule=schedule)
    assert expected <= {(v.code, v.object) for v in found}, [str(v) for v in found]


ACCEPTED: dict[str, Edit] = {
    "a fence of the issuing thread after the barrier": (
        "          proxy_fence\n          barrier\n          copy y", "          barrier\n          if thread == 0 {\n"
        "            proxy_fence\n          }\n          copy y"),
    "every warp fences what it wrote": (
        "          proxy_fence\n          barrier\n          copy y",
        "          if thread < 64 {\n            proxy_fence\n          } else {\n            proxy_fence\n"
        "          }\n          "
        "barrier\n          copy y"),
    "stores are complete before the next": ("bulk_wait_read 0", "bulk_wait 0"),
    "the fence of the loading role": (
        "          mbarrier_expect", "          proxy_fence\n          mbarrier_expect"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_twins(name: str) -> None:
    edits = [ACCEPTED[name]]
    if "loading" in name:
        edits.append(("          proxy_fence\n          mbarrier_arrive", "          mbarrier_arrive"))
    found = replay(parse(COPY, *edits), {"M": 70, "K": 136}, None)
    assert not found, [str(v) for v in found]


@pytest.mark.parametrize(("m", "k"), [(16, 64), (32, 64), (16, 72)])
def test_every_schedule_of_a_small_run(m: int, k: int) -> None:
    x = (np.arange(m * k) % 251).astype(np.float32).reshape(m, k)
    count = 0
    for outcome in explore(parse(COPY), {"x": x, "y": np.full_like(x, np.nan)}):
        assert outcome.ok and outcome.complete, [str(v) for v in outcome.violations]
        np.testing.assert_array_equal(outcome.tensors["y"], x)
        count += 1
    assert count > 5


def test_every_schedule_shows_a_mistake_and_some_a_wrong_result() -> None:
    kernel = parse(COPY, ("          bulk_wait_read 0\n", ""), ("        bulk_wait 0\n", ""))
    x = (np.arange(32 * 64) % 251).astype(np.float32).reshape(32, 64)
    results = set()
    for outcome in explore(kernel, {"x": x, "y": np.full_like(x, np.nan)}):
        assert ("data-race", "t") in {(v.code, v.object) for v in outcome.violations}
        results.add(np.array_equal(outcome.tensors["y"], x))
    assert results == {True, False}
    with pytest.raises(NotReplayable, match="more than 3 schedules"):
        list(explore(kernel, {"x": x, "y": x.copy()}, most=3))


def test_a_slip_shows_in_the_second_program() -> None:
    kernel = parse(COPY, ("          bulk_wait_read 0\n          barrier\n", ""))
    sizes = {"M": 64, "K": 64}
    found = replay(parse(COPY, ("        bulk_wait 0\n", "")), sizes, None)
    assert {v.code for v in found} == {"unfinished-copy"}
    assert not replay(kernel, sizes, [(1,)]), "one program stores once"
    unwaited = parse(COPY, ("          bulk_wait_read 0\n", ""), ("        bulk_wait 0\n", ""))
    found = first(replay(unwaited, sizes, None), "data-race")
    assert found.block == (1,) and found.other is not None and found.other["block"] == (0,)


def first(violations: tuple[Violation, ...], code: str) -> Violation:
    """The violation of that code, which must be there."""
    found = [v for v in violations if v.code == code]
    assert found, [str(v) for v in violations]
    return found[0]


def test_tags_come_through_stores() -> None:
    spec = "  spec y(m, n) = x[c0, c1]\n}"
    text = COPY.rstrip().removesuffix("}") + spec
    assert not replay(parse(text), {"M": 35, "K": 72}, None)
    wrong = parse(text, ("<~ t[c0, c1] shape 16x64", "<~ s[n % 2, c0, c1] shape 16x64"))
    found = replay(wrong, {"M": 35, "K": 200}, None, schedule="eager-load")
    assert {"data-race", "spec-mismatch"} & {v.code for v in found}


def test_the_order_of_programs() -> None:
    assert walk_grid((3, 2), 1) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert walk_grid((3, 2), 2) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    assert walk_grid((3, 0), 2) == [] and walk_grid((), 1) == [()]
