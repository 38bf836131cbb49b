"""What the CUDA header's functions touch, on the host, for every row of the instruction table."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import argus.backend.cuda
from argus.backend.cuda.toolchain import INCLUDE
from tests.backend import rows

HEADER = (Path(argus.backend.cuda.__file__).parent / "argus_cuda.h").read_text(encoding="utf-8")
ARCHITECTURES = {
    # Stores are C++ there, whose addresses the compiler checks.
    "sm_80": ["-D__CUDA_ARCH__=800", "-fsanitize=alignment", "-fno-sanitize-recover"],
    "sm_90a": ["-D__CUDA_ARCH__=900", "-D__CUDA_ARCH_FEAT_SM90_ALL"],
}


def run(folder: Path, compiler: str, arch: str, checks: list[str], header: str = HEADER) -> str:
    """What the checks say of what is wrong, "" if nothing is."""
    flags = ARCHITECTURES[arch]
    include = [f"-I{directory}" for directory in INCLUDE]
    expand = [compiler, "-E", "-P", "-w", "-std=c++17", *flags, *include, "-x", "c++", "-"]
    plain = subprocess.run(expand, input=header, capture_output=True, text=True, check=True).stdout
    return rows.run(folder, compiler, plain, checks, flags)


def test_every_row_touches_what_the_mask_leaves(tmp_path: Path, require_tool: Any) -> None:
    assert not run(tmp_path, require_tool("g++", "clang++"), "sm_90a", rows.checks_of("sm_90a", "cuda"))


def test_global_memory_before_sm_90(tmp_path: Path, require_tool: Any) -> None:
    """Whose text is another there."""
    differ = re.compile(r"check_(load|store)_global_(if|or|whole|cut)")
    checks = [check for check in rows.checks_of("sm_80", "cuda") if differ.match(check)]
    assert not run(tmp_path, require_tool("g++", "clang++"), "sm_80", checks)


def test_a_wrong_header_shows(tmp_path: Path, require_tool: Any) -> None:
    right = "@p ld.global.v2.u32"
    assert right in HEADER
    checks = ["check_load_global_if<2, float>();"]
    said = run(tmp_path, require_tool("g++", "clang++"), "sm_80", checks, HEADER.replace(right, right[3:]))
    assert f"{checks[0]}: a byte is read that is not there" in said


def test_every_row_has_a_function_and_its_check() -> None:
    assert not rows.unchecked("sm_90a", "cuda")
