"""Optimisation without a language model: a planner picks rewrites and constants; proofs and measurements decide."""

from argus.agents.optimize.folder import Folder, State, Trial
from argus.agents.optimize.place import place_of_timing
from argus.agents.optimize.planner import Planner
from argus.agents.optimize.problem import Problem, problem_of
from argus.agents.optimize.report import as_json, write
from argus.agents.optimize.run import Limits, Run

__all__ = [
    "Folder",
    "Limits",
    "Planner",
    "Problem",
    "Run",
    "State",
    "Trial",
    "as_json",
    "place_of_timing",
    "problem_of",
    "write",
]
