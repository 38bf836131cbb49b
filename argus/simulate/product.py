"""Asynchronous matrix products (wgmma): operands in shared memory, the accumulator in registers of whole warpgroups.

Between its issue and the wait that covers its group, a product may read its operands and write its registers at any
time. Values are read and written at that wait, or read at the issue where the schedule says so. Tags are those of the
program's order: for a program without races there is no difference.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from argus.ir.instruction import WgmmaRow
from argus.ir.instruction.tiled import wgmma_accumulator
from argus.ir.nodes import Access, Mma
from argus.layout import FragmentLayout
from argus.simulate import races
from argus.simulate.clock import Team
from argus.simulate.contraction import Operand, contract
from argus.simulate.flight import Product
from argus.simulate.machine import Block, Frame, Place, Step, box_domain
from argus.simulate.matrix import Products, operand_index, registers
from argus.simulate.memory import Registers
from argus.simulate.numeric import Array, round_to
from argus.simulate.order import NOBODY, Touch
from argus.simulate.provenance import hop
from argus.simulate.tagset import CONSTANT, accumulate


def issue(block: Block, stmt: Mma, row: WgmmaRow, frame: Frame) -> None:
    """Start `d += a b^T`."""
    if stmt.warps is None:
        raise ValueError("a matrix product without a distribution is left: lower the kernel first")
    step = block.step(stmt, frame, None)
    if not frame.active.all():
        text = f"{row.name} needs all threads of its warpgroups, but only some execute it"
        block.report(step, "convergence", "divergent-collective", text, int(frame.threads[0]))
    layout = wgmma_accumulator(row, stmt.shape[:2], stmt.warps)
    target = registers(block, stmt.d, step, layout, (0, 1))
    if target is None:
        return
    assert isinstance(target.memory, Registers)
    m, n, k = stmt.shape
    a, b = _operand(block, stmt.a, step, (m, k), (0, 2)), _operand(block, stmt.b, step, (n, k), (1, 2))
    begun = Product(step, a, b, target.memory, target.cell[_positions(layout)], stmt.shape, None)
    if block.run.checks:
        for place in (a, b):
            _reads(block, place, step)
        _writes(block, begun)
    if block.early:
        begun.values = a.memory.load(a.cell[a.ok]), b.memory.load(b.cell[b.ok])
    if a.ok.all() and b.ok.all():
        frame.team.products.append(begun)
        _tags(block, begun)


@lru_cache(maxsize=64)
def _positions(layout: FragmentLayout) -> Array:
    """Of every element of the accumulator, row-major: its register, thread * values + value."""
    return np.argsort(layout.linear().reshape(-1), kind="stable")


def _operand(block: Block, access: Access, step: Step, shape: tuple[int, int], axes: tuple[int, int]) -> Place:
    """The cells of a whole operand, row-major."""
    domain = box_domain(shape)
    everything = np.ones(domain.size, dtype=np.bool_)
    whole = Step(step.stmt, step.frame, domain, step.event, everything)
    return block.locate(access.obj, operand_index(access, axes), whole, everything)


def _reads(block: Block, place: Place, step: Step) -> None:
    """Check the read of an operand; it is under way from now on."""
    memory, cell, first = place.memory, place.cell[place.ok], step.frame.team.first
    missing = ~memory.written(cell)
    if missing.any():
        block.uninitialised(memory, cell, np.full(len(cell), first), missing, step)
    if memory.order is not None:
        grain = races.asynchronous(block, memory, Touch.MULTIPLY, cell, step, False)
        memory.order.track(Touch.MULTIPLY, step.frame.team.number).begin(grain, first, block.now(step))


def _writes(block: Block, begun: Product) -> None:
    """Check the accumulator's registers; they are in flight from now on."""
    memory, step, cells = begun.d, begun.step, begun.cells
    missing = ~memory.written(cells)
    if missing.any():
        block.uninitialised(memory, cells, memory.first + cells // memory.per_thread, missing, step)
    assert memory.hazards is not None
    loose = memory.hazards.unfenced[cells]
    bad = loose != NOBODY
    if bad.any():
        at = int(np.argmax(bad))
        thread = memory.first + int(cells[at]) // memory.per_thread
        text = f"no fence orders the last ordinary access to a register of {memory.name} before this product"
        other = block.run.log.party(int(loose[at]), thread, "ordinary access")
        block.report(
            step, "races", "missing-mma-fence", text, thread, memory, int(cells[at]),
            expected="a fence (wgmma.fence) between the two", other=other, count=int(bad.sum()),
        )  # fmt: skip
    memory.hazards.flight[cells] = step.event


def fence(block: Block, frame: Frame) -> None:
    """Order the register accesses of the executing threads before later products."""
    for memory in block.memories.values():
        if isinstance(memory, Registers) and memory.hazards is not None and memory.first == frame.team.first:
            by_thread = memory.hazards.unfenced.reshape(-1, memory.per_thread)
            by_thread[np.flatnonzero(frame.active)] = NOBODY


def commit(team: Team) -> None:
    """Close the current group."""
    for begun in team.products:
        if begun.group is None:
            begun.group = team.committed
    team.committed += 1


def wait(block: Block, team: Team, pending: int) -> None:
    """Complete all products of committed groups but the last `pending` ones, in order."""
    due = team.committed - pending
    done = [p for p in team.products if p.group is not None and p.group < due]
    for finished in done:
        _complete(block, finished, team)
    team.products[:] = [p for p in team.products if p not in done]


def _complete(block: Block, done: Product, team: Team) -> None:
    m, n, k = done.shape
    x, y = done.values or (done.a.memory.load(done.a.cell), done.b.memory.load(done.b.cell))
    with np.errstate(all="ignore"):
        product = x.reshape(m, k) @ y.reshape(n, k).T
        after = done.d.load(done.cells) + product.reshape(-1)
    done.d.store(done.cells, round_to(after, done.d.dtype))
    if not block.run.checks:
        return
    assert done.d.hazards is not None
    flight = done.d.hazards.flight
    flight[done.cells[flight[done.cells] == done.step.event]] = NOBODY
    for place in (done.a, done.b):
        order = place.memory.order
        if order is not None:
            track = order.track(Touch.MULTIPLY, team.number)
            track.finish(place.memory.grains(place.cell), done.step.event, team.segment)


def _tags(block: Block, begun: Product) -> None:
    schemas = block.run.schemas
    a, b, d = begun.a, begun.b, begun.d
    if schemas is None or a.memory.tags is None or b.memory.tags is None or d.tags is None:
        return
    m, n, k = begun.shape
    x, y = a.memory.load(a.cell).reshape(m, k), b.memory.load(b.cell).reshape(n, k)
    tags_a, tags_b = a.memory.tags.take(a.cell), b.memory.tags.take(b.cell)
    zero_a = (tags_a.status.reshape(m, k) == CONSTANT) & (x == 0)
    zero_b = (tags_b.status.reshape(n, k) == CONSTANT) & (y == 0)
    new = contract(Operand(tags_a, zero_a), Operand(tags_b, zero_b), schemas)
    old = d.tags.take(begun.cells)
    start = (old.status == CONSTANT) & (d.load(begun.cells) == 0)
    d.tags.put(begun.cells, accumulate(old, start, new))
    last = np.repeat(a.cell.reshape(m, k)[:, -1], n), np.tile(b.cell.reshape(n, k)[:, -1], m)
    brought = Products(tags_a, tags_b, n, k)
    hop(block, begun.step.event, d.name, begun.cells, ((a.memory.name, last[0]), (b.memory.name, last[1])), brought)
