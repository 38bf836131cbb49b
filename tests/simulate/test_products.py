"""Asynchronous products: the first operand in registers, operands by columns, every type, and what may break them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from argus.ir.instruction import WGMMA
from argus.ir.instruction.tiled import wgmma_accumulator, wgmma_operand
from argus.ir.nodes import Kernel
from argus.ir.types import DTYPES
from argus.ir.wellformed import check_explicit
from argus.layout import blocked
from argus.simulate import Outcome, replay, simulate
from argus.simulate.numeric import round_to
from tests.simulate.kernels import parse

SCHEDULES = ("program", "reverse", "lazy", "random(1)")


@dataclass(frozen=True)
class Case:
    """c[64 * g, n] = a b^T over k; `a` in registers; `b` in shared memory, by columns where `transposed`."""

    dtype: str
    n: int
    k: int
    transposed: bool = False
    warps: tuple[int, int] = (4, 1)

    @property
    def text(self) -> str:
        bits = DTYPES[self.dtype].bits
        row = WGMMA[f"wgmma_m64n{self.n // self.warps[1]}k{256 // bits}"]
        m, n, k = 16 * self.warps[0], self.n, self.k
        threads = 32 * self.warps[0] * self.warps[1]
        acc, held = wgmma_accumulator(row, (m, n), self.warps), wgmma_operand(row, (m, k), self.warps)
        rows, columns = (k, n) if self.transposed else (n, k)
        width, chunk = 1024 // bits, (128 // bits).bit_length() - 1
        panels = columns // width
        last, stride = (f"({width},{panels})", f"(1,{rows * width})") if panels > 1 else (str(width), "1")
        staged = blocked((rows, columns), threads, vector=4)
        operand = "s[c2, c1]" if self.transposed else "s[c1, c2]"
        return f"""
kernel product
target sm_90a
warps {threads // 32} of 32
tensor a: {self.dtype}[{m}, {k}] strides [{k}:int64, 1:int64] align 16
tensor b: {self.dtype}[{rows}, {columns}] strides [{columns}:int64, 1:int64] align 16
tensor c: float32[{m}, {n}] strides [{n}:int64, 1:int64] align 16
grid [1]
shared s: {self.dtype} {rows}x{columns} layout Sw<3,{chunk},3> o 0 o ({rows},{last}):({width},{stride}) at 0
fragment fa: {self.dtype} {m}x{k} layout {held}
fragment fb: {self.dtype} {rows}x{columns} layout {staged}
fragment acc: float32 {m}x{n} layout {acc}
body {{
  tag a[{m}, {k}] = {{m = c0, k = c1}}
  tag b[{rows}, {columns}] = {{{"k = c0, n = c1" if self.transposed else "n = c0, k = c1"}}}
  copy fa[c0, c1] <- a[c0, c1] shape {m}x{k} layout {held} via ld.global
  copy fb[c0, c1] <- b[c0, c1] shape {rows}x{columns} layout {staged} via ld.global
  copy s[c0, c1] <- fb[c0, c1] shape {rows}x{columns} layout {staged} via st.shared
  proxy_fence
  barrier
  map acc[c0, c1] = 0.0 shape {m}x{n} layout {acc} scope thread
  mma_fence
  mma acc[c0, c1] += fa[c0, c2] * {operand} shape {m}x{n}x{k} via {row.name} warps {self.warps[0]}x{self.warps[1]}
  mma_commit
  mma_wait 0
  map fa[c0, c1] = fa[c0, c1] shape {m}x{k} layout {held} scope thread
  assert (i, j) in {m}x{n} {{acc[c0, c1] carries [c0, c1, once(0, {k})]}}
  copy c[c0, c1] <- acc[c0, c1] shape {m}x{n} layout {acc} via st.global vector 2
}}
"""


CASES = (
    Case("bfloat16", 16, 128),
    Case("float16", 8, 64),
    Case("bfloat16", 128, 32, transposed=True),
    Case("bfloat16", 64, 16, transposed=True, warps=(4, 2)),
    Case("tfloat32", 8, 32),
    Case("float8_e4m3fn", 8, 128),
    Case("float8_e5m2", 16, 128, warps=(8, 1)),
)


def run(kernel: Kernel, schedule: str) -> tuple[Outcome, bool]:
    """The outcome, and whether the result is NumPy's."""
    rng = np.random.default_rng(2)
    values = {}
    for t in kernel.tensors:
        shape = tuple(int(e.value) for e in t.shape)  # type: ignore[union-attr]
        values[t.name] = round_to(rng.integers(-3, 4, shape).astype(np.float32), t.dtype)
    outcome = simulate(kernel, values, tags=True, schedule=schedule)
    b = values["b"]
    right = values["a"] @ (b.T if b.shape[1] == values["a"].shape[1] else b)
    return outcome, bool(np.array_equal(outcome.tensors["c"], right))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_accepted(case: Case, schedule: str) -> None:
    kernel = parse(case.text)
    assert not check_explicit(kernel)
    outcome, right = run(kernel, schedule)
    assert outcome.ok and outcome.complete, [str(v) for v in outcome.violations]
    assert right


FIRST = CASES[0].text
WAIT, AFTER = "  mma_wait 0\n", "  map fa[c0, c1] = fa[c0, c1] shape 64x128"
REJECTED = {
    "registers of the operand are written in flight": (
        FIRST.replace(WAIT, "").replace("  assert", WAIT + "  assert"), "register-in-flight", "fa"),
    "the accumulator is read in flight": (FIRST.replace(WAIT, ""), "register-in-flight", "acc"),
    "nothing orders the operand's registers before the product": (
        FIRST.replace("  mma_fence\n", ""), "missing-mma-fence", "fa"),
    "no proxy fence": (FIRST.replace("  proxy_fence\n", ""), "missing-proxy-fence", "s"),
}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str, schedule: str) -> None:
    text, code, obj = REJECTED[name]
    found = replay(parse(text), {}, None, schedule=schedule)
    assert (code, obj) in {(v.code, v.object) for v in found}, [str(v) for v in found]


def test_an_operand_that_was_never_written() -> None:
    lines = [line for line in FIRST.splitlines() if "fa[c0, c1] <- a" not in line and "map fa" not in line]
    assert {(v.code, v.object) for v in replay(parse("\n".join(lines)), {}, None)} >= {("uninitialised-read", "fa")}


def test_reading_an_operand_in_flight_is_no_fault() -> None:
    kept = FIRST.replace(WAIT, "").replace("  map fa[c0, c1] = fa[c0, c1]", "  map fc[c0, c1] = fa[c0, c1]")
    held = wgmma_operand(WGMMA["wgmma_m64n16k16"], (64, 128), (4, 1))
    fragment = f"fragment fc: bfloat16 64x128 layout {held}\nbody {{"
    text = kept.replace("body {", fragment).replace("  assert", WAIT + "  assert")
    assert not replay(parse(text), {}, None)


def test_warpgroups_multiply_what_they_hold() -> None:
    case = Case("bfloat16", 64, 16, transposed=True, warps=(4, 2))
    unequal = "map fa[c0, c1] = where(thread < 128, fa[c0, c1], 0.0:bfloat16) shape 64x16"
    held = wgmma_operand(WGMMA["wgmma_m64n32k16"], (64, 16), (4, 2))
    text = case.text.replace("  mma_fence\n", f"  {unequal} layout {held} scope thread\n  mma_fence\n")
    outcome, _ = run(parse(text), "program")
    columns = np.abs(outcome.tensors["c"]).sum(axis=0)
    assert (columns[:32] > 0).any() != (columns[32:] > 0).any(), "one warpgroup multiplied zeros"
