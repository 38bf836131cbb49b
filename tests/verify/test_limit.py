"""The limit of proofs, in steps of work: the same on every machine, and nothing left over for the next proof."""

from __future__ import annotations

import time

import pytest
import z3

from argus.compile import elaborate, lower, verify
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify.model.isl import IslError, charge, isl, limited
from argus.verify.model.relations import Model
from argus.verify.model.solver import Solver
from argus.verify.questions import Questions
from argus.verify.verify import REPLAY
from argus.work import LIMIT_S, MOST_SECONDS, STEPS_PER_SECOND, Work
from tests.verify.test_covers import CACHE

LONG = """[N, M] -> { [a, b, c] -> [i, j, k, l] : 0 <= i < N and i <= j < M and 3i + 5j + 7k = a + 2b
           and exists e : k = 5e + l and 0 <= l < 5 and (a + b + c) mod 7 = l mod 3 }"""
"""Its lexmin takes minutes."""


def short() -> None:
    isl.Map("{ [i] -> [j] : 0 <= i < j }").lexmin()


def steps(times: int) -> int:
    """What some short operations take."""
    work = Work(10_000_000)
    with limited(work):
        for _ in range(times):
            short()
    return 10_000_000 - work.left


def test_operations_are_counted() -> None:
    once = steps(1)
    assert 100 < once < 10_000
    assert 0.5 < steps(10) / (10 * once) < 1.5


def test_the_count_does_not_depend_on_time() -> None:
    work = Work(10_000_000)
    with limited(work):
        short()
        time.sleep(0.05)
    assert abs((10_000_000 - work.left) - steps(1)) < 100


def test_many_operations_end_when_the_work_is_over() -> None:
    done, work = 0, Work(100 * steps(1))
    with pytest.raises(IslError), limited(work):
        while done < 1000:
            short()
            done += 1
    assert 50 < done < 200
    assert work.over


def test_one_operation_ends_by_what_it_allocates() -> None:
    relation = isl.Map(LONG)
    with pytest.raises(IslError), limited(Work(50_000)):
        relation.lexmin()


def test_a_part_may_have_less_than_all_that_is_left() -> None:
    work = Work(1_000_000)
    relation = isl.Map(LONG)
    with pytest.raises(IslError), limited(work, 50_000):
        relation.lexmin()
    assert 900_000 < work.left <= 950_000


def test_a_question_to_z3_ends_when_it_has_had_its_share() -> None:
    work = Work.of_seconds(60.0)
    solver = Solver(work, query_limit=50_000)
    x, y, z = (z3.Int(name) for name in "xyz")
    answer = solver.holds(x * x * x + y * y * y + z * z * z != 33)
    assert answer.verdict is Verdict.UNKNOWN and "50000 steps" in answer.reason
    assert 50_000 <= 60 * STEPS_PER_SECOND - work.left < 200_000


def test_z3_answers_nothing_without_work() -> None:
    x = z3.Int("x")
    assert Solver(Work(0)).holds(x == x).verdict is Verdict.UNKNOWN
    assert Solver(Work.of_seconds(1.0)).holds(x == x).verdict is Verdict.PROVED


def test_what_ended_leaves_nothing_behind() -> None:
    with pytest.raises(IslError), limited(Work(50_000)):
        isl.Map(LONG).lexmin()
    short()
    with limited(Work.of_seconds(10.0)):
        short()


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e300, float("inf")])
def test_every_number_of_seconds_is_some_work(seconds: float) -> None:
    assert 0 <= Work.of_seconds(seconds).left <= MOST_SECONDS * STEPS_PER_SECOND


def test_a_part_is_of_the_whole() -> None:
    whole = Work(100)
    part = whole.part(30)
    part.spend(20)
    assert (part.left, whole.left) == (10, 80)
    part.spend(25)
    assert part.over and whole.left == 55
    assert whole.part(1000).left == 55 and Work(-1).part(5).over


def test_what_z3_takes_isl_does_not_take_again() -> None:
    """Within one question, both engines together have what is left."""
    relation, work = isl.Map(LONG), Work(1_000_000)
    with pytest.raises(IslError), limited(work):
        charge(950_000)
        relation.lexmin()
    assert 900_000 < work.left < 1_000_000
    charge(1)
    short()


def test_one_answer_takes_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs spend from one work, whichever engine they ask, and replays and searches from what is left of it."""
    kernel = lower(elaborate(SourceFile("cache.py", CACHE), "kernel", Options()), "sm_80")
    spenders: dict[int, tuple[Work, int]] = {}
    spend = Work.spend

    def noted(work: Work, steps: int) -> None:
        spenders[id(work)] = work, spenders.get(id(work), (work, 0))[1] + steps
        spend(work, steps)

    monkeypatch.setattr(Work, "spend", noted)
    assert verify(kernel).verdict is Verdict.PROVED
    ((whole, steps),) = spenders.values()
    assert whole.left == Work.of_seconds(LIMIT_S).left - steps
    spenders.clear()
    assert verify(kernel, 0.0).verdict is Verdict.UNKNOWN
    assert len(spenders) <= 2 and sum(steps for _, steps in spenders.values()) <= 2 * REPLAY


def test_a_question_that_is_asked_again_takes_less_work() -> None:
    """Terms and what they load are known from the first time, also if its limit ended it."""
    kernel = lower(elaborate(SourceFile("cache.py", CACHE), "kernel", Options()), "sm_80")
    questions, taken = Questions(Model(kernel)), list[int]()
    for _ in range(2):
        work = Work.of_seconds(10.0)
        with limited(work):
            assert questions.values() == []
        taken.append(Work.of_seconds(10.0).left - work.left)
    first, again = taken
    assert again < first
    interrupted, work = Questions(Model(kernel)), Work(first - again)
    with pytest.raises(IslError), limited(work):
        interrupted.values()
    assert interrupted.values() == []
