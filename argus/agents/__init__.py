"""Repair without a language model: counterexamples become edits, and proofs choose among them."""

from argus.agents.contract import broken
from argus.agents.repair import Repair, Step, repair, repair_json
from argus.agents.verifier import Judgement, Stage, Task, judge, judgement_json

__all__ = [
    "Judgement",
    "Repair",
    "Stage",
    "Step",
    "Task",
    "broken",
    "judge",
    "judgement_json",
    "repair",
    "repair_json",
]
