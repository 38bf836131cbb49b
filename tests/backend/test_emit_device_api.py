"""The device library's table: names are unique, and every row of the instruction tables is served."""

from __future__ import annotations

import re
from pathlib import Path

import argus.backend.cpu
import argus.backend.emit
from argus.backend.device_api import FUNCTIONS, MACROS, TYPES, functions, mma_function, wgmma_function
from argus.ir.instruction import INSTRUCTIONS, MMA, WGMMA
from argus.ir.types import DTYPES


def test_every_type_has_a_spelling() -> None:
    assert set(TYPES) == set(DTYPES)


def test_names_are_unique() -> None:
    names = [f.name for f in FUNCTIONS]
    assert len(names) == len(set(names))


def test_a_variant_is_like_a_function_of_the_cpu_whose_header_leaves_it_out() -> None:
    headers = "".join(path.read_text("utf-8") for path in Path(argus.backend.cpu.__file__).parent.glob("*.h"))
    names = {f.name for f in functions("cpu") if not f.like}
    variants = [f for f in functions("cpu") if f.like]
    assert variants and {f.like for f in variants} <= names
    assert not [f.name for f in variants if re.search(rf"\b{f.name}\b", headers)]


def test_the_macros_are_those_that_are_emitted_and_defined() -> None:
    emitter = Path(argus.backend.emit.__file__).parent
    header = (emitter.parent / "cuda" / "argus_cuda.h").read_text(encoding="utf-8")
    names = {name.partition("(")[0] for name in MACROS}
    emitted = {name for file in emitter.glob("*.py") for name in re.findall(r"ARGUS_\w+", file.read_text("utf-8"))}
    assert emitted == names - {"ARGUS_WARP_SIZE"}  # which headers use
    assert all(re.search(rf"^#define {name}\b", header, re.MULTILINE) for name in names)


def test_every_copy_row_is_served_on_its_target() -> None:
    for row in INSTRUCTIONS.values():
        target = "hip" if "gfx942" in row.architectures else "cuda"
        for where in ("cpu", target):
            served = any(row.name in f.rows for f in functions(where))
            within_cluster = row.multicast or row.peer
            assert served != (within_cluster and where == "cpu"), (row.name, where)  # there a cluster is a block


def test_every_mma_row_is_a_function_of_cpu_and_its_target() -> None:
    for row in MMA.values():
        function = mma_function(row)
        assert function.name.isidentifier()
        assert function in functions("cpu")


def test_every_asynchronous_product_is_a_function_of_cpu_and_cuda() -> None:
    for row in WGMMA.values():
        for target in ("cpu", "cuda"):
            assert wgmma_function(row) in functions(target)
