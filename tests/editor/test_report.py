"""`argus report`: one page that loads nothing, with the pipeline and what each of its waits covers."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from argus import compile, from_text, layout, pages
from argus.cli import main
from argus.editor.analysis import explicit_kernels
from argus.editor.timeline import Event, Timeline, timeline
from argus.frontend import Options
from argus.source import SourceFile
from tests.editor.test_editor import TILES

RACING = """import argus
import argus.language as al

@argus.kernel
def copy(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 128):
    al.requires(N % BLOCK == 0)
    s = al.shared((BLOCK,), al.float32)
    i0 = al.grid(al.cdiv(N, BLOCK)) * BLOCK
    al.copy(s, x[i0 : i0 + BLOCK], boundary_check=(0,), instruction="cp.async")
    al.cp_async_commit()
    {wait}
    al.barrier()
    j = al.arange(BLOCK)
    al.store(out[i0 + j], al.load(s[BLOCK - 1 - j]), mask=i0 + j < N)
"""


def drawn(name: str, target: str) -> Timeline:
    text = pages.example(name).read_text(encoding="utf-8")
    (kernel,) = explicit_kernels(SourceFile(name, text), target)
    return timeline(kernel)


def named(found: Timeline, event: Event) -> list[str]:
    """The labels of what a wait covers."""
    return [found.events[number].label for number in event.covers]


def test_waits_of_groups_cover_the_copies_of_the_oldest_groups() -> None:
    found = drawn("gemm.py", "sm_80")
    first, second, *_ = [e for e in found.events if e.kind == "wait" and e.covers]
    assert named(found, first) == ["a → at", "b → bt"] == named(found, second)
    assert max(first.covers) < min(second.covers)


def test_waits_on_mbarriers_cover_the_copies_of_their_phase() -> None:
    found = drawn("gemm_hopper.py", "sm_90a")
    assert found.lanes == ("block", "producer", "compute")
    full = [e for e in found.events if e.lane == "compute" and e.label.startswith("wait full")]
    assert [e.label for e in full] == [f"wait full[{trip % 3}]" for trip in range(5)]
    for trip, wait in enumerate(full):
        assert named(found, wait) == [f"expect full[{trip % 3}]", "a → at", "b → bt"]
        assert {found.events[n].trip for n in wait.covers} == {f"k0 #{trip}"}
    empty = [e for e in found.events if e.lane == "producer" and e.kind == "wait"]
    assert [e.covers != () for e in empty] == [False, False, False, True, True]
    (arrival,) = empty[3].covers
    assert found.events[arrival].label == "arrive empty[0]" and not found.events[arrival].conditional


@pytest.mark.parametrize(
    ("name", "target"), [("gemm.py", "sm_80"), ("gemm_hopper.py", "sm_90a"), ("gemm.py", "gfx942")]
)
def test_what_is_covered_stands_left_of_its_wait(name: str, target: str) -> None:
    found = drawn(name, target)
    for event in found.events:
        assert all(found.events[number].column < event.column for number in event.covers)


class _Page(HTMLParser):
    """Collects what a page loads, and what it leaves open."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]
        if tag not in ("meta", "rect", "path", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    ("text", "code", "shown"),
    [
        (TILES.format(check=", boundary_check=(0, 1)"), 0, ["proved", "The pipeline", "32x32"]),
        (RACING.format(wait="pass"), 1, ["refuted", "missing: nothing orders", "x → s"]),
        (RACING.format(wait="al.cp_async_wait(0)"), 0, ["proved", "wait: ≤ 0 copies", "covers 1"]),
        (TILES.format(check="(").replace('"M N"', '"M <b>"'), 2, ["error", "syntax"]),
    ],
    ids=["proved", "refuted", "waited for", "unusable"],
)
def test_a_page(text: str, code: int, shown: list[str], tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(text)
    where = tmp_path / "report.html"
    status = main(["report", str(tmp_path / "k.py"), "--target", "sm_80", "-o", str(where)])
    assert status == code
    if code == 2:
        assert not where.exists()
        return
    written = where.read_text(encoding="utf-8")
    assert all(word in written for word in shown)
    parser = _Page()
    parser.feed(written)
    assert parser.open == [] and parser.loads == []


def test_a_refuted_kernel_has_no_proved_properties(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(RACING.format(wait="pass"))
    assert main(["report", str(tmp_path / "k.py"), "-o", str(tmp_path / "r.html")]) == 1
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "no finding" in text and 'class="verdict proved"' not in text


def test_what_a_notebook_shows() -> None:
    assert layout.parse("(4,8):(8,1)")._repr_html_().startswith("<svg")
    assert layout.parse("Sw<3,3,3> o 0 o (8,64):(64,1)")._repr_html_().startswith("<svg")
    assert layout.parse("(4096,8):(8,1)")._repr_html_() == "<code>(4096,8):(8,1)</code>"
    assert layout.parse_fragment("[8x4 | t 4@1 8@0 | v]")._repr_html_().startswith("<svg")
    source = SourceFile("k.py", RACING.format(wait="pass"))
    kernel = from_text(source.text)["copy"]
    assert "<b>copy</b>" in kernel._repr_html_() and "BLOCK: constexpr" in kernel._repr_html_()
    (explicit,) = explicit_kernels(source, "cpu")
    assert explicit._repr_html_().startswith("<pre>kernel copy\n") and "&lt;-" in explicit._repr_html_()
    report = compile.prove(source, "copy", Options())
    assert "<b>copy: refuted</b>" in report._repr_html_() and "data-race" in report._repr_html_()
    assert all(d._repr_html_().startswith("<pre>") and "<b" not in d._repr_html_() for d in report.diagnostics)
