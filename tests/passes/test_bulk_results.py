"""Atomic updates by the copy engine, and what the threads update instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus import compile
from argus.diagnostic import ArgusError
from argus.frontend import Options
from argus.ir.nodes import Accumulate, Kernel
from argus.ir.types import DType, bfloat16, float16, float32, int32, int64
from argus.ir.visit import walk
from argus.source import SourceFile

PATH = Path(__file__).parent.parent / "reject" / "kernels" / "reduced.py"
TEXT = PATH.read_text(encoding="utf-8")


def lowered(target: str, text: str = TEXT, alignment: int = 16, **constants: object) -> Kernel:
    options = Options(target=target, constexprs=constants, alignment={"c": alignment})
    return compile.lower(compile.elaborate(SourceFile("reduced.py", text), "reduced", options), target)


def instructions(kernel: Kernel) -> set[str | None]:
    return {s.instr for s in walk(kernel.body) if isinstance(s, Accumulate)}


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, int32])
def test_sums(dtype: DType) -> None:
    kernel = lowered("sm_90a", OUT=dtype)
    assert instructions(kernel) == {"tma.reduce.add"} and not kernel.remarks


def test_columns_that_are_left_over() -> None:
    kernel = lowered("sm_90a", BLOCK_N=56)
    boxes = [s.shape for s in walk(kernel.body) if isinstance(s, Accumulate)]
    assert boxes == [(64, 32), (64, 16), (64, 8)] and not kernel.remarks


@pytest.mark.parametrize(("name", "instr"), [("atomic_max", "tma.reduce.max"), ("atomic_min", "tma.reduce.min")])
@pytest.mark.parametrize("dtype", [float16, int64])
def test_extrema(name: str, instr: str, dtype: DType) -> None:
    kernel = lowered("sm_90a", TEXT.replace("atomic_add", name), OUT=dtype)
    assert instructions(kernel) == {instr} and not kernel.remarks


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"OUT": int64}, "the copy engine has no atomic add of int64"),
        ({"alignment": 8}, "tma.reduce.add needs `c` aligned to 16 bytes"),
    ],
)
def test_what_the_threads_update(changed: dict[str, object], why: str) -> None:
    kernel = lowered("sm_90a", **changed)  # type: ignore[arg-type]
    assert instructions(kernel) == {"red.global"}
    (remark,) = kernel.remarks
    assert remark.message.startswith("c is updated by the threads, not by the copy engine: ") and why in remark.message


def test_other_targets_update_by_threads() -> None:
    for target in ("sm_80", "cpu"):
        kernel = lowered(target)
        assert instructions(kernel) == {"red.global"} and not kernel.remarks


@pytest.mark.parametrize("dtype", [float16, bfloat16])
@pytest.mark.parametrize(("target", "alignment"), [("sm_80", 16), ("sm_90a", 8)])
def test_threads_have_no_atomics_of_16_bits(dtype: DType, target: str, alignment: int) -> None:
    with pytest.raises(ArgusError) as caught:
        lowered(target, OUT=dtype, alignment=alignment)
    (problem,) = caught.value.diagnostics
    assert problem.code == "atomic-type" and str(dtype) in problem.message
    assert problem.help and "by the copy engine of sm_90a" in problem.help


KEPT = """
import argus
import argus.language as al


@argus.kernel
def kept(x: al.Tensor[al.bfloat16, "M N"], out: al.Tensor[OUT, "N"], OUT: al.constexpr):
    M, N = x.shape
    row, block = al.grid(M, al.cdiv(N, 128))
    at = block * 128 + al.arange(128)
    found = al.load(x[row, at], mask=at < N, other=0.0)
    al.atomic_OP(out[at], FOUND, mask=at < N)
"""


@pytest.mark.parametrize(
    ("op", "remedy", "dtype", "found"),
    [
        ("max", "`al.sortable(x, al.int32)`", int32, "al.sortable(found.to(al.float32), al.int32)"),
        ("add", "a float32 or int32 tensor", float32, "found.to(al.float32)"),
    ],
)
def test_the_remedy_is_one_that_the_target_takes(op: str, remedy: str, dtype: DType, found: str) -> None:
    def kept(held: DType, value: str) -> Kernel:
        text = KEPT.replace("OP", op).replace("FOUND", value)
        options = Options(target="gfx942", constexprs={"OUT": held})
        return compile.lower(compile.elaborate(SourceFile("kept.py", text), "kept", options), "gfx942")

    with pytest.raises(ArgusError) as caught:
        kept(bfloat16, "found")
    (problem,) = caught.value.diagnostics
    assert problem.code == "atomic-type" and remedy in (problem.help or "") and "sm_90a" not in (problem.help or "")
    assert instructions(kept(dtype, found)) == {"global_atomic"}
