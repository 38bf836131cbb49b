"""One self-contained HTML page about the kernels of a file: verdicts, lowered forms, layouts, pipelines, witnesses.

The page loads nothing: its style and its few lines of script are part of it. All text of kernels is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from argus.diagnostic import Diagnostic, Verdict, Witness
from argus.editor.drawing import pipeline_svg, trace_svg
from argus.editor.timeline import timeline
from argus.ir.nodes import Kernel
from argus.ir.text import print_kernel, print_stmt
from argus.ir.visit import walk
from argus.layout import AnyLayout, FragmentLayout, Layout, SwizzledLayout, picture
from argus.render import Outcome, diagnostic_text
from argus.source import SourceFile
from argus.verify import Report

_LARGEST_PICTURE = 1024
"""Largest number of elements in a layout that is drawn."""

_STEPS = ("relations", "witness")
"""Timed steps of a verification that are not properties."""

_STYLE = """
:root { color-scheme: light; --line: #d8dce2; --soft: #f6f7f9; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1500px; padding: 24px; color: #1a1d21; }
h1 { font-size: 24px; } h2 { font-size: 20px; margin-top: 40px; border-top: 1px solid var(--line); padding-top: 20px; }
h3 { font-size: 16px; margin-top: 28px; }
.verdict { border-radius: 12px; padding: 2px 12px; font-weight: 600; color: #fff; }
.proved { background: #1b7f3b; } .refuted, .error { background: #b3261e; } .unknown { background: #9a6700; }
table { border-collapse: collapse; } td, th { border: 1px solid var(--line); padding: 4px 10px; text-align: left; }
pre { font: 12.5px/1.45 ui-monospace, Menlo, Consolas, monospace; margin: 0; white-space: pre; }
pre.finding { background: var(--soft); border: 1px solid var(--line); padding: 12px; overflow-x: auto; }
.columns { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 16px; }
.columns > div { overflow-x: auto; border: 1px solid var(--line); background: var(--soft); padding: 8px; }
.line { display: block; padding: 0 4px; } .line.lit { background: #ffe8a3; }
.wide { overflow-x: auto; border: 1px solid var(--line); padding: 8px; }
.number { color: #8a9099; display: inline-block; width: 3em; user-select: none; }
"""

_SCRIPT = """
document.addEventListener("mouseover", (event) => {
  const line = event.target.closest(".line[data-from]");
  document.querySelectorAll(".line.lit").forEach((other) => other.classList.remove("lit"));
  if (!line) return;
  const key = `[data-from="${line.dataset.from}"][data-kernel="${line.dataset.kernel}"]`;
  document.querySelectorAll(key).forEach((other) => other.classList.add("lit"));
});
"""


def page(title: str, sections: Sequence[str]) -> str:
    """Return a whole document."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        + "\n".join(sections)
        + f"\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def section(source: SourceFile, outcome: Outcome, kernel: Kernel | None, report: Report | None) -> str:
    """Return the page's section about one kernel. `kernel` and `report` are None for unusable input."""
    parts = [
        f'<h2>{escape(outcome.kernel)} <span class="verdict {outcome.word}">{outcome.word}</span></h2>',
        *_premises(outcome),
    ]
    if report is not None:
        parts += ["<h3>Properties</h3>", _properties(report)]
    if outcome.diagnostics:
        parts.append("<h3>Findings</h3>")
        parts += [_finding(d) for d in outcome.diagnostics]
    if kernel is not None:
        parts += ["<h3>The kernel, and what it became</h3>", _side_by_side(source, kernel)]
        parts += ["<h3>The pipeline</h3>", _pipeline(kernel)]
        parts += ["<h3>Layouts</h3>", *_layouts(kernel)]
    return "\n".join(parts)


def _premises(outcome: Outcome) -> Iterator[str]:
    if outcome.alignment:
        each = ", ".join(f"{escape(name)} to {n}" for name, n in outcome.alignment.items())
        yield f"<p>Checked at each call: tensors and their rows are aligned (bytes: {each}).</p>"
    for assumption in outcome.assumptions:
        yield f"<p>Assumed without a check: {escape(assumption)}</p>"


def _properties(report: Report) -> str:
    """Return a table with the verdict on each property, the engine that decided it, and the time that it took.

    Properties are shown as proved only if the kernel is proved, because otherwise checks may have been left out.
    """
    found: dict[str, Verdict] = {}
    for d in report.diagnostics:
        if d.verdict is not None and found.get(d.property) is not Verdict.REFUTED:
            found[d.property] = d.verdict
    engines: dict[str, list[str]] = {}
    seconds: dict[str, float] = {}
    for timing in report.timings:
        engines.setdefault(timing.property, []).append(timing.engine)
        seconds[timing.property] = seconds.get(timing.property, 0.0) + timing.seconds
    rows = []
    for name in dict.fromkeys([*engines, *found]):
        if name in _STEPS:
            continue
        verdict = found.get(name, Verdict.PROVED if report.verdict is Verdict.PROVED else None)
        by = ", ".join(dict.fromkeys(engines.get(name, [])))
        word = f'<span class="verdict {verdict.value}">{verdict.value}</span>' if verdict else "no finding"
        cells = f"<td>{escape(name)}</td><td>{word}</td>"
        rows.append(f"<tr>{cells}<td>{escape(by)}</td><td>{seconds.get(name, 0.0) * 1e3:.1f} ms</td></tr>")
    head = "<tr><th>property</th><th>verdict</th><th>decided by</th><th>time</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _finding(finding: Diagnostic) -> str:
    text = f'<pre class="finding">{escape(diagnostic_text(finding).plain)}</pre>'
    return text + (_witness(finding.witness) if finding.witness is not None else "")


def _witness(witness: Witness) -> str:
    """Return the steps that led to a fault, drawn role by role, or nothing if the order does not matter."""
    if not witness.trace:
        return ""
    return f'<div class="wide">{trace_svg(witness)}</div>'


def _side_by_side(source: SourceFile, kernel: Kernel) -> str:
    """Return the source beside the explicit form. Lines that belong together light up together."""
    lowered = print_kernel(kernel).splitlines()
    came = _origins(kernel, lowered)
    first = kernel.span.line if kernel.span.known else 1
    last = max((max(s.span.line, s.span.end_line) for s in walk(kernel.body) if s.span.known), default=first)
    left = [
        _line(kernel, number, f'<span class="number">{number}</span>{escape(source.line(number))}')
        for number in range(first, last + 1)
    ]
    right = [_line(kernel, came.get(index), escape(text)) for index, text in enumerate(lowered)]
    return f'<div class="columns"><div><pre>{"".join(left)}</pre></div><div><pre>{"".join(right)}</pre></div></div>'


def _line(kernel: Kernel, origin: int | None, content: str) -> str:
    mark = f' data-from="{origin}" data-kernel="{escape(kernel.name)}"' if origin else ""
    return f'<span class="line"{mark}>{content or " "}</span>'


def _origins(kernel: Kernel, lowered: Sequence[str]) -> dict[int, int]:
    """Return the source line of each line of the explicit text that prints a statement."""
    found: dict[int, int] = {}
    heads: dict[str, list[int]] = {}
    for stmt in walk(kernel.body):
        if stmt.span.known:
            heads.setdefault(print_stmt(stmt, kernel).split("\n", 1)[0].strip(), []).append(stmt.span.line)
    for index, text in enumerate(lowered):
        lines = heads.get(text.strip())
        if lines:
            found[index] = lines.pop(0) if len(lines) > 1 else lines[0]
    return found


def _pipeline(kernel: Kernel) -> str:
    drawn = timeline(kernel)
    if not drawn.events:
        return "<p>Nothing in this kernel is asynchronous, and no barrier stands in it.</p>"
    cut = "<p>Only the first steps are shown.</p>" if drawn.cut else ""
    note = (
        "<p>The first trips of each loop, role by role. An arrow leads from what a wait covers to the wait. "
        "Dashed steps depend on sizes. Point at a step to read its statement.</p>"
    )
    return f'{note}{cut}<div class="wide">{pipeline_svg(drawn)}</div>'


def _layouts(kernel: Kernel) -> Iterator[str]:
    """Return pictures of the shared tiles, coloured by bank, and of one register tile for each layout."""
    for tile in kernel.shared:
        if tile.layout is not None:
            yield _picture(f"{tile.name}: {tile.dtype} in shared memory", tile.layout, tile.dtype.bytes)
    seen = set()
    for fragment in kernel.fragments:
        if fragment.layout is not None and fragment.layout not in seen:
            seen.add(fragment.layout)
            yield _picture(f"{fragment.name}: {fragment.dtype} in registers", fragment.layout, None)


def _picture(title: str, layout: AnyLayout | FragmentLayout, element_bytes: int | None) -> str:
    head = f"<details open><summary>{escape(title)}, <code>{escape(str(layout))}</code></summary>"
    drawn, note = layout, ""
    if isinstance(layout, FragmentLayout):
        size = layout.size
    else:
        size = layout.size()
        if size > _LARGEST_PICTURE:
            drawn, note = _corner(layout), "<p>The first rows and columns of its last two dimensions:</p>"
            size = drawn.size()
    if size > _LARGEST_PICTURE:
        return f"{head}<p>It has {size} elements, too many to draw.</p></details>"
    return f'{head}{note}<div class="wide">{picture.svg(drawn, element_bytes)}</div></details>'


def _corner(layout: AnyLayout) -> AnyLayout:
    """Return the first rows and columns of a layout's last two dimensions, or the whole layout if its modes are nested.
    """
    if isinstance(layout, SwizzledLayout):
        inner = _corner(layout.inner)
        return SwizzledLayout(layout.swizzle, layout.offset, inner) if isinstance(inner, Layout) else layout
    shape, stride = layout.shape, layout.stride
    if not isinstance(shape, tuple) or not isinstance(stride, tuple) or len(shape) < 2:
        return layout
    rows, columns = shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        return layout
    return Layout((min(rows, 16), min(columns, 64)), stride[-2:])
