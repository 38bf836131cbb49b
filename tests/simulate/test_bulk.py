"""The copy engine: boxes in panels, slices of larger tensors, running counts of rings."""

from __future__ import annotations

import numpy as np
import pytest

from argus.ir.wellformed import check_explicit
from argus.layout import blocked
from argus.simulate import replay, simulate
from tests.simulate.kernels import parse

SCHEDULES = ("program", "reverse", "lazy", "eager-copy", "eager-load", "random(1)", "random(2)")
LAYOUT = blocked((8, 128), 128, vector=8)
SLICES = f"""
kernel slices
target sm_90a
warps 8 of 32
size S
tensor x: bfloat16[2, 3, S, 128] strides [x.stride0:int64, x.stride1:int64, 128:int64, 1:int64] align 16
tensor y: bfloat16[2, 3, S, 128] strides [y.stride0:int64, y.stride1:int64, 128:int64, 1:int64] align 16
grid [2]
shared s: bfloat16 2x8x128 layout Sw<3,3,3> o 0 o (2,8,(64,2)):(1024,64,(1,512)) at 0
mbarrier full count 2 arrivals 1 at 4096
mbarrier empty count 2 arrivals 4 at 4112
fragment f: bfloat16 8x128 layout {LAYOUT}
body {{
  tag x[2, 3, S, 128] = {{b = c0, h = c1, s = c2, d = c3}}
  mbarrier_init full
  mbarrier_init empty
  mbarrier_fence
  barrier
  roles {{
    role copy warps 4 from 0 {{
      for h in 0 .. 3 step 1 {{
        for k in 0 .. S step 8 counter n wrap 4 {{
          mbarrier_wait full[n % 2] parity n // 2 % 2
          copy f[c0, c1] <- s[n % 2, c0, c1] shape 8x128 layout {LAYOUT} via ld.shared vector 8
          proxy_fence
          mbarrier_arrive empty[n % 2]
          assert (i, j) in 8x128 {{f[c0, c1] carries [program_id(0), h, k + c0, c1]}} where k + c0 < S
          copy y[program_id(0), h, k + c0, c1] <- f[c0, c1] shape 8x128 if k + c0 < S layout {LAYOUT} via st.global
        }}
      }}
    }}
    role load warps 1 from 4 {{
      for h in 0 .. 3 step 1 {{
        for k in 0 .. S step 8 counter m wrap 4 {{
          mbarrier_wait empty[m % 2] parity (m // 2 + 1) % 2
          mbarrier_expect full[m % 2] bytes 2048
          copy s[m % 2, c0, c1] <~ x[program_id(0), h, k + c0, c1] shape 8x64 if k + c0 < S else 0.0:bfloat16 via tma.load signal full[m % 2]
          copy s[m % 2, c0, c1 + 64] <~ x[program_id(0), h, k + c0, 64 + c1] shape 8x64 if k + c0 < S else 0.0:bfloat16 via tma.load signal full[m % 2]
        }}
      }}
    }}
  }}
}}
"""  # noqa: E501


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rows", [0, 5, 24])
def test_panels_of_slices_through_a_ring(rows: int, schedule: str) -> None:
    kernel = parse(SLICES)
    assert not check_explicit(kernel)
    x = (np.arange(2 * 3 * rows * 128) % 251).astype(np.float32).reshape(2, 3, rows, 128)
    outcome = simulate(kernel, {"x": x, "y": np.full_like(x, np.nan)}, tags=True, schedule=schedule)
    assert outcome.ok and outcome.complete, [str(v) for v in outcome.violations]
    np.testing.assert_array_equal(outcome.tensors["y"], x)


REJECTED = {
    "places by the loop, which begins anew": (
        ("s[n % 2, c0, c1] shape", "s[k // 8 % 2, c0, c1] shape"), {"data-race", "uninitialised-read"}),
    "parities of one run": (("parity n // 2 % 2", "parity k // 16 % 2"), {"data-race", "deadlock", "phase-overrun"}),
    "a count that wraps too early": (("counter n wrap 4", "counter n wrap 3"), {"data-race", "deadlock"}),
    "a count that the other role does not have": (("m wrap 4", "m wrap 2"), {"data-race", "deadlock"}),
    "both copies into one panel": (("c1 + 64] <~", "c1] <~"), {"data-race", "uninitialised-read"}),
    "no fence between a read and the copy engine's write": (("          proxy_fence\n", ""), {"missing-proxy-fence"}),
    "the bytes of one panel": (("bytes 2048", "bytes 1024"), {"phase-overrun"}),
}  # fmt: skip


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str) -> None:
    edit, codes = REJECTED[name]
    found = {v.code for v in replay(parse(SLICES, edit), {"S": 40}, [(0,)])}
    assert codes & found, found


def test_a_slice_of_another_head_carries_other_tags() -> None:
    edit = "<~ x[program_id(0), h, k + c0, 64", "<~ x[program_id(0), 0, k + c0, 64"
    found = replay(parse(SLICES, edit), {"S": 8}, [(1,)])
    first = next(v for v in found if v.code == "tag-mismatch")
    assert (first.arrived, first.expected) == ("h = 0", "1") and first.iteration == {"h": 1, "k": 0, "n": 1}
