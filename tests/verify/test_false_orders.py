"""Choreography that a verifier easily takes for right, each beside its right twin, one edit away."""

from __future__ import annotations

import pytest

from argus.diagnostic import Verdict
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.wellformed import check_explicit
from argus.verify import verify
from tests.verify.hopper import gemm

pytestmark = pytest.mark.slow

_ROWS = "[64x64 | t 8@1*8 16@0 | v 8@1 4@0*16]"
_BOX = "shape 64x64 via tma.load"
_TILES = "layout Sw<3,3,3> o 0 o (2,64,64):(4096,64,1)"
_LINE = "[32 | t 32@0 | v]"


THROUGH_A_TENSOR = f"""kernel through_a_tensor
target sm_90a
warps 12 of 32
tensor x: bfloat16[64, 64] strides [64:int64, 1:int64] align 16
tensor y: bfloat16[64, 64] strides [64:int64, 1:int64] align 16
tensor z: bfloat16[64, 64] strides [64:int64, 1:int64] align 16
grid [1]
shared at: bfloat16 64x64 layout Sw<3,3,3> o 0 o (64,64):(64,1) at 0
mbarrier full count 1 arrivals 1 at 8192
mbarrier ready count 1 arrivals 4 at 8200
fragment f: bfloat16 64x64 layout {_ROWS}
fragment g: bfloat16 64x64 layout {_ROWS}
body {{
  mbarrier_init full
  mbarrier_init ready
  mbarrier_fence
  barrier
  roles {{
    role writer warps 4 from 0 {{
      copy f[c0, c1] <- x[c0, c1] shape 64x64 layout {_ROWS} via ld.global vector 8
      copy z[c0, c1] <- f[c0, c1] shape 64x64 layout {_ROWS} via st.global vector 8
      proxy_fence
      mbarrier_arrive ready[0]
    }}
    role producer warps 1 from 4 {{
      mbarrier_wait ready[0] parity 0
      mbarrier_expect full[0] bytes 8192
      copy at[c0, c1] <~ EDIT[c0, c1] {_BOX} signal full[0]
    }}
    role reader warps 4 from 8 {{
      mbarrier_wait full[0] parity 0
      copy g[c0, c1] <- at[c0, c1] shape 64x64 layout {_ROWS} via ld.shared vector 8
      copy y[c0, c1] <- g[c0, c1] shape 64x64 layout {_ROWS} via st.global vector 8
    }}
  }}
}}
"""

TWO_UPDATES = f"""kernel two_updates
target sm_80
warps 1 of 32
size N
tensor x: float32[32] strides [1:int64] align 16
tensor z: float32[32] strides [1:int64] align 16
grid [N]
fragment f: float32 32 layout {_LINE}
body {{
  copy f[c0] <- x[c0] shape 32 layout {_LINE} via ld.global
  accumulate z[c0] add f[c0] shape 32 layout {_LINE} via red.global
  accumulate z[c0] EDIT f[c0] shape 32 layout {_LINE} via red.global
}}
"""

A_BRANCH = f"""kernel a_branch
target sm_80
warps 1 of 32
tensor x: float32[32] strides [1:int64] align 16
tensor n: int32[4] strides [1:int64] align 16
tensor z: float32[32] strides [1:int64] align 16
grid [1]
fragment f: float32 32 layout {_LINE}
fragment m: int32 () layout [() | t 32@_ | v]
body {{
  EDIT
  copy f[c0] <- x[c0] shape 32 layout {_LINE} via ld.global
  STATEMENT {{
    map f[c0] = f[c0] * 2.0 shape 32 layout {_LINE} scope thread
  }}
  copy z[c0] <- f[c0] shape 32 layout {_LINE} via st.global
}}
"""
_LOADED = "copy m[] <- n[0] shape () layout [() | t 32@_ | v] via ld.global"

LATE = f"""kernel late
target sm_90a
warps 8 of 32
size N
tensor x: bfloat16[N, 64, 64] strides [4096:int64, 64:int64, 1:int64] align 16
grid [N] persistent
shared q: bfloat16 2x64x64 {_TILES} at 0
mbarrier full count 2 arrivals 1 at 16384
mbarrier empty count 2 arrivals 4 at 16400
body {{
  mbarrier_init full
  mbarrier_init empty
  mbarrier_fence
  barrier
  roles {{
    role reader warps 4 from 0 {{
      programs {{
        for j in 0 .. 1 step 1 counter c wrap 4 {{
          mbarrier_wait full[c % 2] parity EDIT
          mbarrier_arrive empty[c % 2]
        }}
      }}
    }}
    role producer warps 1 from 4 {{
      programs {{
        for j in 0 .. 1 step 1 counter c wrap 4 {{
          mbarrier_wait empty[c % 2] parity OTHER
          mbarrier_expect full[c % 2] bytes 8192
          copy q[c % 2, c0, c1] <~ x[program_id(0), c0, c1] {_BOX} signal full[c % 2]
        }}
      }}
    }}
  }}
}}
"""
_DATA, _SPACE = "c // 2 % 2", "(c // 2 + 1) % 2"

_SLOT, _EACH = "(i // 4 * 2 + i % 2) % 2", "x: bfloat16[N, 64, 64] strides [4096:int64, 64:int64, 1:int64] align 16"
EVERY_OTHER = f"""kernel every_other
target sm_90a
warps 12 of 32
size N
tensor {_EACH}
tensor {_EACH.replace("x", "y", 1)}
tensor {_EACH.replace("x", "z", 1)}
grid [1]
shared at: bfloat16 2x64x64 {_TILES} at 0
mbarrier full count 2 arrivals 1 at 16384
mbarrier empty count 2 arrivals 4 at 16400
mbarrier taken count 2 arrivals 4 at 16416
mbarrier told count 2 arrivals ARRIVALS at 16432
fragment f: bfloat16 64x64 layout {_ROWS}
fragment g: bfloat16 64x64 layout {_ROWS}
fragment h: bfloat16 64x64 layout {_ROWS}
body {{
  mbarrier_init full
  mbarrier_init empty
  mbarrier_init taken
  mbarrier_init told
  mbarrier_fence
  barrier
  roles {{
    role producer warps 1 from 8 {{
      for i in 0 .. N step 1 {{
        mbarrier_wait empty[i % 2] parity (i // 2 + 1) % 2
        if i // 2 % 2 == 1 {{
          mbarrier_wait taken[{_SLOT}] parity i // 4 % 2
          BY_PRODUCER
        }}
        mbarrier_expect full[i % 2] bytes 8192
        copy at[i % 2, c0, c1] <~ x[i, c0, c1] {_BOX} signal full[i % 2]
      }}
    }}
    role each warps 4 from 0 {{
      for i in 0 .. N step 1 {{
        mbarrier_wait full[i % 2] parity i // 2 % 2
        copy f[c0, c1] <- at[i % 2, c0, c1] shape 64x64 layout {_ROWS} via ld.shared vector 8
        copy z[i, c0, c1] <- f[c0, c1] shape 64x64 layout {_ROWS} via st.global vector 8
        proxy_fence
        if i // 2 % 2 == 1 {{
          BY_READER
        }}
        mbarrier_arrive empty[i % 2]
      }}
    }}
    role other warps 4 from 4 {{
      map h[c0, c1] = 0.0:bfloat16 shape 64x64 layout {_ROWS} scope thread
      for i in 0 .. N step 1 {{
        if i // 2 % 2 == 0 {{
          mbarrier_wait told[{_SLOT}] parity (i // 4 + 1) % 2
          mbarrier_wait full[i % 2] parity 0
          copy g[c0, c1] <- at[i % 2, c0, c1] shape 64x64 layout {_ROWS} via ld.shared vector 8
          copy y[i, c0, c1] <- g[c0, c1] shape 64x64 layout {_ROWS} via st.global vector 8
          proxy_fence
          mbarrier_wait full[(i + 2) % 2] parity 0
          mbarrier_arrive taken[{_SLOT}]
        }} else {{
          copy y[i, c0, c1] <- h[c0, c1] shape 64x64 layout {_ROWS} via st.global vector 8
        }}
      }}
    }}
  }}
}}
"""
"""`other` waits for every other phase alone: who tells it that the one between is over?"""
_TELLS = f"mbarrier_arrive told[{_SLOT}]"

_SPREAD = "shape 64 layout [64 | t 64@0 | v]"
TWO_COUNTS = f"""kernel two_counts
target sm_80
warps 2 of 32
size N
tensor x: float32[N, 64] strides [64:int64, 1:int64] align 16
tensor z: float32[N, 64] strides [64:int64, 1:int64] align 16
grid [1]
shared s: float32 2x64 layout (2,64):(64,1) at 0
fragment f: float32 64 layout [64 | t 64@0 | v]
fragment g: float32 64 layout [64 | t 64@0 | v]
body {{
  tag x[N, 64] = {{row = c0, column = c1}}
  for p in 0 .. N step 1 {{
    copy f[c0] <- x[p, c0] {_SPREAD} via ld.global
    for i in 0 .. 1 step 1 counter filled wrap 4 {{
      copy s[filled % 2, c0] <- f[c0] {_SPREAD} via st.shared
    }}
    barrier
    for j in 0 .. EDIT step 1 counter used wrap 4 {{
      if j == 0 {{
        copy g[c0] <- s[used % 2, 63 - c0] {_SPREAD} via ld.shared
        assert (i) in 64 {{g[c0] carries [p, 63 - c0]}}
        copy z[p, c0] <- g[c0] {_SPREAD} via st.global
      }}
    }}
    barrier
  }}
}}
"""
"""Two loops count the buffers: where one has two trips, it always reads the first buffer."""

_CUBE = "float32[P, N, 64] strides [NAME.stride0:int64, 64:int64, 1:int64] align 16"
BEFORE_THE_FIRST = f"""kernel before_the_first
target sm_80
warps 2 of 32
size N
size P
tensor x: {_CUBE.replace("NAME", "x")}
tensor z: {_CUBE.replace("NAME", "z")}
grid [1]
shared s: float32 2x64 layout (2,64):(64,1) at 0
fragment f: float32 64 layout [64 | t 64@0 | v]
fragment g: float32 64 layout [64 | t 64@0 | v]
body {{
  for p in 0 .. P step 1 {{
    for i in 0 .. N step 1 counter turn wrap 4 {{
      copy f[c0] <- x[p, i, c0] {_SPREAD} via ld.global
      copy s[turn % 2, c0] <- f[c0] {_SPREAD} via st.shared
      barrier
      copy g[c0] <- s[turn % 2, 63 - c0] {_SPREAD} via ld.shared
      if EDIT {{
        copy g[c0] <- s[(turn + 1) % 2, c0] {_SPREAD} via ld.shared
      }}
      copy z[p, i, c0] <- g[c0] {_SPREAD} via st.global
      barrier
    }}
  }}
}}
"""
"""The buffer of the trip before, which the first one does not have."""

GEMM = print_kernel(gemm(2))
_PRODUCT = next(line for line in GEMM.splitlines(keepends=True) if " mma acc" in line)
_HALF = _PRODUCT.replace("m64n128k16", "m64n64k16")
_FENCE = "        mma_fence\n"
_BRANCH = f"        if k0 >= 0 {{\n  {_FENCE}        }}\n"
_OPEN = "".join(line for line in GEMM.splitlines(keepends=True) if not line.lstrip().startswith(("spec", "assert")))


def _told(text: str, by_reader: bool) -> str:
    text = text.replace("ARRIVALS", "4" if by_reader else "1")
    return text.replace("BY_READER", _TELLS if by_reader else "").replace("BY_PRODUCER", "" if by_reader else _TELLS)


def _late(right: bool) -> str:
    return LATE.replace("EDIT", _DATA if right else _SPACE).replace("OTHER", _SPACE if right else _DATA)


PAIRS: dict[str, tuple[str, str, str]] = {
    "what threads store, the copy engine loads": (
        THROUGH_A_TENSOR.replace("EDIT", "x"), THROUGH_A_TENSOR.replace("EDIT", "z"), "races-unknown",
    ),
    "atomic sums, and atomic maxima of the same": (
        TWO_UPDATES.replace("EDIT", "add"), TWO_UPDATES.replace("EDIT", "maximum"), "races-unknown",
    ),
    "a branch on what nobody wrote": (
        A_BRANCH.replace("STATEMENT", "if m[] > 0").replace("EDIT", _LOADED),
        A_BRANCH.replace("STATEMENT", "if m[] > 0").replace("EDIT", ""),
        "uninitialised-read",
    ),
    "a loop to what nobody wrote": (
        A_BRANCH.replace("STATEMENT", "for i in 0 .. m[] step 1").replace("EDIT", _LOADED),
        A_BRANCH.replace("STATEMENT", "for i in 0 .. m[] step 1").replace("EDIT", ""),
        "uninitialised-read",
    ),
    "a parity of two and more": (GEMM, GEMM.replace("2 % 2\n", "2\n"), "wrong-parity"),
    "a copy that is waited for two programs later": (_late(right=True), _late(right=False), "unfinished-copy"),
    "a wait two phases behind": (_told(EVERY_OTHER, True), _told(EVERY_OTHER, False), "progress-unknown"),
    "buffers that loops of other trips count": (
        TWO_COUNTS.replace("EDIT", "1"), TWO_COUNTS.replace("EDIT", "2"), "tag-mismatch",
    ),
    "the buffer before the first one": (
        BEFORE_THE_FIRST.replace("EDIT", "(p > 0) | (i > 0)"), BEFORE_THE_FIRST.replace("EDIT", "i >= 0"),
        "uninitialised-read",
    ),
    "a fence for half a warp": (
        GEMM.replace(_FENCE, _FENCE + _BRANCH),
        GEMM.replace(_FENCE, _FENCE + _BRANCH.replace("k0 >= 0", "thread < 16")),
        "convergence-unknown",
    ),
    "products of two shapes into the same registers": (
        _OPEN.replace(_PRODUCT, _PRODUCT + _PRODUCT), _OPEN.replace(_PRODUCT, _PRODUCT + _HALF), "races-unknown",
    ),
}  # fmt: skip
"""By name: a right kernel, a wrong one, and a code that it gets."""


@pytest.mark.parametrize("name", PAIRS)
def test_pair(name: str) -> None:
    right, wrong, code = PAIRS[name]
    report = verify(parse_kernel(right), 120.0)
    assert report.verdict is Verdict.PROVED, report.diagnostics
    report = verify(parse_kernel(wrong), 120.0)
    assert report.verdict is not Verdict.PROVED
    assert code in {d.code for d in report.diagnostics}


def test_a_fence_is_shown_to_order_nothing_in_a_tensor() -> None:
    report = verify(parse_kernel(THROUGH_A_TENSOR.replace("EDIT", "z")), 120.0)
    assert report.verdict is Verdict.REFUTED
    assert "missing-proxy-fence" in {d.code for d in report.diagnostics}


WARPS, BUDGET = ("warps 8 of 32", "warps 12 of 32"), ("registers 24 ", "registers 160 ")
STRAY = "  mbarrier_expect full[0] bytes 16\n  roles {\n"


def test_idle_warps_keep_their_registers() -> None:
    """Of 504 a thread of each of three warpgroups, 168 are those of the one that is in no role."""
    roomy = GEMM.replace(*WARPS)
    assert not check_explicit(parse_kernel(roomy))
    problems = check_explicit(parse_kernel(roomy.replace(*BUDGET)))
    assert "the roles take" in problems[0].message


def test_every_warp_outside_of_roles_would_issue_copies() -> None:
    for edit in (STRAY, STRAY.replace("expect full[0] bytes 16", "arrive empty[0]")):
        problems = check_explicit(parse_kernel(GEMM.replace("  roles {\n", edit)))
        assert "this stands in none" in problems[0].message
    assert not check_explicit(parse_kernel(GEMM))
