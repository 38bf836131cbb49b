"""Warpgroups that are roles with rows of their own: proved as the pass made them, refuted after every single edit."""

from __future__ import annotations

from functools import cache

import pytest

from argus.diagnostic import Severity, Verdict
from argus.frontend import Options, check, parse
from argus.ir.text import parse_kernel, print_kernel
from argus.passes import lower
from argus.source import SourceFile
from argus.verify import verify
from tests.passes.test_apart import lowered
from tests.reject.case import ROOT

pytestmark = pytest.mark.slow


@cache
def product() -> str:
    return print_kernel(lowered())


@cache
def attention() -> str:
    path = ROOT / "argus" / "kernels" / "attention.py"
    module = parse(SourceFile(path.name, path.read_text(encoding="utf-8")))
    options = Options("sm_90a", 8, {"D": 64, "BLOCK_N": 64, "VALUES": False})
    return print_kernel(lower(check(module, "attention_forward", options), "sm_90a"))


TEXTS = {"product": product, "attention": attention}
WAITED = "        bulk_wait_read 0\n        barrier\n"
WRITTEN = "        proxy_fence\n        barrier\n"
PLACE = "program_id(0) * 128 + 64 + c0"
SECOND = f"{PLACE}, program_id(1) * 64 + c1] <~ c_tile1_panels[0, c0, c1] shape 64x64 if ({PLACE} < M)"
LAST = "            if n0 + 64 >= maximum(N, 1) {\n              mbarrier_arrive empty1[program % 1]\n            }\n"

EDITS = {
    "scratch is written while a store may read it": ("product", WAITED, "        barrier\n"),
    "only one thread knows that a store has read": ("product", WAITED, "        bulk_wait_read 0\n"),
    "the last store may still read": ("product", WAITED, WAITED.replace("read 0", "read 1")),
    "a store does not wait for its warpgroup": ("product", WRITTEN, "        proxy_fence\n"),
    "no fence before a store": ("product", WRITTEN, "        barrier\n"),
    "a store reads the other's scratch": ("product", SECOND, SECOND.replace("tile1", "tile")),
    "both store the same rows": ("product", SECOND, SECOND.replace("128 + 64 + c0", "128 + c0")),
    "both multiply the same rows": ("product", "+= at1[", "+= at["),
    "one hands a buffer back for both": ("product", "empty count 3 arrivals 8", "empty count 3 arrivals 4"),
    "one does not hand its buffers back": ("product", "          mma_wait 1\n          if k0 >= 64 {\n"
                                           "            mbarrier_arrive empty[(turn + 2) % 3]\n          }\n", ""),
    "rows are handed back while a product reads them": (
        "attention", "            mma_wait 1\n", LAST + "            mma_wait 1\n"),
    "rows are handed back an iteration early": ("attention", LAST, LAST.replace("n0 + 64", "n0 + 128")),
    "rows of the other are handed back": ("attention", LAST, LAST.replace("empty1", "empty")),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_accepted(name: str) -> None:
    report = verify(parse_kernel(TEXTS[name]()), 120.0)
    assert report.verdict is Verdict.PROVED, report.diagnostics


@pytest.mark.parametrize("name", EDITS)
def test_rejected(name: str) -> None:
    kernel, old, new = EDITS[name]
    text = TEXTS[kernel]()
    assert old in text
    place = text.rindex(old)  # the second warpgroup's
    report = verify(parse_kernel(text[:place] + new + text[place + len(old) :]), 120.0)
    errors = [d for d in report.diagnostics if d.severity is Severity.ERROR]
    assert report.verdict is Verdict.REFUTED, errors
    refuted = [d for d in errors if d.verdict is Verdict.REFUTED]
    assert refuted and all(d.witness is not None and d.witness.replayed for d in refuted), refuted
