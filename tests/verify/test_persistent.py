"""A persistent GEMM with bulk stores: proved for any number of programs, and refuted after every single edit."""

from __future__ import annotations

import pytest

from argus.diagnostic import Severity, Verdict
from argus.ir.text import parse_kernel
from argus.simulate import replay
from argus.verify import verify

pytestmark = pytest.mark.slow

ACCUMULATOR = "[64x64 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 8@1*8]"
GEMM = f"""kernel gemm
target sm_90a
warps 8 of 32
size M
size K
size N
tensor a: bfloat16[M, K] strides [a.stride0:int64, 1:int64] align 16
tensor b: bfloat16[N, K] strides [b.stride0:int64, 1:int64] align 16
tensor c: bfloat16[M, N] strides [c.stride0:int64, 1:int64] align 16
grid [(M + 63) // 64, (N + 63) // 64] persistent
shared at: bfloat16 2x64x64 layout Sw<3,3,3> o 0 o (2,64,64):(4096,64,1) at 0
shared bt: bfloat16 2x64x64 layout Sw<3,3,3> o 0 o (2,64,64):(4096,64,1) at 16384
shared out: bfloat16 64x64 layout Sw<3,3,3> o 0 o (64,64):(64,1) at 32768
mbarrier full count 2 arrivals 1 at 40960
mbarrier empty count 2 arrivals 4 at 40976
fragment acc: float32 64x64 layout {ACCUMULATOR}
fragment rounded: bfloat16 64x64 layout {ACCUMULATOR}
body {{
  tag a[M, K] = {{m = c0, k = c1}}
  tag b[N, K] = {{n = c0, k = c1}}
  spec c(m, n) = @reduce_add(c2, K, a[c0, c2] * b[c1, c2]):bfloat16
  mbarrier_init full
  mbarrier_init empty
  mbarrier_fence
  barrier
  roles {{
    role producer warps 1 from 4 registers 40 {{
      programs {{
        for k0 in 0 .. K step 64 counter turn wrap 4 {{
          mbarrier_wait empty[turn % 2] parity (turn // 2 + 1) % 2
          mbarrier_expect full[turn % 2] bytes 16384
          copy at[turn % 2, c0, c1] <~ a[program_id(0) * 64 + c0, k0 + c1] shape 64x64 if (program_id(0) * 64 + c0 < M) & (k0 + c1 < K) else 0.0:bfloat16 via tma.load signal full[turn % 2]
          copy bt[turn % 2, c0, c1] <~ b[program_id(1) * 64 + c0, k0 + c1] shape 64x64 if (program_id(1) * 64 + c0 < N) & (k0 + c1 < K) else 0.0:bfloat16 via tma.load signal full[turn % 2]
        }}
      }}
    }}
    role compute warps 4 from 0 registers 240 {{
      programs {{
        map acc[c0, c1] = 0.0 shape 64x64 layout {ACCUMULATOR} scope thread
        for k0 in 0 .. K step 64 counter turn wrap 4 {{
          mbarrier_wait full[turn % 2] parity turn // 2 % 2
          mma_fence
          mma acc[c0, c1] += at[turn % 2, c0, c2] * bt[turn % 2, c1, c2] shape 64x64x64 via wgmma_m64n64k16 warps 4x1
          mma_commit
          mma_wait 1
          if k0 >= 64 {{
            mbarrier_arrive empty[(turn + 1) % 2]
          }}
          if k0 + 64 >= K {{
            mma_wait 0
            mbarrier_arrive empty[turn % 2]
          }}
        }}
        mma_wait 0
        assert (i, j) in 64x64 {{acc[c0, c1] carries [program_id(0) * 64 + c0, program_id(1) * 64 + c1, once(0, K)]}} where (program_id(0) * 64 + c0 < M) & (program_id(1) * 64 + c1 < N)
        map rounded[c0, c1] = bfloat16(acc[c0, c1]) shape 64x64 layout {ACCUMULATOR} scope thread
        bulk_wait_read 0
        barrier
        copy out[c0, c1] <- rounded[c0, c1] shape 64x64 layout {ACCUMULATOR} via st.shared vector 2
        proxy_fence
        barrier
        copy c[program_id(0) * 64 + c0, program_id(1) * 64 + c1] <~ out[c0, c1] shape 64x64 if (program_id(0) * 64 + c0 < M) & (program_id(1) * 64 + c1 < N) via tma.store
        bulk_commit
      }}
      bulk_wait 0
    }}
  }}
}}
"""  # noqa: E501

_LAST = "if k0 + 64 >= K {\n            mma_wait 0\n            mbarrier_arrive empty[turn % 2]\n          }"
_WAIT = "bulk_wait_read 0\n        barrier\n        copy out"
_STORE = GEMM[GEMM.index("copy c[") : GEMM.index("via tma.store")]
_SWAPPED = _STORE.replace("id(0)", "id(2)").replace("id(1)", "id(0)").replace("id(2)", "id(1)")
_AFTER = "mma_wait 0\n        assert"
_EXCLUDED = "if K < 0 {\n          mbarrier_arrive empty[0]\n        }\n        "
EDITS = {
    "the last buffer of a program is kept": (_LAST, _LAST.replace("mbarrier_arrive empty[turn % 2]\n", ""), "progress"),
    "the release of the last buffer is early": ("mma_wait 0\n            mbarrier_arrive", "mbarrier_arrive", "races"),
    "the count starts anew in the middle": ("counter turn wrap 4", "counter turn wrap 3", "progress"),
    "the store's source is overwritten": ("bulk_wait_read 0\n        ", "", "races"),
    "one store may be unread": ("bulk_wait_read 0", "bulk_wait_read 1", "races"),
    "the wait of one thread alone": (_WAIT, "bulk_wait_read 0\n        copy out", "races"),
    "stores are not committed": ("via tma.store\n        bulk_commit", "via tma.store", "progress"),
    "no proxy fence": ("proxy_fence\n        ", "", "races"),
    "the fence comes after the barrier": ("proxy_fence\n        barrier", "barrier\n        proxy_fence", None),
    "the fence comes too early": ("copy out[c0, c1] <-", "proxy_fence\n        copy out[c0, c1] <-", None),
    "the fence is only before the writes": (
        "copy out[c0, c1] <- rounded[c0, c1] shape 64x64 layout " + ACCUMULATOR
        + " via st.shared vector 2\n        proxy_fence",
        "proxy_fence\n        copy out[c0, c1] <- rounded[c0, c1] shape 64x64 layout " + ACCUMULATOR
        + " via st.shared vector 2",
        "races",
    ),
    "the accumulator is carried over": (
        f"map acc[c0, c1] = 0.0 shape 64x64 layout {ACCUMULATOR} scope thread\n        ", "", "initialisation"
    ),
    "the wrong tile is stored": (_STORE, _SWAPPED, "tags"),
    "the products read the buffer before": ("* bt[turn % 2", "* bt[(turn + 1) % 2", "races"),
    "a release of a buffer that is in no loop": (_AFTER, _EXCLUDED.replace("K < 0", "K <= 0") + _AFTER, "progress"),
    "such a release, in a branch that is never taken": (_AFTER, _EXCLUDED + _AFTER, None),
}  # fmt: skip


def test_accepted() -> None:
    report = verify(parse_kernel(GEMM), 120.0)
    assert report.verdict is Verdict.PROVED, report.diagnostics


def first_tile(wrap: int, size: int) -> str:
    """The kernel with `size` buffers and at most 64 columns, so that its loop has one iteration in each program."""
    text = GEMM.replace("turn wrap 4", f"turn wrap {wrap}").replace("turn % 2", f"turn % {size}")
    text = text.replace("turn // 2 + 1", f"turn // {size} + 1").replace("turn // 2 % 2", f"turn // {size} % 2")
    text = text.replace("          if k0 >= 64 {\n            mbarrier_arrive empty[(turn + 1) % 2]\n          }\n", "")
    text = text.replace("2x64x64 layout Sw<3,3,3> o 0 o (2,", f"{size}x64x64 layout Sw<3,3,3> o 0 o ({size},")
    text = text.replace("count 2", f"count {size}").replace("mma_wait 1", "mma_wait 0")
    text = text.replace("] persistent", "] persistent\nrequires K <= 64\nrequires K > 0")
    return text.replace("0 .. K step", "0 .. 64 step").replace("k0 + 64 >= K", "k0 + 64 >= 64")


@pytest.mark.parametrize(("wrap", "size"), [(2, 1), (4, 2)])
def test_a_count_of_programs_is_accepted(wrap: int, size: int) -> None:
    report = verify(parse_kernel(first_tile(wrap, size)), 120.0)
    assert report.verdict is Verdict.PROVED, report.diagnostics


@pytest.mark.parametrize(("wrap", "size"), [(1, 1), (3, 1), (3, 2)])
def test_a_count_of_programs_that_begins_anew_is_refuted(wrap: int, size: int) -> None:
    """One program alone breaks no rule, whatever its sizes: several programs of a block are run."""
    kernel = parse_kernel(first_tile(wrap, size))
    assert not replay(kernel, {"M": 1, "K": 64, "N": 8}, None)
    report = verify(kernel, 20.0)
    assert report.verdict is Verdict.REFUTED, report.diagnostics


@pytest.mark.parametrize("name", EDITS)
def test_edits(name: str) -> None:
    old, new, prop = EDITS[name]
    assert GEMM.count(old) >= 1
    report = verify(parse_kernel(GEMM.replace(old, new)), 120.0)
    found = [d for d in report.diagnostics if d.severity is Severity.ERROR]
    if prop is None:
        assert report.verdict is Verdict.PROVED, found
        return
    assert report.verdict is not Verdict.PROVED
    refuted = [d for d in found if d.verdict is Verdict.REFUTED]
    assert prop in {d.property for d in refuted}, found
    assert all(d.witness is not None and d.witness.replayed for d in refuted)


ARRIVALS = {
    "empty": ("mbarrier_arrive empty[turn % 2]\n          }\n        }", "mbarrier_arrive empty[turn % 2]\n"),
    "full": ("mbarrier_expect full[turn % 2] bytes 16384\n", "mbarrier_expect full[turn % 2] bytes 16384\n"),
}


@pytest.mark.parametrize("name", ARRIVALS)
@pytest.mark.parametrize(("guard", "whole"), [("thread % 2 == 1", False), ("thread >= 0", True)])
def test_an_arrival_needs_whole_warps(name: str, guard: str, whole: bool) -> None:
    """The first lane of a warp arrives for all of them, once they have come."""
    old, arrival = ARRIVALS[name]
    assert GEMM.count(old) == 1
    kernel = parse_kernel(GEMM.replace(old, old.replace(arrival, f"if {guard} {{\n{arrival}}}\n")))
    found = {v.code for v in replay(kernel, {"M": 1, "K": 64, "N": 8}, None)}
    assert ("divergent-collective" in found) is not whole and (found == set()) is whole
    verdict = verify(kernel, 20.0).verdict
    assert verdict is Verdict.REFUTED if not whole else verdict is not Verdict.REFUTED
