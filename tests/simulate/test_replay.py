"""Replays: any sizes, only the blocks asked for, in little time and memory."""

from __future__ import annotations

import numpy as np
import pytest

from argus.simulate import NotReplayable, replay
from tests.simulate.kernels import VECTOR_ADD, gemm_text, parse

WIDE = """
kernel wide
target sm_80
warps 1 of 32
size N
size V
tensor index: int32[N] strides [1:int64] align 4
tensor table: float32[V, 32] strides [32:int64, 1:int64] align 4
tensor out: float32[N, 32] strides [32:int64, 1:int64] align 4
grid [N]
in_range index from 0 to V
fragment i: int32 () layout [() | t 32@_ | v]
fragment r: float32 32 layout [32 | t 32@0 | v]
body {
  copy i[] <- index[program_id(0)] shape () layout [() | t 32@_ | v] via ld.global
  copy r[c0] <- table[i[], c0] shape 32 layout [32 | t 32@0 | v] via ld.global
  copy out[program_id(0), c0] <- r[c0] shape 32 layout [32 | t 32@0 | v] via st.global
}
"""


def test_huge_sizes() -> None:
    n = 2**31 - 2**20  # no memory is as large: only what is touched is made
    assert not replay(parse(VECTOR_ADD), {"N": n}, [(0,), (n // 128 - 1,)])
    wrong = replay(parse(VECTOR_ADD, ("* 128 + c0 < N", "* 128 + c0 <= N")), {"N": n - 1}, [((n - 1) // 128,)])
    assert {v.code for v in wrong} == {"out-of-bounds"}


def test_overflow_at_the_largest_size() -> None:
    n = 2**31 - 2**20
    kernel = parse(VECTOR_ADD, ("(N + 127) // 128", "(N + 2097151) // 128"))
    assert "int32-overflow" in {v.code for v in replay(kernel, {"N": n}, [(0,)])}
    assert not replay(kernel, {"N": n - 2**21}, [(0,)])


def test_whole_grid_checks_coverage() -> None:
    kernel = parse(VECTOR_ADD, ("grid [(N + 127) // 128]", "grid [N // 128]"))
    assert not replay(kernel, {"N": 256}, None)
    assert {v.code for v in replay(kernel, {"N": 129}, None)} == {"output-not-covered"}
    assert not replay(kernel, {"N": 129}, [(0,)]), "one block alone covers nothing"


def test_index_tensors_hold_what_is_declared_or_given() -> None:
    kernel = parse(WIDE)
    assert not replay(kernel, {"N": 2**30, "V": 7}, [(12345,)])
    assert not replay(kernel, {"N": 8, "V": 2**30}, None)
    wrong = replay(kernel, {"N": 8, "V": 4}, [(3,)], {"index": {(3,): 4}})
    assert [(v.code, v.object) for v in wrong] == [("out-of-bounds", "table")]
    wide = parse(WIDE, ("from 0 to V", "from 0 to V + 1"))
    found = [replay(wide, {"N": 1, "V": 1}, [(0,)], seed=seed) for seed in range(8)]
    assert 0 < sum(map(bool, found)) < 8, "one value of two is outside"
    with pytest.raises(NotReplayable, match="no value"):
        replay(kernel, {"N": 8, "V": 0}, [(0,)])
    dense = replay(kernel, {"N": 2, "V": 4}, [(1,)], {"index": np.array([0, -1], np.int32)})
    assert [(v.code, v.logical) for v in dense] == [("out-of-bounds", (-1, 0))]


def test_long_loops_and_bad_sizes_are_refused() -> None:
    kernel = parse(gemm_text())
    with pytest.raises(NotReplayable, match="iterations"):
        replay(kernel, {"M": 1, "N": 1, "K": 2**20}, [(0, 0)], iterations=100)
    with pytest.raises(NotReplayable, match="alignment"):
        replay(kernel, {"M": 1, "N": 1, "K": 7}, [(0, 0)])
    assert not replay(kernel, {"M": 2**30, "N": 2**30, "K": 32}, [(100, 100)])


def test_a_specification_is_checked_where_the_blocks_wrote() -> None:
    spec = "  spec c(m, n) = @reduce_add(c2, K, @mul(a[c0, c2], b[c1, c2]):bfloat16):float32\n}"
    text = gemm_text().rstrip().removesuffix("}") + spec
    assert not replay(parse(text), {"M": 64, "N": 2**25, "K": 48}, [(1, 3)])
    wrong = parse(text, ("(k0 + c1 < K) else", "(k0 + c1 < K - 8) else"))
    assert "spec-mismatch" in {v.code for v in replay(wrong, {"M": 64, "N": 2**25, "K": 48}, [(1, 3)], tags=False)}


CUT = """
kernel cut
target sm_80
warps 1 of 32
size N
tensor at: int32[32] strides [1:int64] align 4
tensor x: int32[N] strides [1:int64] align 4
tensor out: int32[32] strides [1:int64] align 4
grid [1]
in_range at from 0 to 1000000
fragment i: int32 32 layout [32 | t 32@0 | v]
body {
  spec out(i) = minimum(at[c0], N)
  copy i[c0] <- at[c0] shape 32 layout [32 | t 32@0 | v] via ld.global
  map i[c0] = minimum(i[c0] * 2, N) shape 32 layout [32 | t 32@0 | v] scope thread
  copy out[c0] <- i[c0] shape 32 layout [32 | t 32@0 | v] via st.global
}
"""


def test_contents_near_the_least_are_not_cut_by_sizes() -> None:
    assert replay(parse(CUT), {"N": 8}, None) == ()
    (found,) = replay(parse(CUT), {"N": 8}, None, extreme="near")
    assert found.code == "spec-mismatch"
    assert replay(parse(CUT, ("* 2", "* 1")), {"N": 8}, None, extreme="near") == ()
