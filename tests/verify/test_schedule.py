"""Times of statements order instances as their positions do, with fewer dimensions."""

from __future__ import annotations

from itertools import product

import pytest

from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from argus.verify.model.program import Position, Site, sites
from argus.verify.model.schedule import times
from tests.verify.test_persistent import GEMM
from tests.verify.test_window import TEXT

LOOPS = """
kernel loops
target sm_80
warps 1 of 32
size M
tensor o: float32[M, 8] strides [o.stride0:int64, 1:int64] align 16
grid [1]
fragment x: float32 32 layout [32 | t 32@0 | v]
body {
  map x[c0] = 0.0 shape 32 layout [32 | t 32@0 | v] scope thread
  for i in 0 .. M step 1 {
    if i > 1 {
      map x[c0] = 1.0 shape 32 layout [32 | t 32@0 | v] scope thread
      for once in 0 .. 4 step 4 {
        map x[c0] = 2.0 shape 32 layout [32 | t 32@0 | v] scope thread
      }
    } else {
      map x[c0] = 3.0 shape 32 layout [32 | t 32@0 | v] scope thread
    }
    for j in i .. M step 1 {
      map x[c0] = 4.0 shape 32 layout [32 | t 32@0 | v] scope thread
    }
  }
  map x[c0] = 5.0 shape 32 layout [32 | t 32@0 | v] scope thread
}
"""


@pytest.mark.parametrize("text", [LOOPS, GEMM, TEXT])
def test_the_order_is_that_of_positions(text: str) -> None:
    kernel: Kernel = parse_kernel(text)
    found = sites(kernel)
    short = times(found)
    assert max(map(len, short.values())) <= max(len(s.position) for s in found)
    points = [(s, counters) for s in found for counters in _some(s)]
    for (a, i), (b, j) in product(points, points):
        assert _compared(a.position, i, b.position, j) == _compared(short[a.index], i, short[b.index], j)


def test_loops_that_run_once_take_no_dimension() -> None:
    found = sites(parse_kernel(LOOPS))
    assert any("once" in s.position for s in found)
    assert all("once" not in time for time in times(found).values())
    assert max(map(len, times(found).values())) == 5  # i and j, and the places around them


def _some(site: Site) -> list[dict[int | str, int]]:
    """A few values of the counters around a statement."""
    names = dict.fromkeys(part for part in site.position if isinstance(part, str))
    ranges = [(0,) if name == "once" else (0, 1) for name in names]
    return [dict(zip(names, values, strict=True)) for values in product(*ranges)]


def _compared(a: Position, i: dict[int | str, int], b: Position, j: dict[int | str, int]) -> int:
    width = max(len(a), len(b))
    first, second = ([c.get(p, p) for p in at] + [0] * (width - len(at)) for at, c in ((a, i), (b, j)))
    return (first > second) - (first < second)
