"""Second opinions: Z3 checks each answer of ISL, and ISL checks each answer of Z3.

A model that Z3 found is not checked by ISL: the formulas are evaluated at the model. A question that the second engine
does not decide within its steps counts as undecided. The engine that answered first is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from argus.diagnostic import Opinion
from argus.verify.model.isl import IslError, Set, limited
from argus.verify.model.solver import checked, z3
from argus.verify.opinion.asked import Asked, OfIsl, OfZ3
from argus.verify.opinion.claims import Unclaimed, counterexamples
from argus.verify.opinion.readings import Reading, Unreadable, value
from argus.work import STEPS_PER_SECOND, Work

QUESTION = STEPS_PER_SECOND // 4
"""Steps of one question."""
_SHOWN = 2000
"""The most characters of a question that are shown."""


def second(heard: Iterable[Asked], work: Work) -> tuple[Opinion, ...]:
    """Return the opinions on all recorded answers, by engine and kind of question; steps are taken from `work`."""
    found: dict[tuple[str, str], Opinion] = {}
    for asked in heard:
        engine, question = ("isl", asked.name) if isinstance(asked, OfIsl) else ("z3", asked.answer)
        opinion = found.get((engine, question), Opinion(engine, question))
        agreed = None if work.over else _of_isl(asked, work) if isinstance(asked, OfIsl) else _of_z3(asked, work)
        if agreed is None:
            opinion = replace(opinion, undecided=opinion.undecided + 1)
        elif agreed:
            opinion = replace(opinion, agreed=opinion.agreed + 1)
        else:
            opinion = replace(opinion, disagreed=(*opinion.disagreed, _text(asked)[:_SHOWN]))
        found[engine, question] = opinion
    return tuple(sorted(found.values(), key=lambda o: (o.engine, o.question)))


def _text(asked: Asked) -> str:
    if isinstance(asked, OfIsl):
        return f"isl says that {asked.name} of {' and '.join(map(str, asked.operands))} is {asked.answer}"
    return f"z3 says {asked.answer} of {' and '.join(map(str, asked.formulas))}"


# ---------------------------------------------------------------------------- ISL's answers


def _of_isl(asked: OfIsl, work: Work) -> bool | None:
    """Return True if Z3 agrees with an answer of ISL, False if not, and None if Z3 does not decide it."""
    try:
        outcomes = [_satisfiable(f, work) for f in counterexamples(asked.name, asked.operands, asked.answer)]
    except (Unclaimed, IslError, z3.Z3Exception):
        return None
    says_yes = False if True in outcomes else None if None in outcomes else True
    return None if says_yes is None else says_yes == (asked.answer is not False)


def _satisfiable(formula: z3.BoolRef, work: Work) -> bool | None:
    solver = z3.SimpleSolver()
    solver.add(formula)
    outcome = checked(solver, min(QUESTION, max(work.left, 1)), work)
    return None if outcome == z3.unknown else bool(outcome == z3.sat)


# ---------------------------------------------------------------------------- Z3's answers


def _of_z3(asked: OfZ3, work: Work) -> bool | None:
    """Return True if ISL agrees with an answer of Z3, False if not, and None if ISL does not decide it.

    A model is evaluated instead: it is right if every formula holds in it.
    """
    try:
        if asked.model is not None:
            known: dict[int, int] = {}
            return all(value(formula, asked.model, known) for formula in asked.formulas)
        with limited(work, QUESTION):
            return _without_model(asked)
    except (Unreadable, IslError):
        return None


def _without_model(asked: OfZ3) -> bool | None:
    reading = Reading(asked.formulas)
    points: Set = reading.everything
    for formula in sorted(asked.formulas, key=lambda f: len(f.sexpr())):
        points = points.intersect(reading.holds(formula))
        if points.is_empty():
            return True
    return None if reading.loose else False
