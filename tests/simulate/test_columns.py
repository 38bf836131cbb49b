"""Columns of pixels by the copy engine: what they bring, and which indices are none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from argus.diagnostic import Verdict
from argus.ir.wellformed import check_explicit
from argus.layout import blocked
from argus.simulate import simulate
from argus.verify import verify
from tests.simulate.kernels import parse

LAYOUT = blocked((32, 64), 128, vector=8)
INSIDE = "((c0 + 7) // 15 < N) & (0 <= (c0 + 7) // 5 % 3 * 2 + (t // 3 % 3 - 1)) & ((c0 + 7) // 5 % 3 * 2 + (t // 3 % 3 - 1) < 6) & (0 <= (c0 + 7) % 5 * 2 + (t % 3 - 1)) & ((c0 + 7) % 5 * 2 + (t % 3 - 1) < 10)"  # noqa: E501
KERNEL = f"""
kernel columns
target sm_90a
warps 8 of 32
size N
tensor x: bfloat16[N, 6, 10, 64] strides [3840:int64, 640:int64, 64:int64, 1:int64] align 16
tensor y: bfloat16[9, 32, 64] strides [2048:int64, 64:int64, 1:int64] align 16
grid [1]
shared s: bfloat16 32x64 layout Sw<3,3,3> o 0 o (32,64):(64,1) at 0
mbarrier full count 1 arrivals 1 at 4096
mbarrier empty count 1 arrivals 4 at 4112
fragment f: bfloat16 32x64 layout {LAYOUT}
body {{
  spec y(a, b, c) = @where({INSIDE.replace("c0", "c1").replace("t ", "c0 ")}, x[(c1 + 7) // 15, (c1 + 7) // 5 % 3 * 2 + (c0 // 3 % 3 - 1), (c1 + 7) % 5 * 2 + (c0 % 3 - 1), c2], 0.0:bfloat16):bfloat16
  mbarrier_init full
  mbarrier_init empty
  mbarrier_fence
  barrier
  roles {{
    role copy warps 4 from 0 {{
      for k in 0 .. 9 step 1 {{
        mbarrier_wait full[0] parity k % 2
        copy f[c0, c1] <- s[c0, c1] shape 32x64 layout {LAYOUT} via ld.shared vector 8
        proxy_fence
        mbarrier_arrive empty[0]
        copy y[k, c0, c1] <- f[c0, c1] shape 32x64 layout {LAYOUT} via st.global
      }}
    }}
    role load warps 1 from 4 {{
      for t in 0 .. 9 step 1 {{
        mbarrier_wait empty[0] parity (t + 1) % 2
        mbarrier_expect full[0] bytes 4096
        copy s[c0, c1] <~ x[(c0 + 7) // 15, (c0 + 7) // 5 % 3 * 2 + (t // 3 % 3 - 1), (c0 + 7) % 5 * 2 + (t % 3 - 1), c1] shape 32x64 if {INSIDE} else 0.0:bfloat16 via tma.load.im2col signal full[0]
      }}
    }}
  }}
}}
"""  # noqa: E501


def expected(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the windows of a convolution with 3 x 3 taps, strides of 2 and a border of 1 have at pixels 7 to 38."""
    images = len(x)
    padded = np.zeros((images + 3, 8, 12, 64), np.float32)
    padded[:images, 1:7, 1:11] = x
    windows = [padded[:, r : r + 5 : 2, s : s + 9 : 2].reshape(-1, 64)[7:39] for r in range(3) for s in range(3)]
    return np.stack(windows)


@pytest.mark.parametrize("schedule", ["program", "lazy", "eager-copy", "random(1)"])
def test_columns_go_from_row_to_row_and_from_image_to_image(schedule: str) -> None:
    kernel = parse(KERNEL)
    assert not check_explicit(kernel)
    x = (np.arange(2 * 3840) % 251 + 1).astype(np.float32).reshape(2, 6, 10, 64)
    outcome = simulate(kernel, {"x": x, "y": np.full((9, 32, 64), np.nan, np.float32)}, schedule=schedule)
    assert outcome.ok and outcome.complete, [str(v) for v in outcome.violations]
    np.testing.assert_array_equal(outcome.tensors["y"], expected(x))


_ORDER = "in the order of a convolution's windows"
NONE = {
    "another number of rows": (("// 5 % 3 * 2", "// 5 % 4 * 2"), _ORDER),
    "images of another size": (("<~ x[(c0 + 7) // 15", "<~ x[(c0 + 7) // 16"), _ORDER),
    "columns of another pixel": (("(c0 + 7) % 5 * 2", "(c0 + 8) % 5 * 2"), _ORDER),
    "every second pixel": (("c0 + 7", "c0 * 2 + 7"), _ORDER),
    "an offset without bounds": (("t % 3 - 1", "t - 1"), "has offsets from 0 up to 256"),
    "an offset before the first place": (("t % 3 - 1", "1 - t % 3"), "has offsets from 0 up to 256"),
    "a stride that is too long": (("% 5 * 2", "% 5 * 9"), "strides from 1 to 8"),
    "a place far before the image": (("t % 3 - 1", "t % 3 - 129"), "places from -128 before an image"),
    "a size that is not constant": (("x: bfloat16[N, 6, 10", "x: bfloat16[N, 6, N"), "constant sizes of the images"),
    "a mask that cuts inside": (("// 15 < N)", "// 15 < N - 1)"), "masks nothing but what is outside"),
}


@pytest.mark.parametrize("case", NONE)
def test_other_indices_are_no_column(case: str) -> None:
    (old, new), why = NONE[case]
    head, tail = KERNEL.split("  mbarrier_init full", 1)
    text = head.replace(old, new, 1) if "bfloat16[" in old else head
    problems = check_explicit(parse(text + "  mbarrier_init full" + tail.replace(old, new)))
    assert any(why in str(p) for p in problems), problems


def test_a_column_is_proved_and_a_wrong_one_refuted() -> None:
    assert verify(parse(KERNEL)).verdict is Verdict.PROVED
    head, tail = KERNEL.split("  mbarrier_init full", 1)
    wrong = head + "  mbarrier_init full" + tail.replace("(t % 3 - 1)", "(t // 3 % 3 - 1)")
    assert verify(parse(wrong)).verdict is Verdict.REFUTED
