"""The process that examines candidates. It reads texts, proves and builds them, and never runs one."""

from __future__ import annotations

from dataclasses import asdict

from argus.agents.optimize.examine import examine, shape_of
from argus.agents.optimize.moves import Move, moves
from argus.agents.optimize.problem import Problem
from argus.agents.optimize.service import Answer, serve


def handle(request: Answer) -> Answer:
    """Answer one of three requests, told apart by their keys.

    {"problem", "text", "best_us", "build"}: an `Examined` of the text.
    {"problem", "shape"}: the result of the stages up to "model" for the text under "shape".
    {"problem", "expand", "facts", "part", "of"}: part number "part" of "of" of the moves from the text under "expand",
    each with the result of these stages. The answer is {"unwritten"} if the compiler cannot write its files.
    """
    problem = Problem(**request["problem"])
    if "shape" in request:
        return asdict(shape_of(problem, request["shape"])[0])
    if "expand" in request:
        return {"moves": [(asdict(m), asdict(shape_of(problem, m.text)[0])) for m in _moves(problem, request)]}
    try:
        return asdict(examine(problem, request["text"], request.get("best_us"), build=request["build"]))
    except OSError as error:  # the disk, and not the candidate, is to blame
        return {"unwritten": error.strerror or str(error)}


def _moves(problem: Problem, request: Answer) -> list[Move]:
    return moves(request["expand"], problem.name, problem.target, request["facts"], dict(problem.sizes),
                 request["part"], request["of"])  # fmt: skip


def main() -> None:
    """Serve until the parent closes the pipe."""
    serve(handle)
