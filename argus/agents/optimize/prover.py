"""The process that examines candidates. It reads texts, proves and builds them, and never runs one."""

from __future__ import annotations

from dataclasses import asdict

from argus.agents.optimize.examine import examine, shape_of
from argus.agents.optimize.problem import Problem
from argus.agents.optimize.service import Answer, serve


def handle(request: Answer) -> Answer:
    """Answer {"problem", "text", "best_us", "build"} with an `Examined`; with "shape", stop after the stage "model"."""
    problem = Problem(**request["problem"])
    if request.get("shape"):
        return asdict(shape_of(problem, request["text"])[0])
    return asdict(examine(problem, request["text"], request.get("best_us"), build=request["build"]))


def main() -> None:
    """Serve until the parent closes the pipe."""
    serve(handle)
