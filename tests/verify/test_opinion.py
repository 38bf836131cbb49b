"""Second opinions: answers of one engine that the other contradicts are found, and right ones are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argus import compile
from argus.cli.main import main
from argus.diagnostic import Opinion, Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import Report, verify
from argus.verify.model.isl import Map, Set, isl
from argus.verify.model.solver import Solver, z3
from argus.verify.opinion.asked import RESULTS, TRUTHS, OfIsl, OfZ3, listening
from argus.verify.opinion.claims import _CLAIMS
from argus.verify.opinion.opinion import second
from argus.work import Work

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = "examples/transpose.py"


def opinion(asked: OfIsl | OfZ3) -> Opinion:
    (found,) = second([asked], Work.of_seconds(10))
    return found


def agreed(name: str, *operands: Any, answer: Any) -> bool:
    found = opinion(OfIsl(name, operands, answer))
    assert found.asked == 1 and not found.undecided, found
    return bool(found.agreed)


def example() -> Report:
    source = SourceFile(EXAMPLE, (ROOT / EXAMPLE).read_text(encoding="utf-8"))
    kernel = compile.lower(compile.elaborate(source, "transpose", Options(target="sm_90a")), "sm_90a")
    return verify(kernel, second_opinion=True)


# ---------------------------------------------------------------------------- ISL's answers

QUESTIONS: list[tuple[str, tuple[str, ...], bool]] = [
    ("is_empty", ("[N] -> { A[i] : N < i < N + 1 }",), True),
    ("is_empty", ("[N] -> { A[i] : N < i < N + 2 }",), False),
    ("is_empty", ("{ [i] : exists e, f: i = 2e and i = 2f + 1 }",), True),
    ("is_subset", ("{ A[i] : exists e: i = 6e }", "{ A[i] : exists e: i = 3e }"), True),
    ("is_subset", ("{ A[i] : exists e: i = 3e }", "{ A[i] : exists e: i = 6e }"), False),
    ("is_subset", ("{ A[i] }", "{ A[i]; B[i] }"), True),
    ("is_subset", ("{ A[i]; B[i] }", "{ A[i] }"), False),
    ("is_equal", ("{ [i] : i mod 4 = 1 }", "{ [i] : exists e: i = 4e - 3 }"), True),
    ("is_equal", ("{ [i] : i mod 4 = 1 }", "{ [i] : exists e: i = 4e - 2 }"), False),
    ("is_equal", ("{ [i] : exists e: 3e <= i <= 3e + 2 }", "{ [i] }"), True),
    ("is_equal", ("{ [i] : exists e: 3e <= i <= 3e + 1 }", "{ [i] }"), False),
    ("is_equal", ("{ [i] : exists e, f: i = 2e + 3f and e >= 0 and f >= 0 }", "{ [i] : i >= 0 and i != 1 }"), True),
    ("is_disjoint", ("{ [i, j] : i < j }", "{ [i, j] : j < i }"), True),
    ("is_disjoint", ("{ [i, j] : i < j }", "{ [i, j] : j < i + 2 }"), False),
    ("is_single_valued", ("{ A[i] -> B[floor(i/3)] }",), True),
    ("is_single_valued", ("{ A[i] -> B[j] : 3j <= i < 3j + 4 }",), False),
    ("is_single_valued", ("{ A[i] -> B[i]; A[i] -> C[i] }",), False),
    ("is_injective", ("{ A[i] -> B[2i + 1] }",), True),
    ("is_injective", ("{ A[i] -> B[floor(i/2)] }",), False),
    ("is_injective", ("{ A[i] -> B[i]; C[i] -> B[i] : i > 0 }",), False),
    ("is_bijective", ("{ A[i] -> B[-i] }",), True),
]  # fmt: skip


def _read(text: str) -> Any:
    several = ";" in text
    return (isl.UnionMap if several else Map)(text) if "->" in text.split("{")[1] else (
        isl.UnionSet if several else Set
    )(text)  # fmt: skip


def _operands(texts: tuple[str, ...]) -> list[Any]:
    found = [_read(text) for text in texts]
    unions = any(isinstance(f, isl.UnionSet | isl.UnionMap) for f in found)
    return [f.to_union_set() if unions and isinstance(f, Set) else f for f in found]


@pytest.mark.parametrize(("name", "texts", "answer"), QUESTIONS)
def test_answers_of_isl(name: str, texts: tuple[str, ...], answer: bool) -> None:
    operands = _operands(texts)
    assert getattr(operands[0], name)(*operands[1:]) is answer
    assert agreed(name, *operands, answer=answer)
    assert not agreed(name, *operands, answer=not answer)


WRONG: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    ("subtract", ("{ [i] : 0 <= i < 9 }", "{ [i] : 3 <= i < 5 }"),
     ("{ [i] : 0 <= i < 3 }", "{ [i] : 0 <= i < 9 }", "{ [i] : 0 <= i < 3 or 5 <= i < 10 }")),
    ("coalesce", ("{ [i] : 0 <= i < 3 or 3 <= i < 5 }",), ("{ [i] : 0 <= i < 4 }", "{ [i] : 0 <= i < 6 }")),
    ("lexmin", ("[N] -> { A[i] -> B[j] : i < 2j < N }",),
     ("[N] -> { A[i] -> B[j] : 2j = i + 1 and 2j < N }",
      "[N] -> { A[i] -> B[j] : i < 2j < N and i + 2 < 2j <= i + 4 }")),
    ("lexmax", ("{ [i, j] : 0 <= i < 4 and 0 <= j < i }",), ("{ [3, 1] }", "{ [3, 2]; [2, 1] }", "{ [4, 2] }")),
    ("apply_range", ("{ A[i] -> B[3i] }", "{ B[i] -> C[j] : 2j = i }"),
     ("{ A[i] -> C[j] : j = floor(3i/2) }", "{ A[i] -> C[j] : 2j = 3i and i > 0 }")),
    ("domain", ("{ A[i] -> B[j] : 2j = i and j > 0 }",), ("{ A[i] : i > 0 }", "{ A[i] : i > 9 and i mod 2 = 0 }")),
    ("range", ("{ A[i] -> B[j] : j = 2i and i > 0 }",), ("{ B[i] : i > 0 }", "{ B[i] : i > 9 and i mod 2 = 0 }")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "texts", "wrong"), WRONG, ids=[w[0] for w in WRONG])
def test_results_of_isl(name: str, texts: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    operands = [_read(text) for text in texts]
    assert agreed(name, *operands, answer=getattr(operands[0], name)(*operands[1:]))
    for text in wrong:
        result = isl.Set(text) if isinstance(operands[0], Set) or name in ("domain", "range") else Map(text)
        assert not agreed(name, *operands, answer=result)


def test_every_question_has_a_claim() -> None:
    assert set(_CLAIMS) == {*TRUTHS, *RESULTS}


@st.composite
def _sets(draw: st.DrawFn) -> Set:
    def form() -> str:
        a, b, c = (draw(st.integers(-3, 3)) for _ in range(3))
        return f"{a}i + {b}e + {c}f + {draw(st.integers(-6, 6))}"

    parts = [f"{form()} {draw(st.sampled_from(['>=', '>=', '=']))} 0" for _ in range(draw(st.integers(1, 4)))]
    return Set(f"{{ [i] : exists e, f: {' and '.join(parts)} and -9 <= e <= 9 and -9 <= f <= 9 and -99 <= i <= 99 }}")


@given(_sets(), _sets())
@settings(max_examples=60, deadline=None)
def test_sets_drawn_at_random(a: Set, b: Set) -> None:
    for name, operands in (
        ("is_empty", (a,)),
        ("is_subset", (a, b)),
        ("subtract", (a, b)),
        ("coalesce", (a.union(b),)),
    ):
        found = opinion(OfIsl(name, operands, getattr(operands[0], name)(*operands[1:])))
        assert not found.disagreed, found


# ---------------------------------------------------------------------------- Z3's answers

X, Y, B = z3.Int("x"), z3.Int("y"), z3.Bool("b")
FORMULAS: list[tuple[str, list[z3.BoolRef]]] = [
    ("unsat", [X / 4 * 4 > X]),
    ("unsat", [X % 4 + 4 * (X / 4) != X]),
    ("unsat", [z3.If(X > Y, X, Y) < Y]),
    ("unsat", [z3.Implies(B, X > 0), B, X < 0]),
    ("unsat", [X / -3 != -(X / 3)]),
    ("unsat", [z3.Or(X == 1, X == 2), z3.Distinct(X, 1), z3.Not(X == 2)]),
    ("unsat", [X * Y > 3, X * Y < 4]),
    ("sat", [X * Y == 12, X > 3, Y > 1]),
    ("sat", [X % 7 == 3, z3.Xor(B, X > 0)]),
]


@pytest.mark.parametrize(("answer", "formulas"), FORMULAS)
def test_answers_of_z3(answer: str, formulas: list[z3.BoolRef]) -> None:
    solver = z3.Solver()
    solver.add(*formulas)
    assert str(solver.check()) == answer
    model = solver.model() if answer == "sat" else None
    assert opinion(OfZ3(tuple(formulas), answer, model)).agreed == 1


def test_a_wrong_unsat() -> None:
    assert opinion(OfZ3((X / 4 * 4 >= X,), "unsat", None)).disagreed
    assert opinion(OfZ3((X * Y > 3, X * Y < 5), "unsat", None)).undecided == 1  # ISL knows no products


def test_a_wrong_model() -> None:
    solver = z3.Solver()
    solver.add(X == 5)
    assert solver.check() == z3.sat
    assert opinion(OfZ3((X == 5, X % 2 == 1), "sat", solver.model())).agreed
    assert opinion(OfZ3((X == 5, X % 2 == 0), "sat", solver.model())).disagreed


# ---------------------------------------------------------------------------- a whole proof


def test_a_proof_with_opinions() -> None:
    report = example()
    assert report.verdict is Verdict.PROVED
    engines = {engine: sum(o.agreed for o in report.opinions if o.engine == engine) for engine in ("isl", "z3")}
    assert engines["isl"] > 100 and engines["z3"] > 3
    assert not any(o.disagreed for o in report.opinions)
    assert sum(o.undecided for o in report.opinions) * 20 < sum(engines.values())


def test_what_is_asked_is_heard_from_everywhere() -> None:
    with listening() as heard:
        assert Set("{ [i] : i > i }").is_empty()
        assert not isl.UnionMap("{ A[i] -> B[i] }").is_empty()
        assert Solver(Work.of_seconds(1)).holds(X == X).verdict is Verdict.PROVED
    assert [type(asked) for asked in heard] == [OfIsl, OfIsl, OfZ3]
    assert not Set("{ [i] : i > 0 }").is_empty()
    assert len(heard) == 3


RIGHT = """
import argus
import argus.language as al

@argus.kernel
def kernel(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    i = al.grid(al.cdiv(N, 128)) * 128 + al.arange(128)
    al.store(y[i], al.load(x[i], mask=i < N), mask=i < N)
"""


def _checked(path: Path, capsys: pytest.CaptureFixture[str], text: str = RIGHT) -> tuple[int, dict[str, Any]]:
    path.write_text(text, encoding="utf-8")
    code = main(["check", str(path), "--second-opinion", "--json"])
    (outcome,) = json.loads(capsys.readouterr().out)
    return code, outcome


def _disagreed(outcome: dict[str, Any]) -> set[str]:
    return {o["engine"] for o in outcome["second_opinion"] if o["disagreed"]}


def test_engines_that_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, outcome = _checked(tmp_path / "k.py", capsys)
    assert code == 0 and outcome["verdict"] == "proved" and not _disagreed(outcome)
    code, outcome = _checked(tmp_path / "k.py", capsys, RIGHT.replace("al.load(x[i], mask=i < N)", "al.load(x[i])"))
    assert code == 1 and outcome["verdict"] == "refuted" and not _disagreed(outcome)


def test_isl_takes_everything_for_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in (Set, Map, isl.UnionSet, isl.UnionMap):
        monkeypatch.setattr(kind, "is_empty", lambda union: True)
    code, outcome = _checked(tmp_path / "k.py", capsys, (ROOT / EXAMPLE).read_text(encoding="utf-8"))
    assert code == 4 and outcome["verdict"] == "unknown" and _disagreed(outcome) == {"isl"}
    assert "engines-disagree" in [d["code"] for d in outcome["diagnostics"]]


def test_z3_proves_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Solver, "_check", lambda solver, limit: z3.unsat)
    code, outcome = _checked(tmp_path / "k.py", capsys, RIGHT.replace("al.load(x[i], mask=i < N)", "al.load(x[i])"))
    assert code == 4 and outcome["verdict"] == "unknown" and _disagreed(outcome) == {"z3"}
