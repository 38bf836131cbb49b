"""What the CUDA header's functions touch, on the host, for every row of the instruction table: see `rows.cpp`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import argus.backend.cuda
from argus.backend.cuda.toolchain import INCLUDE
from argus.backend.device_api import Function, cpp_type, functions
from argus.ir.instruction import INSTRUCTIONS, REDUCES, CopyRow, ReduceRow
from argus.ir.target import TARGETS
from argus.ir.types import DTYPES, DType, float32, int32, int64

HERE = Path(__file__).parent
HEADER = Path(argus.backend.cuda.__file__).parent / "argus_cuda.h"
ROWS: tuple[CopyRow | ReduceRow, ...] = (*INSTRUCTIONS.values(), *REDUCES.values())
ARCHITECTURES = {
    # Stores are C++ there, whose addresses the compiler checks.
    "sm_80": ["-D__CUDA_ARCH__=800", "-fsanitize=alignment", "-fno-sanitize-recover"],
    "sm_90a": ["-D__CUDA_ARCH__=900", "-D__CUDA_ARCH_FEAT_SM90_ALL"],
}


def served(row: CopyRow | ReduceRow) -> list[Function]:
    return [f for f in functions("cuda") if row.name in f.rows]


def types(row: CopyRow) -> list[DType]:
    """Those of the row's sizes; updates are of some alone."""
    if row.name == "red.global":
        return [float32, int32, int64]
    return [d for d in DTYPES.values() if d.bits in row.dtypes_bits]


def vectors(row: CopyRow, number: int) -> Iterator[tuple[int, DType]]:
    """Bytes and types: the greatest width with a type of each size, the others with one; other types for the function
    `number` of the row than for the one before it."""
    for turn, width in enumerate(row.vector_bytes):
        sizes = sorted({d.bits for d in types(row) if width % d.bytes == 0})
        every = width == row.vector_bytes[-1]
        for size in sizes if every else [sizes[(turn + number) % len(sizes)]]:
            alike = [d for d in types(row) if d.bits == size]
            yield width, alike[(turn + number) % len(alike)]


def calls(row: CopyRow | ReduceRow) -> Iterator[str]:
    """The checks of the row's functions."""
    for number, f in enumerate(served(row)):
        match f.template, row:
            case "int N, class T", CopyRow():
                yield from (
                    f"check_{f.name}<{width // t.bytes}, {cpp_type(t)}>();" for width, t in vectors(row, number)
                )
            case "int BYTES, class T", CopyRow():
                yield from (f"check_{f.name}<{width}, {cpp_type(t)}>();" for width, t in vectors(row, number))
            case "class T", _:
                chosen = row.dtypes if isinstance(row, ReduceRow) else types(row)
                yield from (f"check_{f.name}<{cpp_type(t)}>();" for t in chosen)
            case _:
                yield f"check_{f.name}();"


def on_the_host(text: str) -> str:
    """`text`, its assembly as calls of the model."""
    parts, end = [], 0
    for match in re.finditer(r"\basm(?: volatile)?\s*\(", text):
        parts.append(text[end : match.start()])
        inside, end = _balanced(text, match.end())
        template, *operands = _split(inside, ":")
        given = [
            f"model::{place}({expr})"
            for place, listed in zip(("out", "in"), operands, strict=False)
            for operand in _split(listed, ",")
            for expr in [operand.strip().partition("(")[2].rpartition(")")[0]]
            if expr
        ]
        parts.append(f"model::ptx({template}, {{{', '.join(given)}}})")
    return "".join([*parts, text[end:]])


def _balanced(text: str, start: int) -> tuple[str, int]:
    """What stands from `start` to the bracket that closes it, and where that ends."""
    depth = 1
    for token in re.compile(r'"(?:\\.|[^"\\])*"|[()]').finditer(text, start):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth == 0:
            return text[start : token.start()], token.end()
    raise ValueError("a bracket is not closed")


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand in no brackets and no strings."""
    parts, depth, start = [], 0, 0
    for token in re.finditer(r'"(?:\\.|[^"\\])*"|[()\[\]{}]|' + separator, text):
        if token[0] == separator and depth == 0:
            parts.append(text[start : token.start()])
            start = token.end()
        elif len(token[0]) == 1:
            depth += (token[0] in "([{") - (token[0] in ")]}")
    return [*parts, text[start:]]


def run(folder: Path, compiler: str, arch: str, checks: list[str], header: str | None = None) -> str:
    """What the checks say of what is wrong, "" if nothing is."""
    include = [f"-I{directory}" for directory in (HERE, *INCLUDE)]
    expanded = [compiler, "-E", "-P", "-w", "-std=c++17", *ARCHITECTURES[arch], *include, "-x", "c++", "-"]
    text = HEADER.read_text(encoding="utf-8") if header is None else header
    plain = subprocess.run(expanded, input=text, capture_output=True, text=True, check=True).stdout
    (folder / "header.h").write_text(on_the_host(plain), encoding="utf-8")
    program = (HERE / "rows.cpp").read_text(encoding="utf-8").replace("// CALLS", _named(checks))
    (folder / "rows.cpp").write_text(program, encoding="utf-8")
    flags = ["-std=c++17", "-O0", "-w", "-fno-strict-aliasing"]
    built = subprocess.run(
        [compiler, *flags, *ARCHITECTURES[arch], f"-I{folder}", f"-I{HERE}", "rows.cpp", "-o", "rows"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    done = subprocess.run([folder / "rows"], capture_output=True, text=True, check=False)
    return f"status {done.returncode}: {done.stdout}{done.stderr}" if done.returncode else ""


def _named(checks: list[str]) -> str:
    return "\n".join(f'model::checking = "{check}"; {check}' for check in checks)


def of(arch: str) -> list[CopyRow | ReduceRow]:
    return [row for row in ROWS if TARGETS[arch].has(row)]


def checks_of(arch: str) -> list[str]:
    return list(dict.fromkeys(call for row in of(arch) for call in calls(row)))


def test_every_row_touches_what_the_mask_leaves(tmp_path: Path, require_tool: Any) -> None:
    assert not run(tmp_path, require_tool("g++", "clang++"), "sm_90a", checks_of("sm_90a"))


def test_global_memory_before_sm_90(tmp_path: Path, require_tool: Any) -> None:
    """Whose text is another there."""
    differ = [check for check in checks_of("sm_80") if re.match(r"check_(load|store)_global_(if|or|whole|cut)", check)]
    assert not run(tmp_path, require_tool("g++", "clang++"), "sm_80", differ)


def test_a_wrong_header_shows(tmp_path: Path, require_tool: Any) -> None:
    header = HEADER.read_text(encoding="utf-8")
    right = "@p ld.global.v2.u32"
    assert right in header
    checks = ["check_load_global_if<2, float>();"]
    said = run(tmp_path, require_tool("g++", "clang++"), "sm_80", checks, header.replace(right, right[3:]))
    assert f"{checks[0]}: a byte is read that is not there" in said


def test_every_row_has_a_function_and_its_check() -> None:
    for row in of("sm_90a"):
        assert served(row), f"no function of the CUDA header says that it serves {row.name}"
        checked = {name for call in calls(row) for name in re.findall(r"check_(\w+)", call)}
        assert checked == {f.name for f in served(row)}
