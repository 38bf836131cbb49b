"""What an editor shows: findings, edits that make a kernel right, and hovers; nothing of a text is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.editor.analysis import Range, explicit_kernels, findings, message, place, related
from argus.editor.fixes import Fix, fixes
from argus.editor.hovers import hover
from argus.source import SourceFile, Span

HEAD = "import argus\nimport argus.language as al\n\n@argus.kernel\n"
TILES = HEAD + """def k(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], B: al.constexpr = 32):
    m, n = al.grid(al.cdiv(M, B), al.cdiv(N, B))
    tile = al.load(x[m * B : m * B + B, n * B : n * B + B]{check})
    al.store(out[m * B : m * B + B, n * B : n * B + B], tile * 2.0, boundary_check=(0, 1))
"""
ROW = HEAD + """def k(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], B: al.constexpr = 128):
    i = al.grid(al.cdiv(N, B)) * B + al.arange(B)
    al.store(out[i], {value}, mask=i < N)
"""


def source(text: str) -> SourceFile:
    return SourceFile("/somewhere/k.py", text)


def edited(text: str, fix: Fix) -> str:
    """The text after an edit, whose columns are UTF-16 units."""
    lines = text.split("\n")
    assert fix.at.line == fix.at.end_line
    line = lines[fix.at.line].encode("utf-16-le")
    new = line[: 2 * fix.at.character] + fix.text.encode("utf-16-le") + line[2 * fix.at.end_character :]
    lines[fix.at.line] = new.decode("utf-16-le")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (TILES.format(check=""), "out-of-bounds"),
        (ROW.format(value="al.laod(x[i], mask=i < N)"), "unknown-function"),
        (ROW.format(value="al.load(x + i, mask=i < N)"), "type-mismatch"),
    ],
)
def test_a_quick_fix_makes_the_kernel_right(text: str, code: str) -> None:
    (finding,) = findings(source(text), "cpu")
    assert finding.code == code
    (fix,) = fixes(finding)
    assert findings(source(edited(text, fix)), "cpu") == ()


def test_no_fix_where_the_remedy_needs_thought() -> None:
    (finding, *_) = findings(source(ROW.format(value="al.load(x[i + 1], mask=i < N)")), "cpu")
    assert finding.code == "out-of-bounds" and fixes(finding) == ()


def test_a_finding_tells_the_counterexample() -> None:
    (finding,) = findings(source(TILES.format(check="")), "cpu")
    assert "M = 1" in message(finding) and "help: mask the access" in message(finding)
    found = findings(source(ROW.format(value="al.load(x[i], mask=i < N)").replace("out[i]", "out[i // 2]")), "cpu")
    race = next(f for f in found if f.code == "data-race")
    assert {where.line for _, where in related(race)} == {6}


def test_text_that_cannot_be_cut_into_functions() -> None:
    (finding,) = findings(source("x = '\ud800'"), "cpu")
    assert finding.code == "unreadable-file"
    assert findings(source("def f(:\n"), "cpu") == ()


def test_columns_count_utf16_units() -> None:
    file = source('s = "\U0001f600é"; name\n')
    start = file.text.index("name") + 1
    assert place(Span(file, 1, start, 1, start + 4)) == Range("/somewhere/k.py", 0, start, 0, start + 4)
    assert place(Span()) is None


def test_hovers() -> None:
    file = source(TILES.format(check=", boundary_check=(0, 1)"))
    kernels = explicit_kernels(file, "cpu")
    line = next(n for n, text in enumerate(file.lines, 1) if "tile = " in text)
    shown = hover(file, kernels, line, 6)
    assert "32×32 of float32 in registers, layout `[32x32 |" in shown and "copy tile[c0, c1] <- x[" in shown
    assert "al.load(view: View" in hover(file, kernels, line, file.line(line).index("al.load") + 5)
    assert hover(file, kernels, 1, 1) == ""


def test_nothing_is_run(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    text = f"open({str(witness)!r}, 'w')\n" + ROW.format(value="al.load(x[i], mask=i < N)")
    assert findings(source(text), "cpu") == ()
    assert not witness.exists()
