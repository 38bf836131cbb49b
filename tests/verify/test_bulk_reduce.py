"""Atomic updates by the copy engine: every part of a sum once, from panels that nobody writes while they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.expr import Const, Coord, op
from argus.ir.nodes import Accumulate, Barrier, BulkCommit, BulkCopy, BulkWait, Copy, Kernel, ProxyFence, Stmt
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.visit import rewrite_body, walk
from argus.ir.wellformed import check_explicit
from argus.simulate import Outcome, simulate
from argus.source import SourceFile
from argus.verify import verify
from tests.reject.case import ROOT
from tests.reject.edits import drop, one_more_pending, statements
from tests.verify.test_search import refuted

pytestmark = pytest.mark.slow

TEXT = (ROOT / "tests/reject/kernels/reduced.py").read_text(encoding="utf-8")
SCHEDULES = ("program", "reverse", "lazy", "eager-compute", "random(1)")
PANELS = {"STAGES": 9, "BLOCK_N": 128}
"""So many stages that there is room for one panel alone: each waits for the one before it."""


def lowered(target: str = "sm_90a", edit: tuple[str, str] = ("", ""), **constants: object) -> Kernel:
    source = SourceFile("reduced.py", TEXT.replace(*edit) if edit[0] else TEXT)
    options = Options(target=target, constexprs=constants)
    return compile.lower(compile.elaborate(source, "reduced", options), target)


def updates(kernel: Kernel) -> list[Accumulate]:
    return [s for s in walk(kernel.body) if isinstance(s, Accumulate) and s.instr == "tma.reduce.add"]


def run(kernel: Kernel, schedule: str, sizes: tuple[int, int, int] = (70, 80, 520)) -> tuple[Outcome, bool]:
    m, n, k = sizes
    a = (np.arange(m * k) % 5 - 2).astype(np.float32).reshape(m, k)
    b = (np.arange(n * k) % 7 - 3).astype(np.float32).reshape(n, k)
    arguments = {"a": a, "b": b, "c": np.full((m, n), 2.0, np.float32)}
    outcome = simulate(kernel, arguments, tags=True, schedule=schedule)
    return outcome, bool((outcome.tensors["c"] == 2 + a @ b.T).all())


@pytest.mark.parametrize("constants", [{}, {"PERSISTENT": True}, PANELS], ids=["once", "persistent", "panels"])
def test_proved_and_so_it_is(constants: Mapping[str, object]) -> None:
    kernel = lowered(**constants)
    assert len(updates(kernel)) == (4 if constants is PANELS else 2) and parse_kernel(print_kernel(kernel)) == kernel
    report = verify(kernel)
    assert report.verdict is Verdict.PROVED, report.diagnostics
    for schedule in SCHEDULES:
        outcome, right = run(kernel, schedule)
        assert outcome.ok and right, (schedule, outcome.violations)


def twice(kernel: Kernel) -> Kernel:
    """Every update is made twice."""
    return statements(lambda s: (s, s) if isinstance(s, Accumulate) and s.instr == "tma.reduce.add" else None)(kernel)


def stored(kernel: Kernel) -> Kernel:
    """The panels are stored, over what others added."""

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(s, Accumulate) or s.instr != "tma.reduce.add":
            return None
        source = replace(s.dst, obj=s.value.obj, index=s.value.index)  # type: ignore[union-attr]
        return (BulkCopy(s.dst, source, s.shape, s.mask, instr="tma.store", span=s.span),)

    return statements(change)(kernel)


def fence_before_writes(kernel: Kernel) -> Kernel:
    """The proxy fence stands before the writes to the panels that it is for."""
    body = rewrite_body(kernel.body, lambda s: () if isinstance(s, ProxyFence) else None)

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        return (ProxyFence(span=s.span), s) if isinstance(s, Copy) and s.instr == "st.shared" else None

    return replace(kernel, body=rewrite_body(body, change))


REJECTED: dict[str, tuple[Mapping[str, object], Callable[[Kernel], Kernel], str]] = {
    "no proxy fence": ({}, drop(ProxyFence), "missing-proxy-fence"),
    "the fence before the writes": ({}, fence_before_writes, "missing-proxy-fence"),
    "no commit": ({}, drop(BulkCommit), "unfinished-copy"),
    "no wait at the end": ({}, drop(BulkWait, lambda s: s.pending == 0), "unfinished-copy"),  # type: ignore[attr-defined]
    "panels written again while they are read": (PANELS, one_more_pending(BulkWait), "data-race"),
    "no barrier between the writes and the update": (
        {}, lambda k: replace(k, body=rewrite_body(k.body, _no_barrier_of_roles(k))), "missing-proxy-fence"),
    "every part twice": ({}, twice, "spec-mismatch"),
    "stored, not added": ({}, stored, "block-race"),
}  # fmt: skip


def _no_barrier_of_roles(kernel: Kernel) -> Callable[[Stmt], tuple[Stmt, ...] | None]:
    first = next(s for s in kernel.body if isinstance(s, Barrier))
    return lambda s: () if isinstance(s, Barrier) and s is not first else None


@pytest.mark.parametrize("case", REJECTED)
def test_rejected(case: str) -> None:
    constants, edit, code = REJECTED[case]
    wrong = edit(lowered(**constants))
    assert not check_explicit(wrong)
    report = verify(wrong)
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    assert code in refuted(report)
    if code != "spec-mismatch":
        assert any(not run(wrong, schedule)[0].ok for schedule in SCHEDULES)


PARTS = {
    "parts that overlap": ("first = row * BLOCK_M, column * BLOCK_N, part * DEPTH", "part * (DEPTH - BLOCK_K)"),
    "a part without its end": ("al.minimum(first + DEPTH, K)", "al.minimum(first + DEPTH - BLOCK_K, K)"),
}


@pytest.mark.parametrize("case", PARTS)
def test_parts_are_no_partition(case: str) -> None:
    old, new = PARTS[case]
    edit = (old, old.replace("part * DEPTH", new)) if "overlap" in case else (old, new)
    report = verify(lowered(edit=edit))
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    assert refuted(report) == {"spec-mismatch"}


ILL_FORMED: dict[str, tuple[Callable[[Accumulate], Accumulate], str]] = {
    "another operation": (lambda s: replace(s, op="maximum"), "is the operation add on float32"),
    "a sum of two tiles": (
        lambda s: replace(s, value=op("add", s.value, s.value)), "updates a tensor by the elements of a shared tile"),
    "a mask of its own": (
        lambda s: replace(s, mask=op("lt", Coord(1), Const(3))), "masks nothing but what is outside of `c`"),
    "threads": (lambda s: replace(s, scope="thread"), "is issued by one thread, for the whole box"),
}  # fmt: skip


@pytest.mark.parametrize("case", ILL_FORMED)
def test_ill_formed(case: str) -> None:
    edit, why = ILL_FORMED[case]
    kernel = lowered()
    wrong = statements(lambda s: (edit(s),) if s in updates(kernel) else None)(kernel)  # type: ignore[arg-type]
    assert any(why in d.message for d in check_explicit(wrong)) and not check_explicit(kernel)
