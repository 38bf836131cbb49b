"""Make code objects for gfx942 with Triton, which needs no such GPU to compile: `python triton_amd.py FOLDER`.

A separate program, because Triton may be in an interpreter without Argus. Of packages it needs Triton alone.
"""

import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def gemm(a, b, c, M, N, K, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a @ b.T; K is a multiple of BK."""
    first, second = tl.program_id(0), tl.program_id(1)
    rows, columns, k = (first * BM + tl.arange(0, BM)) % M, (second * BN + tl.arange(0, BN)) % N, tl.arange(0, BK)
    x, y = a + rows[:, None] * lda + k[None, :], b + columns[None, :] * ldb + k[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(x), tl.load(y), acc)
        x += BK
        y += BK
    m, n = first * BM + tl.arange(0, BM), second * BN + tl.arange(0, BN)
    there = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + m[:, None] * ldc + n[None, :], acc.to(c.dtype.element_ty), mask=there)


@triton.jit
def attention(q, k, v, o, M, N, rows, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Attention of one head to all keys; N is a multiple of BN, and `rows` is the stride of a row."""
    m, d, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    x = tl.load(q + m[:, None] * rows + d[None, :], mask=m[:, None] < M, other=0.0)
    y, z = k + n[None, :] * rows + d[:, None], v + n[:, None] * rows + d[None, :]
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for _ in range(0, N, BN):
        s = tl.dot(x, tl.load(y)) * scale
        new = tl.maximum(top, tl.max(s, 1))
        w = tl.exp2(s - new[:, None])
        shrink = tl.exp2(top - new)
        total = total * shrink + tl.sum(w, 1)
        acc = tl.dot(w.to(v.dtype.element_ty), tl.load(z), acc * shrink[:, None])
        top = new
        y += BN * rows
        z += BN * rows
    tl.store(o + m[:, None] * rows + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty), mask=m[:, None] < M)


GEMM, ATTENTION = ["a", "b", "c", "M", "N", "K", "lda", "ldb", "ldc"], ["q", "k", "v", "o", "M", "N", "rows", "scale"]
CASES = (
    *((gemm, GEMM, {"BM": m, "BN": n, "BK": k}, warps, f"GEMM {m}x{n}x{k}, {dtype}", dtype)
      for m, n, k, warps, dtype in ((256, 256, 32, 8, "bf16"), (256, 256, 64, 8, "bf16"), (128, 128, 32, 4, "bf16"),
                                    (256, 256, 64, 8, "fp8e4b8"))),
    *((attention, ATTENTION, {"BM": m, "BN": 64, "D": 128}, warps, f"attention {m}x64, D128", "bf16")
      for m, warps in ((128, 4), (256, 8))),
)  # fmt: skip


def main(folder: Path) -> None:
    """Write a code object for each of `CASES`, under its name, and the bytes of LDS that it takes."""
    for kernel, names, constants, warps, name, dtype in CASES:
        pointers = names[: 3 if kernel is gemm else 4]
        types = {n: f"*{dtype}" if n in pointers else "fp32" if n == "scale" else "i32" for n in names}
        if kernel is gemm:
            types["c"] = "*bf16"
        signature = types | dict.fromkeys(constants, "constexpr")
        aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n != "scale"}
        source = ASTSource(kernel, signature, constants, aligned)
        options = {"num_warps": warps, "num_stages": 2, "waves_per_eu": 2, "matrix_instr_nonkdim": 32}
        built = triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options=options)
        (folder / f"{name}.co").write_bytes(built.asm["hsaco"])
        # A launch asks for LDS: the code object does not say how much.
        (folder / f"{name}.lds").write_text(str(built.metadata.shared))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
