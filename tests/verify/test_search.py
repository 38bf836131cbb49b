"""What no engine decides: plainly wrong kernels are refuted by a run, right ones stay unknown."""

from __future__ import annotations

from pathlib import Path

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from argus.mutate import mutations
from argus.simulate import replay
from argus.source import SourceFile
from argus.verify import Report, verify
from argus.verify.search import search
from argus.work import Work

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


UNDECIDED = (
    "al.exp(scores - al.max(scores, axis=0))",
    "al.sqrt(al.exp(2.0 * (scores - al.max(scores, axis=0))))",
)
"""An edit of softmax that changes no number beyond rounding, and that no engine proves."""


def edited(name: str, *edits: tuple[str, str]) -> Report:
    """The report on an example after edits of its text."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return compile.prove(SourceFile(f"{name}.py", text), name, Options())


def refuted(report: Report) -> set[str]:
    found = [d for d in report.diagnostics if d.verdict is Verdict.REFUTED]
    assert all(d.witness is not None and d.witness.replayed for d in found)
    return {d.code for d in found}


def test_another_function_of_the_same_elements_is_refuted() -> None:
    """The least score instead of the largest: the same in exact arithmetic, and infinite in that of floats."""
    report = edited("softmax", ("scores - al.max(scores, axis=0)", "scores - al.min(scores, axis=0)"))
    assert report.verdict is Verdict.REFUTED
    assert "spec-mismatch" in refuted(report)


def test_another_form_of_the_same_function_stays_unknown() -> None:
    """The root of a square: the same numbers, and no engine looks for that."""
    report = edited("softmax", UNDECIDED)
    assert report.verdict is Verdict.UNKNOWN
    assert not refuted(report)


def test_an_initial_value_that_is_not_the_identity_is_refuted() -> None:
    report = edited("rmsnorm", ("al.sum(values * values, axis=0)", "al.sum(values * values, axis=0) + 1.0"))
    assert report.verdict is Verdict.REFUTED
    assert refuted(report) == {"spec-mismatch"}


def test_an_output_that_nothing_writes_is_refuted() -> None:
    report = edited("vector_add", ("    al.store(out[offs], total, mask=mask)\n", "    twice = total + total\n"))
    assert refuted(report) == {"output-not-covered"}


def test_what_is_assumed_is_not_tried() -> None:
    """A row that is too long for the block: refuted, unless its length is assumed."""
    short = ("al.requires(N <= BLOCK)", 'al.assume(N <= BLOCK, "rows are short")')
    none = ("    al.requires(N <= BLOCK)\n", "")
    assert edited("softmax", short).verdict is Verdict.PROVED
    assert edited("softmax", none).verdict is Verdict.REFUTED


def slow(outer: int) -> Kernel:
    """A loop of 4000 * `outer` steps, and then a store outside of its tensor."""
    return parse_kernel(f"""
kernel slow
target sm_80
warps 1 of 32
size M
tensor o: float32[M] strides [1:int64] align 16
grid [1]
fragment x: float32 32 layout [32 | t 32@0 | v]
body {{
  map x[c0] = 0.0 shape 32 layout [32 | t 32@0 | v] scope thread
  for i in 0 .. {outer} step 1 {{
    for j in 0 .. 4000 step 1 {{
      map x[c0] = x[c0] + 1.0 shape 32 layout [32 | t 32@0 | v] scope thread
    }}
  }}
  copy o[c0] <- x[c0] shape 32 layout [32 | t 32@0 | v] via st.global
}}
""")


def test_a_replay_ends_with_the_time_limit() -> None:
    """The store is met after sixteen million steps, which would take hours."""
    report = verify(slow(4000), 2.0)
    assert report.verdict is Verdict.UNKNOWN
    assert any("cannot be replayed: the limit of work was reached" in d.message for d in report.diagnostics)
    assert any("not all small sizes were tried" in note.message for d in report.diagnostics for note in d.notes)


def test_a_short_one_is_replayed() -> None:
    report = verify(slow(1), 60.0)
    assert refuted(report) >= {"out-of-bounds"}


def test_small_sizes_are_tried_after_the_limit_of_the_proof() -> None:
    text = (EXAMPLES / "softmax.py").read_text(encoding="utf-8")
    source = SourceFile("softmax.py", text.replace(*UNDECIDED))
    explicit = compile.lower(compile.elaborate(source, "softmax", Options()), "cpu")
    report = verify(explicit, 0.0)
    assert report.verdict is Verdict.UNKNOWN
    assert not any("not all small sizes were tried" in note.message for d in report.diagnostics for note in d.notes)


def test_a_search_goes_on_where_another_one_stopped() -> None:
    """The store outside of its tensor is met at the first sizes, for which the first search has too little work."""
    kernel = slow(1)
    first = search(kernel, False, False, Work(2_000_000))
    assert first.found is None and not first.complete and first.tried == 0
    again = search(kernel, False, False, Work.of_seconds(60.0), first)
    assert again.found is not None and again.settles(False)


def test_a_factor_in_another_place_shows_at_the_first_sizes() -> None:
    """Scalars of a run are not 1, and two of them differ: `(x + y) * a` is not `x * a + y`, and `a` is not `b`."""
    text = """
import argus
import argus.language as al

@argus.kernel
def scaled(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"],
           a: al.float32, b: al.float32):
    al.spec(out, lambda i: x[i] * a + y[i] * b)
    al.grid(al.cdiv(N, 128))
    at = al.program_id(0) * 128 + al.arange(0, 128)
    inside = at < N
    p, q = al.load(x[at], mask=inside, other=0.0), al.load(y[at], mask=inside, other=0.0)
    al.store(out[at], p * a + q * b, mask=inside)
"""
    for formula, verdict in (
        ("p * a + q * b", Verdict.PROVED),
        ("p * b + q * a", Verdict.REFUTED),
        ("(p + q) * a", Verdict.REFUTED),
    ):
        source = SourceFile("scaled.py", text.replace("p * a + q * b, mask", f"{formula}, mask"))
        explicit = compile.lower(compile.elaborate(source, "scaled", Options()), "cpu")
        assert verify(explicit, 20.0).verdict is verdict
        found = replay(explicit, {"N": 4}, None)
        assert [v.code for v in found] == ([] if verdict is Verdict.PROVED else ["spec-mismatch"])


FAR = """
import argus
import argus.language as al

@argus.func
def small(v, limit):
    return (v * 2.0**20).to(al.int32) < limit

@argus.kernel
def share(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "600 N"],
          limit: al.int32):
    al.requires(N <= 32)
    al.spec(out, lambda p, j: al.sum(lambda i: al.where((i % 600 == p) & small(x[i, j], limit), x[i, j], 0.0)))
    block = al.grid(600)
    cols = al.arange(32)
    total = al.zeros((32,), al.float32)
    for row in range(block, M, 600):
        v = al.load(x[row, cols], mask=cols < N, other=0.0)
        total += al.where(small(v, limit), v, 0.0)
    al.store(out[block, cols], total, mask=cols < N)
"""
"""Adds up every 600th row, of numbers below a limit: its blocks are many, and its limit is data."""


def share(*edits: tuple[str, str]) -> Kernel:
    text = FAR
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return compile.lower(compile.elaborate(SourceFile("share.py", text), "share", Options()), "cpu")


def tried(kernel: Kernel, seconds: float) -> set[str]:
    """The rules that a search for wrong values finds broken."""
    found = search(kernel, True, False, Work.of_seconds(seconds)).found
    return set() if found is None else {found.code}


def test_a_few_blocks_of_a_large_grid_are_tried_first() -> None:
    """The whole grid takes more work than there is; two blocks and one row show that a term counts twice."""
    twice = ("        total += al.where(", "        total += v\n        total += al.where(")
    assert tried(share(twice), 0.2) == {"spec-mismatch"}
    assert tried(share(), 0.2) == set()


def test_large_arguments_are_tried() -> None:
    """Only a limit beyond all numbers of a run tells the choice from one that never holds."""
    never = ("total += al.where(small(v, limit), v, 0.0)", "total += al.where(small(v, 100), v, 0.0)")
    assert tried(share(never), 20.0) == {"spec-mismatch"}


def test_lanes_that_hold_other_numbers_than_the_others_are_refuted() -> None:
    """A sum within each thread leaves the copies of other lanes as they were: their values show it."""
    text = (EXAMPLES / "softmax.py").read_text(encoding="utf-8")
    explicit = compile.lower(compile.elaborate(SourceFile("softmax.py", text), "softmax", Options()), "sm_90a")
    edits = (m for m in mutations(explicit) if m.name.startswith("combine within a thread") and " add " in m.before)
    within = next(edits).kernel
    assert verify(explicit).verdict is Verdict.PROVED
    report = verify(within)
    assert {d.code for d in report.diagnostics if d.verdict} == {"registers-unknown", "spec-mismatch"}
    assert refuted(report) == {"spec-mismatch"}
