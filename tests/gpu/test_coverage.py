"""Every function that the CUDA headers declare is called in a text that some test of this folder runs on the GPU. Needs
no GPU itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from argus.backend import device_api
from argus.backend.cuda.toolchain import INCLUDE
from argus.backend.emit import emit
from argus.compile import elaborate, lower
from argus.frontend import Options
from argus.kernels.product_tile import ProductShape
from argus.kernels.tile_times import ranked
from argus.source import SourceFile
from tests.backend import hopper_bodies, hopper_operands
from tests.gpu import placed, test_arithmetic, test_numbers, test_products, test_watch
from tests.gpu.test_hopper_operands import WIDTHS
from tests.kernels.common import source_of

HEADERS = [path for folder in INCLUDE for path in sorted(folder.glob("*.h"))]
INNER = ("target", "detail")
"""Namespaces of what only the headers call."""


def declared() -> set[str]:
    """The functions of the headers that texts may call: those of namespace `argus` and of `formula` in it."""
    found, inside = set(), [""]
    for path in HEADERS:
        for line in path.read_text(encoding="utf-8").splitlines():
            if opened := re.match(r"namespace ([\w:]+) \{", line):
                inside.append(opened[1].rpartition("::")[2])
            elif line.startswith("}  // namespace"):
                inside.pop()
            elif inside[-1] not in INNER:
                found |= set(re.findall(r"ARGUS_FN [\w:&<>, ]+? \**(\w+)\(", line))
    return found - {"NAME"}  # what macros define is in the library's table


def emitted() -> Iterator[str]:
    """Texts of the emitter, and others that are made from tables."""
    for family, count in (("boxes", 16), ("peers", 3), ("arrivals", 3), ("moves", 27)):
        yield from (emit(one.kernel) for one in placed.placed(family, 0, count))
    for case in (*hopper_operands.CASES.values(), *hopper_operands.DTYPES.values()):
        yield emit(hopper_operands.kernel(case))
    for together in (test_numbers.OF_FLOATS, test_numbers.CAST):
        yield test_numbers.text(together)
    watched = SourceFile("watched.py", test_watch.PROGRAM)
    yield emit(lower(elaborate(watched, "scale", Options("sm_90a")), "sm_90a"))
    yield from library()


def library() -> Iterator[str]:
    """Kernels that the tests of the library run: groups of warps in turns, warps that copy nothing, attention, rows
    of odd lengths."""
    large = ProductShape(8192, 8192, 8192, 1, 16, 16, "sm_90a", True)
    of_turns = next(tile for tile, _ in ranked(large) if tile.groups > 1)
    for tile in (of_turns, ranked(replace(large, bulk=False))[0][0]):
        constants = {name: value for name, value in tile.constants.items() if name != "num_warps"}
        yield _lowered("gemm", "gemm", tile.num_warps, constants)
    yield _lowered("attention", "attention_forward", None, {})
    yield _lowered("softmax", "softmax_rows", 4, {"BLOCK": 512, "STEP": 1, "WIDTH": 8})


def _lowered(file: str, kernel: str, warps: int | None, constants: dict[str, object]) -> str:
    options = Options("sm_90a", warps, constants)
    return emit(lower(elaborate(source_of(file), kernel, options), "sm_90a"))


def written() -> Iterator[str]:
    """The pieces of text in the tests' own files."""
    for path in (*Path(__file__).parent.glob("*.py"), Path(hopper_bodies.__file__)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def tables() -> set[str]:
    """Functions whose names tests put into their texts."""
    rows = {row.name for row, _, _ in test_products.CASES}
    wide = {device_api.wgmma_function(case.row).name for n in WIDTHS for case in hopper_bodies.every_product(n)}
    return {*test_arithmetic.INTEGER_FUNCTIONS, *wide, *rows}


def test_every_function_is_run_on_the_hardware() -> None:
    texts = (*emitted(), *written())
    called = tables() | {name for text in texts for name in re.findall(r"argus::(?:formula::)?(\w+)", text)}
    table = {function.name for function in device_api.functions("cuda")}
    headers = "\n".join(path.read_text(encoding="utf-8") for path in HEADERS)
    inner = {name for name in declared() - table if len(re.findall(rf"\b{name}\(", headers)) > 1}
    left = (declared() - inner | table) - called
    assert not left, sorted(left)


def test_what_headers_declare_is_read() -> None:
    """Some of each header, and nothing that only headers call."""
    found = declared()
    assert {"load_shared", "mbarrier_init", "cast", "grouped_program", "polynomial"} <= found
    assert not {"bits_of", "magnitude", "wgmma_n8"} & found
