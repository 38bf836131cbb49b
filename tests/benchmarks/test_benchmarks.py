"""The benchmarks run, and their tables say what they claim; figures are not tested."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gemm, verify
from benchmarks.machine import machine
from benchmarks.table import Results, show

ROOT = Path(__file__).parents[2]


def test_a_table_goes_to_the_terminal_and_to_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"what": "kernel[grid](...)", "us": 3.25}, {"what": "other", "us": None}]
    show(Results("Title", rows, ("a note",)), tmp_path / "t.json")
    printed = capsys.readouterr().out
    assert "kernel[grid](...)" in printed and "3.25" in printed and "–" in printed and "a note" in printed
    written = json.loads((tmp_path / "t.json").read_text())
    assert written["rows"] == rows
    assert written["machine"] == machine()


def test_launch_measures_what_needs_no_gpu(require_tool: Any) -> None:
    torch = pytest.importorskip("torch")
    require_tool("g++", "clang++", "c++")
    from benchmarks import launch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    rows = launch.run(256, 10).rows
    assert [row["what"] for row in rows] == ["argus, empty grid", "torch.add(..., out=), no elements"]
    assert all(row["median us"] >= row["least us"] > 0 for row in rows)  # type: ignore[operator]


def test_verify_has_a_row_for_each_property_and_a_total(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "vector_add.py", tmp_path)
    rows = verify.run("sm_80", tmp_path, 1).rows
    assert {row["kernel"] for row in rows} == {"vector_add"}
    properties = [str(row["property"]) for row in rows]
    assert properties[:2] == ["front end", "passes"]
    assert properties[-1] == "total: proved"
    assert {"bounds", "races", "tags"} <= set(properties)


def test_shapes_and_constants_are_read(tmp_path: Path) -> None:
    (tmp_path / "shapes").write_text("1 2 3\n\n64 4096 4096\n")
    assert gemm.read_shapes(tmp_path / "shapes") == [(1, 2, 3), (64, 4096, 4096)]
    assert gemm.read_shapes(None) == gemm.SHAPES
    assert gemm.constants_of("BLOCK_M=128, STAGES=4") == {"BLOCK_M": 128, "STAGES": 4}
    assert gemm.constants_of("") == {}
