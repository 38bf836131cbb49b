"""Wrong kernels whose mistake is in what threads, lanes and machines do, each beside its right twin, one edit away."""

from __future__ import annotations

import numpy as np
import pytest

from argus.backend.emit import emit
from argus.diagnostic import Verdict
from argus.ir.nodes import AssertTags
from argus.ir.text import parse_kernel
from argus.ir.wellformed import check_explicit
from argus.simulate import simulate
from argus.verify import verify
from tests.verify import turns

_LINE = "[64 | t 64@0 | v]"
_ALL = "[() | t 64@_ | v]"
_ZERO = f"map m[] = 0 shape () layout {_ALL} scope thread"
_LOADED = f"copy m[] <- n[0] shape () layout {_ALL} via ld.global"
REPLICAS = f"""kernel replicas
target sm_80
warps 2 of 32
tensor x: float32[64] strides [1:int64] align 16
tensor n: int32[64] strides [1:int64] align 16
tensor z: float32[64] strides [1:int64] align 16
grid [1]
fragment f: float32 64 layout {_LINE}
fragment m: int32 () layout {_ALL}
body {{
  copy f[c0] <- x[c0] shape 64 layout {_LINE} via ld.global
  EDIT
  if m[] > 0 {{
    barrier
  }}
  copy z[c0] <- f[c0] shape 64 layout {_LINE} via st.global
}}
"""

_WARP = "[32 | t 32@0 | v]"
SHUFFLED = f"""kernel shuffled
target sm_80
warps 1 of 32
tensor x: float32[32] strides [1:int64] align 16
tensor z: float32[32] strides [1:int64] align 16
grid [1]
fragment f: float32 32 layout {_WARP}
fragment t: int32 32 layout {_WARP}
fragment u: int32 32 layout {_WARP}
body {{
  map t[c0] = NUMBER shape 32 layout {_WARP} scope thread
  map u[c0] = t[31 - c0] shape 32 layout {_WARP} scope warp
  copy f[c0] <- x[c0] shape 32 layout {_WARP} via ld.global
  copy z[c0] <- f[c0] shape 32 if PART layout {_WARP} via st.global
  copy z[c0] <- f[c0] shape 32 if c0 < 16 layout {_WARP} via st.global
}}
"""

_FOURS = "[128 | t 32@0*4 | v 4@0]"
MASKED = f"""kernel masked
target sm_80
warps 1 of 32
tensor x: float32[128] strides [1:int64] align 16
tensor y: float32[128] strides [1:int64] align 16
tensor z: float32[128] strides [1:int64] align 16
grid [1]
shared s: float32 128 layout 128:1 at 0
fragment f: float32 128 layout {_FOURS}
fragment g: float32 128 layout {_FOURS}
body {{
  tag x[128] = {{first = 1}}
  tag y[128] = {{first = 0}}
  copy f[c0] <- x[c0] shape 128 layout {_FOURS} via ld.global vector 4
  copy g[c0] <- y[c0] shape 128 layout {_FOURS} via ld.global vector 4
  copy s[c0] <- f[c0] shape 128 layout {_FOURS} via st.shared vector 4
  barrier
  copy s[c0] <- g[c0] shape 128 if c0 < EDIT layout {_FOURS} via st.shared vector 4
  barrier
  copy f[c0] <- s[c0] shape 128 layout {_FOURS} via ld.shared vector 4
  assert (i) in 128 {{f[c0] carries [1]}} where c0 >= EDIT
  copy z[c0] <- f[c0] shape 128 layout {_FOURS} via st.global vector 4
}}
"""

_OVERLAPPING = "[66 | t 32@0*2 | v 4@0]"
OVERLAPPING = f"""kernel overlapping
target sm_80
warps 1 of 32
tensor x: float32[68] strides [1:int64] align 16
tensor z: float32[64] strides [1:int64] align 16
grid [1]
fragment f: float32 66 layout {_OVERLAPPING}
body {{
  copy f[c0] <- x[c0] shape 66 layout {_OVERLAPPING} via ld.global vector EDIT
  copy z[c0] <- f[c0] shape 64 layout [64 | t 32@0*2 | v 2@0] via st.global
}}
"""

_PAIRED = "[192 | t 32@0*6 | v 6@0]"
IN_PLACE = f"""kernel in_place
target sm_80
warps 1 of 32
tensor x: float32[192] strides [1:int64] align 16
tensor z: float32[192] strides [1:int64] align 16
grid [1]
fragment f: float32 192 layout {_PAIRED}
fragment g: float32 192 layout {_PAIRED}
body {{
  copy f[c0] <- x[c0] shape 192 layout {_PAIRED} via ld.global
  map EDIT scope thread
  copy z[c0] <- f[c0] shape 192 layout {_PAIRED} via st.global
}}
"""
_DOUBLED, _SWAPPED = "f[c0] = f[c0] + f[c0] shape 192 layout", "f[c0] = f[c0 ^ 1] shape 192 layout"

_ROWS = "[128x128 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 16@1*8 2@0*64]"
_PLACE = "layout Sw<3,3,3> o 0 o (128,64):(64,1)"
PRODUCT = f"""kernel product
target sm_90a
warps 8 of 32
tensor a: bfloat16[128, 64] strides [64:int64, 1:int64] align 16
tensor b: bfloat16[128, 64] strides [64:int64, 1:int64] align 16
grid [1]
shared at: bfloat16 128x64 {_PLACE} at 0
shared bt: bfloat16 128x64 {_PLACE} at 16384
mbarrier full count 1 arrivals 1 at 32768
fragment acc: float32 128x128 layout {_ROWS}
body {{
  mbarrier_init full
  mbarrier_fence
  barrier
  roles {{
    role producer warps 1 from 4 registers 24 {{
      mbarrier_expect full[0] bytes 32768
      copy at[c0, c1] <~ a[c0, c1] shape 128x64 via tma.load signal full[0]
      copy bt[c0, c1] <~ b[c0, c1] shape 128x64 via tma.load signal full[0]
    }}
    role compute warps 4 from 0 registers 240 {{
      map acc[c0, c1] = 0.0 shape 128x128 layout {_ROWS} scope thread
      CLAIM
      mbarrier_wait full[0] parity 0
      mma_fence
      mma acc[c0, c1] += at[c0, c2] * bt[c1, c2] shape 128x128x64 via wgmma_m64n128k16 warps 4x1
      mma_commit
      EDIT
    }}
  }}
}}
"""

_SPREAD = "shape 64x32 layout [64x32 | t 8@1*4 16@0 | v 4@1 4@0*16]"
TWO_PROXIES = f"""kernel two_proxies
target sm_90a
warps 4 of 32
size N
tensor x: float32[64, 32] strides [32:int64, 1:int64] align 16
tensor z: float32[64, 32] strides [32:int64, 1:int64] align 16
grid [N]
shared s: float32 64x32 layout Sw<3,2,3> o 0 o (64,32):(32,1) at 0
fragment f: float32 64x32 layout [64x32 | t 8@1*4 16@0 | v 4@1 4@0*16]
body {{
  copy f[c0, c1] <- x[c0, c1] {_SPREAD} via ld.global vector 4
  copy s[c0, c1] <- f[c0, c1] {_SPREAD} via st.shared vector 4
  proxy_fence
  barrier
  accumulate z[c0, c1] add s[c0, c1] shape 64x32 via tma.reduce.add
  accumulate z[c0, c1] add EDIT
  bulk_commit
  bulk_wait 0
}}
"""
_BY_ENGINE, _BY_THREADS = "s[c0, c1] shape 64x32 via tma.reduce.add", f"f[c0, c1] {_SPREAD} via red.global"

NAMES = f"""kernel names
target sm_80
warps 2 of 32
size threads
size ts
tensor x: float32[64] strides [1:int64] align 16
tensor a: float32[threads] strides [1:int64] align 4
tensor b: float32[ts] strides [1:int64] align 4
tensor z: float32[64] strides [1:int64] align 16
grid [1]
requires threads == EDIT
requires ts == 1
shared s: float32 1 layout 1:1 at 0
fragment f: float32 64 layout {_LINE}
body {{
  copy f[c0] <- x[c0] shape 64 layout {_LINE} via ld.global
  if thread < threads {{
    copy s[0] <- f[c0] shape 64 layout {_LINE} via st.shared
  }}
  copy z[c0] <- f[c0] shape 64 layout {_LINE} via st.global
}}
"""
"""The guard is about `threads`, and not about `ts`."""

_IN_TURN = "          mma_fence\n"
_MEET = "          mbarrier_arrive x[turn % 2]\n          mbarrier_wait x[turn % 2] parity turn // 2 % 2\n"
_AFTER = "          mma_wait 0\n"


def _meeting(text: str, place: str) -> str:
    """Both roles wait for each other at an mbarrier behind a line of theirs."""
    text = text.replace(" at 49168\n", " at 49168\nmbarrier x count 2 arrivals 8 at 49184\n")
    text = text.replace("  mbarrier_init empty\n", "  mbarrier_init empty\n  mbarrier_init x\n")
    return text.replace(place, place + _MEET)


def _shuffled(number: str, part: str) -> str:
    return SHUFFLED.replace("NUMBER", number).replace("PART", part)


PAIRS: dict[str, tuple[str, str, str]] = {
    "replicas of what each thread loads for itself": (
        REPLICAS.replace("EDIT", _LOADED), REPLICAS.replace("EDIT", _LOADED.replace("n[0]", "n[thread]")),
        "registers-unknown",
    ),
    "replicas that some threads write": (
        REPLICAS.replace("EDIT", f"{_ZERO}\n{_LOADED}"),
        REPLICAS.replace("EDIT", f"{_ZERO}\nif thread < 40 {{\n{_LOADED}\n}}"),
        "registers-unknown",
    ),
    "replicas that some threads add to": (
        REPLICAS.replace("EDIT", f"{_ZERO}\naccumulate m[] add 1 shape () layout {_ALL} scope thread"),
        REPLICAS.replace(
            "EDIT", f"{_ZERO}\nif thread < 40 {{\naccumulate m[] add 1 shape () layout {_ALL} scope thread\n}}"
        ),
        "registers-unknown",
    ),
    "another lane's number": (
        _shuffled("c0", "31 - u[c0] >= 16"), _shuffled("thread", "u[c0] >= 16"), "coverage-unknown",
    ),
    "a mask through a vector in shared memory": (
        MASKED.replace("EDIT", "124"), MASKED.replace("EDIT", "126"), "vector-unknown",
    ),
    "vectors that overlap": (OVERLAPPING.replace("EDIT", "2"), OVERLAPPING.replace("EDIT", "4"), "misaligned-vector"),
    "an element made of one that was changed before": (
        IN_PLACE.replace("EDIT", f"{_SWAPPED.replace('f', 'g', 1)} {_PAIRED}"),
        IN_PLACE.replace("EDIT", f"{_SWAPPED} {_PAIRED}"),
        "registers-unknown",
    ),
    "an element that a thread changes twice": (
        IN_PLACE.replace("EDIT", f"{_DOUBLED} {_PAIRED}"),
        IN_PLACE.replace("EDIT", f"{_DOUBLED} {_PAIRED.replace('v 6@0', 'v 4@0 2@0*2')}"),
        "registers-unknown",
    ),
    "a product that nobody waits for": (
        PRODUCT.replace("CLAIM", "").replace("EDIT", "mma_wait 0"),
        PRODUCT.replace("CLAIM", "").replace("EDIT", ""),
        "unfinished-copy",
    ),
    "updates by the copy engine, and by threads": (
        TWO_PROXIES.replace("EDIT", _BY_ENGINE), TWO_PROXIES.replace("EDIT", _BY_THREADS), "data-race",
    ),
    "a guard of a size whose name begins with a thread": (
        NAMES.replace("EDIT", "1"), NAMES.replace("EDIT", "64"), "data-race",
    ),
    "roles that wait for each other in their turns": (
        _meeting(turns.text(), _AFTER), _meeting(turns.text(), _IN_TURN), "deadlock",
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


def test_another_lanes_number_may_be_out_of_bounds() -> None:
    text = SHUFFLED.replace("PART", "c0 >= 16").replace("NUMBER", "thread")
    wrong = text.replace("<- x[c0]", "<- x[u[c0] - thread]")
    codes = {d.code for d in verify(parse_kernel(wrong)).diagnostics}
    assert "out-of-bounds" in codes


def test_claims_leave_no_trace_in_what_is_emitted() -> None:
    """An assertion between a tile that is cleared and the product that fills it."""
    claim = "assert (i, j) in 128x128 {acc[c0, c1] carries [c0, c1, once(0, 0)]}"
    plain = PRODUCT.replace("EDIT", "mma_wait 0")
    claimed = parse_kernel(plain.replace("CLAIM", claim))
    assert any(isinstance(s, AssertTags) for s in claimed.body[-1].roles[1].body)  # type: ignore[union-attr]
    assert emit(claimed) == emit(parse_kernel(plain.replace("CLAIM", "")))


COUNTED = f"""kernel counted
target sm_80
warps 1 of 32
size N
tensor x: float32[4, 32] strides [32:int64, 1:int64] align 16
tensor z: float32[N, 32] strides [32:int64, 1:int64] align 16
grid [1]
fragment f: float32 32 layout {_WARP}
body {{
  for i in 0 .. N step 1 counter n wrap 8 {{
    map f[c0] = 0.0 shape 32 layout {_WARP} scope thread
    if i - 1 >= 0 {{
      copy f[c0] <- x[(i - 1) % 4, c0] shape 32 layout {_WARP} via ld.global
    }}
    copy z[i, c0] <- f[c0] shape 32 layout {_WARP} via st.global
  }}
}}
"""


def test_running_counts_are_places_and_nothing_else() -> None:
    """Emitted counts are unsigned: `n - 1 >= 0` would always be true."""
    assert verify(parse_kernel(COUNTED)).verdict is Verdict.PROVED
    for edit in (COUNTED.replace("i - 1 >= 0", "n - 1 >= 0"), COUNTED.replace("(i - 1) % 4", "(n - 1) % 4")):
        problems = check_explicit(parse_kernel(edit))
        assert "other than a place in a ring" in problems[0].message


def test_loops_count_what_nothing_else_is_called() -> None:
    """`for (int N = 0; N < N; ...)` has no iterations."""
    text = (
        COUNTED.replace("for i in", "for N in").replace("z[i,", "z[N,").replace("(i -", "(N -").replace("if i", "if N")
    )
    for name in ("N", "f", "x"):
        problems = check_explicit(parse_kernel(text.replace("for N in 0 .. N", f"for {name} in 0 .. N")))
        assert any("something else is called" in p.message for p in problems)


def test_a_mask_is_asked_once() -> None:
    """It may depend on the registers that are loaded."""
    text = MASKED.replace("EDIT", "124").replace(" vector 4", "")
    line = next(line for line in text.splitlines() if "ld.shared" in line)
    emitted = emit(parse_kernel(text.replace(line, line.replace("shape 128", "shape 128 if f[c0] > 0.0 else -1.0"))))
    found = next(line for line in emitted.splitlines() if "load_shared" in line)
    assert found.count("> 0.0f") == 1 and "else" in found


@pytest.mark.parametrize(("width", "asked"), [("8", False), ("-8", True)])
def test_remainders_of_negative_divisors_are_not_positive(width: str, asked: bool) -> None:
    """What such a remainder leaves of a coordinate may be more than the coordinate, and so beyond a size."""
    place = f"c0 - c0 % {width}"
    text = f"""kernel rounded
target sm_80
warps 1 of 32
size N
tensor x: float32[N] strides [1:int64] align 4
tensor z: float32[32] strides [1:int64] align 4
grid [1]
requires N >= 32
fragment f: float32 32 layout {_WARP}
body {{
  copy f[c0] <- x[{place}] shape 32 if {place} < N else 0.0 layout {_WARP} via ld.global
  copy z[c0] <- f[c0] shape 32 layout {_WARP} via st.global
}}
"""
    assert verify(parse_kernel(text)).verdict is Verdict.PROVED
    assert ("< N" in emit(parse_kernel(text))) is asked


@pytest.mark.parametrize(("programs", "begins", "ends"), [("", "", ""), (" persistent", "programs {", "}")])
def test_axes_that_a_grid_does_not_have(programs: str, begins: str, ends: str) -> None:
    """There is one program along them, to the verifier, the simulator and the emitter."""
    text = f"""kernel rows
target sm_80
warps 1 of 32
size N
tensor x: float32[N, 32] strides [32:int64, 1:int64] align 16
tensor z: float32[N, 32] strides [32:int64, 1:int64] align 16
grid [N]{programs}
fragment f: float32 32 layout {_WARP}
body {{
  {begins}
  copy f[c0] <- x[program_id(0), c0] shape 32 layout {_WARP} via ld.global
  copy z[program_id(0), c0 + program_id(2)] <- f[c0] shape 32 layout {_WARP} via st.global
  {ends}
}}
"""
    kernel = parse_kernel(text)
    assert verify(kernel).verdict is Verdict.PROVED
    assert simulate(kernel, {"x": np.ones((3, 32), np.float32), "z": np.zeros((3, 32), np.float32)}).ok
    assert "block2" not in emit(kernel)
