"""What the environment says, read in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus import environment
from tests.conftest import STALE
from tests.long import LONG


def test_debug_level(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, level in (("", 0), ("3", 3), ("9", 5), ("yes", 0)):
        monkeypatch.setenv("ARGUS_DEBUG", text)
        assert environment.debug_level() == level


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARGUS_CACHE_DIR", str(tmp_path))
    assert environment.cache_directory() == tmp_path
    monkeypatch.delenv("ARGUS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment.cache_directory() == tmp_path / "argus"


def test_find_tool_prefers_the_override_and_never_replaces_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", "")
    assert environment.find_tool(["one", "two"]) is None
    assert environment.find_tool(["zero", "two"], directories=[tmp_path]) == str(tmp_path / "two")
    monkeypatch.setenv("ARGUS_TOOL", str(tmp_path / "one"))
    assert environment.find_tool(["two"], "ARGUS_TOOL", [tmp_path]) == str(tmp_path / "one")
    monkeypatch.setenv("ARGUS_TOOL", str(tmp_path / "absent"))
    assert environment.find_tool(["two"], "ARGUS_TOOL", [tmp_path]) is None


def test_without_a_path_programs_are_where_the_system_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH", raising=False)
    assert environment.find_tool(["sh"]) is not None
    assert environment.for_programs()["PATH"] == environment.search_path() != ""
    monkeypatch.setenv("PATH", "/somewhere")
    assert environment.for_programs()["PATH"] == "/somewhere"


def test_tests_that_take_long_are_there() -> None:
    """What tests/night leaves to the nightly run is the beginning of a test's id."""
    root = Path(__file__).parent.parent
    for entry in LONG:
        path, name = entry.split("[")[0].split("::")
        assert f"\ndef {name}(" in (root / path).read_text(encoding="utf-8"), entry


def test_cases_that_take_long_are_those_that_are_collected(pytestconfig: pytest.Config) -> None:
    """Of the tests that this run collects; `make test` collects all."""
    assert not pytestconfig.stash.get(STALE, [])


def test_workers_know_the_seed(seed: int, pytestconfig: pytest.Config) -> None:
    assert seed == pytestconfig.option.seed
