"""What the HIP header's functions touch, on the host, for every row of the instruction table.

Its pointers to address spaces are the model's, and so are the few instructions that it writes as text, and the atomic
updates; the rest of it, which asks for other builtins of the compiler, is left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import argus.backend.hip
from argus.backend.cpu.toolchain import INCLUDE
from tests.backend import rows

HEADER = (Path(argus.backend.hip.__file__).parent / "argus_hip.h").read_text(encoding="utf-8")
PARTS = (
    ("// ---- global memory", "// ---- matrix products"),
    ("namespace target {\n__attribute__((device)) const unsigned zero_word", "ARGUS_FN void wave_barrier"),
    ("template <class T> ARGUS_FN void atomic_add", "}  // namespace argus\n"),
)
"""From where up to where the functions on memory stand."""
REPLACED = {
    "__attribute__((address_space(1))) W*": "model::Pointer<W, false>",
    "__attribute__((address_space(3))) W*": "model::Pointer<W, true>",
    "(__attribute__((address_space(3))) void*)place": "static_cast<__UINTPTR_TYPE__>(place)",
    "__builtin_amdgcn_readfirstlane": "model::first_lane",
    "__attribute__((device))": "",
    "__amdgpu_buffer_rsrc_t": "model::Buffer",
    "__builtin_amdgcn_make_buffer_rsrc": "model::buffer",
    **{f"__builtin_amdgcn_raw_buffer_load_b{bits}": "model::buffer_load<W>" for bits in (128, 64, 32, 16, 8)},
    '"+s"': '"+r"',
    '"+v"': '"+r"',
}
ZERO = "const bool known = (model::zero_word = reinterpret_cast<__UINTPTR_TYPE__>(&target::zero_word), true);"
"""The model has to know what lanes read that are masked."""


def section(first: str, last: str) -> str:
    """From one place of the header up to another."""
    start = HEADER.index(first)
    return HEADER[start : HEADER.index(last, start)]


def on_memory() -> str:
    """The header's functions on memory, for a host."""
    words = section("// What moves BYTES at once.", "}  // namespace target")
    functions = "\n".join(section(*part) for part in PARTS)
    text = f"namespace target {{\n{words}}}\n{functions}"
    for theirs, ours in REPLACED.items():
        text = text.replace(theirs, ours)
    text = re.sub(r"ext_vector_type\((\d+)\)", lambda m: f"vector_size({4 * int(m[1])})", text)
    text = re.sub(r"#pragma .*", "", text)
    return f'#include "scalar.h"\nnamespace argus {{\nusing shared_t = unsigned;\n{text}\n{ZERO}\n}}\n'


def run(folder: Path, compiler: str, text: str, checks: list[str]) -> str:
    """What the checks say of what is wrong, "" if nothing is."""
    return rows.run(folder, compiler, text, checks, [f"-I{directory}" for directory in INCLUDE])


def test_every_row_touches_what_the_mask_leaves(tmp_path: Path, require_tool: Any) -> None:
    assert not run(tmp_path, require_tool("g++", "clang++"), on_memory(), rows.checks_of("gfx942", "hip"))


def test_a_wrong_header_shows(tmp_path: Path, require_tool: Any) -> None:
    text, right = on_memory(), "if (p) store_global<N>(base, offset, src);"
    assert right in text
    checks = ["check_store_global_if<2, float>();"]
    said = run(tmp_path, require_tool("g++", "clang++"), text.replace(right, right[7:]), checks)
    assert f"{checks[0]}: a byte is written that is not there" in said


def test_every_row_has_a_function_and_its_check() -> None:
    assert not rows.unchecked("gfx942", "hip")
