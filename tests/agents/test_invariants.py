"""Invariants from the data flow: what is found is proved, says what the author's say, and catches what they catch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from argus import compile
from argus.agents.invariants import stripped, synthesis, synthesised
from argus.agents.invariants.names import names_of
from argus.cli import main
from argus.diagnostic import ArgusError, Verdict
from argus.frontend import Options
from argus.ir.nodes import AssertTags, Kernel, Spec, Stmt, Tag
from argus.ir.text import print_kernel
from argus.ir.visit import rewrite_body, walk
from argus.source import SourceFile

EXAMPLES = Path(__file__).parents[2] / "examples"
TARGET = "sm_80"


def tile(name: str, old: str = "", new: str = "", target: str = TARGET) -> compile.TileKernel:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert old in text
    return compile.elaborate(SourceFile(f"{name}.py", text.replace(old, new)), name, Options(target=target))


def verdict(kernel: Kernel) -> Verdict:
    return compile.verify(compile.lower(compile.TileKernel(kernel), TARGET)).verdict


def test_a_product_gets_the_authors_assertions_and_a_loop_invariant() -> None:
    found = synthesised(tile("gemm"), TARGET)
    text = print_kernel(found.kernel)
    for line in (
        "tag a[M, K] = {m = c0, k = c1}",
        "tag b[N, K] = {n = c0, k = c1}",
        "{at[c0, c2].k == bt[c1, c2].k}",
        "at[c0, c1].m == program_id(0) * 128 + c0",
        "{acc[c0, c1].k == once(0, minimum(k0 + 32, K))}",
        "{acc[c0, c1].k == once(0, K)}",
    ):
        assert line in text, text
    assert verdict(found.kernel) is Verdict.PROVED
    assert found.dropped > 0  # once(0, k0 + 32) is no invariant: the last block may be cut


def test_invariants_leave_the_machines_work_alone() -> None:
    """An assertion about a product in flight would take the warps that load from its loop."""
    author = tile("gemm_hopper", target="sm_90a")
    found = synthesised(author, "sm_90a")
    plain, made = (
        print_kernel(stripped(compile.lower(compile.TileKernel(stripped(k, specifications=True)), "sm_90a")))
        for k in (author, stripped(found.kernel, tags=False, specifications=True))
    )
    assert found.assertions and plain == made and "mbarrier full" in plain


def test_of_candidates_only_those_that_change_the_machines_work_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthesis, "_form", lambda kernel, target, active: str(sorted({*active} & {"b", "f"})))
    harmless: Any = synthesis._harmless
    assert harmless(None, TARGET, list("abcdefg")) == list("acdeg")
    assert harmless(None, TARGET, []) == []
    monkeypatch.setattr(synthesis, "_form", lambda kernel, target, active: str(len(active) > 1))
    assert harmless(None, TARGET, list("ab")) == []


def test_rings_of_buffers_are_followed() -> None:
    found = synthesised(tile("gemm_explicit"), TARGET)
    text = print_kernel(found.kernel)
    assert "at[c0, c1].k == step * 32 + c1" in text and "{acc[c0, c1].k == once(0, K)}" in text


def test_a_sum_gets_what_it_adds_up() -> None:
    found = synthesised(tile("column_sum"), TARGET)
    text = print_kernel(found.kernel)
    assert "part[c0].m == once(program_id(0) * 32, minimum(program_id(0) * 32 + 32, M))" in text


def test_dimensions_of_one_variable_share_a_name() -> None:
    assert names_of(tile("gemm")) == {"a": ("m", "k"), "b": ("n", "k")}
    assert names_of(tile("rmsnorm")) == {"x": ("m", "n"), "weight": ("n",)}
    bare = stripped(tile("gemm"), specifications=True)
    assert names_of(bare) == {"a": ("m", "k"), "b": ("n", "k")}  # equal extents tell the same


def test_what_is_found_catches_a_mistake_that_nothing_else_catches() -> None:
    """The tile of the other operand's columns: without a specification, only an assertion can tell."""
    right = stripped(tile("gemm"), specifications=True)
    wrong = stripped(tile("gemm", "bt = al.stage(b[n0 : n0 + BLOCK_N,", "bt = al.stage(b[m0 : m0 + BLOCK_N,"),
                     specifications=True)  # fmt: skip
    assert verdict(right) is Verdict.PROVED and verdict(wrong) is Verdict.PROVED
    found = synthesised(tile("gemm"), TARGET)
    stated = [s for s in walk(found.kernel.body) if isinstance(s, Tag)]
    last = [s for s in found.kernel.body if isinstance(s, AssertTags)]

    def after(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (stmt, *last) if stmt == wrong.body[1] else None

    checked = replace(wrong, body=(*stated, *rewrite_body(wrong.body, after)))
    assert verdict(checked) is Verdict.REFUTED


def test_stripped_keeps_what_computes() -> None:
    bare = stripped(tile("gemm"), specifications=True)
    assert not any(isinstance(s, Tag | AssertTags | Spec) for s in walk(bare.body))
    emitted = [compile.build(k, compile.verify(k), machine_code=False).source
               for k in (compile.lower(compile.TileKernel(x), TARGET) for x in (tile("gemm"), bare))]  # fmt: skip
    assert emitted[0] == emitted[1]


def test_a_wrong_kernel_has_no_invariants() -> None:
    with pytest.raises(ArgusError):
        synthesised(tile("gemm", "bt = al.stage(b[n0 : n0 + BLOCK_N,", "bt = al.stage(b[m0 : m0 + BLOCK_N,"), TARGET)


def test_the_command_prints_a_text_that_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = (EXAMPLES / "column_sum.py").read_text()
    for part in (
        "    al.tag(x, lambda m, n: (m, n))\n",
        bare[bare.index("    al.assert_tags(") : bare.index("    al.atomic")],
    ):
        bare = bare.replace(part, "")
    file = tmp_path / "column_sum.py"
    file.write_text(bare)
    assert main(["annotate", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "+    al.tag(x, lambda i, j: dict(m=i, n=j))" in printed and "al.once(" in printed
    assert main(["annotate", str(file), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["assertions"] >= 2 and all(line in found["text"] for line in found["lines"])
    file.write_text(found["text"])
    assert main(["check", str(file)]) == 0
    capsys.readouterr()
    file.write_text(found["text"].replace("pid_n * COLUMNS + al.arange", "pid_m * COLUMNS + al.arange"))
    assert main(["check", str(file)]) == 1


def test_only_texts_are_annotated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gemm.ir"
    file.write_text(print_kernel(compile.lower(tile("gemm"), TARGET)))
    assert main(["annotate", str(file)]) == 2
    assert "explicit kernel" in capsys.readouterr().err
