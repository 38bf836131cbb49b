"""Wrong kernels that a verifier easily takes for right ones, each beside its right twin, one edit away."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from argus import compile
from argus.diagnostic import ArgusError, SourceError, Verdict
from argus.frontend import Options
from argus.ir.text import parse_kernel, print_kernel
from argus.source import SourceFile
from argus.verify import Report, verify
from argus.verify.model.translator import counter, identifier

HEAD = "import argus\nimport argus.language as al\n\n\n@argus.kernel(num_warps=1)\n"


@dataclass(frozen=True, slots=True)
class Pair:
    """A kernel with `EDIT` where right and wrong differ, and a code or verdict that the wrong one gets."""

    name: str
    text: str
    right: str
    wrong: str
    found: str


PAIRS = (
    Pair(
        "a small factor beside a large one",
        """
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], a: al.float32):
    al.requires((y.shape[0] > 0) & (y.shape[0] <= 32))
    al.spec(y, lambda i: 1.0e9 * w[i] + x[i])
    al.grid(1)
    i = al.arange(32)
    v = al.load(x[i], mask=i < x.shape[0])
    u = al.load(w[i], mask=i < x.shape[0])
    al.store(y[i], 1.0e9 * u + EDIT * v, mask=i < x.shape[0])
""",
        "1.0",
        "2.0",
        "tags-unknown",
    ),
    Pair(
        "a small term beside a large one",
        """
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], a: al.float32):
    al.requires((y.shape[0] > 0) & (y.shape[0] <= 32))
    al.spec(y, lambda i: 1.0e9 * w[i])
    al.grid(1)
    i = al.arange(32)
    v = al.load(x[i], mask=i < x.shape[0])
    u = al.load(w[i], mask=i < x.shape[0])
    al.store(y[i], 1.0e9 * u + EDIT * v, mask=i < x.shape[0])
""",
        "0.0",
        "5.0",
        "spec-unknown",
    ),
    Pair(
        "the sums of one term, of which some have a large factor",
        """
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], a: al.float32):
    al.requires((y.shape[0] > 0) & (y.shape[0] <= 32))
    al.spec(y, lambda i: al.sum(lambda j: x[j]) + al.sum(lambda j: al.where(j < 5, 1.0e9 * x[j], 0.0)))
    al.grid(1)
    i = al.arange(32)
    v = al.load(x[i], mask=i < x.shape[0])
    u = al.load(w[i], mask=i < x.shape[0])
    n = x.shape[0]
    s = al.sum(al.where(i < n, EDIT * v, 0.0)) + al.sum(al.where((i < 5) & (i < n), 1.0e9 * v, 0.0))
    al.store(y[i], s + 0.0 * v, mask=i < n)
""",
        "1.0",
        "2.0",
        "tags-unknown",
    ),
    Pair(
        "a choice by a number that was divided by what may be 0",
        """
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], a: al.float32):
    al.requires((y.shape[0] > 0) & (y.shape[0] <= 32))
    al.spec(y, lambda i: al.where(x[i] > 0.0, w[i], x[i]))
    al.grid(1)
    i = al.arange(32)
    v = al.load(x[i], mask=i < x.shape[0])
    u = al.load(w[i], mask=i < x.shape[0])
    al.store(y[i], al.where(v EDIT 1.0 > 0.0, u, v), mask=i < x.shape[0])
""",
        "* 1.0 *",
        "/ a * a *",
        "spec-unknown",
    ),
    Pair(
        "an exponent that was divided by what may be 0",
        """
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], a: al.float32):
    al.requires((y.shape[0] > 0) & (y.shape[0] <= 32))
    al.spec(y, lambda i: al.exp(x[i]))
    al.grid(1)
    i = al.arange(32)
    v = al.load(x[i], mask=i < x.shape[0])
    u = al.load(w[i], mask=i < x.shape[0])
    al.store(y[i], al.exp(v EDIT 1.0), mask=i < x.shape[0])
""",
        "* 1.0 *",
        "/ a * a *",
        "spec-unknown",
    ),
    Pair(
        "nothing times a logarithm that may be none",
        """
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], a: al.float32):
    al.requires((y.shape[0] > 0) & (y.shape[0] <= 32))
    al.spec(y, lambda i: x[i])
    al.grid(1)
    i = al.arange(32)
    v = al.load(x[i], mask=i < x.shape[0])
    u = al.load(w[i], mask=i < x.shape[0])
    al.store(y[i], v + al.EDIT(u) * 0.0, mask=i < x.shape[0])
""",
        "expm1",
        "log1p",
        "spec-unknown",
    ),
    Pair(
        "a power that may be none, added and taken away",
        """
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], a: al.float32):
    al.requires((y.shape[0] > 0) & (y.shape[0] <= 32))
    al.spec(y, lambda i: x[i] + al.exp(EDIT) - al.exp(EDIT))
    al.grid(1)
    i = al.arange(32)
    v = al.load(x[i], mask=i < x.shape[0])
    al.store(y[i], v, mask=i < x.shape[0])
""",
        "w[i]",
        "1.0 / w[i]",
        "spec-unknown",
    ),
    Pair(
        "a branch's condition, and then another number in the register",
        """
def kernel(x: al.Tensor[al.int32, "4"], y: al.Tensor[al.float32, "256"], z: al.Tensor[al.float32, "32"]):
    al.grid(1)
    n = al.load(x[0])
    m = al.zeros((32,), al.float32)
    if (n >= 0) & (n < 200):
        EDIT
        m = al.load(y[n + al.arange(32)])
    al.store(z[al.arange(32)], m)
""",
        "pass",
        "n = n + 1000",
        "out-of-bounds",
    ),
    Pair(
        "two conditions that exclude each other, at different times",
        """
def kernel(x: al.Tensor[al.int32, "4"], y: al.Tensor[al.float32, "256"], z: al.Tensor[al.float32, "32"]):
    al.grid(1)
    n = al.load(x[0])
    m = al.zeros((32,), al.float32)
    if n == 0:
        EDIT
        if n == 1:
            m = al.load(y[1000 + al.arange(32)])
    al.store(z[al.arange(32)], m)
""",
        "pass",
        "n = n + 1",
        "bounds-unknown",
    ),
    Pair(
        "a number that was computed from another, before that changed",
        """
def kernel(x: al.Tensor[al.int32, "4"], y: al.Tensor[al.float32, "256"], z: al.Tensor[al.float32, "32"]):
    al.requires(al.in_range(x, 0, 100))
    al.grid(1)
    n = al.load(x[0])
    j = n + 1
    EDIT
    al.store(z[al.arange(32)], al.load(y[n - j + al.arange(32) + 1]))
""",
        "pass",
        "n = n + 1000",
        "out-of-bounds",
    ),
    Pair(
        "an index that wraps around in eight bits",
        """
def kernel(x: al.Tensor[al.float32, "512"], y: al.Tensor[al.float32, "512"]):
    al.grid(1)
    o = al.arange(512).to(EDIT).to(al.int32)
    al.store(y[o], al.load(x[o]))
""",
        "al.int64",
        "al.uint8",
        "int32-overflow",
    ),
    Pair(
        "an index of unsigned bytes",
        """
def kernel(x: al.Tensor[al.uint8, "32"], y: al.Tensor[al.float32, "256"], z: al.Tensor[al.float32, "32"]):
    al.grid(1)
    i = al.load(x[al.arange(32)])
    al.store(z[al.arange(32)], al.load(y[EDIT]))
""",
        "i.to(al.int32)",
        "i.to(al.int32) + 128",
        "bounds-unknown",
    ),
    Pair(
        "a condition of `where` that overflows",
        """
def kernel(x: al.Tensor[al.float32, "131072"], y: al.Tensor[al.float32, "131072"]):
    al.spec(y, lambda i: x[i])
    o = al.grid(1024) * 128 + al.arange(128)
    al.store(y[o], al.where(EDIT >= 0, al.load(x[o]), 0.0))
""",
        "o * 16384",
        "o * 65536",
        "int32-overflow",
    ),
    Pair(
        "a divisor that may be zero",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], s: al.int32):
    al.requires(s >= EDIT)
    o = al.grid(al.cdiv(N, 128)) * 128 + al.arange(128)
    al.store(y[o], al.load(x[o], mask=o < N) * (o // s).to(al.float32), mask=o < N)
""",
        "1",
        "0",
        "division-by-zero",
    ),
    Pair(
        "preconditions that no size meets",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    al.requires(N > 100)
    al.requires(N < EDIT)
    o = al.grid(al.cdiv(N, 128)) * 128 + al.arange(128)
    al.store(y[o], al.load(x[o], mask=o < N), mask=o < N)
""",
        "150",
        "50",
        "contradictory-requires",
    ),
    Pair(
        "rows of tensors that are aligned have no odd lengths",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    al.requires(N % EDIT)
    o = al.grid(al.cdiv(N, 128)) * 128 + al.arange(128)
    al.store(y[o], al.load(x[o], mask=o < N), mask=o < N)
""",
        "8 == 4",
        "2 == 1",
        "contradictory-requires",
    ),
    Pair(
        "rows shorter than their alignment have no elements",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    al.requires(N <= 2)
    al.requires(N >= EDIT)
    o = al.grid(al.cdiv(N, 128)) * 128 + al.arange(128)
    al.store(y[o], al.load(x[o], mask=o < N), mask=o < N)
""",
        "0",
        "1",
        "contradictory-requires",
    ),
    Pair(
        "an update in place that leaves an element out",
        """
def kernel(x: al.Tensor[al.float32, "N"]):
    al.spec(x, lambda i: x[i] * 2.0)
    o = al.grid(al.cdiv(N, 32)) * 32 + al.arange(32)
    m = o < EDIT
    al.store(x[o], al.load(x[o], mask=m) * 2.0, mask=m)
""",
        "N",
        "N - 1",
        "output-not-covered",
    ),
    Pair(
        "a specification of what is only read",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    al.spec(EDIT, lambda i: y[i])
    o = al.grid(al.cdiv(N, 32)) * 32 + al.arange(32)
    al.store(x[o], al.load(y[o], mask=o < N), mask=o < N)
""",
        "x",
        "y",
        "output-not-covered",
    ),
    Pair(
        "an index that has to be in two ranges at a time",
        """
def kernel(x: al.Tensor[al.float32, "N"], i: al.Tensor[al.int32, "N"], z: al.Tensor[al.float32, "N"]):
    al.requires(al.in_range(i, 0, 4))
    al.requires(al.in_range(i, EDIT, 8))
    al.requires(N >= 8)
    o = al.grid(al.cdiv(N, 32)) * 32 + al.arange(32)
    al.store(z[o], al.load(x[al.load(i[o], mask=o < N)], mask=o < N), mask=o < N)
""",
        "3",
        "4",
        "contradictory-requires",
    ),
    Pair(
        "an assertion of no element at all",
        """
def kernel(x: al.Tensor[al.float32, "32"], y: al.Tensor[al.float32, "32"]):
    al.tag(x, lambda i: (i,))
    al.grid(1)
    t = al.load(x[al.arange(32)])
    al.assert_tags(lambda i: t[i].i == i, where=lambda i: i > EDIT)
    al.store(y[al.arange(32)], t)
""",
        "30",
        "31",
        "vacuous-assertion",
    ),
    Pair(
        "a conversion that does more than round",
        """
def kernel(x: al.Tensor[al.float32, "32"], y: al.Tensor[al.float32, "32"]):
    al.grid(1)
    al.spec(y, lambda i: x[i])
    al.store(y[al.arange(32)], al.load(x[al.arange(32)]).to(EDIT).to(al.float32))
""",
        "al.bfloat16",
        "al.int32",
        "spec-mismatch",
    ),
    Pair(
        "a conversion that the specification has not, or has",
        """
def kernel(x: al.Tensor[al.float32, "32"], y: al.Tensor[al.int8, "32"]):
    al.grid(1)
    al.spec(y, lambda i: EDIT)
    al.store(y[al.arange(32)], al.floor(al.load(x[al.arange(32)])).to(al.int8))
""",
        "al.floor(x[i]).to(al.int8)",
        "al.floor(x[i])",
        "spec-unknown",
    ),
    Pair(
        "a sum that wraps around before it is widened",
        """
def kernel(x: al.Tensor[al.int8, "N"], y: al.Tensor[al.int32, "32"]):
    al.grid(1)
    al.spec(y, lambda i: al.sum(lambda j: x[j]))
    m = al.zeros((32,), EDIT)
    for j in range(0, N):
        m += al.load(x[j]).to(EDIT)
    al.store(y[al.arange(32)], m.to(al.int32))
""",
        "al.int32",
        "al.int8",
        "spec-unknown",
    ),
    Pair(
        "a comparison of what has wrapped around in eight bits",
        """
def kernel(x: al.Tensor[al.int8, "32"], y: al.Tensor[al.int32, "32"]):
    al.grid(1)
    al.spec(y, lambda i: al.where(x[i].to(al.int32) * x[i].to(al.int32) > 5, 1, 0))
    t = al.load(x[al.arange(32)])EDIT
    al.store(y[al.arange(32)], al.where(t * t > 5, 1, 0))
""",
        ".to(al.int32)",
        "",
        "spec-unknown",
    ),
    Pair(
        "a quotient of what has wrapped around in eight bits",
        """
def kernel(x: al.Tensor[al.int8, "32"], y: al.Tensor[al.int8, "32"]):
    al.grid(1)
    al.spec(y, lambda i: (x[i] * 3 // 2).to(al.int8))
    al.store(y[al.arange(32)], (al.load(x[al.arange(32)])EDIT * 3 // 2).to(al.int8))
""",
        ".to(al.int32)",
        "",
        "spec-unknown",
    ),
    Pair(
        "a maximum of what has wrapped around in eight bits",
        """
def kernel(x: al.Tensor[al.int8, "32"], z: al.Tensor[al.int8, "32"], y: al.Tensor[al.int8, "32"]):
    al.grid(1)
    al.spec(y, lambda i: al.maximum(z[i], x[i]EDIT))
    m = al.load(z[al.arange(32)])
    m = al.maximum(m, al.load(x[al.arange(32)])EDIT)
    al.store(y[al.arange(32)], m)
""",
        "",
        " * 2",
        "spec-unknown",
    ),
    Pair(
        "a product in eight bits that becomes a float of eight bits",
        """
def kernel(x: al.Tensor[al.int8, "32"], y: al.Tensor[al.float8_e4m3fn, "32"]):
    al.grid(1)
    al.spec(y, lambda i: (x[i].to(al.int32) * 3).to(al.float8_e4m3fn))
    al.store(y[al.arange(32)], (al.load(x[al.arange(32)])EDIT * 3).to(al.float8_e4m3fn))
""",
        ".to(al.int32)",
        "",
        "spec-unknown",
    ),
    Pair(
        "integers wrap around where floats do not",
        """
def kernel(x: al.Tensor[al.int32, "32"], y: al.Tensor[al.int8, "32"]):
    al.grid(1)
    al.spec(y, lambda i: x[i].to(al.float32).to(al.int8))
    al.store(y[al.arange(32)], al.load(x[al.arange(32)])EDIT.to(al.int8))
""",
        ".to(al.float32)",
        "",
        "spec-unknown",
    ),
    Pair(
        "not of a truth value, and of a number",
        """
def kernel(x: al.Tensor[al.int32, "32"], y: al.Tensor[al.int32, "32"]):
    al.grid(1)
    al.spec(y, lambda i: ~(x[i].to(al.boolean).to(al.int32)))
    t = al.load(x[al.arange(32)]).to(al.boolean)
    al.store(y[al.arange(32)], EDIT)
""",
        "~t.to(al.int32)",
        "(~t).to(al.int32)",
        "spec-unknown",
    ),
    Pair(
        "a choice by integers that are rounded first",
        """
def kernel(x: al.Tensor[al.int32, "32"], z: al.Tensor[al.int32, "32"], y: al.Tensor[al.int32, "32"]):
    al.grid(1)
    al.spec(y, lambda i: al.where(x[i] < z[i], 1, 2))
    o = al.arange(32)
    al.store(y[o], al.where(al.load(x[o])EDIT < al.load(z[o])EDIT, 1, 2))
""",
        "",
        ".to(al.float32)",
        "spec-unknown",
    ),
    Pair(
        "terms of a sum that no value of its variable has",
        """
def kernel(x: al.Tensor[al.float32, "5"], y: al.Tensor[al.float32, "1"]):
    al.grid(1)
    al.spec(y, lambda i: al.sum(lambda k: al.where(k < 5, al.exp(x[k]), al.exp(1.0))))
    t = al.load(x[al.arange(8)], mask=al.arange(8) < 5, other=EDIT)
    al.store(y[0], al.sum(al.exp(t)))
""",
        '-float("inf")',
        "1.0",
        "spec-mismatch",
    ),
    Pair(
        "the least integer divided by -1",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "32"], s: al.int32):
    al.requires(s EDIT)
    o = al.grid(1) + al.arange(32)
    al.store(y[o], al.load(x[o], mask=(o < N) & (s // -1 <= 0)))
""",
        "> -1000",
        "< 1000",
        "int32-overflow",
    ),
    Pair(
        "an index that wraps around in 64 bits",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "M"], first: al.int64):
    al.requires(first >= 0)
    al.requires(first <= EDIT)
    o = al.grid(al.cdiv(M, 32)) * 32 + al.arange(32)
    at = first + o.to(al.int64)
    al.store(y[o], al.load(x[at], mask=(o < M) & (at < N.to(al.int64))), mask=o < M)
""",
        "N.to(al.int64)",
        "first",
        "int64-overflow",
    ),
    Pair(
        "a shift by as many bits as there are",
        """
def kernel(x: al.Tensor[al.int32, "N"], y: al.Tensor[al.int32, "N"], n: al.int32):
    al.requires((n >= 0) & (n <= EDIT))
    al.spec(y, lambda i: x[i] >> n)
    o = al.grid(al.cdiv(N, 32)) * 32 + al.arange(32)
    al.store(y[o], al.load(x[o], mask=o < N) >> n, mask=o < N)
""",
        "31",
        "32",
        "shift-out-of-range",
    ),
    Pair(
        "preconditions that leave nothing to be written, or nothing to be read",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "M"]):
    al.requires(EDIT <= 0)
    o = al.grid(al.cdiv(M, 32)) * 32 + al.arange(32)
    al.store(y[o], al.zeros((32,), al.float32), mask=o < M)
""",
        "N",
        "M",
        "contradictory-requires",
    ),
    Pair(
        "a minimum of bytes that starts below the greatest one",
        """
def kernel(x: al.Tensor[al.uint8, "N"], y: al.Tensor[al.int32, "32"]):
    al.grid(1)
    al.spec(y, lambda i: al.min(lambda j: x[j]))
    m = al.full((32,), EDIT, al.int32)
    for j in range(0, N):
        m = al.minimum(m, al.load(x[j]).to(al.int32))
    al.store(y[al.arange(32)], m)
""",
        "255",
        "127",
        "spec-mismatch",
    ),
    Pair(
        "a maximum of sums of 64 bits that starts above the least one",
        """
def kernel(x: al.Tensor[al.EDIT, "N"], z: al.Tensor[al.int32, "N"], y: al.Tensor[al.int64, "32"]):
    al.requires(al.in_range(x, -1000, 1000))
    al.requires(al.in_range(z, -1000, 1000))
    al.grid(1)
    al.spec(y, lambda i: al.max(lambda j: x[j] + z[j]))
    m = al.full((32,), -2147483648, al.int64)
    for j in range(0, N):
        m = al.maximum(m, (al.load(x[j]) + al.load(z[j]).to(al.EDIT)).to(al.int64))
    al.store(y[al.arange(32)], m)
""",
        "int32",
        "int64",
        "spec-mismatch",
    ),
    Pair(
        "a minimum of products of bytes that starts as one of bytes does",
        """
def kernel(x: al.Tensor[al.int8, "N"], y: al.Tensor[al.int32, "32"]):
    al.grid(1)
    al.spec(y, lambda i: al.min(lambda j: x[j] * x[j]))
    m = al.full((32,), EDIT, al.int32)
    for j in range(0, N):
        t = al.load(x[j]).to(al.int32)
        m = al.minimum(m, t * t)
    al.store(y[al.arange(32)], m)
""",
        "2147483647",
        "127",
        "spec-mismatch",
    ),
    Pair(
        "an operand of a product that has wrapped around",
        """
def kernel(a: al.Tensor[al.int8, "16 32"], b: al.Tensor[al.int8, "8 32"], c: al.Tensor[al.int32, "16 8"]):
    al.grid(1)
    al.spec(c, lambda m, n: al.sum(lambda k: a[m, k]EDIT * b[n, k]))
    acc = al.zeros((16, 8), al.int32)
    acc = al.mma(al.load(a[0:16, 0:32])EDIT, al.load(b[0:8, 0:32]), acc)
    al.store(c[0:16, 0:8], acc)
""",
        "",
        " * 3",
        "spec-unknown",
    ),
    Pair(
        "a logarithm of padding, times padding",
        """
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "1"]):
    al.requires(N <= 128)
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.sum(lambda k: al.log(x[k]) * w[k]))
    al.store(y[0], al.sum(al.log(al.load(x[o], mask=o < N, other=EDIT)) * al.load(w[o], mask=o < N)))
""",
        "1.0",
        "0.0",
        "spec-mismatch",
    ),
    Pair(
        "padding divided by padding",
        """
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "1"]):
    al.requires(N <= 128)
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.sum(lambda k: x[k] / w[k]))
    al.store(y[0], al.sum(al.load(x[o], mask=o < N) / al.load(w[o], mask=o < N, other=EDIT)))
""",
        "1.0",
        "0.0",
        "spec-mismatch",
    ),
    Pair(
        "an infinity that padding is multiplied by",
        """
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "1"]):
    al.requires(N <= 128)
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.sum(lambda k: x[k] * w[k]))
    al.store(y[0], al.sum(al.load(x[o], mask=o < N, other=EDIT) * al.load(w[o], mask=o < N)))
""",
        "0.0",
        '-float("inf")',
        "spec-mismatch",
    ),
    Pair(
        "an exponent of a row without elements",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "1"]):
    al.requires((N <= 128) & (N >= EDIT))
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.sum(lambda k: al.exp(x[k] - al.max(lambda j: x[j]))))
    t = al.load(x[o], mask=o < N, other=-float("inf"))
    al.store(y[0], al.sum(al.exp(t - al.max(t))))
""",
        "1",
        "0",
        "spec-mismatch",
    ),
    Pair(
        "a comparison of numbers that are rounded first",
        """
def kernel(x: al.Tensor[al.float32, "32"], z: al.Tensor[al.float32, "32"], y: al.Tensor[al.int32, "32"]):
    al.grid(1)
    al.spec(y, lambda i: (x[i] < z[i]).to(al.int32))
    o = al.arange(32)
    al.store(y[o], (al.load(x[o]).to(al.EDIT).to(al.float32) < al.load(z[o])).to(al.int32))
""",
        "float32",
        "bfloat16",
        "spec-unknown",
    ),
    Pair(
        "the magnitude of the least integer",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "32"], s: al.int64):
    al.requires((s < 1000) & (s EDIT))
    o = al.grid(1) + al.arange(32)
    al.store(y[o], al.full((32,), 1.0, al.float32) * al.load(x[al.abs(s)], mask=al.abs(s) < N.to(al.int64)))
""",
        "> -1000",
        "<= 0",
        "int64-overflow",
    ),
    Pair(
        "the least integer of 64 bits divided by -1",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "32"], s: al.int64):
    al.requires((s <= 0) & (s EDIT))
    o = al.grid(1) + al.arange(32)
    al.store(y[o], al.full((32,), 1.0, al.float32) * al.load(x[s // -1], mask=s // -1 < N.to(al.int64)))
""",
        "> -1000",
        "< 1000",
        "int64-overflow",
    ),
    Pair(
        "an assertion in a branch that a minimum decides, and that is never taken",
        """
def kernel(x: al.Tensor[al.float32, "32"], y: al.Tensor[al.float32, "32"], v: al.Tensor[al.float32, "M"],
           w: al.Tensor[al.float32, "N"]):
    al.tag(x, lambda i: (i,))
    al.grid(1)
    t = al.load(x[al.arange(32)])
    if al.minimum(M, N) < EDIT:
        al.assert_tags(lambda i: t[i].i == i)
    al.store(y[al.arange(32)], t)
""",
        "1",
        "0",
        "vacuous-assertion",
    ),
    Pair(
        "an assertion in a branch of tensors that alignment leaves without elements",
        """
def kernel(x: al.Tensor[al.float32, "32"], y: al.Tensor[al.float32, "32"], v: al.Tensor[al.float32, "M"],
           w: al.Tensor[al.float32, "N"]):
    al.tag(x, lambda i: (i,))
    al.grid(1)
    t = al.load(x[al.arange(32)])
    if (al.minimum(M, N) > 0) & (M < EDIT):
        al.assert_tags(lambda i: t[i].i == i)
    al.store(y[al.arange(32)], t)
""",
        "5",
        "4",
        "vacuous-assertion",
    ),
    *(
        Pair(
            f"a sum of weights, {how}",
            """
def kernel(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M N"]):
    M, N = x.shape
    al.spec(y, lambda i, j: al.softmax(lambda k: x[i, k])[j])
    row = al.grid(M)
    tops, totals = al.full((32,), -float("inf"), al.float32), al.zeros((32,), al.float32)
    for start in range(0, N, 32):
        cols = start + al.arange(32)
        tops = al.maximum(tops, al.load(x[row, cols], mask=cols < N, other=-float("inf")))
    top = al.max(tops)
    for start in range(0, N, 32):
        cols = start + al.arange(32)
        totals += al.exp(al.load(x[row, cols], mask=cols < N, other=-float("inf")) - top)
    total = EDIT
    for start in range(0, N, 32):
        cols = start + al.arange(32)
        al.store(y[row, cols], al.exp(al.load(x[row, cols], mask=cols < N, other=0.0) - top) / total, mask=cols < N)
""",
            "al.sum(totals)",
            wrong,
            "spec-mismatch",
        )
        for how, wrong in (
            ("added up twice", "al.sum(totals) + al.sum(totals)"),
            ("each of them twice", "al.sum(totals + totals)"),
        )
    ),
    Pair(
        "a sum of weights, each of them twice, without a loop",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    al.requires((N <= 128) & (N >= 1))
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.softmax(lambda k: x[k])[i])
    t = al.load(x[o], mask=o < N, other=-float("inf"))
    w = al.exp(t - al.max(t))
    al.store(y[o], w / al.sum(EDIT), mask=o < N)
""",
        "w",
        "w + w",
        "spec-mismatch",
    ),
    Pair(
        "a level whose weights are added up twice",
        """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "1"]):
    al.requires((N <= 128) & (N >= 1))
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.logsumexp(lambda k: x[k]))
    t = al.load(x[o], mask=o < N, other=-float("inf"))
    top = al.max(t)
    w = al.exp(t - top)
    al.store(y[0], top + al.log(EDIT))
""",
        "al.sum(w)",
        "al.sum(w + w)",
        "spec-mismatch",
    ),
    Pair(
        "a maximum of masked scores, times what may be negative",
        """
def kernel(x: al.Tensor[al.float32, "N"], v: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], s: al.float32):
    al.requires((N <= 128) & (N >= 1))
    al.requires(s EDIT)
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.softmax(lambda k: x[k])[i])
    t = al.load(x[o], mask=o < N, other=-float("inf"))
    w = al.exp(t - al.max(t * s))
    al.store(y[o], w / al.sum(w), mask=o < N)
""",
        "> 0.0",
        "< 9.0",
        "spec-unknown",
    ),
    Pair(
        "a maximum of masked scores with the other sign",
        """
def kernel(x: al.Tensor[al.float32, "N"], v: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], s: al.float32):
    al.requires((N <= 128) & (N >= 1))
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.softmax(lambda k: x[k])[i])
    t = al.load(x[o], mask=o < N, other=-float("inf"))
    w = al.exp(t - al.max(EDIT))
    al.store(y[o], w / al.sum(w), mask=o < N)
""",
        "t",
        "-t",
        "spec-unknown",
    ),
    Pair(
        "a maximum of what may be no number",
        """
def kernel(x: al.Tensor[al.float32, "N"], v: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], s: al.float32):
    al.requires((N <= 128) & (N >= 1))
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.softmax(lambda k: x[k])[i])
    t = al.load(x[o], mask=o < N, other=-float("inf"))
    m = al.max(EDIT)
    w = al.exp(t - al.where(m == -float("inf"), 0.0, m))
    al.store(y[o], w / al.sum(w), mask=o < N)
""",
        "t",
        "al.log(t)",
        "spec-unknown",
    ),
    Pair(
        "a logarithm of padding, beside a mask that is added",
        """
def kernel(x: al.Tensor[al.float32, "N"], v: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], s: al.float32):
    al.requires((N <= 128) & (N >= 1))
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.softmax(lambda k: EDIT(x[k]))[i])
    t = EDIT(al.load(x[o], mask=o < N, other=-1.0))
    w = al.exp(t + al.where(o < N, 0.0, -float("inf")))
    al.store(y[o], w / al.sum(w), mask=o < N)
""",
        "al.tanh",
        "al.log",
        "spec-unknown",
    ),
    Pair(
        "a logarithm of padding, of exponentials, times a weight of 0",
        """
def kernel(x: al.Tensor[al.float32, "N"], v: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], s: al.float32):
    al.requires((N <= 128) & (N >= 1))
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.sum(lambda n: al.softmax(lambda k: x[k])[n] * EDIT(al.exp(v[n]) - 1.0)))
    t = al.load(x[o], mask=o < N, other=-float("inf"))
    w = al.exp(t - al.max(t))
    f = EDIT(al.exp(al.load(v[o], mask=o < N)) - 1.0)
    al.store(y[o], al.full((128,), 1.0, al.float32) * (al.sum(w * f) / al.sum(w)), mask=o < N)
""",
        "al.tanh",
        "al.log",
        "spec-unknown",
    ),
    Pair(
        "a maximum of padding that is no number",
        """
def kernel(x: al.Tensor[al.float32, "N"], z: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "1"]):
    al.requires(N <= 128)
    al.grid(1)
    o = al.arange(128)
    al.spec(y, lambda i: al.sum(lambda k: al.maximum(x[k], z[k])))
    t = al.load(x[o], mask=o < N)
    al.store(y[0], al.sum(al.maximum(t, al.load(z[o], mask=o < N, other=EDIT))))
""",
        '-float("inf")',
        'float("nan")',
        "spec-mismatch",
    ),
    Pair(
        "a term of a sum in place of another, beside what is added to it",
        """
def kernel(x: al.Tensor[al.float32, "4 32"], z: al.Tensor[al.float32, "32"], y: al.Tensor[al.float32, "32"]):
    al.grid(1)
    o = al.arange(32)
    al.spec(y, lambda i: al.sum(lambda s: x[s, i]) + z[i])
    acc = al.zeros((32,), al.float32)
    for s in (0, 1, 2, EDIT):
        acc += al.load(x[s, o])
    acc = acc + al.load(z[o])
    al.store(y[o], acc)
""",
        "3",
        "2",
        "spec-mismatch",
    ),
    Pair(
        "a precondition that the host rounds otherwise than the device",
        """
def kernel(x: al.Tensor[al.float32, "32"], y: al.Tensor[al.float32, "32"], s: al.float32):
    al.requires(EDIT > 1.0)
    o = al.grid(1) + al.arange(32)
    t = al.load(x[o])
    if EDIT > 1.0:
        pass
    else:
        t = al.load(x[o + 1000])
    al.store(y[o], t)
""",
        "s",
        "s + 1.0",
        "bounds-unknown",
    ),
)  # fmt: skip


def report(text: str) -> Report:
    source = SourceFile("kernel.py", HEAD + text.lstrip("\n"))
    return compile.prove(source, "kernel", Options(), limit_s=120.0)


@pytest.mark.parametrize("pair", [pytest.param(p, id=p.name.replace(" ", "-")) for p in PAIRS])
def test_pair(pair: Pair) -> None:
    assert report(pair.text.replace("EDIT", pair.right)).verdict is Verdict.PROVED
    wrong = report(pair.text.replace("EDIT", pair.wrong))
    assert wrong.verdict is not Verdict.PROVED
    assert pair.found in {d.code for d in wrong.diagnostics}


def test_integer_data_wrap_around_but_specifications_do_not() -> None:
    """Without a specification, only what is computed from sizes and places has to be exact."""
    text = """
def kernel(x: al.Tensor[al.int32, "32"], y: al.Tensor[al.int32, "32"]):
    al.requires(al.in_range(x, 0, 1000))
    al.grid(1)
    al.spec(y, lambda i: x[i] * 3 + 1)
    al.store(y[al.arange(32)], al.load(x[al.arange(32)]) * 3 + 1)
"""
    assert report(text).verdict is Verdict.PROVED
    anything = text.replace("    al.requires(al.in_range(x, 0, 1000))\n", "")
    assert report(anything).verdict is Verdict.UNKNOWN
    assert report(anything.replace("    al.spec(y, lambda i: x[i] * 3 + 1)\n", "")).verdict is Verdict.PROVED


TAGGED = """
def kernel(x: al.Tensor[al.float32, "32"], y: al.Tensor[al.float32, "32"], s: al.int32):
    al.grid(1)
    FIRST
    t = al.load(x[al.arange(32)])
    al.assert_tags(lambda i: t[i].i == i)
    SECOND
    al.store(y[al.arange(32)], t)
"""


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("al.tag(x, lambda i: dict(i=i + 1))", "al.tag(x, lambda i: (i,))", "bad-tag"),
        ("if s > 3:\n        al.tag(x, lambda i: (i,))", "pass", "conditional-declaration"),
        ("for k in range(0, s):\n        al.tag(x, lambda i: dict(i=i + k))", "pass", "conditional-declaration"),
    ],
    ids=["twice", "in a branch", "in a loop"],
)
def test_the_tags_of_a_tensor_are_those_of_the_whole_kernel(first: str, second: str, found: str) -> None:
    right = TAGGED.replace("FIRST", "al.tag(x, lambda i: (i,))").replace("SECOND", "pass")
    assert report(right).verdict is Verdict.PROVED
    with pytest.raises(SourceError) as refused:
        report(TAGGED.replace("FIRST", first).replace("SECOND", second))
    assert found in {d.code for d in refused.value.diagnostics}


BY_PROGRAM = """
def kernel(x: al.Tensor[al.float32, "64"], y: al.Tensor[al.float32, "64"]):
    p = al.grid(2)
    o = p * 32 + al.arange(32)
    al.spec(y, lambda i: x[EDIT + i % 32])
    al.store(y[o], al.load(x[o]))
"""


def test_a_specification_speaks_of_no_program() -> None:
    assert report(BY_PROGRAM.replace("EDIT", "i // 32 * 32")).verdict is Verdict.PROVED
    with pytest.raises(ArgusError, match="program id 0 has no meaning here"):
        report(BY_PROGRAM.replace("EDIT", "p * 32"))


GATHER = """
def kernel(t: al.Tensor[al.float32, "V D"], i: al.Tensor[al.int32, "128"], z: al.Tensor[al.float32, "128"]):
    al.requires(D >= 128)
    al.requires(V > 0)
    al.requires(al.in_range(i, 0, V))
    al.grid(1)
    o = al.arange(128)
    al.store(z[o], al.load(t[al.load(i[o]), o]))
"""


def test_the_elements_of_a_vector_come_from_one_row() -> None:
    """Each element of a gather has a row of its own, so no vector brings several of them."""
    source = SourceFile("kernel.py", HEAD + GATHER.lstrip("\n"))
    text = print_kernel(compile.lower(compile.elaborate(source, "kernel", Options()), "sm_80"))
    assert verify(parse_kernel(text)).verdict is Verdict.PROVED
    line = next(line for line in text.splitlines() if "<- t[" in line)
    wrong = text.replace(line, f"{line} vector 4")
    assert verify(parse_kernel(wrong)).verdict is not Verdict.PROVED
    one_row = wrong.replace(line, line.replace("t[i_tile[c0], c0]", "t[0, c0]"))
    assert one_row != wrong
    assert verify(parse_kernel(one_row)).verdict is Verdict.PROVED


UNALIGNED = """
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "128"]):
    al.requires(N >= 128)
    al.grid(1)
    o = al.arange(128)
    al.store(y[o], al.load(x[o + (N - 128)], mask=o < EDIT, instruction="ld.global.unaligned"))
"""


def test_words_around_a_vector_are_read_as_far_as_its_mask_goes() -> None:
    texts = (HEAD + UNALIGNED.lstrip("\n").replace("EDIT", end) for end in ("128", "1000"))
    sources, options = (SourceFile("kernel.py", text) for text in texts), Options(target="sm_90a")
    right, wrong = (compile.prove(source, "kernel", options, limit_s=120.0) for source in sources)
    assert right.verdict is Verdict.PROVED
    assert {d.code for d in wrong.diagnostics} & {"machine-unknown", "misaligned-vector"}


IN_PLACE = """kernel k
target cpu
warps 1 of 32
tensor x: float32[128] strides [1:int64] align 16
tensor z: float32[128] strides [1:int64] align 16
grid [1]
fragment f: float32 128 layout LAYOUT
fragment g: float32 128 layout LAYOUT
body {
  copy f[c0] <- x[c0] shape 128 layout LAYOUT via ld.global
  map g[c0] = f[c0] shape 128 layout LAYOUT scope thread
  STATEMENT shape 128 layout LAYOUT scope SCOPE
  copy z[c0] <- f[c0] shape 128 layout LAYOUT via st.global
}
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (("map f[c0] = g[c0 ^ 1]", "thread"), ("map f[c0] = f[c0 ^ 1]", "thread")),
        (("map f[c0] = f[c0 ^ 4]", "warp"), ("map f[c0] = f[c0] + f[c0 ^ 2]", "thread")),
        (("accumulate f[c0] add g[c0 ^ 1]", "thread"), ("accumulate f[c0] add f[c0 ^ 1]", "thread")),
    ],
)
def test_a_thread_reads_no_element_that_it_has_written_in_the_same_statement(
    right: tuple[str, str], wrong: tuple[str, str]
) -> None:
    def prove(statement: str, scope: str, layout: str = "[128 | t 32@0*4 | v 4@0]") -> Report:
        text = IN_PLACE.replace("STATEMENT", statement).replace("SCOPE", scope).replace("LAYOUT", layout)
        return verify(parse_kernel(text))

    assert prove(*right).verdict is Verdict.PROVED
    assert "registers-unknown" in {d.code for d in prove(*wrong).diagnostics}


def test_a_thread_computes_an_element_from_itself_once() -> None:
    text = IN_PLACE.replace("STATEMENT", "map f[c0] = EXPRESSION").replace("SCOPE", "thread")
    once, twice = "[128 | t 32@0*4 | v 4@0]", "[128 | t 32@0*4 | v 4@0 2@_]"
    for expression, layout, verdict in (
        ("f[c0] + 1.0:float32", once, Verdict.PROVED),
        ("g[c0] + 1.0:float32", twice, Verdict.PROVED),
        ("f[c0] + 1.0:float32", twice, Verdict.UNKNOWN),
    ):
        lines = text.replace("EXPRESSION", expression).splitlines()
        own = [line.replace("LAYOUT", layout if "map f" in line else once) for line in lines]
        assert verify(parse_kernel("\n".join(own) + "\n")).verdict is verdict


NESTED = """kernel k
target sm_80
warps 1 of 32
tensor x: float32[32] strides [1:int64] align 16
tensor z: float32[64] strides [1:int64] align 16
grid [1]
fragment f: float32 32 layout [32 | t 32@0 | v]
body {
  copy f[c0] <- x[c0] shape 32 layout [32 | t 32@0 | v] via ld.global
  for i.a in 0 .. 2 step 1 {
    for i_a in 0 .. TRIPS step 1 {
      copy z[c0 + i.a * 32] <- f[c0] shape 32 layout [32 | t 32@0 | v] via st.global
    }
  }
}
"""


def test_loops_of_similar_names_are_two_loops() -> None:
    assert verify(parse_kernel(NESTED.replace("TRIPS", "1"))).verdict is Verdict.PROVED
    twice = verify(parse_kernel(NESTED.replace("TRIPS", "2")))
    assert {d.code for d in twice.diagnostics} == {"output-written-twice"}


def test_names_in_formulas_differ_where_names_do() -> None:
    names = ("a", "a.b", "a_b", "a_2e_b", "a_5f_2e_b", "a__b", "a._b", "a_.b", "2e", "_2e_", ".", "_", "a b")
    assert len({identifier(name) for name in names}) == len({counter(name) for name in names}) == len(names)


def test_mbarriers_count_as_shared_memory() -> None:
    head = "kernel k\ntarget sm_90a\nwarps 1 of 32\ngrid [1]\n"
    body = "body {\n  mbarrier_init full\n  mbarrier_fence\n  barrier\n}\n"
    last = 232448 - 8
    assert verify(parse_kernel(f"{head}mbarrier full count 1 arrivals 1 at {last}\n{body}")).verdict is Verdict.PROVED
    with pytest.raises(SourceError, match="shared memory ends"):
        verify(parse_kernel(f"{head}mbarrier full count 1 arrivals 1 at {last + 8}\n{body}"))
