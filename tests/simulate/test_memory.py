"""Look-up tables of registers, shared bytes, and tensors that exist only where they are touched."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from argus.ir.nodes import Shared
from argus.ir.types import bfloat16, float16, float32, int32
from argus.layout import blocked, parse, parse_fragment
from argus.simulate.memory import SharedMemory, SharedTile, Sparse, holders
from argus.simulate.order import MemoryOrder, Moment, Touch


def test_holders_find_registers() -> None:
    layout = parse_fragment("[8 | t 4@0 2@_ 8@_ | v 2@0*4]")
    table = holders(layout, 32)
    threads = np.arange(64)
    assert table.own(threads, np.full(64, 5)).tolist() == [t * 2 + 1 if t % 4 == 1 else -1 for t in range(64)]
    assert set(table.warp(threads, np.full(64, 5)).tolist()) == {3, 67}
    assert table.replicas(np.array([5]))[0].tolist() == [t * 2 + 1 for t in range(64) if t % 4 == 1]


@given(st.sampled_from([(4, 8), (16, 2), (32,)]), st.sampled_from([1, 2, 4]))
def test_holders_agree_with_the_layout(shape: tuple[int, ...], vector: int) -> None:
    layout = blocked(shape, 32, vector=vector)
    table = holders(layout, 32)
    for thread in range(0, 32, 5):
        for value in range(layout.num_values):
            element = layout.linear()[thread, value]
            found = int(table.own(np.array([thread]), np.array([element]))[0])
            assert layout.linear().reshape(-1)[found] == element and found // layout.num_values == thread


def test_shared_tiles_alias_by_bytes() -> None:
    wide = Shared("wide", float32, (4,), parse("4:1"), 0)
    narrow = Shared("narrow", bfloat16, (8,), parse("8:1"), 0)
    memory = SharedMemory((wide, narrow), None)
    a, b = SharedTile(wide, memory), SharedTile(narrow, memory)
    assert memory.grain == 2 and not a.written(a.cells).any()
    a.store(a.cells, np.float32([1, -2, 3, 4]))
    # A float32 is two halves, little-endian: the upper one is the bfloat16 that it truncates to.
    assert b.load(b.cells)[1::2].tolist() == [1, -2, 3, 4]
    assert b.written(b.cells).all() and not b.whole(b.cells).any() and a.whole(a.cells).all()
    b.store(b.cells[1:2], np.float32([7]))
    assert a.load(a.cells)[0] == 7 and not a.whole(a.cells)[0]


def test_shared_tiles_follow_swizzle_and_offset() -> None:
    tile = Shared("t", float16, (8, 8), parse("Sw<2,1,3> o 0 o (8,8):(8,1)"), 64)
    memory = SharedMemory((tile,), None)
    window = SharedTile(tile, memory)
    window.store(window.cells, np.arange(64, dtype=np.float32))
    raw = memory.bytes[64 : 64 + 128].view(np.float16)
    for index in (0, 9, 63):
        assert raw[parse("Sw<2,1,3> o 0 o (8,8):(8,1)")(divmod(index, 8))] == index
    assert window.logical(int(window.cells[9])) == (1, 1)
    assert window.physical(int(window.cells[0])) == "shared+0x40"


def test_sparse_contents() -> None:
    contents = Sparse(int32, lambda index: index % 7)
    first = contents.cells(np.array([10**15, 3, 10**15]))
    assert first[0] == first[2] != first[1] and contents.values[first].tolist() == [10**15 % 7, 3, 10**15 % 7]
    contents.values[first[1]] = 99
    again = contents.cells(np.array([1, 3]))
    assert contents.values[again].tolist() == [1, 99] and len(contents) == 3
    assert contents.index(again).tolist() == [1, 3]


def moment(block: int, segment: int, known: int, event: int, team: int = 0) -> Moment:
    """A time of one of two teams, in their `segment`, that knows team 0 up to `known`, and one phase of no mbarrier."""
    return Moment(block, team, segment, np.array([known, known, 0]), np.array([0, 0, 0]), event)


def test_order_of_touches() -> None:
    order = MemoryOrder(4, False)
    cell, first, second = np.array([0]), np.array([3]), np.array([4])
    now, later, elsewhere = moment(0, 1, 0, 0), moment(0, 2, 1, 1), moment(1, 3, 2, 2)
    assert order.access(Touch.WRITE, cell, first, now, False) is None
    assert order.access(Touch.READ, cell, first, now, False) is None, "program order"
    found = order.access(Touch.READ, cell, second, now, False)
    assert found is not None and (found.thread, found.earlier) == (3, Touch.WRITE)
    assert order.access(Touch.READ, cell, second, later, False) is None, "a barrier lies between"
    found = order.access(Touch.READ, cell, second, elsewhere, False)
    assert found is not None and found.block == 0, "nothing orders blocks"
    atomic = MemoryOrder(4, False)
    assert atomic.access(Touch.ACCUMULATE, cell, first, now, False) is None
    assert atomic.access(Touch.ACCUMULATE, cell, second, now, False) is None
    assert atomic.access(Touch.READ, cell, second, now, False) is not None
    both = np.array([1, 1])
    assert order.access(Touch.WRITE, both, np.array([5, 6]), later, False) is not None, "two threads, one statement"
    assert order.access(Touch.WRITE, np.array([2]), first, later, True) is None
    assert order.access(Touch.READ, np.array([2]), first, later, False) is not None, "a warp wrote it together"


def test_order_of_teams_and_of_the_copy_engine() -> None:
    order = MemoryOrder(4, False)
    cell, first, second = np.array([0]), np.array([3]), np.array([40])
    assert order.writer(0) is None
    assert order.access(Touch.WRITE, cell, first, moment(0, 5, 4, 0), False) is None
    assert order.check(Touch.READ, cell, second, moment(0, 6, 4, 1, team=1)) is not None
    assert order.check(Touch.READ, cell, second, moment(0, 6, 5, 1, team=1)) is None, "it knows segment 5"
    assert order.unfenced(Touch.WRITE, cell, moment(0, 6, 5, 1, team=1), 0, True) is not None, "but no proxy fence"
    order.bulk_track(Touch.WRITE).touch(cell, 40, moment(0, 6, 5, 2, team=1), barrier=2, phase=1)
    before, after = moment(0, 7, 6, 3), moment(0, 7, 6, 3)
    after.known[2] = 1
    found = order.check(Touch.READ, cell, first, before)
    assert found is not None and found.bulk and found.thread == 40 and order.writer(0) == 40
    assert order.check(Touch.READ, cell, first, after) is None, "the phase that counts the bytes is known"
    reads = order.track(Touch.MULTIPLY, 0)
    reads.begin(cell, 0, after)
    assert order.check(Touch.WRITE, cell, first, moment(0, 9, 8, 4)) is not None, "a product under way"
    reads.finish(cell, 3, 8)
    assert order.check(Touch.READ, cell, first, after) is None
    done = moment(0, 9, 8, 4)
    done.known[2] = 1
    assert order.check(Touch.WRITE, cell, first, done) is None
