"""The beginning and the end of a block: mbarriers that are ready, bulk copies that are over."""

from __future__ import annotations

import pytest

from argus.diagnostic import Verdict
from argus.ir.text import parse_kernel
from argus.simulate import replay
from argus.verify import verify
from tests.reject.case import ROOT

DOUBLE = (ROOT / "tests/reject/kernels/double.ir").read_text(encoding="utf-8")
MADE = "  mbarrier_init full\n  mbarrier_init empty\n  mbarrier_fence\n"
COMPUTE = "    role compute warps 4 from 0 registers 240 {\n"
PRODUCER = "    role producer warps 1 from 4 registers 40 {\n"
SIZES = {"M": 4, "N": 64}


def test_a_role_may_initialise_what_another_waits_for() -> None:
    """By a named barrier, after the fence; without it, or with the fence after it, the other may come too early."""
    meet = "      barrier_sync 3 count 160\n"
    made = MADE.replace("  mb", "      mb")
    text = DOUBLE.replace(MADE + "  barrier\n", "")
    good = text.replace(PRODUCER, PRODUCER + made + meet).replace(COMPUTE, COMPUTE + meet)
    report = verify(parse_kernel(good), 120.0)
    assert report.verdict is Verdict.PROVED, report.diagnostics
    for bad in (
        text.replace(PRODUCER, PRODUCER + made),
        text.replace(PRODUCER, PRODUCER + meet + made).replace(COMPUTE, COMPUTE + meet),
        good.replace("      mbarrier_fence\n" + meet, meet + "      mbarrier_fence\n"),
    ):
        report = verify(parse_kernel(bad), 120.0)
        assert report.verdict is Verdict.REFUTED, report.diagnostics
        found = [d for d in report.diagnostics if d.code == "late-initialisation"]
        assert found and all(d.witness is not None and d.witness.replayed and d.witness.missing for d in found)


UNFINISHED = {
    "a store without a wait": DOUBLE.replace("      bulk_wait_read 0\n    }", "    }"),
    "a store without a group": DOUBLE.replace("        bulk_commit\n", "").replace("        bulk_wait_read 0\n", ""),
    "a load without a wait": "32 .. N step 32 counter".join(DOUBLE.rsplit("0 .. N step 32 counter", 1)),
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_unfinished(name: str) -> None:
    assert not replay(parse_kernel(DOUBLE), SIZES, [(0,)])
    kernel = parse_kernel(UNFINISHED[name])
    assert "unfinished-copy" in {v.code for v in replay(kernel, SIZES, [(0,)], schedule="program")}
    report = verify(kernel, 120.0)
    assert report.verdict is Verdict.REFUTED, report.diagnostics


def test_a_load_that_no_role_waits_for() -> None:
    """In every schedule, also one in which it happens to arrive."""
    for schedule in ("program", "lazy", "eager-producer", "random(1)"):
        kernel = parse_kernel(DOUBLE.replace("        mbarrier_wait full[turn % 2] parity turn // 2 % 2\n", ""))
        assert "unfinished-copy" in {v.code for v in replay(kernel, SIZES, [(0,)], schedule=schedule)}


STORES = """kernel stores
target sm_90a
warps 1 of 32
size N
size P
tensor x: float32[P, N, 32] strides [x.outer:int64, 32:int64, 1:int64] align 16
tensor out: float32[P, N, 32] strides [out.outer:int64, 32:int64, 1:int64] align 16
grid [P] persistent
requires P <= 5
shared o: float32 8x32 layout Sw<3,2,3> o 0 o (8,32):(32,1) at 0
fragment r: float32 8x32 layout [8x32 | t 32@1 | v 8@0]
body {
  roles {
    role storing warps 1 from 0 {
      programs {
        for n in 0 .. N step 8 {
          bulk_wait_read 0
          barrier
          copy r[c0, c1] <- x[program_id(0), n + c0, c1] shape 8x32 if n + c0 < N else 0.0 \
layout [8x32 | t 32@1 | v 8@0] via ld.global
          copy o[c0, c1] <- r[c0, c1] shape 8x32 layout [8x32 | t 32@1 | v 8@0] via st.shared
          proxy_fence
          barrier
          copy out[program_id(0), n + c0, c1] <~ o[c0, c1] shape 8x32 if n + c0 < N via tma.store
          bulk_commit
        }
        LAST
      }
    }
  }
}
""".replace("\\\n", "")


@pytest.mark.parametrize(("last", "verdict"), [("bulk_wait_read 0", Verdict.PROVED), ("barrier", Verdict.REFUTED)])
def test_the_next_program_may_be_another_blocks(last: str, verdict: Verdict) -> None:
    """What it waits for does not help the last program of a block."""
    report = verify(parse_kernel(STORES.replace("LAST", last)), 120.0)
    assert report.verdict is verdict, report.diagnostics
    codes = [d.code for d in report.diagnostics if d.verdict is Verdict.REFUTED]
    assert codes == ([] if verdict is Verdict.PROVED else ["unfinished-copy"])


ONE = (
    STORES.replace("          bulk_commit\n", "")
    .replace("          bulk_wait_read 0\n", "")
    .replace("      programs {\n", "")
    .replace("        LAST\n      }\n", "END")
    .replace("grid [P] persistent\nrequires P <= 5\n", "grid [P]\nrequires N <= 8\n")
)


@pytest.mark.parametrize(
    ("end", "verdict"),
    [("bulk_commit\n bulk_wait_read 0\n", Verdict.PROVED), ("bulk_wait_read 0\n bulk_commit\n", Verdict.REFUTED)],
)
def test_a_wait_covers_only_groups_that_were_closed_before_it(end: str, verdict: Verdict) -> None:
    report = verify(parse_kernel(ONE.replace("END", end)), 120.0)
    assert report.verdict is verdict, report.diagnostics
    codes = [d.code for d in report.diagnostics if d.verdict is Verdict.REFUTED]
    assert codes == ([] if verdict is Verdict.PROVED else ["unfinished-copy"])
