"""The documents' tables of `argus.hardware` and the compiler's instruction tables: two writings of the same facts."""

from __future__ import annotations

from itertools import product

import pytest

from argus.hardware.budgets import _tiles
from argus.hardware.documents import MACHINES, MOVES, PRODUCTS
from argus.hardware.places import held, offset
from argus.ir.instruction import INSTRUCTIONS, MMA, CopyRow, Ends, Mechanism
from argus.ir.instruction.tiled import tiled_mma
from argus.ir.nodes import Access, Mma
from argus.ir.target import TARGETS
from argus.layout import parse, parse_fragment, table
from argus.layout.swizzle import SwizzledLayout

CUTS = {Ends.WHOLE: "", Ends.LAST: "end", Ends.BOTH: "ends"}


def test_moves() -> None:
    rows = {r.name: r for r in INSTRUCTIONS.values() if isinstance(r, CopyRow) and r.mechanism is not Mechanism.BULK}
    assert set(rows) == set(MOVES)
    for name, row in rows.items():
        move = MOVES[name]
        matrices = "column" if row.transposed else "row"
        unit = "wave" if row.in_lane_order else matrices if row.collective else "vector"
        assert (row.vector_bytes, row.dtypes_bits, CUTS[row.ends]) == (move.sizes, move.bits, move.cut), name
        assert unit == move.unit
        assert {t.name for t in TARGETS.values() if t.has(row)} == set(move.machines), name


def test_machines() -> None:
    for target in TARGETS.values():
        limits = MACHINES[target.name]
        assert (target.shared_bytes, target.max_threads) == (limits.shared_bytes, limits.threads)
        assert target.registers == limits.registers


@pytest.mark.parametrize("name", MMA)
def test_products(name: str) -> None:
    """The registers of two by two warps with several pieces each, one by one."""
    row, document = MMA[name], PRODUCTS[name]
    assert (row.shape, row.warp_size, row.accumulator.name) == (document.shape, document.lanes, document.sums)
    assert tuple(t.name for t in row.operands) == document.types
    assert {t.name for t in TARGETS.values() if t.has(row)} == set(document.machines)
    m, n, k = row.shape
    shape = (4 * m, 2 * n, 2 * k)
    found = _tiles(Mma(Access("d", ()), Access("a", ()), Access("b", ()), shape, name, (2, 2)))
    tiled = tiled_mma(row, shape, (2, 2))
    assert found is not None
    for tile, layout in zip(found, (tiled.a, tiled.b, tiled.c), strict=True):
        coordinates = layout.coordinates()
        registers = dict(tile)
        assert len(registers) == layout.num_threads * layout.num_values
        assert all(tuple(coordinates[register]) == element for register, element in registers.items())


def test_every_product_has_a_document() -> None:
    assert set(PRODUCTS) == set(MMA)


@pytest.mark.parametrize("text", ["(16,32):(32,1)", "(8,(2,4)):(8,(32,1))", "Sw<2,2,3> o 0 o (16,32):(32,1)",
                                  "Sw<2,1,-3> o 4 o (8,8):(8,1)"])  # fmt: skip
def test_offsets(text: str) -> None:
    layout = parse(text)
    inner = layout.inner if isinstance(layout, SwizzledLayout) else layout
    shape = tuple(mode.size() for mode in inner)
    addresses = table(layout, shape)
    assert all(addresses[index] == offset(layout, index) for index in product(*map(range, shape)))


def test_registers() -> None:
    layout = parse_fragment("[16x16 | t 4@1*2 8@0 | v 2@1 2@0*8 2@1*8]")
    assert all(
        tuple(layout.coordinates()[thread, value]) == held(layout, thread, value)
        for thread, value in product(range(32), range(8))
    )
