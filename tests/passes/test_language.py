"""Kernels in the language, lowered and executed against NumPy: the shapes that policies meet in practice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from argus.frontend import Options, check, parse
from argus.ir.types import bfloat16
from argus.ir.wellformed import check_explicit
from argus.passes import lower
from argus.simulate import simulate
from argus.simulate.numeric import round_to
from argus.source import SourceFile

Array = NDArray[Any]
HEAD = "import argus\nimport argus.language as al\n\n"


def f32(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def bf16(*shape: int) -> Array:
    return np.asarray(round_to(f32(*shape), bfloat16))


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


@dataclass(frozen=True)
class Case:
    """A kernel `k`, its arguments, and what the named tensors must hold afterwards."""

    text: str
    arguments: Mapping[str, Any]
    expected: Callable[..., dict[str, Array]]
    alignment: int = 16
    tolerance: float = 1e-3


def causal(q: Array, keys: Array, v: Array, o: Array) -> dict[str, Array]:
    s = np.where(np.arange(len(keys))[None, :] <= np.arange(len(q))[:, None], q @ keys.T, -1e30)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return {"o": e / e.sum(axis=1, keepdims=True) @ v}


def sums(x: Array, o: Array, q: Array) -> dict[str, Array]:
    t = x.reshape(-1, 16, x.shape[1])
    both = t + t.sum(axis=2, keepdims=True) + t.sum(axis=1, keepdims=True)
    return {"o": t.sum(axis=(1, 2)), "q": both.reshape(x.shape)}


def branches(x: Array, o: Array, flag: int) -> dict[str, Array]:
    acc = np.zeros_like(x)
    for i in range(3):
        acc = acc + (x if flag > i else 2 * x)
        acc = acc + acc.sum()
    return {"o": acc}


LANES = np.arange(32)

CASES = {
    "causal attention": Case(
        """
@argus.kernel(num_warps=4)
def k(q: al.Tensor[al.bfloat16, "M 32"], keys: al.Tensor[al.bfloat16, "N 32"], v: al.Tensor[al.bfloat16, "N 32"],
      o: al.Tensor[al.float32, "M 32"], BM: al.constexpr = 128, BN: al.constexpr = 32):
    M = q.shape[0]
    N = keys.shape[0]
    m0 = al.grid(al.cdiv(M, BM)) * BM
    qt = al.stage(q[m0:m0 + BM, 0:32], boundary_check=(0,))
    acc = al.zeros((BM, 32), al.float32)
    top = al.full((BM,), -1e30, al.float32)
    total = al.zeros((BM,), al.float32)
    rows = m0 + al.arange(BM)
    for j in al.pipelined(0, N, BN, stages=3):
        kt = al.stage(keys[j:j + BN, 0:32], boundary_check=(0,))
        vt = al.stage(v[j:j + BN, 0:32], boundary_check=(0,))
        s = al.mma(qt, kt, al.zeros((BM, BN), al.float32))
        cols = j + al.arange(BN)
        s = al.where((cols[None, :] < N) & (cols[None, :] <= rows[:, None]), s, -1e30)
        new = al.maximum(top, al.max(s, axis=1))
        p = al.exp(s - new[:, None])
        scale = al.exp(top - new)
        total = total * scale + al.sum(p, axis=1)
        acc = acc * scale[:, None]
        acc = al.mma(p.to(al.bfloat16), al.trans(vt), acc)
        top = new
    al.store(o[m0:m0 + BM, 0:32], acc / total[:, None], boundary_check=(0,))
""",
        {"q": bf16(70, 32), "keys": bf16(75, 32), "v": bf16(75, 32), "o": zeros(70, 32)},
        causal,
        tolerance=2e-2,
    ),
    "product of two transposed operands": Case(
        """
@argus.kernel(num_warps=4)
def k(a: al.Tensor[al.bfloat16, "K M"], b: al.Tensor[al.bfloat16, "K N"], c: al.Tensor[al.float32, "M N"]):
    K, M = a.shape
    N = b.shape[1]
    p0, p1 = al.grid(al.cdiv(M, 64), al.cdiv(N, 64))
    m0, n0 = p0 * 64, p1 * 64
    acc = al.zeros((64, 64), al.float32)
    for k0 in al.pipelined(0, K, 32, stages=3):
        at = al.stage(al.trans(a[k0:k0 + 32, m0:m0 + 64]), boundary_check=(0, 1))
        bt = al.stage(b[k0:k0 + 32, n0:n0 + 64], boundary_check=(0, 1))
        acc = al.mma(at, al.trans(bt), acc)
    al.store(c[m0:m0 + 64, n0:n0 + 64], acc, boundary_check=(0, 1))
""",
        {"a": bf16(40, 64), "b": bf16(40, 56), "c": zeros(64, 56)},
        lambda a, b, c: {"c": a.T @ b},
        tolerance=1e-2,
    ),
    "product of gathered rows": Case(
        """
@argus.kernel(num_warps=4)
def k(x: al.Tensor[al.bfloat16, "T K"], w: al.Tensor[al.bfloat16, "N K"], index: al.Tensor[al.int32, "R"],
      c: al.Tensor[al.float32, "R N"]):
    T, K = x.shape
    N = w.shape[0]
    R = index.shape[0]
    al.requires(al.in_range(index, 0, T))
    p0, p1 = al.grid(al.cdiv(R, 64), al.cdiv(N, 64))
    m0, n0 = p0 * 64, p1 * 64
    r = m0 + al.arange(64)
    rows = al.load(index[r], mask=r < R)
    acc = al.zeros((64, 64), al.float32)
    for k0 in al.pipelined(0, K, 32, stages=3):
        at = al.stage(x[rows, k0:k0 + 32], boundary_check=(1,))
        bt = al.stage(w[n0:n0 + 64, k0:k0 + 32], boundary_check=(0, 1))
        acc = al.mma(at, bt, acc)
    al.store(c[m0:m0 + 64, n0:n0 + 64], acc, boundary_check=(0, 1))
""",
        {
            "x": bf16(20, 40),
            "w": bf16(56, 40),
            "index": np.random.default_rng(0).integers(0, 20, 36).astype(np.int32),
            "c": zeros(36, 56),
        },
        lambda x, w, index, c: {"c": x[index] @ w.T},
        tolerance=1e-2,
    ),
    "pages that cannot run ahead": Case(
        """
@argus.kernel(num_warps=4)
def k(x: al.Tensor[al.bfloat16, "P 32 64"], table: al.Tensor[al.int32, "L"], w: al.Tensor[al.bfloat16, "64 64"],
      c: al.Tensor[al.float32, "64 32"]):
    P = x.shape[0]
    L = table.shape[0]
    al.requires(al.in_range(table, 0, P))
    pid = al.grid(1)
    acc = al.zeros((64, 32), al.float32)
    wt = al.stage(w[0:64, 0:64])
    for i in al.pipelined(0, L, 1, stages=3):
        t = al.stage(x[al.load(table[i]), 0:32, 0:64])
        acc = al.mma(wt, t, acc)
    al.store(c[0:64, 0:32], acc)
""",
        {"x": bf16(9, 32, 64), "table": np.array([3, 1, 7, 8], np.int32), "w": bf16(64, 64), "c": zeros(64, 32)},
        lambda x, table, w, c: {"c": sum(w @ x[i].T for i in table)},
        tolerance=1e-2,
    ),
    "pipeline inside of a loop": Case(
        """
@argus.kernel(num_warps=4)
def k(a: al.Tensor[al.bfloat16, "M K"], b: al.Tensor[al.bfloat16, "N K"], c: al.Tensor[al.bfloat16, "M N"]):
    M, K = a.shape
    N = b.shape[0]
    m0 = al.grid(al.cdiv(M, 64)) * 64
    for n0 in range(0, N, 64):
        acc = al.zeros((64, 64), al.float32)
        for k0 in al.pipelined(0, K, 32, stages=3):
            at = al.stage(a[m0:m0 + 64, k0:k0 + 32], boundary_check=(0, 1))
            bt = al.stage(b[n0:n0 + 64, k0:k0 + 32], boundary_check=(0, 1))
            acc = al.mma(at, bt, acc)
        al.store(c[m0:m0 + 64, n0:n0 + 64], acc.to(al.bfloat16), boundary_check=(0, 1))
""",
        {"a": bf16(40, 72), "b": bf16(80, 72), "c": zeros(40, 80)},
        lambda a, b, c: {"c": a @ b.T},
        tolerance=2e-2,
    ),
    "product of register tiles, one transposed": Case(
        """
@argus.kernel(num_warps=4)
def k(a: al.Tensor[al.bfloat16, "64 64"], b: al.Tensor[al.bfloat16, "64 64"], c: al.Tensor[al.float32, "64 64"]):
    pid = al.grid(1)
    x = al.load(a[0:64, 0:64])
    y = al.load(b[0:64, 0:64])
    first = al.mma(x, y, al.zeros((64, 64), al.float32))
    second = al.mma(al.trans(x), y, al.zeros((64, 64), al.float32))
    al.store(c[0:64, 0:64], first + second)
""",
        {"a": bf16(64, 64), "b": bf16(64, 64), "c": zeros(64, 64)},
        lambda a, b, c: {"c": a @ b.T + a.T @ b.T},
        tolerance=1e-2,
    ),
    "sums over one axis and both": Case(
        """
@argus.kernel(num_warps=4)
def k(x: al.Tensor[al.float32, "M N"], o: al.Tensor[al.float32, "P"], q: al.Tensor[al.float32, "M N"]):
    M, N = x.shape
    P = o.shape[0]
    pid = al.grid(al.cdiv(M, 16))
    al.requires(P == al.cdiv(M, 16))
    al.requires(N <= 64)
    r = pid * 16
    t = al.load(x[r:r + 16, 0:64], boundary_check=(0, 1))
    al.store(o[pid], al.sum(t, axis=None))
    both = t + al.sum(t, axis=1, keep_dims=True) + al.sum(t, axis=0, keep_dims=True)
    al.store(q[r:r + 16, 0:64], both, boundary_check=(0, 1))
""",
        {"x": f32(32, 60), "o": zeros(2), "q": zeros(32, 60)},
        sums,
        alignment=4,
    ),
    "exchanges between lanes": Case(
        """
@argus.kernel(num_warps=2)
def k(x: al.Tensor[al.float32, "M 32"], o: al.Tensor[al.float32, "M 32"]):
    M = x.shape[0]
    r = al.grid(al.cdiv(M, 8)) * 8
    t = al.load(x[r:r + 8, 0:32], boundary_check=(0,))
    y = al.shuffle_xor(t, 16) + al.shuffle_up(t, 1) * 2.0 + al.shuffle_down(t, 3) * 4.0
    al.store(o[r:r + 8, 0:32], y, boundary_check=(0,))
""",
        {"x": f32(20, 32), "o": zeros(20, 32)},
        lambda x, o: {
            "o": x[:, LANES ^ 16]
            + 2 * x[:, np.maximum(LANES - 1, 0)]
            + 4 * x[:, np.where(LANES + 3 < 32, LANES + 3, LANES)]
        },
    ),
    "a tile that threads cannot share evenly": Case(
        """
@argus.kernel(num_warps=4)
def k(x: al.Tensor[al.float32, "M 100"], o: al.Tensor[al.float32, "M 100"]):
    M = x.shape[0]
    r = al.grid(al.cdiv(M, 3)) * 3
    t = al.load(x[r:r + 3, 0:100], boundary_check=(0,))
    al.store(o[r:r + 3, 0:100], t / al.sum(t * t, axis=1)[:, None], boundary_check=(0,))
""",
        {"x": f32(6, 100), "o": zeros(6, 100)},
        lambda x, o: {"o": x / (x * x).sum(axis=1, keepdims=True)},
        alignment=4,
    ),
    "reductions in a loop with branches": Case(
        """
@argus.kernel(num_warps=4)
def k(x: al.Tensor[al.float32, "512"], o: al.Tensor[al.float32, "512"], flag: al.int32):
    pid = al.grid(1)
    offs = al.arange(512)
    t = al.load(x[offs])
    acc = al.zeros((512,), al.float32)
    for i in range(3):
        if flag > i:
            acc += t
        else:
            acc += t * 2.0
        acc = acc + al.sum(acc, axis=0)
    al.store(o[offs], acc)
""",
        {"x": np.abs(f32(512)), "o": zeros(512), "flag": 2},
        branches,
    ),
    "a tile staged again in every iteration, read transposed": Case(
        """
@argus.kernel(num_warps=4)
def k(x: al.Tensor[al.float32, "M N"], o: al.Tensor[al.float32, "N"]):
    M, N = x.shape
    n0 = al.grid(al.cdiv(N, 32)) * 32
    acc = al.zeros((32,), al.float32)
    for i in range(0, M, 16):
        t = al.stage(x[i:i + 16, n0:n0 + 32], boundary_check=(0, 1))
        acc += al.sum(al.load(al.trans(t)), axis=1)
    al.store(o[n0:n0 + 32], acc, boundary_check=(0,))
""",
        {"x": f32(40, 50), "o": zeros(50)},
        lambda x, o: {"o": x.sum(axis=0)},
        alignment=4,
    ),
    "atomics at data-dependent places": Case(
        """
@argus.kernel(num_warps=4)
def k(x: al.Tensor[al.int32, "N"], h: al.Tensor[al.int32, "B"]):
    N = x.shape[0]
    B = h.shape[0]
    al.requires(al.in_range(x, 0, B))
    offs = al.grid(al.cdiv(N, 256)) * 256 + al.arange(256)
    v = al.load(x[offs], mask=offs < N)
    al.atomic_add(h[v], al.full((256,), 1, al.int32), mask=offs < N)
""",
        {"x": np.random.default_rng(0).integers(0, 10, 700).astype(np.int32), "h": np.zeros(10, np.int32)},
        lambda x, h: {"h": np.bincount(x, minlength=10)},
        alignment=4,
    ),
}


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize("name", CASES)
def test_lowered_kernels_compute_what_they_say(name: str, target: str) -> None:
    case = CASES[name]
    options = Options(target=target, default_alignment=case.alignment)
    kernel = lower(check(parse(SourceFile(f"{name}.py", HEAD + case.text)), "k", options), target)
    assert not check_explicit(kernel)
    outcome = simulate(kernel, case.arguments, tags=True, schedule="reverse")
    assert not outcome.violations, [str(v) for v in outcome.violations]
    for tensor, expected in case.expected(**case.arguments).items():
        assert np.allclose(outcome.tensors[tensor], expected, rtol=case.tolerance, atol=case.tolerance)
