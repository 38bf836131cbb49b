"""The language server, spoken to as an editor does: JSON-RPC over standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.editor.test_editor import ROW, TILES

pytest.importorskip("pygls")
URI = "file:///somewhere/k.py"


class Client:
    """One session with a server."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "argus", "lsp", "--target", "cpu"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.number = 0

    def send(self, method: str, parameters: Any, number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": parameters}
        body = json.dumps(message if number is None else {**message, "id": number}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        length = 0
        while (line := self.process.stdout.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return json.loads(self.process.stdout.read(length))

    def ask(self, method: str, parameters: Any) -> Any:
        self.number += 1
        self.send(method, parameters, self.number)
        while True:
            message = self.receive()
            if message.get("id") == self.number and "method" not in message:
                return message["result"]

    def published(self, version: int) -> list[Any]:
        """The diagnostics of a version of the document, once they come."""
        while True:
            message = self.receive()
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["version"] == version:
                found = message["params"]["diagnostics"]
                assert isinstance(found, list)
                return found


@pytest.fixture
def client() -> Iterator[Client]:
    session = Client()
    capabilities = {"textDocument": {"publishDiagnostics": {"relatedInformation": True}}}
    session.ask("initialize", {"processId": None, "rootUri": None, "capabilities": capabilities})
    session.send("initialized", {})
    yield session
    session.ask("shutdown", None)
    session.send("exit", None)
    assert session.process.wait(timeout=60) == 0


def test_a_session(client: Client) -> None:
    wrong = TILES.format(check="")
    document = {"uri": URI, "languageId": "python", "version": 1, "text": wrong}
    client.send("textDocument/didOpen", {"textDocument": document})
    (finding,) = client.published(1)
    assert finding["code"] == "out-of-bounds" and finding["severity"] == 1 and finding["source"] == "argus"
    where = finding["range"]["start"]
    assert wrong.split("\n")[where["line"]][where["character"] :].startswith("al.load(")

    asked = {"textDocument": {"uri": URI}, "range": finding["range"], "context": {"diagnostics": [finding]}}
    (action,) = client.ask("textDocument/codeAction", asked)
    assert action["kind"] == "quickfix" and action["title"] == "Add boundary_check=(0, 1)"
    (edit,) = action["edit"]["changes"][URI]
    change = {"range": edit["range"], "text": edit["newText"]}
    versioned = {"uri": URI, "version": 2}
    client.send("textDocument/didChange", {"textDocument": versioned, "contentChanges": [change]})
    assert client.published(2) == []

    shown = client.ask("textDocument/hover", {"textDocument": {"uri": URI}, "position": {**where, "character": 5}})
    assert "in registers, layout" in shown["contents"]["value"]


def test_related_locations(client: Client) -> None:
    racing = ROW.format(value="al.load(x[i], mask=i < N)").replace("out[i]", "out[i // 2]")
    document = {"uri": URI, "languageId": "python", "version": 1, "text": racing}
    client.send("textDocument/didOpen", {"textDocument": document})
    race = next(d for d in client.published(1) if d["code"] == "data-race")
    assert {r["location"]["uri"] for r in race["relatedInformation"]} == {URI}
