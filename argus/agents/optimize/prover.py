"""The process that examines candidates. It reads texts, proves and builds them, and never runs one."""

from __future__ import annotations

from dataclasses import asdict

from argus.agents.optimize.examine import examine, shape_of
from argus.agents.optimize.moves import Move, moves
from argus.agents.optimize.problem import Problem
from argus.agents.optimize.service import Answer, serve


def handle(request: Answer) -> Answer:
    """Answer {"problem", "text", "best_us", "build"} with an `Examined`.

    {"problem", "expand", "facts", "part", "of"} is answered with a part of the moves from a text, each with what the
    stages up to "model" say of it; {"problem", "shape"} with what they say of one text. The answer says "unwritten" if
    the disk takes no files of the compiler.
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
