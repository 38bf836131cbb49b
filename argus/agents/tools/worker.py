"""The process that carries out one tool call, so that a call can be ended at any time."""

from __future__ import annotations

from argus.agents.optimize.service import Answer, serve
from argus.agents.tools.table import call


def main() -> None:
    """Serve until the parent closes the pipe."""
    serve(lambda request: {"result": call(request["tool"], request["arguments"])})


def unpacked(answer: Answer) -> Answer:
    """Return a tool's result; an error inside the worker becomes a result with `error`."""
    result = answer.get("result", {"error": answer.get("error", "no answer")})
    return result if isinstance(result, dict) else {"result": result}
