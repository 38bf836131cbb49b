"""What is declared of an index tensor is what it holds before the kernel: not after the kernel has written it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.nodes import Copy, Stmt
from argus.ir.visit import rewrite_body
from argus.source import SourceFile
from argus.verify import verify

GATHER = """
import argus
import argus.language as al

@argus.kernel
def gather(index: al.Tensor[al.int32, "T"], table: al.Tensor[al.float32, "V"], out: al.Tensor[al.float32, "T"]):
    T = index.shape[0]
    V = table.shape[0]
    al.requires(al.in_range(index, 0, V))
    al.spec(out, lambda i: table[index[i]])
    t = al.grid(al.cdiv(T, 128)) * 128 + al.arange(128)
    live = t < T
    rows = al.load(index[t], mask=live)
    al.store(out[t], al.load(table[rows], mask=live), mask=live)
"""
WRITTEN = """    al.store(index[t], {value}, mask=live)
    al.barrier()
    rows = al"""


def prove(text: str) -> tuple[Verdict, set[str]]:
    report = compile.prove(SourceFile("gather.py", text), "gather", Options())
    return report.verdict, {d.code for d in report.diagnostics if d.verdict is Verdict.REFUTED}


def test_accepted() -> None:
    assert prove(GATHER) == (Verdict.PROVED, set())


@pytest.mark.parametrize(("value", "code"), [("t + 1000", "out-of-bounds"), ("0 * t", "spec-mismatch")])
def test_index_data_that_the_kernel_writes(value: str, code: str) -> None:
    verdict, codes = prove(GATHER.replace("    rows = al", WRITTEN.format(value=value)))
    assert verdict is Verdict.REFUTED and code in codes


def test_a_masked_load_keeps_its_range_where_it_is_used() -> None:
    """Where the load is masked, and leaves the registers as they are, nothing may look at them."""

    def old_values(stmt: Stmt) -> tuple[Stmt, ...] | None:
        loads = isinstance(stmt, Copy) and stmt.src.obj == "index"
        return (replace(stmt, other=None),) if loads else None

    for mask, verdict in ((", mask=live)", Verdict.PROVED), (")", Verdict.REFUTED)):
        text = GATHER.replace("al.load(table[rows], mask=live)", f"al.load(table[rows]{mask}")
        source = SourceFile("gather.py", text)
        kernel = compile.lower(compile.elaborate(source, "gather", Options()), "sm_80")
        report = verify(replace(kernel, body=rewrite_body(kernel.body, old_values)))
        assert report.verdict is verdict, report.diagnostics
