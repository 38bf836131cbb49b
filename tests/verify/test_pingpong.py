"""Two groups of warps that take turns: proved as the pass made them, refuted after every single edit."""

from __future__ import annotations

from functools import cache

import pytest

from argus import compile
from argus.diagnostic import Severity, Verdict
from argus.frontend import Options
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.wellformed import check_explicit
from argus.source import SourceFile
from argus.verify import verify
from tests.reject.case import ROOT

pytestmark = pytest.mark.slow

FILE = "examples/gemm_pingpong.py"


@cache
def text(cluster: int = 1) -> str:
    source = SourceFile(FILE, (ROOT / FILE).read_text(encoding="utf-8"))
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "STAGES": 3, "CLUSTER": cluster}
    options = Options(target="sm_90a", constexprs=constants)
    return print_kernel(compile.lower(compile.elaborate(source, "gemm_pingpong", options), "sm_90a"))


OWN, OTHER = "        barrier_sync 4 count 256\n", "        barrier_sync 5 count 256\n"
FIRST = "      barrier_arrive 4 count 256\n      programs"
LAST = "          if k0 + 64 >= K {\n            barrier_arrive 5 count 256\n          }\n"
NONE = "        if K <= 0 {\n          barrier_arrive 5 count 256\n        }\n"

EDITS = {
    "a group does not wait for its turn": (OWN, ""),
    "no group waits for its turn": ((OWN, OTHER), ""),
    "nobody has the first turn": (FIRST, "      programs"),
    "a group waits for the other's turn": (OWN, OTHER),
    "a turn is not handed over": (LAST, ""),
    "nor where there are no products": (NONE, ""),
    "a turn is handed over to oneself": (LAST, LAST.replace("arrive 5", "arrive 4")),
    "a group counts itself alone": (OWN, OWN.replace("256", "128")),
    "both groups run the same programs": ("programs turn 1 of 2", "programs turn 0 of 2"),
    "a group runs all programs": ("programs turn 1 of 2", "programs"),
    "a group stores nothing": ("via tma.store", None),
    "a buffer is not given back": ("            mbarrier_arrive empty[turn % 3]\n", ""),
}


@pytest.mark.parametrize("cluster", [1, 2])
def test_accepted(cluster: int) -> None:
    kernel = parse_kernel(text(cluster))
    assert not check_explicit(kernel) and print_kernel(kernel) == text(cluster)
    report = verify(kernel, 120.0)
    assert report.verdict is Verdict.PROVED, report.diagnostics


@pytest.mark.parametrize("name", EDITS)
def test_rejected(name: str) -> None:
    old, new = EDITS[name]
    edited = text()
    for part in (old,) if isinstance(old, str) else old:
        assert part in edited
        if new is None:  # the first store, of the first group
            lines = edited.splitlines(keepends=True)
            lines.remove(next(line for line in lines if part in line))
            edited = "".join(lines)
        else:
            edited = edited.replace(part, new, 1)
    report = verify(parse_kernel(edited), 120.0)
    errors = [d for d in report.diagnostics if d.severity is Severity.ERROR]
    assert report.verdict is Verdict.REFUTED, errors
    refuted = [d for d in errors if d.verdict is Verdict.REFUTED]
    assert all(d.witness is not None and d.witness.replayed for d in refuted), refuted
