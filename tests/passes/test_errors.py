"""What cannot be lowered is refused with its code, next to a kernel one edit away that can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from argus.ir.expr import Const, Coord, Elem, Thread, op
from argus.ir.nodes import (
    Access,
    Accumulate,
    For,
    Fragment,
    If,
    Kernel,
    Map,
    Mma,
    Shared,
    Stage,
    Stmt,
    Tag,
    TagField,
    ThreadCopy,
)
from argus.ir.types import bfloat16, float16, float32
from argus.ir.visit import rewrite_body
from argus.layout import FragmentLayout, parse_fragment, row_major
from argus.passes import LoweringError, lower
from tests.passes import kernels

C0, C1 = Coord(0), Coord(1)


def changed(kernel: Kernel, change: Callable[[Stmt], tuple[Stmt, ...] | None]) -> Kernel:
    return replace(kernel, body=rewrite_body(kernel.body, change))


def with_mma(instr: str | None, warps: tuple[int, int] | None = None, target_warp: int = 32) -> Kernel:
    return changed(
        kernels.gemm(warp_size=target_warp),
        lambda s: (replace(s, instr=instr, warps=warps),) if isinstance(s, Mma) else None,
    )


def in_branch(kernel: Kernel, divergent: bool, kind: type[Stmt]) -> Kernel:
    cond = op("lt", Thread(), Const(3)) if divergent else op("lt", kernels.M, Const(3))
    return changed(kernel, lambda s: (If(cond, (s,)),) if isinstance(s, kind) else None)


def after_loop(obj: str) -> Kernel:
    """A use of the staged tile after its loop, or of the accumulator."""
    kernel = kernels.gemm((64, 32, 32))
    use: Stmt = (
        ThreadCopy(Access("late", (C0, C1)), Access("at", (C0, C1)), (64, 32))
        if obj == "at"
        else Map(Access("late", (C0, C1)), Elem("acc", (C0, C1), float32), (64, 32))
    )
    dtype = bfloat16 if obj == "at" else float32
    fragments = (*kernel.fragments, Fragment("late", dtype, (64, 32)))
    return replace(kernel, fragments=fragments, body=(*kernel.body, use))


def tagged(in_loop: bool) -> Kernel:
    kernel = kernels.gemm()
    tag = Tag("at" if in_loop else "acc", (Const(64), Const(32)), (("k", TagField(Elem("at", (C0, C1), bfloat16), 0)),))
    tag = tag if in_loop else Tag("acc", (Const(64), Const(64)), (("k", C1),))

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        match stmt:
            case Mma() if in_loop:
                return (tag, stmt)
            case For() if not in_loop:
                return (stmt, tag)
            case _:
                return None

    return changed(kernel, change)


def copy_with(instr: str, mask_shift: int = 0, other: float = 0.0) -> Kernel:
    """A named asynchronous copy; its mask may change inside of a vector."""
    bound = op("sub", kernels.N, Const(mask_shift))
    source, index = kernels.matrix("x", bfloat16, kernels.M, kernels.N), (C0, C1)
    return kernels.kernel(
        "named",
        (source,),
        (
            ThreadCopy(Access("s", index), Access("x", index), (32, 32), op("lt", C1, bound), Const(other, bfloat16),
                 instr=instr),
        ),
        shared=(Shared("s", bfloat16, (32, 32), row_major((32, 32))),),
    )  # fmt: skip


def atomic(dtype_bits: int) -> Kernel:
    dtype = float32 if dtype_bits == 32 else float16
    return kernels.kernel(
        "atomic",
        (kernels.vector("out", dtype, kernels.N),),
        (Accumulate(Access("out", (C0,)), Const(1.0, dtype), "add", (32,), op("lt", C0, kernels.N)),),
    )


def reduction(layout: FragmentLayout | None) -> Kernel:
    return kernels.kernel(
        "reduction",
        (),
        (
            Map(Access("x", (C0,)), Const(1.0, float32), (64,)),
            Map(Access("r", ()), Const(0.0, float32), ()),
            Accumulate(Access("r", ()), Elem("x", (C0,), float32), "add", (64,)),
        ),
        fragments=(Fragment("x", float32, (64,), layout), Fragment("r", float32, ())),
        num_warps=1,
    )


def shifted(delta: int) -> Kernel:
    """y[c0 ^ delta, c1] = x[c0, c1]: a write of rows that the threads do not hold, unless delta is 0."""
    return kernels.kernel(
        "shifted",
        (),
        (
            Map(Access("x", (C0, C1)), Const(1.0, float32), (4, 32)),
            Map(Access("y", (op("xor", C0, Const(delta)), C1)), Elem("x", (C0, C1), float32), (4, 32)),
        ),
        fragments=(Fragment("x", float32, (4, 32)), Fragment("y", float32, (4, 32))),
    )


CASES: list[tuple[str, str, Kernel, Kernel]] = [
    ("sm_80", "unknown-instruction", with_mma("mma_m8n8k4"), with_mma("mma_m16n8k16")),
    ("sm_80", "instruction-target", with_mma("mfma_f32_32x32x8"), with_mma("mma_m16n8k16")),
    ("gfx942", "matrix-types", with_mma("mfma_i32_32x32x16", None, 64), with_mma("mfma_f32_32x32x8", None, 64)),
    ("sm_80", "no-matrix-instruction", kernels.gemm(dtype=float32), kernels.gemm()),
    ("sm_80", "matrix-shape", kernels.gemm((16, 8, 32)), kernels.gemm((32, 16, 32))),
    ("sm_80", "matrix-shape", with_mma(None, (3, 1)), with_mma(None, (4, 1))),
    (
        "sm_80",
        "shared-memory",
        kernels.gemm((128, 128, 64), 8, num_warps=8),
        kernels.gemm((128, 128, 64), 4, num_warps=8),
    ),
    ("sm_80", "register-budget", kernels.softmax(1, 65536), kernels.softmax(1, 16384)),
    ("sm_80", "staged-tile-escapes", after_loop("at"), after_loop("acc")),
    ("sm_80", "tag-on-buffer", tagged(True), tagged(False)),
    (
        "sm_80",
        "barrier-in-divergent-branch",
        in_branch(kernels.gemm(), True, For),
        in_branch(kernels.gemm(), False, For),
    ),
    (
        "sm_80",
        "barrier-in-divergent-branch",
        in_branch(kernels.gemm(stages=1), True, Stage),
        in_branch(kernels.gemm(stages=1), False, Stage),
    ),
    (
        "sm_80",
        "barrier-in-divergent-branch",
        in_branch(kernels.softmax(), True, Accumulate),
        in_branch(kernels.softmax(), False, Accumulate),
    ),
    ("sm_80", "instruction-alignment", copy_with("cp.async", 1), copy_with("cp.async", 2)),
    ("sm_80", "instruction-fill", copy_with("cp.async", other=1.0), copy_with("cp.async", other=0.0)),
    ("sm_80", "instruction-spaces", copy_with("ld.global"), copy_with("cp.async")),
    ("sm_80", "instruction-target", copy_with("ds_read"), copy_with("cp.async")),
    ("sm_80", "unknown-instruction", copy_with("ld.moon"), copy_with("cp.async")),
    ("sm_80", "atomic-type", atomic(16), atomic(32)),
    ("sm_80", "reduction-layout", reduction(parse_fragment("[64 | t 32@0 | v 33@0]")), reduction(None)),
    ("sm_80", "register-elsewhere", shifted(3), shifted(0)),
]


@pytest.mark.parametrize(("target", "code", "bad", "good"), CASES, ids=[f"{c[1]}-{i}" for i, c in enumerate(CASES)])
def test_refused_beside_an_accepted_twin(target: str, code: str, bad: Kernel, good: Kernel) -> None:
    with pytest.raises(LoweringError) as error:
        lower(bad, target)
    assert {d.code for d in error.value.diagnostics} == {code}
    assert all(d.help for d in error.value.diagnostics)
    lower(good, target)
