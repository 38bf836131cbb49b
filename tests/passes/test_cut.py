"""Vectors that a mask cuts: rows that begin anywhere are moved by the memory's own vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from argus.backend.emit import emit
from argus.compile import elaborate
from argus.diagnostic import ArgusError, Verdict
from argus.frontend import Options
from argus.ir.expr import Const, Coord, Expr, op
from argus.ir.nodes import Copy, Kernel, Stmt
from argus.ir.visit import rewrite_body, walk
from argus.passes import lower
from argus.passes.report import LoweringError
from argus.simulate import simulate
from argus.source import SourceFile
from argus.verify import verify

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def copy_rows(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"]):
    M, N = x.shape
    al.requires(N <= 253)
    al.spec(out, lambda i, j: x[i, j])
    row = al.grid(M)
    cols = al.arange(256) - row % 4 * 3 % 4
    live = (0 <= cols) & (cols < N)
    row_tile = al.load(x[row, cols], mask=MASK, layout=al.blocked((256,), (0,), 4), instruction="ld.global.cut")
    al.store(out[row, cols], row_tile, mask=live, instruction="st.global.cut")
"""


def rows(mask: str = "live") -> Kernel:
    source = SourceFile("rows.py", TEXT.replace("MASK", mask))
    return lower(elaborate(source, "copy_rows", Options("sm_90a", 1, {}, default_alignment=4)), "sm_90a")


def with_mask(extra: Expr) -> Kernel:
    """The kernel, its load masked by `extra` as well."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Copy) and stmt.instr == "ld.global.cut":
            assert stmt.mask is not None
            return (replace(stmt, mask=op("and", stmt.mask, extra)),)
        return None

    kernel = rows()
    return replace(kernel, body=rewrite_body(kernel.body, change))


HOLES = op("eq", op("mod", Coord(0), Const(2)), Const(0))


def test_rows_of_any_length_are_moved_by_whole_vectors() -> None:
    kernel = rows()
    copies = [s for s in walk(kernel.body) if isinstance(s, Copy)]
    assert [(s.instr, s.vector) for s in copies] == [("ld.global.cut", 4), ("st.global.cut", 4)]
    assert verify(kernel).verdict is Verdict.PROVED
    text = emit(kernel)
    assert "if (aligned)" in text and text.index("load_global_whole<4>") < text.index("has_ends<4>")


@pytest.mark.parametrize("columns", [1, 3, 4, 127, 253])
def test_what_the_mask_leaves_is_moved_and_nothing_else(columns: int) -> None:
    x = np.arange(5 * columns, dtype=np.float32).reshape(5, columns)
    outcome = simulate(rows(), {"x": x, "out": np.zeros_like(x)})
    assert outcome.ok and np.array_equal(outcome.tensors["out"], x)


@pytest.mark.parametrize("least", [0, 200])
def test_bounds_that_all_rows_have_are_not_asked(least: int) -> None:
    source = SourceFile("rows.py", TEXT.replace("MASK", "live").replace("N <= 253", f"({least} <= N) & (N <= 253)"))
    text = emit(lower(elaborate(source, "copy_rows", Options("sm_90a", 1, {}, default_alignment=4)), "sm_90a"))
    assert ("v0 >= 1 ? " in text) and (("v0 < 1 ? " in text) == (least > 0))


def test_a_mask_with_holes_is_refused() -> None:
    with pytest.raises(LoweringError, match="cannot be proved to be aligned"):
        rows("live & (cols % 2 == 0)")
    report = verify(with_mask(HOLES))
    assert report.verdict is not Verdict.PROVED and "machine" in {d.property for d in report.diagnostics}
    x = np.zeros((2, 9), np.float32)
    outcome = simulate(with_mask(HOLES), {"x": x, "out": np.zeros_like(x)})
    assert "split-vector" in {v.code for v in outcome.violations}
    with pytest.raises(ArgusError, match="fills with"):
        emit(with_mask(HOLES))


def test_elements_behind_the_row_are_out_of_bounds() -> None:
    """What is read beside them in one word is dropped; what the mask asks for has to be there."""
    assert verify(rows("(-1 <= cols) & (cols < N)")).verdict is Verdict.REFUTED
    assert verify(rows("(1 <= cols) & (cols < N - 1)")).verdict is Verdict.REFUTED  # other values than specified
