"""Outcomes of mutants, and the command that counts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from argus import mutate
from argus.cli import main
from argus.diagnostic import VerificationError
from argus.ir.text import parse_kernel
from argus.mutate import Kind, Outcome
from tests.mutate.test_mutations import EXAMPLES, explicit
from tests.verify.test_clusters import cluster_gemm

OPEN = """
kernel negate
target sm_80
warps 1 of 32
size N
tensor x: float32[N] strides [1:int64] align 4
tensor out: float32[N] strides [1:int64] align 4
grid [(N + 31) // 32]
fragment r: float32 32 layout [32 | t 32@0 | v]
body {
  copy r[c0] <- x[program_id(0) * 32 + c0] shape 32 if program_id(0) * 32 + c0 < N else 0.0 layout [32 | t 32@0 | v] via ld.global
  map r[c0] = r[c0] * 2.0 shape 32 layout [32 | t 32@0 | v] scope thread
  copy out[program_id(0) * 32 + c0] <- r[c0] shape 32 if program_id(0) * 32 + c0 < N layout [32 | t 32@0 | v] via st.global
}
"""  # noqa: E501 - text of the IR
"""Nothing says what `out` is: a store without a specification."""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main(["mutate", "--json", *arguments])
    captured = capsys.readouterr()
    assert all(line.startswith("mutants of ") for line in captured.err.splitlines())
    return code, json.loads(captured.out)


@pytest.mark.parametrize(
    ("name", "count", "killed", "target"),
    [
        ("vector_add", None, 25, "sm_80"),
        ("transpose", None, 50, "sm_80"),
        ("embedding", 20, 12, "sm_80"),
        ("softmax", 12, 8, "sm_80"),
        ("column_sum", 20, 14, "sm_80"),
        ("gemm_explicit", 6, 3, "sm_80"),
        pytest.param("linear", 30, 15, "sm_90a", marks=pytest.mark.nightly),
        pytest.param("gemm", 30, 15, "sm_80", marks=pytest.mark.nightly),
        pytest.param("gemm_hopper", 30, 15, "sm_90a", marks=pytest.mark.nightly),
    ],
)
def test_nothing_is_missed_of_specified_kernels(
    name: str, count: int | None, killed: int, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = [] if count is None else ["--count", str(count), "--seed", "3"]
    code, (trial,) = run(capsys, str(EXAMPLES / f"{name}.py"), "--target", target, *sample)
    assert (code, trial["kernel"], trial["missed"], trial["unspecified"]) == (0, name, 0, [])
    assert trial["killed"] >= killed
    outcomes = [m["outcome"] for m in trial["mutants"]]
    assert len(outcomes) == trial["count"]
    assert {o.value: outcomes.count(o.value) for o in Outcome} == {o.value: trial[o.value] for o in Outcome}
    for mutant in trial["mutants"]:
        assert set(mutant) == {"name", "class", "span", "before", "after", "outcome", "code", "detail", "seconds"}
        assert bool(mutant["code"]) == (mutant["outcome"] != "equivalent")


def test_what_no_assertion_pins_down_is_missed() -> None:
    trial = mutate.trial(parse_kernel(OPEN), 0, None, 30.0)
    assert trial.unspecified == ("out",)
    missed = [r for r in trial.results if r.outcome is Outcome.MISSED]
    assert {r.code for r in missed} == {"different-result"}
    assert "drop a computation (statement 1)" in {r.mutation.name for r in missed}
    assert all("out[" in r.detail for r in missed)
    # What the rules alone forbid is still caught.
    assert not [r for r in missed if r.mutation.kind is Kind.GRID or r.mutation.name.startswith("weaken a mask")]
    assert trial.number(Outcome.KILLED, Kind.MASK) and trial.number(Outcome.KILLED, Kind.GRID)
    equivalent = {r.mutation.name for r in trial.results if r.outcome is Outcome.EQUIVALENT}
    assert "one block more along axis 0" in equivalent


def test_a_sample_is_drawn_by_its_seed() -> None:
    kernel = explicit("vector_add")
    names = [[r.mutation.name for r in mutate.trial(kernel, seed, 4, 30.0).results] for seed in (1, 1, 2)]
    assert names[0] == names[1] != names[2]
    assert len(set(names[0])) == 4
    everything = [m.name for m in mutate.mutations(kernel)]
    assert names[0] == sorted(names[0], key=everything.index)


def test_a_kernel_that_is_not_proved_has_no_mutants() -> None:
    wrong = OPEN.replace("grid [(N + 31) // 32]", "grid [N // 32]")
    with pytest.raises(VerificationError, match="output-not-covered"):
        mutate.trial(parse_kernel(wrong), 0, None, 30.0)


def test_several_files(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(EXAMPLES / f"{name}.py") for name in ("vector_add", "transpose")]
    code, trials = run(capsys, *files, "--count", "2")
    assert (code, [t["kernel"] for t in trials], [t["count"] for t in trials]) == (
        0,
        ["vector_add", "transpose"],
        [2, 2],
    )
    assert main(["mutate", *files, "--count", "2"]) == 0
    assert "all kernels" in capsys.readouterr().out


def test_exit_codes_and_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutate", str(tmp_path / "nowhere.py")]) == 2
    assert "unreadable-file" in capsys.readouterr().err
    assert main(["mutate", str(EXAMPLES / "rejected" / "vector_add.py")]) == 2
    assert "out-of-bounds" in capsys.readouterr().err
    open_kernel = tmp_path / "twice.py"
    source = (EXAMPLES / "vector_add.py").read_text().replace("    al.spec(out, lambda i: x[i] + y[i])\n", "")
    open_kernel.write_text(source)
    assert main(["mutate", str(open_kernel), "-D", "BLOCK=128"]) == 1
    text = capsys.readouterr().out
    assert "mutants" in text and "missed[different-result]: " in text and "no al.spec says what `out` is" in text
    assert "total = al.load(x[offs], mask=mask) + al.load(y[offs], mask=mask)" in text


def test_a_proved_mutant_in_clusters_runs_under_the_schedules_of_all_blocks() -> None:
    """Two mbarriers that are initialised in the other order: each block has roles of its own to run eagerly."""
    kernel = cluster_gemm()
    both = {"mbarrier_init full", "mbarrier_init empty"}
    (other_order,) = (m for m in mutate.mutations(kernel) if m.kind is Kind.MOVE and set(m.before.split("\n")) == both)
    result = mutate.Judge(kernel, 120.0).result(other_order)
    assert (result.outcome, result.code) == (Outcome.EQUIVALENT, "")


def test_progress_is_shown_by_tenths(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutate", str(EXAMPLES / "vector_add.py"), "--count", "4", "--seed", "3", "--json"]) == 0
    lines = [f"mutants of vector_add: {done} of 4" for done in range(4)]
    assert capsys.readouterr().err.splitlines() == lines
