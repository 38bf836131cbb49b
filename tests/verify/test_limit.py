"""The time limit of proofs, in seconds of the processor: many short operations of isl's, one long one, z3's questions,
and nothing left over for the next proof."""

from __future__ import annotations

import time

import pytest
import z3

from argus.diagnostic import Verdict
from argus.verify.model.isl import IslError, isl, operation_limit
from argus.verify.model.solver import Solver

LONG = """[N, M] -> { [a, b, c] -> [i, j, k, l] : 0 <= i < N and i <= j < M and 3i + 5j + 7k = a + 2b
           and exists e : k = 5e + l and 0 <= l < 5 and (a + b + c) mod 7 = l mod 3 }"""
"""Its lexmin takes minutes."""


def short() -> None:
    isl.Map("{ [i] -> [j] : 0 <= i < j }").lexmin()


def test_many_operations_end_when_the_time_is_over() -> None:
    started = time.monotonic()
    with pytest.raises(IslError), operation_limit(1.2):
        while time.monotonic() < started + 30:
            short()
    # Four times as quick as is reckoned, where the watcher has not run.
    assert 0.3 <= time.monotonic() - started < 15


def test_one_operation_ends_by_what_it_allocates() -> None:
    relation = isl.Map(LONG)
    with pytest.raises(IslError), operation_limit(0.05):
        relation.lexmin()


def test_time_in_which_others_have_the_processor_does_not_count() -> None:
    with operation_limit(0.3):
        time.sleep(1.0)
        short()


def test_a_question_to_z3_ends_when_it_has_had_its_share() -> None:
    solver = Solver(time.thread_time() + 60.0, query_limit_ms=50)
    x, y, z = (z3.Int(name) for name in "xyz")
    answer = solver.holds(x * x * x + y * y * y + z * z * z != 33)
    assert answer.verdict is Verdict.UNKNOWN and "50 ms" in answer.reason


def test_many_operations_may_allocate_more_than_one() -> None:
    with operation_limit(60.0):
        isl.DEFAULT_CONTEXT.set_max_operations(40_000)
        for _ in range(4):
            for _ in range(20):
                short()
            time.sleep(0.4)  # the watcher runs


def test_what_ended_leaves_nothing_behind() -> None:
    with pytest.raises(IslError), operation_limit(0.05):
        isl.Map(LONG).lexmin()
    short()
    with operation_limit(10.0):
        short()
