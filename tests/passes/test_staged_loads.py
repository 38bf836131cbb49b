"""Staged tiles that warps load to registers, as weights that are converted on their way to a product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend import Options, check, parse
from argus.ir.expr import Const, op
from argus.ir.nodes import Access, Copy, For, Kernel, MbarrierArrive, MbarrierWait, Mma, ProxyFence, Roles, Shared, Stmt
from argus.ir.visit import rewrite_body, walk
from argus.ir.wellformed import check_explicit
from argus.passes import lower
from argus.source import SourceFile
from argus.verify import verify
from tests.backend.host import from_bfloat16, run, to_bfloat16

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def widened(a: al.Tensor[al.int8, "N K"], x: al.Tensor[al.bfloat16, "M K"], out: al.Tensor[al.float32, "N M"]):
    N, K, M = a.shape[0], a.shape[1], x.shape[0]
    al.spec(out, lambda n, m: al.sum(lambda k: a[n, k].to(al.float32) * x[m, k]))
    i, j = al.grid(al.cdiv(N, 64), al.cdiv(M, 16), persistent=True)
    n0, m0 = i * 64, j * 16
    acc = al.zeros((64, 16), al.float32)
    for k0 in al.pipelined(0, K, 128, stages=2, producer_warps=4):
        xt = al.stage(x[m0 : m0 + 16, k0 : k0 + 128], boundary_check=(0, 1))
        at = al.stage(a[n0 : n0 + 64, k0 : k0 + 128], boundary_check=(0, 1))
        w = al.load(at).to(al.bfloat16)
        acc = al.mma(w, xt, acc)
    al.store(out[n0 : n0 + 64, m0 : m0 + 16], acc, boundary_check=(0, 1))
"""
OPTIONS = Options("sm_90a", 4, default_alignment=16)


def lowered(text: str = TEXT) -> Kernel:
    return lower(check(parse(SourceFile("widened.py", text)), "widened", OPTIONS), "sm_90a")


def loop_of(kernel: Kernel) -> For:
    roles = next(s for s in kernel.body if isinstance(s, Roles))
    return next(s for s in walk(roles.roles[1].body) if isinstance(s, For) and s.var == "k0")


def is_load(kernel: Kernel, stmt: Stmt) -> bool:
    return isinstance(stmt, Copy) and isinstance(kernel.object(stmt.src.obj), Shared)


def test_a_load_waits_and_gives_the_buffer_back_before_the_product_runs() -> None:
    kernel = lowered()
    assert not check_explicit(kernel) and not kernel.remarks
    body = loop_of(kernel).body
    load = next(i for i, s in enumerate(body) if is_load(kernel, s))
    product = next(i for i, s in enumerate(body) if isinstance(s, Mma))
    kinds = [type(s) for s in body[load - 1 : load + 3]]
    assert kinds[0] is MbarrierWait and kinds[2:] == [ProxyFence, MbarrierArrive]
    assert load + 2 < product


def test_proved() -> None:
    report = prove(SourceFile("widened.py", TEXT), "widened", OPTIONS)
    assert report.verdict is Verdict.PROVED, [d.message for d in report.diagnostics]


@pytest.mark.parametrize("wrong", ["no wait", "no fence", "first buffer", "other place"])
def test_wrong_twins_are_refuted(wrong: str) -> None:
    kernel = lowered()

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, For) or stmt.var != "k0" or not any(is_load(kernel, s) for s in stmt.body):
            return None
        body = list(stmt.body)
        load = next(i for i, s in enumerate(body) if is_load(kernel, s))
        if wrong == "no wait":
            del body[load - 1]
        elif wrong == "no fence":
            del body[load + 1]
        else:
            copy = body[load]
            assert isinstance(copy, Copy)
            buffer, row, column = copy.src.index
            index = (
                (Const(0), row, column)
                if wrong == "first buffer"
                else (buffer, row, op("mod", op("add", column, Const(1)), Const(128)))
            )
            body[load] = replace(copy, src=Access(copy.src.obj, index))
        return (replace(stmt, body=tuple(body)),)

    changed = replace(kernel, body=rewrite_body(kernel.body, change))
    assert changed != kernel
    assert verify(changed).verdict is Verdict.REFUTED


def test_a_load_in_a_branch_fits_no_role() -> None:
    text = TEXT.replace(
        "        w = al.load(at).to(al.bfloat16)\n",
        "        w = al.zeros((64, 128), al.bfloat16)\n"
        "        if k0 >= 0:\n"
        "            w = al.load(at).to(al.bfloat16)\n",
    )
    assert text != TEXT
    (remark,) = (r for r in lowered(text).remarks if "no producer warps" in r.message)
    assert "a load outside of branches" in remark.message


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
def test_on_the_host() -> None:
    n, m, k = 70, 20, 272
    rng = np.random.default_rng(5)
    a, x = rng.integers(-128, 128, (n, k)).astype(np.int8), to_bfloat16(rng.standard_normal((m, k)).astype(np.float32))
    out = np.full((n, m), np.nan, np.float32)
    run(lowered(), (2, 2), True, a=a, x=x, out=out, N=n, K=k, M=m)
    np.testing.assert_allclose(out, a.astype(np.float64) @ from_bfloat16(x).astype(np.float64).T, rtol=1e-4, atol=1e-2)
