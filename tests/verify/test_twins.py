"""Every property: a proved kernel, and the same kernel one edit away, refuted with a replayed witness."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.diagnostic import Severity, SourceError, Verdict
from argus.ir.text import parse_kernel
from argus.verify import verify

KERNELS = Path(__file__).parent / "kernels"


def text(name: str) -> str:
    return (KERNELS / f"{name}.ir").read_text()


def edited(name: str, old: str, new: str) -> str:
    source = text(name)
    assert source.count(old) >= 1, f"{old!r} does not occur in {name}.ir"
    return source.replace(old, new, 1)


@pytest.mark.parametrize("name", ["reverse", "softmax", "gemm"])
def test_accepted(name: str) -> None:
    report = verify(parse_kernel(text(name)))
    errors = [d for d in report.diagnostics if d.severity is Severity.ERROR]
    assert report.verdict is Verdict.PROVED, errors
    assert not errors


STORE_S = "  copy s[c0] <- f[c0] shape 128 layout [128 | t 128@0 | v] via st.shared\n"
STAGE_A = "    copy at[(k0 // 32 + 2) % 3, c0, c1]"
TWINS = [
    # (kernel, old, new, code)
    ("reverse", "  barrier\n", "", "data-race"),
    ("reverse", "+ c0 < N else 0.0", "+ c0 <= N else 0.0", "out-of-bounds"),
    ("reverse", " if program_id(0) * 128 + c0 < N else 0.0", "", "out-of-bounds"),
    ("reverse", STORE_S, "", "uninitialised-read"),
    ("reverse", "grid [(N + 127) // 128]", "grid [N // 128]", "output-not-covered"),
    ("reverse", "copy o[program_id(0) * 128 + c0]", "copy o[program_id(0) * 127 + c0]", "block-race"),
    ("reverse", "  barrier\n", "  if thread < 64 {\n    barrier\n  }\n", "divergent-barrier"),
    ("reverse", "s[127 - c0]", "s[128 - c0]", "out-of-bounds"),
    ("gemm", "wait_group 1", "wait_group 2", "data-race"),
    ("gemm", "    barrier\n", "", "data-race"),
    ("gemm", "(k0 // 32 + 2) % 3, c0", "(k0 // 32 + 1) % 3, c0", "data-race"),
    ("gemm", "{at[k0 // 32 % 3, c0, c2].k == k0 + c2}", "{at[k0 // 32 % 3, c0, c2].k == k0 + c2 + 1}", "tag-mismatch"),
    ("gemm", "at[k0 // 32 % 3, c0, 16 + c1]", "at[k0 // 32 % 3, c0, c1]", "tag-mismatch"),
    ("gemm", "k0 + 64 + c1]", "k0 + 32 + c1]", "tag-mismatch"),
    ("gemm", "for k0 in 0 .. K", "for k0 in 32 .. K", "tag-mismatch"),
    ("gemm", "  map acc[c0, c1] = 0.0", "  map acc[c0, c1] = 1.0", "tag-mismatch"),
]


@pytest.mark.parametrize(("name", "old", "new", "code"), TWINS, ids=[f"{t[0]}-{i}-{t[3]}" for i, t in enumerate(TWINS)])
def test_rejected(name: str, old: str, new: str, code: str) -> None:
    report = verify(parse_kernel(edited(name, old, new)))
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    found = {d.code: d for d in report.diagnostics if d.verdict is Verdict.REFUTED}
    assert code in found
    for diagnostic in found.values():
        assert diagnostic.witness is not None and diagnostic.witness.replayed
        assert all(v >= 0 for v in diagnostic.witness.sizes.values())


def test_a_tile_stays_inside_of_shared_memory() -> None:
    with pytest.raises(SourceError, match="shared-memory-exceeded"):
        verify(parse_kernel(edited("reverse", "(128):(1) at 0", "(128):(1) at 166416")))
    with pytest.raises(SourceError, match="puts an element before the tile"):
        verify(parse_kernel(edited("reverse", "(128):(1) at 0", "(128):(-1) at 508")))
    inside = verify(parse_kernel(edited("reverse", "(128):(1) at 0", "(128):(1) at 166400")))
    assert inside.verdict is Verdict.PROVED, inside.diagnostics
