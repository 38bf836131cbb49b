"""Vectors that begin anywhere, and vectors that masks cut: the header's functions, run on the host for every case."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import argus.backend.cuda

HERE = Path(__file__).parent
NAMES = ("is_amid", "load_words_amid", "load_words", "shift_into_place")
CUT = ("is_aligned", "has_ends", "load_global_whole", "load_global_each", "put", "store_global_cut")


HEADER = (Path(argus.backend.cuda.__file__).parent / "argus_cuda.h").read_text(encoding="utf-8")


def function(name: str) -> str:
    """The text of a function template of the CUDA header."""
    place = HEADER.index(f" {name}(")
    return HEADER[HEADER.rindex("template <", 0, place) : HEADER.index("\n}\n", place) + 3]


def words() -> str:
    """The text of what they pass on."""
    place = HEADER.index("struct Words {")
    return HEADER[place : HEADER.index("};\n", place) + 3]


def test_every_beginning_length_and_place(tmp_path: Path, require_tool: Any) -> None:
    compiler = require_tool("g++", "clang++", "c++")
    whole = f"namespace detail {{\n{function('is_whole')}}}\n"
    text = "\n".join([words(), whole, *map(function, (*NAMES, *CUT))])
    program = (HERE / "unaligned.cpp").read_text(encoding="utf-8").replace("// HEADER", text)
    (tmp_path / "test.cpp").write_text(program, encoding="utf-8")
    built = [str(compiler), "-std=c++17", "-O1", "-fno-strict-aliasing", "test.cpp", "-o", "test"]
    subprocess.run(built, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "test"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
