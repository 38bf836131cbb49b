"""Each rule of the machine, with a kernel that breaks it and one, an edit away, that does not."""

from __future__ import annotations

import numpy as np
import pytest

from argus.diagnostic import SourceError, Verdict
from argus.hardware import breaks
from argus.ir.nodes import Copy, Kernel
from argus.ir.text import parse_kernel
from argus.ir.visit import walk
from argus.simulate import replay, simulate, vectors
from argus.verify import verify
from argus.verify.findings import refused
from argus.verify.witness import Replays, diagnostics
from argus.work import Work

FOURS = "[128 | t 32@0*4 | v 4@0]"
COPIES = f"""kernel copies
target sm_80
warps 1 of 32
size N
tensor x: float32[N, 256] strides [256:int64, 1:int64] align 16
tensor n: int32[32] strides [1:int64] align 16
tensor z: float32[128] strides [1:int64] align 16
grid [1]
requires N >= 4
shared s: float32 256 layout 256:1 at 0
fragment f: float32 128 layout {FOURS}
fragment r: int32 () layout [() | t 32@_ | v]
body {{
  map r[] = 1 shape () layout [() | t 32@_ | v] scope thread
  copy f[c0] <- x[r[], c0] shape 128 layout {FOURS} via ld.global vector 4
  copy s[c0] <- f[c0] shape 128 layout {FOURS} via st.shared vector 4
  barrier
  copy f[c0] <- s[c0] shape 128 layout {FOURS} via ld.shared vector 4
  copy z[c0] <- f[c0] shape 128 layout {FOURS} via st.global vector 4
}}
"""

ROWS = "[16x16 | t 4@1*2 8@0 | v 2@1 2@0*8 2@1*8]"
MATRICES = f"""kernel matrices
target sm_80
warps 1 of 32
tensor z: float16[16, 16] strides [16:int64, 1:int64] align 16
grid [1]
shared s: float16 16x16 layout (16,16):(16,1) at 0
fragment f: float16 16x16 layout {ROWS}
body {{
  map f[c0, c1] = 1.0:float16 shape 16x16 layout {ROWS} scope thread
  copy s[c0, c1] <- f[c0, c1] shape 16x16 layout {ROWS} via st.shared
  barrier
  copy f[c0, c1] <- s[c0, c1] shape 16x16 layout {ROWS} via ldmatrix vector 8
  copy z[c0, c1] <- f[c0, c1] shape 16x16 layout {ROWS} via st.global
}}
"""
COLUMNS = "[16x16 | t 4@0*2 8@1 | v 2@0 2@1*8 2@0*8]"
TURNED = MATRICES.replace(ROWS, COLUMNS).replace("ldmatrix", "ldmatrix.trans")

WAVE = "[256 | t 64@0 | v 4@0*64]"
WAVES = f"""kernel waves
target gfx942
warps 1 of 64
tensor x: float32[256] strides [1:int64] align 16
tensor z: float32[256] strides [1:int64] align 16
grid [1]
shared s: float32 256 layout 256:1 at 0
fragment f: float32 256 layout {WAVE}
body {{
  copy s[c0] <- x[c0] shape 256 layout {WAVE} via global_load_lds
  s_waitcnt vmcnt 0
  barrier
  copy f[c0] <- s[c0] shape 256 layout {WAVE} via ds_read
  copy z[c0] <- f[c0] shape 256 layout {WAVE} via buffer_store
}}
"""

ADDRESSES = {
    "a load behind the multiple of 16 bytes": (COPIES, "x[r[], c0]", "x[r[], c0 + 1]", "misaligned-vector"),
    "a load at a loaded place": (COPIES, "x[r[], c0]", "x[0, c0 + r[]]", "misaligned-vector"),
    "a tensor of smaller alignment": (COPIES, "z: float32[128] strides [1:int64] align 16",
                                      "z: float32[128] strides [1:int64] align 8", "misaligned-vector"),
    "a shared tile at 4 bytes": (COPIES, "256:1 at 0", "256:1 at 4", "misaligned-vector"),
    "a mask through a vector": (COPIES, "z[c0] <- f[c0] shape 128", "z[c0] <- f[c0] shape 128 if c0 < 126",
                                "split-vector"),
    "a vector in two pieces": (COPIES, "layout 256:1", "layout (2,128):(128,1)", "scattered-vector"),
    "rows of 40 bytes": (MATRICES, "(16,16):(16,1)", "(16,16):(20,1)", "misaligned-vector"),
    "rows that are columns": (MATRICES, "(16,16):(16,1)", "(16,16):(1,16)", "scattered-vector"),
    "columns of rows that are columns": (TURNED, "(16,16):(16,1)", "(16,16):(1,16)", "scattered-vector"),
    "lanes in another order": (WAVES, "layout 256:1", "layout (2,128):(128,1)", "lds-lane-order"),
    "another thread's register": (COPIES, "z[c0] <- f[c0]", "z[c0] <- f[c0 ^ 4]", "register-not-held"),
}  # fmt: skip
"""By name: a right kernel, an edit that breaks a rule, and the rule."""


def _edited(text: str, old: str, new: str) -> Kernel:
    assert old in text
    # A layout of two modes is one of a tile with one dimension, written as one nested mode.
    new = new.replace("layout (2,128):(128,1)", "layout ((2,128)):((128,1))")
    return parse_kernel(text.replace(old, new))


def _codes(kernel: Kernel) -> set[str]:
    return {v.code for v in replay(kernel, {"N": 4} if "N" in kernel.sizes else {}, None)}


@pytest.mark.parametrize("name", ADDRESSES)
def test_addresses(name: str) -> None:
    right, old, new, code = ADDRESSES[name]
    assert _codes(parse_kernel(right)) == set()
    wrong = _edited(right, old, new)
    assert code in _codes(wrong)


def test_what_the_simulator_alone_finds_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that verifier and simulator share refutes no right kernel."""
    kernel = parse_kernel(COPIES)
    assert verify(kernel).verdict is Verdict.PROVED
    plain = vectors._addresses
    monkeypatch.setattr(vectors, "_addresses", lambda memory, place, at: plain(memory, place, at) + 4)
    arrays = {"x": np.zeros((4, 256), np.float32), "n": np.zeros(32, np.int32), "z": np.zeros(128, np.float32)}
    assert simulate(kernel, arrays).codes() == {"misaligned-vector"}
    assert _codes(kernel) == set()
    store = next(s for s in walk(kernel.body) if isinstance(s, Copy) and s.instr == "st.global")
    wrong = [refused("vector-width", store.span, "of no width that the machine has", "")]
    found = diagnostics(Replays(kernel, Work(10**9)), wrong)
    assert [(d.code, d.verdict) for d in found] == [("machine-unknown", Verdict.UNKNOWN)]


PRODUCT = f"""kernel product
target sm_80
warps 1 of 32
tensor z: float32[16, 8] strides [8:int64, 1:int64] align 16
grid [1]
shared s: float32 64 layout 64:1 at 0
fragment a: float16 16x16 layout {ROWS}
fragment b: float16 8x16 layout [8x16 | t 4@1*2 8@0 | v 2@1 2@1*8]
fragment d: float32 16x8 layout [16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]
body {{
  map a[c0, c1] = 1.0:float16 shape 16x16 layout {ROWS} scope thread
  map b[c0, c1] = 1.0:float16 shape 8x16 layout [8x16 | t 4@1*2 8@0 | v 2@1 2@1*8] scope thread
  map d[c0, c1] = 0.0 shape 16x8 layout [16x8 | t 4@1*2 8@0 | v 2@1 2@0*8] scope thread
  mma d[c0, c1] += a[c0, c2] * b[c1, c2] shape 16x8x16 via mma_m16n8k16 warps 1x1
  copy z[c0, c1] <- d[c0, c1] shape 16x8 layout [16x8 | t 4@1*2 8@0 | v 2@1 2@0*8] via st.global
}}
"""
BUDGETS = {
    "two elements at one address": (PRODUCT, "64 layout 64:1", "64 layout 64:0", "shared-layout-overlaps"),
    "shared memory": (PRODUCT, "64:1 at 0", "64:1 at 166784", "shared-memory-exceeded"),
    "threads": (PRODUCT, "warps 1 of 32", "warps 33 of 32", "too-many-threads"),
    "registers": (PRODUCT, "fragment b", "fragment c: float32 8192 layout [8192 | t 32@0 | v 256@0*32]\nfragment b",
                  "register-budget-exceeded"),
    "an instruction of another machine": (PRODUCT, "target sm_80", "target gfx942", "instruction-not-available"),
    "a vector of three": (COPIES, "st.global vector 4", "st.global vector 3", "vector-width"),
    "a shape that the instruction does not divide": (PRODUCT, "warps 1x1", "warps 2x1", "mma-shape"),
    "an operand of another type": (PRODUCT, "b: float16", "b: bfloat16", "mma-operand-dtype"),
    "an operand in other registers": (PRODUCT, "v 2@1 2@1*8]", "v 2@1*8 2@1]", "mma-operand-layout"),
}  # fmt: skip


@pytest.mark.parametrize("name", BUDGETS)
def test_budgets(name: str) -> None:
    right, old, new, code = BUDGETS[name]
    assert not any(_broken(parse_kernel(right), code))
    assert any(_broken(_edited(right, old, new), code))


def _broken(kernel: Kernel, code: str) -> list[bool | None]:
    spans = {kernel.span, *(t.span for t in kernel.shared), *(f.span for f in kernel.fragments)}
    return [breaks(kernel, code, span) for span in spans | {s.span for s in walk(kernel.body)}]


@pytest.mark.parametrize("name", ["two elements at one address", "shared memory", "registers"])
def test_verifier_and_documents_agree(name: str) -> None:
    right, old, new, code = BUDGETS[name]
    assert verify(parse_kernel(right)).verdict is Verdict.PROVED
    try:
        codes = {d.code for d in verify(_edited(right, old, new)).diagnostics}
    except SourceError as error:
        codes = {d.code for d in error.diagnostics}
    assert code in codes
