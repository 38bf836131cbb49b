"""`exact`: every property is asked of the kernel itself, and of no simpler form of it."""

from __future__ import annotations

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import Report, verify

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def rows(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M"], count: al.int32):
    al.requires(count >= 0)
    al.spec(out, lambda m: al.sum(lambda n: al.where(n < count, x[m, n], 0.0)))
    m = al.grid(M)
    total = 0.0
    for n in range(0, BOUND):
        total += al.load(x[m, n])
    al.store(out[m], total)
"""


def proved(bound: str, exact: bool) -> Report:
    source = SourceFile("rows.py", TEXT.replace("BOUND", bound))
    kernel = compile.lower(compile.elaborate(source, "rows", Options(target="sm_80")), "sm_80")
    return verify(kernel, exact=exact)


def test_nothing_is_proved_on_a_simpler_form() -> None:
    right = {exact: proved("al.minimum(count, N)", exact) for exact in (False, True)}
    assert {report.verdict for report in right.values()} == {Verdict.PROVED}
    models = {exact: sum(t.property == "relations" for t in report.timings) for exact, report in right.items()}
    assert models == {False: 2, True: 1}


def test_what_is_wrong_is_refuted_either_way() -> None:
    for exact in (False, True):
        assert proved("al.minimum(count, N + 1)", exact).verdict is Verdict.REFUTED
