"""Register tiles that are staged: a product reads across the rows that warps hold apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.compile import prove
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options, check, parse
from argus.ir.nodes import Barrier, For, If, Kernel, Mma, ProxyFence, Roles, Stmt, ThreadCopy
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.visit import rewrite_body, walk
from argus.ir.wellformed import check_explicit
from argus.passes import lower
from argus.passes.lower import for_target
from argus.source import SourceFile
from argus.verify import verify
from tests.backend.host import from_bfloat16, run, to_bfloat16

TEXT = '''
import argus
import argus.language as al

@argus.kernel(num_warps=8)
def twice(a: al.Tensor[al.bfloat16, "M 64"], b: al.Tensor[al.bfloat16, "N 64"], c: al.Tensor[al.bfloat16, "M 128"],
          out: al.Tensor[al.float32, "128 N"], ROWS: al.constexpr = 128, SCHEDULE: al.constexpr = "cooperative"):
    M, N = a.shape[0], b.shape[0]
    al.requires(M > 0)
    al.spec(out, lambda d, n: al.sum(lambda m: c[m, d] * (2.0 * al.sum(lambda k: a[m, k] * b[n, k]))))
    place = al.grid(al.cdiv(N, 64), persistent=True, schedule=SCHEDULE)
    n0 = place * 64
    bt = al.stage(b[n0 : n0 + 64, :], boundary_check=(0,))
    acc = al.zeros((128, 64), al.float32)
    for m0 in al.pipelined(0, M, ROWS, stages=2, producer_warps=4):
        at = al.stage(a[m0 : m0 + ROWS, :], boundary_check=(0,))
        ct = al.stage(c[m0 : m0 + ROWS, :], boundary_check=(0,))
        s = al.mma(at, bt, al.zeros((ROWS, 64), al.float32))
        wt = al.stage((2.0 * s).to(al.bfloat16))
        acc = al.mma(al.trans(ct), al.trans(wt), acc)
    al.store(out[:, n0 : n0 + 64], acc, boundary_check=(1,))
'''

ONE_BUFFER = TEXT.replace("stages=2", "stages=3")
"""Shared memory has no room for two buffers of the tile that warps fill."""


def options(target: str, **constants: Any) -> Options:
    warps = 8 if target == "sm_90a" else 4
    return Options(target, warps, {} if target == "sm_90a" else {"ROWS": 16, **constants}, default_alignment=16)


def lowered(target: str, text: str = TEXT) -> Kernel:
    return lower(check(parse(SourceFile("twice.py", text)), "twice", options(target)), target)


def compute(kernel: Kernel) -> tuple[Stmt, ...]:
    return next(s for s in kernel.body if isinstance(s, Roles)).roles[1].body


def test_text_of_the_open_form() -> None:
    kernel = check(parse(SourceFile("twice.py", TEXT)), "twice", options("sm_90a"))
    assert "share wt <- wt_tile[c0, c1] shape 128x64" in print_kernel(kernel)
    assert parse_kernel(print_kernel(kernel)) == kernel


@pytest.mark.parametrize("text", [TEXT, ONE_BUFFER], ids=["two buffers", "one buffer"])
def test_what_stands_around_the_copy(text: str) -> None:
    kernel = lowered("sm_90a", text)
    assert not check_explicit(kernel) and not kernel.remarks
    loop = next(s for s in walk(compute(kernel)) if isinstance(s, For) and s.var == "m0")
    kinds = [type(s) for s in loop.body]
    copy = kinds.index(ThreadCopy)
    assert (kinds[copy - 1] is Barrier) == (text is ONE_BUFFER)
    assert kinds[copy + 1 : copy + 3] == [ProxyFence, Barrier]
    assert Mma in kinds[copy + 3 :]
    tile = next(s for s in kernel.shared if s.name == "wt")
    assert tile.shape == ((128, 64) if text is ONE_BUFFER else (2, 128, 64))


@pytest.mark.parametrize(
    ("target", "text"),
    [("sm_90a", TEXT), ("sm_90a", ONE_BUFFER), ("sm_80", TEXT), ("cpu", TEXT), ("gfx942", TEXT)],
)
def test_proved(target: str, text: str) -> None:
    report = prove(SourceFile("twice.py", text), "twice", options(target))
    assert report.verdict is Verdict.PROVED, [d.message for d in report.diagnostics]


@pytest.mark.parametrize(
    ("text", "place"),
    [(ONE_BUFFER, -1), (ONE_BUFFER, 1), (TEXT, 2)],
    ids=["barrier before", "proxy fence", "barrier after"],
)
def test_each_of_them_is_needed(text: str, place: int) -> None:
    """Twins of kernels that are proved."""

    def without(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, For) or stmt.var != "m0" or not any(isinstance(s, ThreadCopy) for s in stmt.body):
            return None
        copy = next(i for i, s in enumerate(stmt.body) if isinstance(s, ThreadCopy))
        return (replace(stmt, body=tuple(s for i, s in enumerate(stmt.body) if i != copy + place)),)

    kernel = lowered("sm_90a", text)
    wrong = replace(kernel, body=rewrite_body(kernel.body, without))
    assert wrong != kernel
    assert verify(wrong).verdict is Verdict.REFUTED


@pytest.mark.product
@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("target", ["sm_90a", "cpu"])
@pytest.mark.parametrize("sizes", [(1, 5), (300, 136)])
def test_on_the_host(target: str, sizes: tuple[int, int]) -> None:
    m, n = sizes
    n = -(-n // 4) * 4  # rows of results that the copy engine stores
    rng = np.random.default_rng(5)
    a, b, c = (to_bfloat16(rng.standard_normal(shape).astype(np.float32)) for shape in ((m, 64), (n, 64), (m, 128)))
    out = np.full((128, n), np.nan, np.float32)
    run(lowered(target), (-(-n // 64),), True, a=a, b=b, c=c, out=out, M=m, N=n)
    first, second, third = (from_bfloat16(x).astype(np.float64) for x in (a, b, c))
    expected = third.T @ from_bfloat16(to_bfloat16((2 * first @ second.T).astype(np.float32)))
    np.testing.assert_allclose(out, expected, rtol=2e-2, atol=2e-2 * float(np.abs(expected).max()))


def test_warps_with_rows_apart_stay_together() -> None:
    kernel = lowered("sm_90a", TEXT.replace('= "cooperative"', '= "rows"'))
    assert any("share each program" in r.message for r in kernel.remarks)


def test_a_tile_outside_of_the_loop_s_top_level_fits_no_role() -> None:
    line = next(line for line in TEXT.splitlines(True) if "wt = " in line)
    product = next(line for line in TEXT.splitlines(True) if "acc = al.mma" in line)
    branched = f"        if m0 >= 0:\n    {line}    {product}"
    kernel = lowered("sm_90a", TEXT.replace(line + product, branched))
    assert any("staged or multiplied in a branch" in r.message for r in kernel.remarks)
    assert not any(isinstance(s, Roles) for s in kernel.body)


@pytest.mark.parametrize("option", ["boundary_check=(0,)", "mask=M > 0", "other=1", "once=True"])
def test_registers_have_nothing_to_mask(option: str) -> None:
    wrong = TEXT.replace("(2.0 * s).to(al.bfloat16))", f"(2.0 * s).to(al.bfloat16), {option})")
    with pytest.raises(SourceError, match="is about a place in memory"):
        check(parse(SourceFile("twice.py", wrong)), "twice", options("sm_90a"))


def test_kernel_of_other_targets_has_barriers() -> None:
    kernel = for_target(lowered("sm_80"), "sm_80")
    copies = [s for s in walk(kernel.body) if isinstance(s, ThreadCopy) and s.dst.obj == "wt"]
    assert len(copies) == 1 and not any(isinstance(s, If | Roles) for s in kernel.body)
