"""Edits: each once, by unique names, every class of them on a kernel that has what it edits; sizes and inputs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import argus.kernels
from argus import compile, mutate
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.wellformed import check_explicit
from argus.mutate import Kind
from argus.simulate.sizes import admissible, size_vectors
from argus.source import SourceFile
from tests.verify.hopper import gemm as roles

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@cache
def explicit(name: str, target: str = "sm_80") -> Kernel:
    source = SourceFile(f"examples/{name}.py", (EXAMPLES / f"{name}.py").read_text())
    return compile.lower(compile.elaborate(source, name, Options(target=target)), target)


@pytest.mark.parametrize("name", ["gemm", "softmax", "roles"])
def test_every_mutation_is_another_kernel(name: str) -> None:
    kernel = roles() if name == "roles" else explicit(name)
    found = mutate.mutations(kernel)
    assert len({m.name for m in found}) == len({m.kernel for m in found}) == len(found)
    assert kernel not in {m.kernel for m in found}
    assert all(m.before != m.after or "move" in m.name for m in found)
    for m in found[::5]:
        if not check_explicit(m.kernel):
            assert parse_kernel(print_kernel(m.kernel)) == m.kernel, m.name


def test_every_class_of_edits_occurs() -> None:
    kernels = (explicit("gemm"), explicit("softmax"), explicit("gemm_explicit"))
    assert {m.kind for kernel in kernels for m in mutate.mutations(kernel)} == set(Kind)


def test_what_is_edited_in_roles() -> None:
    names = {m.name.split(" (")[0] for m in mutate.mutations(roles())}
    assert names >= {
        "drop a wait for a phase", "drop an arrival", "drop an expectation of bytes", "drop a fence of products",
        "wait for the other parity", "always wait for parity 0", "expect fewer bytes", "arrive twice",
        "next slot of mbarrier index 0", "one arrival more of empty", "one mbarrier less of full",
        "always take a branch",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["gemm", "embedding", "rmsnorm", "transpose"])
def test_sizes_have_tails_and_empty_loops(name: str) -> None:
    kernel = explicit(name)
    vectors = size_vectors(kernel)
    assert 4 <= len(vectors) <= 5
    assert all(admissible(kernel, v) for v in vectors)
    if name == "gemm":  # 32 of K a step, 3 stages
        assert sorted(-(-v["K"] // 32) for v in vectors) == [0, 1, 2, 2, 5]
        assert any(v["M"] > 128 and v["M"] % 128 for v in vectors)
    if name == "rmsnorm":
        assert any(v["N"] == 1024 for v in vectors) and all(v["N"] <= 1024 for v in vectors)


def test_a_program_has_one_of_what_the_grid_counts() -> None:
    """Heads and batches are few, and as many heads of queries as their groups want."""
    file = Path(argus.kernels.__file__).parent / "attention.py"
    source, options = SourceFile(str(file), file.read_text()), Options(target="sm_90a", constexprs={"GROUP": 2})
    kernel = compile.lower(compile.elaborate(source, "attention_forward", options), "sm_90a")
    vectors = size_vectors(kernel)
    assert len(vectors) == 6 and {v["B"] for v in vectors} == {1, 2}
    assert {(v["H"], v["HK"]) for v in vectors} == {(2, 1), (4, 2)}
    assert vectors[-1]["N"] == max(v["N"] for v in vectors) > 4 * 128


def test_inputs_are_the_same_each_time_and_within_range() -> None:
    kernel = explicit("embedding")
    values = {"T": 20, "V": 5, "D": 136}
    first, second = mutate.arguments(kernel, values), mutate.arguments(kernel, values)
    assert all((first[name] == second[name]).all() for name in first)  # type: ignore[union-attr]
    assert first["tokens"].min() >= 0 and first["tokens"].max() < 5  # type: ignore[union-attr]


ROWS = """
kernel rows
target sm_80
warps 1 of 32
size N
size T
tensor x: float32[T, 32] strides [32:int64, 1:int64] align 4
tensor index: int32[T] strides [1:int64] align 4
tensor out: float32[N, 32] strides [32:int64, 1:int64] align 4
grid [T]
distinct index
in_range index from 0 to N
fragment at: int32 () layout [() | t 32@_ | v]
fragment r: float32 32 layout [32 | t 32@0 | v]
fragment s: float32 () layout [() | t 32@_ | v]
body {
  copy at[] <- index[program_id(0)] shape () layout [() | t 32@_ | v] via ld.global
  copy r[c0] <- x[program_id(0), c0] shape 32 layout [32 | t 32@0 | v] via ld.global
  map r[c0] = exp(r[c0] * 2.0) + r[c0] shape 32 layout [32 | t 32@0 | v] scope thread
  map s[] = 0.0 shape () layout [() | t 32@_ | v] scope thread
  accumulate s[] add r[c0] shape 32 layout [32 | t 32@0 | v] scope warp
  map r[c0] = (r[c0] + s[]) * 3.0 shape 32 layout [32 | t 32@0 | v] scope thread
  copy out[at[], c0] <- r[c0] shape 32 layout [32 | t 32@0 | v] via st.global
}
"""


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("write a cell twice", ["r[c0 // 2 * 2] <- x", "r[c0 // 2 * 2] = exp", "out[at[], c0 // 2 * 2] <- r[c0]"]),
        ("count a term twice", ["accumulate s[] add r[c0] shape 32 if c0 == 0"]),
        ("move a factor", ["exp(r[c0]) * 2.0 + r[c0]", "r[c0] * 3.0 + s[]"]),
        ("drop index fact", [""]),
    ],
)
def test_edits_of_terms_and_facts(name: str, after: list[str]) -> None:
    found = [m for m in mutate.mutations(parse_kernel(ROWS)) if m.name.startswith(name)]
    assert found
    for text in after:
        assert any(text in m.after for m in found), [m.after for m in found]


def test_edits_of_terms_are_refuted() -> None:
    """A sum with a term counted twice, and a factor that moved, follow no specification; a cell is written once."""
    judge = mutate.Judge(explicit("softmax"), 20.0)
    found = [m for m in mutate.mutations(explicit("softmax")) if m.name.startswith(("write a", "count a", "move a"))]
    assert {m.name.split(" (")[0] for m in found} >= {"write a cell twice", "count a term twice"}
    outcomes = [judge.result(m).outcome for m in found[:6]]
    assert mutate.Outcome.MISSED not in outcomes
    assert outcomes.count(mutate.Outcome.KILLED) >= 3
