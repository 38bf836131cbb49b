"""Repair from counterexamples: each kind of mistake and its remedy; what is read-only; the command."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from argus import compile
from argus.agents import Judgement, Task, broken, judge, judgement_json, repair, repair_json
from argus.agents.edits import vocabulary
from argus.cli import main
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.expr import Const, op
from argus.ir.nodes import AssertTags, Copy, For, If, Kernel, Requires, Spec, Stmt, Tag
from argus.ir.text import print_kernel, read_kernel
from argus.ir.visit import numbered, rewrite_body
from argus.source import SourceFile

EXAMPLES = Path(__file__).parents[2] / "examples"


def source(name: str) -> SourceFile:
    return SourceFile(f"{name}.py", (EXAMPLES / f"{name}.py").read_text())


@cache
def explicit(name: str, target: str = "sm_80") -> Kernel:
    return compile.lower(compile.elaborate(source(name), name, Options(target=target)), target)


def ir(text: str) -> Task:
    return Task(SourceFile("kernel.ir", text), "kernel")


def transpose() -> str:
    return print_kernel(explicit("transpose"))


SLICES = """\
    here = al.load(x[pid * BLOCK : pid * BLOCK + BLOCK], boundary_check=(0,))
    total = here + al.load(y[pid * BLOCK : pid * BLOCK + BLOCK], boundary_check=(0,))
    al.store(out[pid * BLOCK : pid * BLOCK + BLOCK], total)
"""


# ---------------------------------------------------------------------------- stages


def test_stages_reject_the_cheapest_way() -> None:
    text = source("vector_add").text
    options = Options(target="sm_80")

    def stages(text: str) -> list[tuple[str, bool]]:
        found = judge(Task(SourceFile("v.py", text), "vector_add", options))
        assert json.loads(json.dumps(judgement_json(found)))["stages"][-1]["name"] == found.stages[-1].name
        return [(stage.name, stage.passed) for stage in found.stages]

    assert stages(text) == [("parse", True), ("lower", True), ("prove", True)]
    assert stages(text.replace("x[offs]", "nothing[offs]")) == [("parse", False)]
    assert stages(text.replace("out[offs]", "out[offs + 1]")) == [("parse", True), ("lower", True), ("prove", False)]


def test_an_ill_formed_explicit_kernel_has_no_verdict() -> None:
    found = judge(ir(transpose().replace("via ld.shared", "via no.such")))
    assert found.verdict is None and not found.proved
    assert judgement_json(found)["verdict"] == "error"


# ---------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param("transpose", "  barrier\n", "", id="missing barrier"),
        pytest.param("gemm", "    wait_group 1\n", "", id="missing wait"),
        pytest.param("gemm", "    wait_group 1\n", "    wait_group 2\n", id="wait for too few"),
        pytest.param("transpose", "x[program_id(0) * 32 + c0,", "x[program_id(0) * 32 + c0 + 1,", id="shifted index"),
        pytest.param("transpose", "tile[c1, c0]", "tile[c0, c1]", id="swapped indices"),
        pytest.param("transpose", " & (program_id(0) * 32 + c1 < M) layout", " layout", id="half a mask"),
        pytest.param("transpose", "c0 < N) &", "c0 < N - 1) &", id="a mask that is too narrow"),
        pytest.param("transpose", "grid [(M + 31) // 32", "grid [M // 32", id="a grid that is rounded down"),
        pytest.param(
            "transpose", "  barrier\n", "  if thread % 2 == 1 {\n    barrier\n  }\n", id="a barrier for some threads"
        ),
        pytest.param("softmax", "maximum scores", "minimum scores", id="another reduction"),
    ],
)
def test_one_mistake_is_repaired(name: str, old: str, new: str) -> None:
    text = print_kernel(explicit(name))
    assert old in text
    wrong = ir(text.replace(old, new, 1))
    found = repair(wrong)
    assert not found.before.proved
    assert found.answer is not None, found.steps
    again = judge(found.answer.task)
    assert again.proved
    assert found.steps[-1].rejected == "" and all(step.rejected for step in found.steps[:-1])
    assert not broken(read_kernel(wrong.source), read_kernel(found.answer.task.source))
    assert found.answer.diff.count("\n@@") == 1


def test_a_right_kernel_is_left_alone() -> None:
    found = repair(ir(transpose()))
    assert found.before.proved and not found.steps and found.answer is None


def test_a_large_counterexample_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counterexample may need sizes that overflow an index: no memory holds such tensors."""
    module = importlib.import_module("argus.agents.repair")
    drawn: list[object] = []
    monkeypatch.setattr(module, "arguments", lambda kernel, sizes: drawn.append(sizes) or {})
    whole = module.Candidate("nothing", "ir", "", ir(transpose()))
    assert module._holds(whole, [{"M": 2**16, "N": 2**16}]) and not drawn
    module._holds(whole, [{"M": 8, "N": 8}])
    assert len(drawn) == 1


def test_what_no_edit_repairs_stays_refuted() -> None:
    """The specification is wrong: it is not touched, and no edit of the kernel is the remedy."""
    found = repair(ir(transpose().replace("= x[c1, c0]", "= x[c1, c0] + 1.0")), steps=6)
    assert found.before.verdict is Verdict.REFUTED
    assert found.answer is None and len(found.steps) <= 6
    assert repair_json(found)["proved"] is False


def test_steps_are_bounded() -> None:
    wrong = ir(transpose().replace("tile[c1, c0]", "tile[c0, c1]"))
    assert repair(wrong, steps=1).answer is None  # so few candidates are run at the counterexample's sizes
    assert repair(wrong).answer is not None


def test_most_candidates_fail_again_where_the_kernel_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the sizes of the counterexample the simulator rejects what the proof would reject."""
    wrong = ir(transpose().replace("tile[c1, c0]", "tile[c0, c1]"))
    found = repair(wrong)
    module = importlib.import_module("argus.agents.repair")
    monkeypatch.setattr(module, "surviving", lambda before, candidates, most: candidates)
    assert len(found.steps) < len(repair(wrong).steps)


@pytest.mark.parametrize(
    ("name", "changed", "form", "added"),
    [
        ("rejected/transpose", "", "python", "+    al.barrier()"),
        ("rejected/vector_add", "", "python", "mask"),
        (
            "vector_add",
            SLICES,
            "python",
            "+    al.store(out[pid * BLOCK : pid * BLOCK + BLOCK], total, boundary_check=(0,))",
        ),
    ],
)
def test_a_repair_of_the_authors_kernel(name: str, changed: str, form: str, added: str) -> None:
    text = source(name).text
    text = text[: text.index("    offs =")] + changed if changed else text
    kernel = compile.kernels(SourceFile("k.py", text))[0]
    found = repair(Task(SourceFile("k.py", text), kernel, Options(target="sm_80")))
    assert found.answer is not None, found.steps
    assert found.answer.form == form and added in found.answer.diff
    assert judge(found.answer.task).proved


def test_a_candidate_that_trips_the_verifier_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ir(transpose().replace("tile[c1, c0]", "tile[c0, c1]"))
    module = importlib.import_module("argus.agents.repair")
    monkeypatch.setattr(module, "surviving", lambda before, candidates, most: candidates)
    steps = repair(wrong).steps
    assert len(steps) > 1
    calls = 0

    def tripping(task: Task, limit_s: float, *, simulated: bool = True, tile: object = None) -> Judgement:
        nonlocal calls
        calls += not simulated
        if calls == 1 and not simulated:
            raise RuntimeError("a mistake of ours")
        return judge(task, limit_s, simulated=simulated)

    monkeypatch.setattr(module, "judge", tripping)
    found = repair(wrong)
    assert found.answer is not None
    assert [s.title for s in found.steps] == [s.title for s in steps]
    assert found.steps[0].code == "internal-error"


# ---------------------------------------------------------------------------- what is read-only


def _without(kind: type) -> Callable[[Kernel], Kernel]:
    def change(kernel: Kernel) -> Kernel:
        return replace(kernel, body=rewrite_body(kernel.body, lambda s: () if isinstance(s, kind) else None))

    return change


def _unreached(kernel: Kernel) -> Kernel:
    """Assertions moved to where no thread comes."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (If(Const(False), (stmt,)),) if isinstance(stmt, AssertTags) else None

    return replace(kernel, body=rewrite_body(kernel.body, change))


def _empty_loops(kernel: Kernel) -> Kernel:
    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(stmt, stop=stmt.start),) if isinstance(stmt, For) else None

    return replace(kernel, body=rewrite_body(kernel.body, change))


def _weaker_spec(kernel: Kernel) -> Kernel:
    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(stmt, value=Const(0)),) if isinstance(stmt, Spec) else None

    return replace(kernel, body=rewrite_body(kernel.body, change))


CHEATS: dict[str, Callable[[Kernel], Kernel]] = {
    "no specification": _without(Spec),
    "no tags": _without(Tag),
    "no assertions": _without(AssertTags),
    "another specification": _weaker_spec,
    "assertions that nobody reaches": _unreached,
    "loops around assertions that do not run": _empty_loops,
    "nothing is stored": _without(Copy),
    "a precondition more": lambda k: replace(
        k, preconditions=(*k.preconditions, Requires(op("eq", k.tensors[0].shape[0], Const(0))))
    ),
    "another alignment": lambda k: replace(k, params=(replace(k.tensors[0], alignment=2), *k.params[1:])),
    "another shape": lambda k: replace(k, params=(replace(k.tensors[0], shape=(Const(1), Const(1))), *k.params[1:])),
    "another constant": lambda k: replace(k, constexprs=(("BLOCK_M", 1), *k.constexprs[1:])),
    "another target": lambda k: replace(k, target="cpu"),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_break_the_contract(cheat: str) -> None:
    kernel = explicit("gemm")
    assert not broken(kernel, kernel)
    assert broken(kernel, CHEATS[cheat](kernel))


@pytest.mark.parametrize("cheat", [c for c in CHEATS if c != "loops around assertions that do not run"])
def test_cheats_break_the_contract_also_where_assertions_name_what_is_wrong(cheat: str) -> None:
    kernel = explicit("gemm")
    assert not broken(kernel, kernel, same_text=True)
    assert broken(kernel, CHEATS[cheat](kernel), same_text=True)


def test_an_assertion_may_mean_something_else_only_beside_a_specification() -> None:
    """The loop of a product is repaired although an assertion is in it; the specification says what is right."""
    kernel = explicit("gemm")
    assert not broken(kernel, _empty_loops(kernel), same_text=True)
    bare = _without(Spec)(kernel)
    assert broken(bare, _empty_loops(bare), same_text=True) == "tags, assertions and specifications"


def test_values_without_a_specification_are_not_invented() -> None:
    """Nothing says what an unspecified output should be: to read another element proves, and is no repair."""
    bare = read_kernel(SourceFile("k.ir", transpose().replace("  spec out(n, m) = x[c1, c0]\n", "")))
    other = read_kernel(SourceFile("k.ir", print_kernel(bare).replace("tile[c1, c0]", "tile[c0, c1]")))
    assert judge(ir(print_kernel(other))).proved
    assert broken(bare, other) == "values of out, which have no specification"
    without = ir(print_kernel(bare).replace("  barrier\n", ""))
    assert not broken(bare, read_kernel(without.source))
    assert repair(without).answer is not None


def test_no_edit_of_the_vocabulary_touches_tags_or_specifications() -> None:
    kernel = numbered(explicit("gemm"))
    fixed = {s.id for s in kernel.body if isinstance(s, Tag | AssertTags | Spec)}
    edits = vocabulary(kernel)
    assert len(edits) > 100
    for edit in edits:
        for number, new in edit.new.items():
            assert number not in fixed or [s for s in new if s.id == number]


# ---------------------------------------------------------------------------- the command


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.ir"
    file.write_text(transpose().replace("  barrier\n", ""))
    assert main(["repair", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "data-race" in shown and "\n+  barrier\n" in shown and "proved, 1 edit tried" in shown
    assert main(["repair", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert found["before"]["verdict"] == "refuted" and found["answer"]["form"] == "ir"
    file.write_text(found["answer"]["text"])
    assert main(["repair", str(file)]) == 0
    assert "nothing to repair" in capsys.readouterr().out
    file.write_text(transpose().replace("tile[c1, c0]", "tile[c0, c1]"))
    assert main(["repair", str(file), "--steps", "1"]) == 1
    assert "no repair" in capsys.readouterr().out
    file.write_text("kernel")
    assert main(["repair", str(file)]) == 2
