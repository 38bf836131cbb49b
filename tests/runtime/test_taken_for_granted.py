"""What proofs take for granted about arguments holds of what the machine gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import argus
from argus.diagnostic import LaunchError

HEAD = "import argus\nimport argus.language as al\n\n"
CHOOSE = """@argus.kernel(num_warps=1)
def choose(b: al.Tensor[al.boolean, "N"], t: al.Tensor[al.float32, "2"], o: al.Tensor[al.float32, "N"]):
    N = b.shape[0]
    i = al.grid(al.cdiv(N, 128)) * 128 + al.arange(128)
    v = al.load(b[i], mask=i < N)
    LINES
    al.store(o[i], al.load(t[al.where(v, 1, 0)], mask=i < N), mask=i < N)
"""
SHARED = """s = al.shared((128,), al.boolean)
    al.store(s[al.arange(128)], v)
    al.barrier()
    v = al.load(s[al.arange(128)])"""
FIRST = """@argus.kernel(num_warps=1)
def first(x: al.Tensor[al.float32, "32"], o: al.Tensor[al.float32, "1"], n: al.int32):
    al.requires((n >= 0) & (n < 32))
    al.grid(GRID)
    al.store(o[0], al.load(x[n]))
"""


@pytest.mark.parametrize("lines", ["pass", SHARED], ids=["registers", "shared memory"])
def test_a_truth_value_is_true_for_any_byte_but_0(lines: str, require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    choose = argus.from_text(HEAD + CHOOSE.replace("LINES", lines))["choose"]
    given = np.arange(256, dtype=np.uint8).view(np.bool_)
    out = np.zeros(256, dtype=np.float32)
    choose(given, np.array([10, 20], dtype=np.float32), out)
    assert np.array_equal(out, [10.0, *[20.0] * 255])


class Changing:
    """An integer that is another one each time that it is asked for."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def __index__(self) -> int:
        return self.numbers.pop(0) if len(self.numbers) > 1 else self.numbers[0]


@pytest.mark.parametrize("grid", ["1", "al.maximum(1, al.minimum(n, 1))"], ids=["a grid", "a grid by a scalar"])
def test_the_scalar_that_is_checked_is_the_one_that_is_passed(grid: str, require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    first = argus.from_text(HEAD + FIRST.replace("GRID", grid))["first"]
    x, out = np.arange(32, dtype=np.float32), np.zeros(1, dtype=np.float32)
    for asked in range(1, 8):  # however often it was asked before the launch
        out[0] = -1
        try:
            first(x, out, Changing(*[5] * asked, 1 << 28))
        except LaunchError as error:
            assert error.diagnostics[0].code in ("precondition-failed", "requires-not-met")
        else:
            assert out[0] == 5
    first(x, out, Changing(7))
    assert out[0] == 7
