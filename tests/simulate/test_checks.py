"""Every rule: a kernel that keeps it, and the same kernel one edit away that breaks it."""

from __future__ import annotations

import numpy as np
import pytest

from argus.diagnostic import LaunchError
from argus.simulate import Outcome, Violation, simulate
from tests.simulate.kernels import TRANSPOSE, VECTOR_ADD, gemm_text, parse

Edit = tuple[str, str]
GEMM = gemm_text()
ASYNC = """
kernel shift
target sm_80
warps 1 of 32
size N
tensor x: float32[N, 32] strides [32:int64, 1:int64] align 16
tensor out: float32[N, 32] strides [32:int64, 1:int64] align 16
grid [1]
requires N >= 2
shared s: float32 2x32 layout (2,32):(32,1) at 0
fragment r: float32 32 layout [32 | t 32@0 | v]
body {
  copy s[0, c0] <- x[0, c0] shape 32 layout [32 | t 32@0 | v] via cp.async
  commit_group
  for i in 1 .. N step 1 {
    copy s[i % 2, c0] <- x[i, c0] shape 32 layout [32 | t 32@0 | v] via cp.async
    commit_group
    wait_group 1
    barrier
    copy r[c0] <- s[(i + 1) % 2, (c0 + 1) % 32] shape 32 layout [32 | t 32@0 | v] via ld.shared
    copy out[i - 1, c0] <- r[c0] shape 32 layout [32 | t 32@0 | v] via st.global
    barrier
  }
  wait_group 0
  barrier
  copy r[c0] <- s[(N + 1) % 2, (c0 + 1) % 32] shape 32 layout [32 | t 32@0 | v] via ld.shared
  copy out[N - 1, c0] <- r[c0] shape 32 layout [32 | t 32@0 | v] via st.global
}
"""
LANES = """
kernel lanes
target sm_80
warps 2 of 32
tensor x: float32[64] strides [1:int64] align 4
tensor out: float32[64] strides [1:int64] align 4
tensor total: float32[2] strides [1:int64] align 4
grid [1]
fragment r: float32 64 layout [64 | t 64@0 | v]
fragment t: float32 2 layout [2 | t 32@_ 2@0 | v]
body {
  copy r[c0] <- x[c0] shape 64 layout [64 | t 64@0 | v] via ld.global
  map r[c0] = r[c0 ^ 1] shape 64 layout [64 | t 64@0 | v] scope warp
  map t[c0] = 0.0 shape 2 layout [2 | t 32@_ 2@0 | v] scope thread
  accumulate t[c0 // 32] add r[c0] shape 64 layout [64 | t 64@0 | v] scope warp
  if thread < 64 {
    barrier
  }
  copy out[c0] <- r[c0] shape 64 layout [64 | t 64@0 | v] via st.global
  copy total[c0] <- t[c0] shape 2 layout [2 | t 32@_ 2@0 | v] via st.global
}
"""


def gemm_run(*edits: Edit, m: int = 32, n: int = 32, k: int = 48, tags: bool = True) -> Outcome:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, (rows, k)).astype(np.float32) for rows in (m, n))
    arguments = {"a": a, "b": b, "c": np.zeros((m, n), np.float32)}
    return simulate(parse(GEMM, *edits), arguments, tags=tags)


def transpose_run(*edits: Edit) -> Outcome:
    x = np.arange(512, dtype=np.float32).reshape(16, 32)
    return simulate(parse(TRANSPOSE, *edits), {"x": x, "out": np.zeros((32, 16), np.float32)}, tags=True)


def add_run(*edits: Edit, n: int = 200) -> Outcome:
    x = np.arange(n, dtype=np.float32)
    return simulate(parse(VECTOR_ADD, *edits), {"x": x, "y": x, "out": np.zeros(n, np.float32)}, tags=True)


def shift_run(*edits: Edit) -> Outcome:
    x = np.arange(160, dtype=np.float32).reshape(5, 32)
    return simulate(parse(ASYNC, *edits), {"x": x, "out": np.zeros_like(x)})


def lanes_run(*edits: Edit) -> Outcome:
    x = np.arange(64, dtype=np.float32)
    arguments = {"x": x, "out": np.zeros_like(x), "total": np.zeros(2, np.float32)}
    return simulate(parse(LANES, *edits), arguments)


def only(outcome: Outcome, code: str) -> Violation:
    """The violation of that code, which must be there."""
    found = [v for v in outcome.violations if v.code == code]
    assert found, [str(v) for v in outcome.violations]
    return found[0]


@pytest.mark.parametrize("run", [gemm_run, transpose_run, add_run, shift_run, lanes_run])
def test_accepted(run: object) -> None:
    outcome = run()  # type: ignore[operator]
    assert outcome.ok, [str(v) for v in outcome.violations]


def test_shift_and_lanes_compute_what_they_should() -> None:
    x = np.arange(160, dtype=np.float32).reshape(5, 32)
    np.testing.assert_array_equal(shift_run().tensors["out"], np.roll(x, -1, axis=1))
    y = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(lanes_run().tensors["out"], y.reshape(-1, 2)[:, ::-1].reshape(-1))
    np.testing.assert_array_equal(lanes_run().tensors["total"], y.reshape(2, 32).sum(axis=1))


def test_bounds() -> None:
    violation = only(add_run(("program_id(0) * 128 + c0 < N", "program_id(0) * 128 + c0 <= N")), "out-of-bounds")
    assert violation.property == "bounds" and violation.object == "x"
    assert violation.logical == (200,) and violation.block == (1,)
    assert only(transpose_run(("<- s[c1, c0]", "<- s[c1 + 1, c0]")), "out-of-bounds").object == "s"


def test_overflow_of_32_bit_indices() -> None:
    wide = ("x[program_id(0) * 128 + c0]", "x[(program_id(0) * 128 + c0) * 100000000 // 100000000]")
    violation = only(add_run(wide), "int32-overflow")
    assert violation.property == "bounds" and violation.logical == (64,)
    int64 = ("x[program_id(0) * 128 + c0]", "x[(int64(program_id(0)) * 128:int64 + int64(c0))]")
    assert add_run(int64).ok


def test_uninitialised() -> None:
    outcome = transpose_run(("copy s[c0, c1]", "copy s[c0 // 2, c1]"))
    violation = only(outcome, "uninitialised-read")
    assert violation.property == "initialisation" and violation.logical[0] >= 8
    assert "data-race" in outcome.codes(), "rows are also written twice"
    assert only(gemm_run(("  map acc[c0, c1] = 0.0", "  map acc[c0, c1 // 2] = 0.0")), "uninitialised-read")


def test_races() -> None:
    violation = only(transpose_run(("  barrier\n", "")), "data-race")
    assert violation.property == "races" and violation.object == "s"
    assert violation.other is not None and violation.other["access"] == "write"
    assert violation.other["thread"] != violation.thread
    first = ("    barrier\n    copy sa", "    copy sa")
    assert gemm_run(first, k=16).ok, "one iteration has nothing to overwrite"
    assert only(gemm_run(first), "data-race").iteration == {"k0": 16}


def test_race_across_blocks() -> None:
    outcome = add_run(
        ("out[program_id(0) * 128 + c0]", "out[c0]"), ("if program_id(0) * 128 + c0 < N layout", "layout")
    )
    violation = only(outcome, "block-race")
    assert violation.block == (1,) and violation.other is not None and violation.other["block"] == (0,)
    assert "output-written-twice" in outcome.codes() and "output-not-covered" in outcome.codes()


def test_asynchronous_copies() -> None:
    late = only(shift_run(("wait_group 1", "wait_group 2")), "stale-read")
    assert late.property == "races" and late.iteration == {"i": 1}
    assert only(shift_run(("  wait_group 0\n", "")), "stale-read").iteration == {}
    assert only(shift_run(("wait_group 1\n    barrier", "wait_group 1")), "data-race")
    overwritten = shift_run(("via st.global\n    barrier\n  }", "via st.global\n  }"))
    assert only(overwritten, "data-race").iteration == {"i": 2}
    uncommitted = shift_run(("    commit_group\n    wait_group 1", "    wait_group 1"))
    assert "stale-read" in uncommitted.codes()


def test_convergence() -> None:
    assert only(lanes_run(("thread < 64", "thread < 40")), "divergent-barrier").count == 24
    shuffle = "  map r[c0] = r[c0 ^ 1] shape 64 layout [64 | t 64@0 | v] scope warp\n"
    guarded = shuffle.join(("  if thread < 40 {\n", "  }\n"))
    assert only(lanes_run((shuffle, guarded)), "divergent-collective").property == "convergence"
    assert "divergent-collective" not in lanes_run((shuffle, guarded.replace("40", "32"))).codes()
    assert only(lanes_run(("r[c0 ^ 1]", "r[c0 ^ 32]")), "register-not-held")
    loop = ("  if thread < 64 {\n    barrier\n  }", "  for i in 0 .. thread // 32 step 1 {\n  }")
    assert only(lanes_run(loop), "divergent-loop").property == "convergence"


def test_coverage() -> None:
    short = add_run(("grid [(N + 127) // 128]", "grid [N // 128]"))
    assert only(short, "output-not-covered").logical == (128,)
    assert only(short, "output-not-covered").count == 72
    assert add_run(("grid [(N + 127) // 128]", "grid [N // 128]"), n=256).ok


def test_vectors() -> None:
    assert only(transpose_run(("Sw<2,2,3>", "Sw<2,1,3>")), "scattered-vector").property == "machine"
    assert only(transpose_run(("<- x[c0, c1]", "<- x[c0, (c1 + 1) % 32]")), "misaligned-vector")
    padded = transpose_run(("Sw<2,2,3> o 0 o (16,32):(32,1)", "(16,32):(33,1)"))
    assert only(padded, "misaligned-vector").object == "s"
    declared = transpose_run(("strides [32:int64, 1:int64] align 16", "strides [32:int64, 1:int64] align 4"))
    assert only(declared, "misaligned-vector").object == "x"
    cut = gemm_run(("(k0 + c1 < K) else", "(k0 + c1 < K - 4) else"), tags=False)
    assert only(cut, "split-vector").object == "a"
    rows = gemm_run(("Sw<1,3,3>", "Sw<1,2,3>"), tags=False)
    assert "scattered-vector" in rows.codes()


def test_tags() -> None:
    swapped = only(transpose_run(("carries [c1, c0]", "carries [c0, c1]")), "tag-mismatch")
    assert swapped.property == "tags" and swapped.object == "b"
    hops = [note.message for note in swapped.provenance]
    assert "x[" in hops[0] and "global" in hops[0] and "shared+" in hops[1] and "b[" in hops[2]
    once = only(gemm_run(("once(0, K)", "once(0, K + 1)")), "tag-mismatch")
    assert once.arrived == "k = 0 to 47" and once.expected == "each of 0 to 48 once"
    rows = [f"{t}[program_id({n}) * 32 + c0, k0 " for n, t in enumerate("ab")]
    again = [(row, row + "% 32 ") for row in rows]
    assert only(gemm_run(*again), "tag-mismatch").arrived == "k = 0 to 15 2 times, 16 to 31"
    repeated = gemm_run(("a[program_id(0) * 32 + c0, k0 + c1]", "a[program_id(0) * 32 + c0, k0 // 2 + c1]"))
    assert "differ in `k`" in only(repeated, "tag-mismatch").arrived
    assert only(gemm_run(("  tag a[M, K] = {m = c0, k = c1}\n", "")), "vacuous-assertion").property == "tags"
    assert gemm_run(k=0).ok, "no contribution at all is once(0, 0)"


def test_padding_is_harmless_in_sums_only() -> None:
    assert gemm_run(k=40).ok
    assert only(gemm_run(("(k0 + c1 < K) else 0.0", "(k0 + c1 < K) else 1.0"), k=40), "tag-mismatch")


def test_arguments_are_checked() -> None:
    for arguments, code in (
        ({"x": np.zeros(4, np.float32), "y": np.zeros(5, np.float32), "out": np.zeros(4, np.float32)}, "wrong-shape"),
        ({"x": np.zeros(4), "y": np.zeros(4, np.float32), "out": np.zeros(4, np.float32)}, "wrong-type"),
        ({"x": np.zeros(4, np.float32), "y": np.zeros(4, np.float32)}, "missing-argument"),
    ):
        with pytest.raises(LaunchError) as error:
            simulate(parse(VECTOR_ADD), arguments)
        assert code in {d.code for d in error.value.diagnostics}
    shared = np.zeros(4, np.float32)
    with pytest.raises(LaunchError, match="overlaps"):
        simulate(parse(VECTOR_ADD), {"x": shared, "y": np.zeros(4, np.float32), "out": shared})
    with pytest.raises(LaunchError, match="alignment"):
        gemm_run(k=12)
