"""The MCP server by the SDK's own client: twenty wrong kernels made right from answers alone, limits, resources."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.agents.wrong_kernels import tasks

anyio = pytest.importorskip("anyio")

from argus.agents.optimize.service import Worker, WorkerLost  # noqa: E402
from argus.agents.tools.table import TOOLS, call  # noqa: E402

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs mcp")
ADD = (Path(__file__).parents[2] / "examples" / "vector_add.py").read_text()
Call = Callable[..., Awaitable[dict[str, Any]]]
_MEANT = re.compile(r"did you mean `([^`]+)`\?")
_WRITE = re.compile(r"`(boundary_check=\([\d, ]+\))`")


def connected(command: list[str] | None = None) -> Any:
    """A client of the server, or of what a command starts. To import the SDK takes a second, which most runs save."""
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters

    from argus.agents.tools.server import server

    if command is None:
        return Client(server("test"))
    return Client(StdioServerParameters(command=command[0], args=command[1:], cwd=str(Path.cwd())))


def asked(client: Any) -> Call:
    async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        answer: dict[str, Any] = json.loads(result.content[0].text)
        return answer

    return ask


async def made_right(ask: Call, form: str, text: str) -> str:
    """What a client does that knows nothing of kernels: it follows advice, and else asks for a repair."""
    for _ in range(3):
        said = await ask("check", text=text, form=form)
        if said.get("proved"):
            return "proved"
        finding = next((d for s in said.get("stages", ()) for d in s["diagnostics"]), None)
        meant = _MEANT.search(finding["help"]) if finding else None
        if finding and meant:
            lines = text.splitlines(keepends=True)
            span = finding["span"]
            line = lines[span["line"] - 1]
            lines[span["line"] - 1] = line[: span["column"] - 1] + meant[1] + line[span["end_column"] - 1 :]
            text = "".join(lines)
            continue
        answer = (await ask("repair", text=text, form=form))["answer"]
        if answer is None:
            return "no repair"
        form, text = answer["form"], answer["text"]
    return "not proved"


@pytest.mark.parametrize("every", [1, 4])
def test_twenty_wrong_kernels_are_made_right(every: int) -> None:
    """`every`: one kernel of so many."""

    async def main() -> dict[str, str]:
        async with connected() as client:
            return {title: await made_right(asked(client), *task) for title, task in [*tasks().items()][::every]}

    found = anyio.run(main)
    assert len(found) == 20 // every
    assert {title: said for title, said in found.items() if said != "proved"} == {}


def test_tools_have_schemas_and_resources_have_texts() -> None:
    async def main() -> None:
        async with connected() as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == set(TOOLS)
            schema = tools["check"].input_schema
            assert schema["required"] == ["text"] and schema["properties"]["target"]["default"] == "sm_80"
            assert all(tool.description for tool in tools.values())
            names = {str(r.uri) for r in (await client.list_resources()).resources}
            assert {"argus://docs/language.md", "argus://examples/gemm.py", "argus://errors/data-race.md"} <= names
            found = await client.read_resource("argus://docs/language.md")
            assert "# The language" in found.contents[0].text

    anyio.run(main)


@pytest.mark.parametrize(
    "old,new,changes",
    [
        pytest.param("", "", "", id="the same"),
        pytest.param("x[i] + y[i]", "x[i]", "specifications", id="another specification"),
        pytest.param("x.shape[0]\n", "x.shape[0]\n    al.requires(N > 1)\n", "preconditions", id="a demand"),
    ],
)
def test_a_text_that_changes_its_task_is_not_accepted(old: str, new: str, changes: str) -> None:
    """A coding agent that proves another specification has not done what it was asked."""
    author = ADD
    text = author.replace(old, new) if old else author
    if changes == "specifications":
        text = text.replace("al.load(x[offs], mask=mask) + al.load(y[offs], mask=mask)", "al.load(x[offs], mask=mask)")
    found = call("check", {"text": text, "author": author})
    assert isinstance(found, dict) and found["proved"] is True
    assert found["accepted"] is (changes == "") and found["changes"] == changes
    assert "accepted" not in call("check", {"text": text})  # type: ignore[operator]


def test_a_refused_text_is_an_answer() -> None:
    assert "codes" in call("check", {"text": "no kernel"})
    assert "200000" in str(call("check", {"text": "x" * 300_000}))
    assert "did you mean" in str(call("explain", {"code": "data-rase"}))


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("explain", {"code": "data-race"}, "page"),
        ("show", {"text": ADD}, "explicit"),
        ("build", {"text": ADD, "target": "cpu"}, "source"),
        ("simulate", {"text": ADD}, "runs"),
        ("mutate", {"text": ADD, "count": 2}, "kernel"),
        ("layout", {"notation": "(2,4):(4,1)"}, "drawing"),
        ("time", {"text": ADD, "sizes": {"N": 1024}}, "us"),
        ("knowledge", {"query": "pipeline"}, "entries"),
        ("annotate", {"text": ADD}, "lines"),
    ],
)
def test_each_tool_answers(tool: str, arguments: dict[str, Any], field: str) -> None:
    found = call(tool, arguments)
    assert isinstance(found, dict) and field in found, found


def test_a_text_reads_no_files_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's text could show in a message, or in the explicit kernel, what is in a file."""
    (tmp_path / "settings.py").write_text("SECRET = 12345\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = ADD.replace("import argus\n", "import argus\nfrom settings import SECRET\n")
    text = text.replace("BLOCK: al.constexpr = 1024", "BLOCK: al.constexpr = SECRET").replace("y[i]", "y[i] + SECRET")
    assert text.count("SECRET") > 1
    for tool in ("show", "check", "knowledge", "optimize", "time"):
        said = str(call(tool, {"text": text}))
        assert "may read no files" in said and "12345" not in said, tool


def test_a_text_may_use_helpers_of_the_library() -> None:
    text = ADD.replace("import argus\n", "import argus\nfrom argus.kernels.experts import swiglu\n")
    text = text.replace("x[i] + y[i]", "swiglu(x[i], y[i])").replace(
        "al.load(x[offs], mask=mask) + al.load(y[offs], mask=mask)",
        "swiglu(al.load(x[offs], mask=mask), al.load(y[offs], mask=mask))",
    )
    found = call("check", {"text": text})
    assert isinstance(found, dict) and found["proved"] is True, found


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("explain", {"code": "../language"}, "is not an error code"),
        ("explain", {"code": "x" * 300_000}, "a tool takes 200000"),
        ("layout", {"notation": "(1000000,1000000):(1000000,1)"}, "at most"),
        ("check", {"text": ADD, "form": "exe"}, "the forms are python and ir"),
        ("time", {"text": ADD, "sizes": {"N": 10**30}}, "`N` cannot be"),
        ("knowledge", {"text": ADD, "sizes": {"N": 10**30}}, "`N` cannot be"),
        ("knowledge", {"text": ADD, "sizes": {"N": -1}}, "`N` cannot be"),
        ("optimize", {"text": ADD, "minutes": float("nan")}, "no run takes nan minutes"),
        ("build", {"text": ADD, "target": "../../tmp"}, "there is no target"),
    ],
)
def test_an_input_that_no_tool_can_use_is_refused(tool: str, arguments: dict[str, Any], said: str) -> None:
    found = call(tool, arguments)
    assert isinstance(found, dict) and said in str(found["error"]), found


def test_calls_at_the_same_time_share_a_few_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def counted(self: Worker, request: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        return {"result": {"drawing": ""}}

    monkeypatch.setattr(Worker, "ask", counted)
    monkeypatch.setattr(os, "sched_getaffinity", lambda of: {0, 1, 2})

    async def main() -> None:
        async with connected() as client, anyio.create_task_group() as group:
            for _ in range(12):
                group.start_soon(partial(client.call_tool, "layout", {"notation": "(2,4):(4,1)"}))

    anyio.run(main)
    assert most[0] == 3


def test_a_call_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: Worker, request: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        assert timeout_s == TOOLS["check"].limit_s
        raise WorkerLost("the process ended")

    monkeypatch.setattr(Worker, "ask", slow)

    async def main() -> dict[str, Any]:
        async with connected() as client:
            return await asked(client)("check", text=ADD)

    assert "was ended after" in anyio.run(main)["error"]


def test_a_cancelled_call_ends_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Worker] = []
    original = Worker.close
    monkeypatch.setattr("argus.agents.tools.server._WORKER", "tests.agents.forger")
    monkeypatch.setattr(Worker, "close", lambda self: (closed.append(self), original(self))[1])

    async def main() -> None:
        async with connected() as client:
            with anyio.move_on_after(1.0):
                await client.call_tool("explain", {"code": "hang"})

    monkeypatch.setattr(Worker, "ask", _hanging)
    anyio.run(main)
    assert closed


def _hanging(self: Worker, request: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
    process = self._running()
    process.stdin.write('{"hang": true}\n')  # type: ignore[union-attr]
    process.stdin.flush()  # type: ignore[union-attr]
    process.stdout.readline()  # type: ignore[union-attr]
    raise WorkerLost("closed")


def test_the_command_serves_over_standard_input_and_output() -> None:
    async def main() -> dict[str, Any]:
        async with connected([sys.executable, "-m", "argus", "mcp"]) as client:
            return await asked(client)("layout", notation="(2,4):(4,1)")

    assert "drawing" in anyio.run(main)
