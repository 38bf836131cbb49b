"""Results of loops that a warp of its own hands to the copy engine, and those that computing warps keep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus.backend.emit import emit
from argus.compile import elaborate
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.nodes import Barrier, BulkWait, For, Kernel, MbarrierArrive, MbarrierWait, Role, Roles, Stmt
from argus.ir.visit import rewrite_body, walk
from argus.ir.wellformed import check_explicit
from argus.passes import lower
from argus.source import SourceFile
from argus.verify import verify

TEXT = '''
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def added(a: al.Tensor[al.bfloat16, "M 64"], b: al.Tensor[al.bfloat16, "N 64"], row: al.Tensor[al.int32, "R"],
          sums: al.Tensor[al.float32, "M N"]):
    M, N = a.shape[0], b.shape[0]
    al.spec(sums, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    place = al.grid(al.cdiv(N, 64), persistent=True)
    n0 = place * 64
    bt = al.stage(b[n0 : n0 + 64, :], boundary_check=(0,))
    for m0 in al.pipelined(0, M, 64, stages=2, producer_warps=4):
        at = al.stage(a[m0 : m0 + 64, :], boundary_check=(0,))
        s = al.mma(at, bt, al.zeros((64, 64), al.float32))
        al.atomic_add(sums[m0 : m0 + 64, n0 : n0 + 64], s, boundary_check=(0, 1))
'''
ON_A_CONDITION = TEXT.replace("        al.atomic_add(", "        if m0 < N:\n            al.atomic_add(")


def lowered(text: str = TEXT) -> Kernel:
    return lower(elaborate(SourceFile("added.py", text), "added", Options("sm_90a")), "sm_90a")


def roles(kernel: Kernel) -> dict[str, Role]:
    return {r.name: r for s in kernel.body if isinstance(s, Roles) for r in s.roles}


def changed(kernel: Kernel, role: str, gone: type[Stmt]) -> Kernel:
    """Return the kernel without statements of one kind about the sender's mbarriers, or of its own, in a role."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        about = getattr(stmt, "barrier", "free").rstrip("0123456789")
        return () if isinstance(stmt, gone) and about in ("free", "ready") else None

    stmt = next(s for s in kernel.body if isinstance(s, Roles))
    new = tuple(replace(r, body=rewrite_body(r.body, change)) if r.name == role else r for r in stmt.roles)
    return replace(kernel, body=(*kernel.body[:-1], replace(stmt, roles=new)))


def test_a_warp_of_its_own_sends() -> None:
    kernel = lowered()
    assert not check_explicit(kernel) and not kernel.remarks
    found = roles(kernel)
    assert [(r.first_warp, r.num_warps) for r in found.values()] == [(4, 1), (5, 1), (0, 4)]
    loop = next(s for s in walk(found["compute"].body) if isinstance(s, For) and s.var == "m0")
    assert not any(isinstance(s, Barrier | BulkWait) for s in walk(loop.body))
    text = emit(kernel)
    assert "if (warp < 5) {\n            // producer" in text and "else if (warp < 6) {\n            // sender" in text


def test_proved() -> None:
    report = verify(lowered())
    assert report.verdict is Verdict.PROVED, [d.message for d in report.diagnostics]


@pytest.mark.parametrize(
    ("role", "gone"), [("compute", MbarrierWait), ("sender", MbarrierWait), ("sender", BulkWait)],
    ids=["panels are free", "panels are written", "panels were read"],
)  # fmt: skip
def test_each_wait_is_needed(role: str, gone: type[Stmt]) -> None:
    kernel = lowered()
    wrong = changed(kernel, role, gone)
    assert wrong != kernel
    assert verify(wrong).verdict is not Verdict.PROVED


def test_the_sender_says_that_panels_are_free() -> None:
    kernel = lowered()
    wrong = changed(kernel, "sender", MbarrierArrive)
    assert wrong != kernel and verify(wrong).verdict is not Verdict.PROVED


def test_results_on_a_condition_stay() -> None:
    kernel = lowered(ON_A_CONDITION)
    assert set(roles(kernel)) == {"producer", "compute"}
    assert any(isinstance(s, BulkWait) and s.read for s in walk(roles(kernel)["compute"].body))
