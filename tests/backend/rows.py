"""What the device headers' functions on memory touch, checked on the host: `rows.cpp` for every row of the table."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from argus.backend.device_api import cpp_type, functions
from argus.backend.device_function import Function
from argus.ir.instruction import INSTRUCTIONS, REDUCES, CopyRow, Mechanism, ReduceRow
from argus.ir.target import TARGETS
from argus.ir.types import DTYPES, DType, float32, int32, int64

HERE = Path(__file__).parent
ROWS: tuple[CopyRow | ReduceRow, ...] = (*INSTRUCTIONS.values(), *REDUCES.values())


def served(row: CopyRow | ReduceRow, target: str) -> list[Function]:
    """The functions of a target's header that say that they serve the row."""
    return [f for f in functions(target) if row.name in f.rows]


def types(row: CopyRow) -> list[DType]:
    """Those of the row's sizes; updates are of some alone."""
    if row.name in ("red.global", "global_atomic"):
        return [float32, int32, int64]
    fits = {d for d in DTYPES.values() for width in row.vector_bytes if width % d.bytes == 0}
    return [d for d in DTYPES.values() if d.bits in row.dtypes_bits and d in fits]


_CHECK = r"^template <[^>]*> void check_{}(?:_if|_or)?\(\) {{.*?^}}\n"
"""The text of the checks of a function, guarded and not."""


def plain(row: CopyRow) -> str:
    """The device function of the first row that moves data as this one does: what is checked of it holds for this."""
    alike = ("src", "dst", "mechanism", "ends", "peer")
    rows = (r for r in INSTRUCTIONS.values() if r.architectures[0][:2] == row.architectures[0][:2])
    return next(r.call for r in rows if all(getattr(r, name) == getattr(row, name) for name in alike))


def with_variants(program: str, header: str) -> str:
    """The checks, with those of each variant of an instruction that the header has: the same, of the variant's
    functions."""
    found = [
        re.sub(rf"\b{plain(row)}(?=_if|_or|\b)|(?<=check_){plain(row)}(?=_if|_or|\b)", row.call, check).replace(
            "for_places(", "for_places_behind(" if row.reach else "for_places("
        )
        for row in INSTRUCTIONS.values()
        if row.mechanism is Mechanism.THREADS and row.call not in ("atomic", plain(row))
        if f"check_{row.call}(" not in program and re.search(rf"\b{row.call}(_if|_or)?\(", header)
        for check in re.findall(_CHECK.format(plain(row)), program, re.M | re.S)
    ]
    return program.replace("int main() {", "\n".join([*found, "int main() {"]))


def vectors(row: CopyRow, number: int) -> Iterator[tuple[int, DType]]:
    """Bytes and types: the greatest width with a type of each size, the others with one; other types for the function
    `number` of the row than for the one before it."""
    for turn, width in enumerate(row.vector_bytes):
        sizes = sorted({d.bits for d in types(row) if width % d.bytes == 0})
        every = width == row.vector_bytes[-1]
        for size in sizes if every else [sizes[(turn + number) % len(sizes)]]:
            alike = [d for d in types(row) if d.bits == size]
            yield width, alike[(turn + number) % len(alike)]


def calls(row: CopyRow | ReduceRow, target: str) -> Iterator[str]:
    """The checks of the row's functions."""
    for number, f in enumerate(served(row, target)):
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


def run(folder: Path, compiler: str, header: str, checks: Sequence[str], flags: Sequence[str] = ()) -> str:
    """What the checks say of what is wrong with the text of a header, "" if nothing is."""
    (folder / "header.h").write_text(on_the_host(header), encoding="utf-8")
    named = "\n".join(f'model::checking = "{check}"; {check}' for check in dict.fromkeys(checks))
    program = with_variants((HERE / "rows.cpp").read_text(encoding="utf-8"), header).replace("// CALLS", named)
    (folder / "rows.cpp").write_text(program, encoding="utf-8")
    options = ["-std=c++17", "-O0", "-w", "-fno-strict-aliasing", *flags, f"-I{folder}", f"-I{HERE}"]
    built = subprocess.run(
        [compiler, *options, "rows.cpp", "-o", "rows"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    done = subprocess.run([folder / "rows"], capture_output=True, text=True, check=False)
    return f"status {done.returncode}: {done.stdout}{done.stderr}" if done.returncode else ""


def of(arch: str) -> list[CopyRow | ReduceRow]:
    """The rows that a machine has."""
    return [row for row in ROWS if TARGETS[arch].has(row)]


def checks_of(arch: str, target: str) -> list[str]:
    """The checks of a machine's rows."""
    return [call for row in of(arch) for call in calls(row, target)]


def unchecked(arch: str, target: str) -> list[str]:
    """Rows that no function of the header serves, and functions that have no check."""
    rows = [row.name for row in of(arch) if not served(row, target)]
    text = " ".join(checks_of(arch, target))
    names = {f.name for row in of(arch) for f in served(row, target)}
    return [*rows, *sorted(n for n in names if not re.search(rf"\bcheck_{n}\b", text))]
