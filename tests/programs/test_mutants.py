"""No mutant of a program is proved that breaks a rule, or computes something else, when it is executed."""

import pytest

from argus.mutate import Outcome
from argus.programs.mutate import mutations, trial
from tests.programs.texts import program


@pytest.mark.parametrize("name", ["twice", "forked"])
def test_every_mutant_of_a_small_program_is_judged_right(name):
    found = trial(program(name), 0, None, 20.0)
    assert not [r for r in found.results if r.outcome is Outcome.MISSED]
    assert found.number(Outcome.KILLED) > 0.85 * len(found.results)


@pytest.mark.parametrize("name", ["ring", "picked", "chunks", "mlp", "rows"])
def test_some_mutants_of_a_larger_program_are_judged_right(name):
    found = trial(program(name), 1, 12, 20.0)
    assert len(found.results) == 12
    assert not [r for r in found.results if r.outcome is Outcome.MISSED]


def test_there_are_mutants_of_every_kind():
    words = {m.name.split(" (")[0] for m in mutations(program("ring"))}
    assert {"drop a wait", "drop an event", "drop a launch", "a launch on side", "loop ends later"} <= words
    assert any(w.startswith("wait for") for w in words)
    places = {m.name for m in mutations(program("picked"))}
    assert {"h takes the place of z", "swap x and z", "condition negated", "drop a precondition"} <= places
