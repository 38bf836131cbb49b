"""Limits that a declared range meets are left out of proofs, also beside branches."""

from __future__ import annotations

from argus.compile import elaborate
from argus.frontend import Options
from argus.ir.expr import Op, walk
from argus.ir.nodes import Kernel
from argus.ir.places import places
from argus.ir.visit import walk as statements
from argus.passes import lower
from argus.source import SourceFile
from argus.verify.reductions.clamps import unlimited

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(t: al.Tensor[al.int32, "N"], x: al.Tensor[al.float32, "M"], out: al.Tensor[al.float32, "N"]):
    M = x.shape[0]
    al.requires(al.in_range(t, 0, M))
    i = al.grid(t.shape[0])
    p = al.load(t[i])
    if i > 0:
        al.store(out[i], al.load(x[al.maximum(p, 0)]))
"""


def limits(kernel: Kernel) -> int:
    found = (part for stmt in statements(kernel.body) for expr in places(stmt) for part in walk(expr))
    return sum(isinstance(part, Op) and part.op == "maximum" for part in found)


def test_a_branch_without_another_side() -> None:
    kernel = lower(elaborate(SourceFile("kernel.py", TEXT), "kernel", Options("sm_80", 1)), "sm_80")
    assert limits(kernel) > 0
    assert limits(unlimited(kernel)) == 0
