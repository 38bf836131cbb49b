"""Repairs of the author's text that write a form: places of tiles, grids, masks, and statements that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus import compile
from argus.agents import Task, broken, repair
from argus.agents.repair import text_candidates
from argus.agents.text_accesses import accesses
from argus.agents.text_edits import text_vocabulary
from argus.agents.text_scope import Scope, Sort, TextEdit
from argus.frontend import Options
from argus.knowledge.draft import Draft
from argus.source import SourceFile

EXAMPLES = Path(__file__).parents[2] / "examples"
MISTAKES = {
    "a tile begins elsewhere": ("vector_add", "pid * BLOCK + al.arange(BLOCK)", "al.arange(BLOCK) * BLOCK + pid"),
    "a number of the program is not used": ("embedding", "d0 = pid_d * BLOCK_D", "d0 = T * BLOCK_D"),
    "two places in one statement": ("transpose", "pid_m * TILE, pid_n * TILE", "TILE * TILE, pid_n * pid_m"),
    "another grid": ("transpose", "al.cdiv(N, TILE)", "al.cdiv(N, M)"),
    "a mask of another place": ("vector_add", "mask = offs < N", "mask = offs < pid"),
    "an output that nobody writes": ("vector_add", "    al.store(out[offs], total, mask=mask)\n", ""),
    "a transposed output that nobody writes": (
        "transpose",
        "    al.store(out[n0 : n0 + TILE, m0 : m0 + TILE], al.load(al.trans(tile)), boundary_check=(0, 1))\n",
        "",
    ),
    "a check of another dimension": (
        "gemm",
        "bt = al.stage(b[n0 : n0 + BLOCK_N, k0 : k0 + BLOCK_K], boundary_check=(0, 1))",
        "bt = al.stage(b[n0 : n0 + BLOCK_N, k0 : k0 + BLOCK_K], boundary_check=(1, 1))",
    ),
    "a grid of other numbers": (
        "column_sum",
        "al.cdiv(M, ROWS), al.cdiv(N, COLUMNS)",
        "al.cdiv(M, al.cdiv(N, COLUMNS)), ROWS",
    ),
    "a grid that begins a tile": ("cumsum", "al.grid(al.cdiv(M, ROWS)) * ROWS", "al.grid(ROWS) * al.cdiv(M, ROWS)"),
    "steps of another extent": ("cumsum", "range(0, N, COLUMNS)", "range(0, N, ROWS)"),
    "a line twice": (
        "rotary",
        "    al.store(out[b, t, h, 1, e], x1 * c + x0 * s, mask=e < E)\n",
        "    al.store(out[b, t, h, 1, e], x1 * c + x0 * s, mask=e < E)\n" * 2,
    ),
    "a half of an output that nobody writes": (
        "rotary",
        "    al.store(out[b, t, h, 1, e], x1 * c + x0 * s, mask=e < E)\n",
        "",
    ),
    "a name that stands for nothing": ("rmsnorm", "al.rsqrt(squares / N.to(al.float32) + eps)", "BLOCK"),
    "a stored value that nothing specifies": ("softmax", "weights / total", "scores"),
    "a condition that nothing specifies": ("depthwise", "inside = (1 <= h + r)", "inside = (2 <= h + r)"),
    "an assertion names the wrong place": ("gemm", "pid_m * BLOCK_M, pid_n", "BLOCK_N * BLOCK_M, pid_n"),
    "a sum over all axes": ("cumsum", "al.sum(tile, axis=1)", "al.sum(tile, axis=None)"),
    "an output of vectors that nobody writes": (
        "depthwise",
        "    al.store(out[n, c, h, w], acc + al.load(bias[c]), mask=(h < H) & (w < W))\n",
        "",
    ),
    "indices that trade places": ("rotary", "x[b, t, h, 1, e], mask=e < E)", "x[h, t, b, 1, e], mask=e < E)"),
    "an index and a mask of other places": (
        "rotary",
        "al.load(position[t]) * al.load(frequency[e], mask=e < E)",
        "al.load(position[e]) * al.load(frequency[e], mask=t < E)",
    ),
    "a copy to shared memory that was lost": (
        "transpose",
        "    al.store(tile, al.load(x[m0 : m0 + TILE, n0 : n0 + TILE], boundary_check=(0, 1)))\n",
        "",
    ),
    "a stored number": ("transpose", "al.load(al.trans(tile)), boundary", "TILE, boundary"),
    "a tensor that nobody loads": ("vector_add", "total = al.load(x[offs], mask=mask)", "total = BLOCK"),
}


def task(text: str, name: str) -> Task:
    return Task(SourceFile(f"{name}.py", text), name, Options(target="sm_80"))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_form_repairs(mistake: str) -> None:
    name, old, new = MISTAKES[mistake]
    text = (EXAMPLES / f"{name}.py").read_text()
    assert old in text
    found = repair(task(text.replace(old, new), name), steps=8)
    assert found.answer is not None and not found.before.proved, [s.title for s in found.steps]


@pytest.mark.parametrize("name", ["rmsnorm", "softmax", "rotary", "depthwise", "linear", "gemm", "transpose"])
def test_a_right_kernel_does_not_contradict_its_specification(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert not [e.title for e in text_vocabulary(text, name) if e.sort is Sort.SPECIFIED]


@pytest.mark.parametrize("name", ["rmsnorm", "softmax", "rotary", "embedding", "linear", "gemm", "transpose"])
def test_right_accesses_agree_with_each_other(name: str) -> None:
    draft = Draft.of((EXAMPLES / f"{name}.py").read_text(), name)
    assert not [e.title for e in accesses(draft, Scope.of(draft))]


@pytest.mark.parametrize(
    ("name", "old", "new", "edit"),
    [
        ("depthwise", "for r in al.static_range(3)", "for r in al.static_range(2)", "a loop over `0, 3`"),
        ("linear", "        acc = al.mma(xt, wt, acc)\n", "", "add `acc = al.mma(xt, wt, acc)`"),
    ],
)
def test_what_contradicts_the_rest_is_tried_first(name: str, old: str, new: str, edit: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert old in text
    found = {e.title for e in text_vocabulary(text.replace(old, new), name) if e.sort is Sort.DERIVED}
    assert edit in found and len(found) < 20, found


def test_without_a_specification_nothing_says_what_a_value_should_be() -> None:
    text = (EXAMPLES / "vector_add.py").read_text().replace("al.load(x[offs], mask=mask) + ", "")
    assert any(e.sort is Sort.SPECIFIED for e in text_vocabulary(text, "vector_add"))
    bare = text.replace("    al.spec(out, lambda i: x[i] + y[i])\n", "")
    assert bare != text
    assert not any(e.sort is Sort.SPECIFIED for e in text_vocabulary(bare, "vector_add"))


def test_what_a_loop_forgot_to_add_up_is_added_with_what_it_computes() -> None:
    text = (EXAMPLES / "cumsum.py").read_text().replace("        total += al.sum(tile, axis=1)\n", "")
    added = {e.title for e in text_vocabulary(text, "cumsum") if e.sort is Sort.MISSING}
    assert "add `total += al.sum(tile, axis=1)`" in added
    whole = (EXAMPLES / "cumsum.py").read_text()
    assert not any(e.sort is Sort.MISSING for e in text_vocabulary(whole, "cumsum"))


def test_a_fix_changes_no_assertion() -> None:
    """Other edits leave the text of assertions as it is; a fix of a finding may be of any line."""
    text = (EXAMPLES / "gemm.py").read_text()
    old = "(m0 + i < M) & (n0 + j < N)"
    start = text.index(old)
    weaker = TextEdit("", Sort.FIX, 1, ((start, start + len(old), "m0 + i < 0"),))
    place = text.index("pid_m * BLOCK_M, pid_n")
    moved = TextEdit("", Sort.DERIVED, 1, ((place, place + len("pid_m"), "pid_n"),))
    assert not list(text_candidates(task(text, "gemm"), [weaker]))
    assert len(list(text_candidates(task(text, "gemm"), [moved]))) == 1


def test_only_an_output_with_a_specification_may_be_written_in_addition() -> None:
    """Nothing says what else should be there, so no repair may write it."""

    def kernel(text: str) -> compile.TileKernel:
        return compile.elaborate(SourceFile("k.py", text), "vector_add", Options(target="sm_80"))

    whole = (EXAMPLES / "vector_add.py").read_text()
    line = "    al.store(out[offs], total, mask=mask)\n"
    spec = next(part for part in whole.splitlines(keepends=True) if "al.spec(" in part)
    assert not broken(kernel(whole.replace(line, "")), kernel(whole))
    assert broken(kernel(whole), kernel(whole.replace(line, ""))) == "outputs"
    bare = whole.replace(spec, "")
    assert broken(kernel(bare.replace(line, "")), kernel(bare)) == "outputs"
