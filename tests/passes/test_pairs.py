"""Pairs of adjacent elements that `al.split` takes apart: each thread loads the pairs that it uses, as vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import argus.language as al
from argus.compile import elaborate, lower, verify
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.frontend.decorator import kernel
from argus.ir.expr import Const, op
from argus.ir.nodes import Access, Copy, Kernel, Stmt
from argus.ir.visit import rewrite_body, walk
from argus.simulate import simulate


@kernel(num_warps=2)
def differences(x: al.Tensor[al.bfloat16, "M 16"], y: al.Tensor[al.float32, "M"], FROM: al.constexpr = 0):
    m = al.grid(al.cdiv(x.shape[0], 64)) * 64
    t = al.stage(x[m : m + 64, 0:16], boundary_check=(0,))
    total = al.zeros((64,), al.float32)
    for pair in range(7):
        a, b = al.split(al.load(t[:, 2 * pair + FROM : 2 * pair + FROM + 2]))
        total += a.to(al.float32) - b.to(al.float32)
    al.store(y[m : m + 64], total, boundary_check=(0,))


def lowered(first: int, target: str = "sm_80") -> Kernel:
    options = Options(target, 2, {"FROM": first})
    return lower(elaborate(differences.file, differences.name, options), target)


def loads(kernel: Kernel) -> list[Copy]:
    """The copies from the staged tile to registers."""
    shared = {s.name for s in kernel.shared}
    return [s for s in walk(kernel.body) if isinstance(s, Copy) and s.src.obj in shared]


@pytest.mark.parametrize(("target", "first", "vector"), [("sm_80", 0, 2), ("sm_80", 1, 1), ("gfx942", 1, 1)])
def test_a_pair_is_one_vector_where_it_is_aligned(target: str, first: int, vector: int) -> None:
    kernel = lowered(first, target)
    assert [copy.vector for copy in loads(kernel)] == [vector]
    assert verify(kernel).verdict is Verdict.PROVED
    x = np.arange(72 * 16, dtype=np.float32).reshape(72, 16) % 256
    outcome = simulate(kernel, {"x": x, "y": np.zeros(72, np.float32)})
    assert outcome.ok, outcome.violations
    pairs = x[:, first : first + 14].reshape(72, 7, 2)
    np.testing.assert_array_equal(outcome.tensors["y"], (pairs[..., 0] - pairs[..., 1]).sum(1))


def test_a_vector_at_an_odd_column_of_a_loop_is_refused() -> None:
    kernel = lowered(0)

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if stmt not in loads(kernel) or not isinstance(stmt, Copy):
            return None
        *rest, column = stmt.src.index
        return (replace(stmt, src=Access(stmt.src.obj, (*rest, op("add", column, Const(1))))),)

    report = verify(replace(kernel, body=rewrite_body(kernel.body, change)))
    assert report.verdict is Verdict.REFUTED
    assert "misaligned-vector" in {d.code for d in report.diagnostics}
