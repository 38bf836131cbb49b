"""What `argus check --json` prints follows its published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from argus.cli import main
from argus.render import SCHEMA
from tests.cli.test_check import BROKEN, RIGHT, WRONG

PUBLISHED = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "check-1.json").read_text(encoding="utf-8"))
_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def conforms(value: Any, schema: Any, where: str = "$") -> None:
    """Assert that a value follows a JSON Schema, of the keywords that ours uses."""
    known = {"$schema", "$id", "$defs", "title", "description", "type", "items", "required", "properties", "const",
             "enum", "oneOf", "$ref", "additionalProperties"}  # fmt: skip
    assert set(schema) <= known, f"the schema at {where} uses a keyword that this test does not read"
    if "$ref" in schema:
        conforms(value, PUBLISHED["$defs"][schema["$ref"].removeprefix("#/$defs/")], where)
        return
    if "oneOf" in schema:
        chosen = schema["oneOf"][0 if value is None else 1]
        conforms(value, chosen, where)
        return
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(_is(value, name) for name in names), f"{where} is {value!r}, not of type {names}"
    assert "const" not in schema or value == schema["const"], where
    assert "enum" not in schema or value in schema["enum"], where
    if isinstance(value, list):
        for number, item in enumerate(value):
            conforms(item, schema.get("items", {}), f"{where}[{number}]")
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value), f"{where} lacks a field"
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            conforms(item, inner, f"{where}.{key}")


def _is(value: Any, name: str) -> bool:
    if name in ("integer", "number"):
        return not isinstance(value, bool) and isinstance(value, int if name == "integer" else (int, float))
    return isinstance(value, _TYPES[name])


@pytest.mark.parametrize(
    ("text", "flags", "code", "verdict"),
    [
        (RIGHT, [], 0, "proved"),
        (WRONG, [], 1, "refuted"),
        (BROKEN, [], 2, "error"),
        (RIGHT, ["--limit", "1e-9"], 3, "unknown"),
    ],
    ids=["proved", "refuted", "error", "unknown"],
)
def test_every_verdict_follows_the_schema(
    text: str, flags: list[str], code: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "k.py").write_text(text)
    assert main(["check", "--json", *flags, str(tmp_path / "k.py")]) == code
    found = json.loads(capsys.readouterr().out)
    conforms(found, PUBLISHED)
    assert [outcome["verdict"] for outcome in found] == [verdict]
    assert found[0]["schema"] == SCHEMA == PUBLISHED["$id"]
    assert found[0]["alignment"] == ({"x": 16} if verdict == "proved" else {})


def test_a_missing_file_follows_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", "nowhere.py"]) == 2
    found = json.loads(capsys.readouterr().out)
    conforms(found, PUBLISHED)
    assert found[0]["verdict"] == "error"


@pytest.mark.parametrize(("dtype", "equality"), [("float32", "over the reals"), ("int32", "exact")])
def test_a_verdict_on_values_names_its_equality(
    dtype: str, equality: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = RIGHT.index("(x:"), RIGHT.index("BLOCK: al.constexpr")
    text = RIGHT[:start] + f'(x: al.Tensor[al.{dtype}, "N"], ' + RIGHT[end:]
    specified = "    al.spec(x, lambda i: 0)\n" if dtype == "int32" else "    al.spec(x, lambda i: 0.0)\n"
    body = text.index("    ", text.index("BLOCK: al.constexpr"))
    text = (text[:body] + specified + text[body:]).replace("al.float32)", f"al.{dtype})")
    (tmp_path / "k.py").write_text(text)
    assert main(["check", "--json", str(tmp_path / "k.py")]) == 0
    assert json.loads(capsys.readouterr().out)[0]["equality"] == {"x": equality}
    assert main(["check", str(tmp_path / "k.py")]) == 0
    assert f"values: x {equality}" in capsys.readouterr().out


def test_the_proved_line_says_the_alignment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.py").write_text(RIGHT)
    assert main(["check", str(tmp_path / "k.py")]) == 0
    assert "with tensors and their rows aligned to 16 bytes (checked at each call)" in capsys.readouterr().out
    assert main(["check", "--alignment", "4", str(tmp_path / "k.py")]) == 0
    assert "aligned to 4 bytes" in capsys.readouterr().out
