"""Explicit kernels for the simulator's tests, in the IR's text form."""

from __future__ import annotations

from argus.ir.instruction import MMA
from argus.ir.instruction.tiled import tiled_mma
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from argus.layout import blocked

_HALVES = "layout [128 | t 64@0 | v 2@0*64]"
_AT = "program_id(0) * 128 + c0"
VECTOR_ADD = f"""
kernel add
target sm_80
warps 2 of 32
size N
tensor x: float32[N] strides [1:int64] align 4
tensor y: float32[N] strides [1:int64] align 4
tensor out: float32[N] strides [1:int64] align 4
grid [(N + 127) // 128]
fragment a: float32 128 {_HALVES}
fragment b: float32 128 {_HALVES}
body {{
  tag x[N] = {{i = c0}}
  tag y[N] = {{i = c0}}
  copy a[c0] <- x[{_AT}] shape 128 if {_AT} < N else 0.0 {_HALVES} via ld.global
  copy b[c0] <- y[{_AT}] shape 128 if {_AT} < N else 0.0 {_HALVES} via ld.global
  map a[c0] = a[c0] + b[c0] shape 128 {_HALVES} scope thread
  copy out[{_AT}] <- a[c0] shape 128 if {_AT} < N {_HALVES} via st.global
}}
"""

TRANSPOSE = """
kernel transpose
target sm_80
warps 2 of 32
tensor x: float32[16, 32] strides [32:int64, 1:int64] align 16
tensor out: float32[32, 16] strides [16:int64, 1:int64] align 16
grid [1]
shared s: float32 16x32 layout Sw<2,2,3> o 0 o (16,32):(32,1) at 0
fragment a: float32 16x32 layout [16x32 | t 8@1*4 8@0 | v 4@1 2@0*8]
fragment b: float32 32x16 layout [32x16 | t 16@1 4@0 | v 8@0*4]
body {
  tag x[16, 32] = {row = c0, column = c1}
  copy a[c0, c1] <- x[c0, c1] shape 16x32 layout [16x32 | t 8@1*4 8@0 | v 4@1 2@0*8] via ld.global vector 4
  copy s[c0, c1] <- a[c0, c1] shape 16x32 layout [16x32 | t 8@1*4 8@0 | v 4@1 2@0*8] via st.shared vector 4
  barrier
  copy b[c0, c1] <- s[c1, c0] shape 32x16 layout [32x16 | t 16@1 4@0 | v 8@0*4] via ld.shared
  assert (i, j) in 32x16 {b[c0, c1] carries [c1, c0]}
  copy out[c0, c1] <- b[c0, c1] shape 32x16 layout [32x16 | t 16@1 4@0 | v 8@0*4] via st.global
}
"""


Edit = tuple[str, str]


def parse(text: str, *edits: Edit) -> Kernel:
    """The kernel of `text` after replacing each old text, which must occur, by the new one."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return parse_kernel(text)


def gemm_text(
    block: tuple[int, int, int] = (32, 32, 16),
    warps: tuple[int, int] = (2, 1),
    instr: str = "mma_m16n8k16",
    dtype: str = "bfloat16",
    swizzle: str = "Sw<1,3,3> o 0 o ",
) -> str:
    """c = a b^T with guarded cp.async copies, ldmatrix and one stage: what `stages=1` lowers to."""
    bm, bn, bk = block
    count = warps[0] * warps[1]
    tiled = tiled_mma(MMA[instr], block, warps)
    vector = {"bfloat16": 8, "float16": 8, "int8": 16}[dtype]
    accumulator = "int32" if dtype == "int8" else "float32"
    zero = "0" if dtype == "int8" else "0.0"
    zero_of = f"{zero}:{dtype}" if dtype == "int8" else zero
    la, lb = blocked((bm, bk), 32 * count, vector=vector), blocked((bn, bk), 32 * count, vector=vector)
    each = {"bfloat16": 2, "float16": 2, "int8": 1}[dtype]
    row, column = f"program_id(0) * {bm} + c0", f"program_id(1) * {bn} + c1"
    column_of_b = f"program_id(1) * {bn} + c0"
    guard_a = f"if ({row} < M) & (k0 + c1 < K) else {zero_of}"
    guard_b = f"if ({column_of_b} < N) & (k0 + c1 < K) else {zero_of}"
    return f"""
kernel gemm
target sm_80
warps {count} of 32
size M
size K
size N
tensor a: {dtype}[M, K] strides [a.stride0:int64, 1:int64] align 16
tensor b: {dtype}[N, K] strides [b.stride0:int64, 1:int64] align 16
tensor c: {accumulator}[M, N] strides [c.stride0:int64, 1:int64] align 4
grid [(M + {bm - 1}) // {bm}, (N + {bn - 1}) // {bn}]
shared sa: {dtype} {bm}x{bk} layout {swizzle}({bm},{bk}):({bk},1) at 0
shared sb: {dtype} {bn}x{bk} layout {swizzle}({bn},{bk}):({bk},1) at {bm * bk * each}
fragment fa: {dtype} {bm}x{bk} layout {tiled.a}
fragment fb: {dtype} {bn}x{bk} layout {tiled.b}
fragment acc: {accumulator} {bm}x{bn} layout {tiled.c}
body {{
  tag a[M, K] = {{m = c0, k = c1}}
  tag b[N, K] = {{n = c0, k = c1}}
  map acc[c0, c1] = {zero} shape {bm}x{bn} layout {tiled.c} scope thread
  for k0 in 0 .. K step {bk} {{
    barrier
    copy sa[c0, c1] <- a[{row}, k0 + c1] shape {bm}x{bk} {guard_a} layout {la} via cp.async vector {vector}
    copy sb[c0, c1] <- b[{column_of_b}, k0 + c1] shape {bn}x{bk} {guard_b} layout {lb} via cp.async vector {vector}
    commit_group
    wait_group 0
    barrier
    copy fa[c0, c1] <- sa[c0, c1] shape {bm}x{bk} layout {tiled.a} via ldmatrix vector {vector}
    copy fb[c0, c1] <- sb[c0, c1] shape {bn}x{bk} layout {tiled.b} via ldmatrix vector {vector // 2}
    mma acc[c0, c1] += fa[c0, c2] * fb[c1, c2] shape {bm}x{bn}x{bk} via {instr} warps {warps[0]}x{warps[1]}
  }}
  assert (i, j) in {bm}x{bn} {{acc[c0, c1] carries [{row}, {column}, once(0, K)]}}
  copy c[{row}, {column}] <- acc[c0, c1] shape {bm}x{bn} if ({row} < M) & ({column} < N) layout {tiled.c} via st.global
}}
"""
