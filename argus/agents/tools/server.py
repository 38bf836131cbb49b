"""The MCP server: the tools with their schemas, and documents and examples as resources."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.mcpserver import MCPServer

from argus.agents.optimize.service import Worker, WorkerLost
from argus.agents.tools.table import TOOLS, Tool
from argus.agents.tools.worker import unpacked

_WORKER = "argus.agents.tools.worker"
_ROOT = Path(__file__).parents[2]
_FOLDERS = {"docs": "docs/*.md", "examples": "examples/*.py", "errors": "docs/errors/*.md"}
INSTRUCTIONS = (
    "Argus proves GPU kernels. Write a kernel, call `check`, and read the counterexample; `explain` an error code, or "
    "`repair` it. A kernel counts only if `check` says proved. The specification (`al.spec`) is what the kernel must "
    "compute: do not weaken it. Read the resource argus://docs/language.md before you write a kernel."
)


def server(version: str) -> MCPServer[Any]:
    """Make the server, with every tool and resource."""
    idle: list[Worker] = []
    free = anyio.CapacityLimiter(max(2, len(os.sched_getaffinity(0))))
    made = MCPServer("argus", instructions=INSTRUCTIONS, version=version, log_level="WARNING")
    for name, tool in TOOLS.items():
        made.add_tool(_called(name, tool, idle, free), name=name, description=tool.description, structured_output=False)
    for folder, pattern in _FOLDERS.items():
        for path in sorted(_ROOT.glob(pattern)):
            made.resource(f"argus://{folder}/{path.name}", name=f"{folder}/{path.name}")(_text(path))
    return made


def _text(path: Path) -> Callable[[], str]:
    return lambda: path.read_text(encoding="utf-8")


def _called(
    name: str, tool: Tool, idle: list[Worker], free: anyio.CapacityLimiter
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Make a function with the tool's signature, which gives its schema. A separate process does the work.

    There are as many processes as `free` allows; further calls wait, and their time begins when a process is free.
    """

    async def run(**arguments: Any) -> dict[str, Any]:
        async with free:
            return await answered(arguments)

    async def answered(arguments: dict[str, Any]) -> dict[str, Any]:
        worker = idle.pop() if idle else Worker(_WORKER)
        request = {"tool": name, "arguments": arguments}
        try:
            answer = await anyio.to_thread.run_sync(lambda: worker.ask(request, tool.limit_s), abandon_on_cancel=True)
        except WorkerLost as error:
            return {"error": f"`{name}` was ended after {tool.limit_s:g} s, or failed: {error}"}
        except anyio.get_cancelled_exc_class():
            worker.close()
            raise
        idle.append(worker)
        return unpacked(answer)

    signature = inspect.signature(tool.function, eval_str=True)
    run.__signature__ = signature.replace(return_annotation=dict[str, Any])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    run.__name__ = name
    return run
