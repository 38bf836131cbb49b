"""Asynchronous matrix products (wgmma). The operands are in shared memory, the first one possibly in registers; the
accumulator is in registers of whole warpgroups.

A product may read its operands and write its registers at any time between its issue and the wait that covers its
group. The simulation reads and writes values at that wait, or reads them at the issue if the schedule says so. Tags
follow the program's order, which makes no difference for a program without races.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from argus.ir.instruction import WgmmaRow
from argus.ir.instruction.tiled import wgmma_accumulator, wgmma_operand
from argus.ir.machine import WARPGROUP
from argus.ir.nodes import Access, Mma, MmaCommit, MmaWait
from argus.layout import FragmentLayout
from argus.simulate import checked, events, races
from argus.simulate.clock import Team
from argus.simulate.contraction import Operand, contract
from argus.simulate.events import Cell, Side
from argus.simulate.flight import Part, Product
from argus.simulate.log import Ordered
from argus.simulate.machine import Block
from argus.simulate.matrix import Products, by_group, operand_index, registers
from argus.simulate.memory import Memory, Registers
from argus.simulate.numeric import Array, disturbed, round_to
from argus.simulate.order import NOBODY, Touch
from argus.simulate.provenance import hop
from argus.simulate.step import AccessCells, Frame, Step, box_domain
from argus.simulate.tagset import CONSTANT, accumulate

_GROUP_THREADS = 32 * WARPGROUP


def issue(block: Block, stmt: Mma, row: WgmmaRow, frame: Frame) -> None:
    """Start the product `d += a b^T`."""
    if stmt.warps is None:
        raise ValueError("a matrix product without a distribution is left: lower the kernel first")
    step = block.step(stmt, frame, None)
    _together(block, step, row.name)
    m, n, k = stmt.shape
    layout = wgmma_accumulator(row, (m, n), stmt.warps)
    target = registers(block, stmt.d, step, layout, (0, 1))
    b = _shared(block, stmt.b, step, (n, k), (1, 2))
    if isinstance(block.memories[stmt.a.obj], Registers):
        held = wgmma_operand(row, (m, k), stmt.warps)
        a = registers(block, stmt.a, step, held, (0, 2))
    else:
        held, a = None, _shared(block, stmt.a, step, (m, k), (0, 2))
    if target is None or a is None or not b.ok.all() or (held is None and not a.ok.all()):
        return
    assert isinstance(target.memory, Registers)
    begun = Product(step, a.memory, b.memory, target.memory, _parts(a, b, target, stmt.shape, held, layout))
    block.run.log.steps.append(Ordered(step.event, "issue"))
    if block.run.checks:
        for memory, cells in ((begun.a, [p.a for p in begun.parts]), (begun.b, [p.b for p in begun.parts])):
            _reads(block, memory, _distinct(cells), step)
        _writes(block, begun)
    if block.early:
        begun.values = begun.operands()
    block.products.append(begun)
    _tags(block, begun)


def _shared(block: Block, access: Access, step: Step, shape: tuple[int, int], axes: tuple[int, int]) -> AccessCells:
    """Return the cells of a whole operand in shared memory, in row-major order."""
    domain = box_domain(shape)
    everything = np.ones(domain.size, dtype=np.bool_)
    whole = Step(step.stmt, step.frame, domain, step.event, everything)
    return checked.locate(block, access.obj, operand_index(access, axes), whole, everything)


def _parts(
    a: AccessCells,
    b: AccessCells,
    d: AccessCells,
    shape: tuple[int, int, int],
    held: FragmentLayout | None,
    layout: FragmentLayout,
) -> tuple[Part, ...]:
    """Return the product as one part, or as one part for each warpgroup if each multiplies the registers of `a` that it
    holds."""
    m, n, k = shape
    columns = b.cell.reshape(n, k)
    if held is None:
        position = np.argsort(layout.linear().reshape(-1), kind="stable")
        return (Part(a.cell.reshape(m, k), columns, d.cell[position].reshape(m, n)),)
    return tuple(Part(a.cell[x], columns[j], d.cell[y]) for x, j, y in _by_warpgroup(held, layout))


@lru_cache(maxsize=64)
def _by_warpgroup(a: FragmentLayout, d: FragmentLayout) -> list[tuple[Array, Array, Array]]:
    """Return, for each warpgroup, the positions of its rows in `a`, its columns of the product, and the positions of
    its results in `d`."""
    count = d.num_threads // _GROUP_THREADS
    result = []
    for x, y in zip(by_group(a, _GROUP_THREADS, count), by_group(d, _GROUP_THREADS, count), strict=True):
        rows, columns = np.flatnonzero((y >= 0).any(axis=1)), np.flatnonzero((y >= 0).any(axis=0))
        result.append((x[rows], columns, y[np.ix_(rows, columns)]))
    return result


def _distinct(cells: list[Array]) -> Array:
    """Return the cells that occur, sorted. Marking them is faster than sorting them."""
    used = np.zeros(1 + max(int(c.max(initial=0)) for c in cells), dtype=np.bool_)
    for each in cells:
        used[each] = True
    return np.flatnonzero(used)


def _reads(block: Block, memory: Memory, cell: Array, step: Step) -> None:
    """Check the read of an operand. The read is in flight from now on."""
    if isinstance(memory, Registers):
        _unfenced(block, memory, cell, step)
        assert memory.hazards is not None
        memory.hazards.reading[cell] = step.event
        return
    missing = ~memory.written(cell)
    first = step.frame.team.first
    if missing.any():
        checked.uninitialised(block, memory, cell, np.full(len(cell), first), missing, step)
    if memory.order is not None:
        grain = races.asynchronous(block, memory, Touch.MULTIPLY, cell, step, False)
        memory.order.track(Touch.MULTIPLY, step.frame.team.number).begin(grain, first, block.now(step, memory))


def _writes(block: Block, begun: Product) -> None:
    """Check the accumulator's registers. They are in flight from now on."""
    memory = begun.d
    cells = np.concatenate([p.d.reshape(-1) for p in begun.parts])
    _unfenced(block, memory, cells, begun.step)
    assert memory.hazards is not None
    memory.hazards.flight[cells] = begun.step.event


def _unfenced(block: Block, memory: Registers, cells: Array, step: Step) -> None:
    """Report registers that were never written, and registers whose last ordinary access is not fenced before the
    product."""
    missing = ~memory.written(cells)
    if missing.any():
        checked.uninitialised(block, memory, cells, memory.first + cells // memory.per_thread, missing, step)
    assert memory.hazards is not None
    loose = memory.hazards.unfenced[cells]
    bad = loose != NOBODY
    if bad.any():
        at = int(np.argmax(bad))
        thread = memory.first + int(cells[at]) // memory.per_thread
        access = "write" if memory.hazards.operand else "ordinary access"
        touch = Touch.READ if memory.hazards.operand else Touch.ACCUMULATE
        text = f"no fence orders the last {access} to a register of {memory.name} before this product"
        other = block.run.log.party(int(loose[at]), thread, access)
        block.report(
            step, "races", "missing-mma-fence", text, thread, memory, int(cells[at]),
            expected="a fence (wgmma.fence) between the two", other=other, count=int(bad.sum()),
            story=lambda: events.conflict(
                block, Side(int(loose[at]), Touch.WRITE), Side(step.event, touch, "product"),
                Cell(memory.name, memory.name), "no mma_fence stands between the two",
            ),
        )  # fmt: skip


def fence(block: Block, frame: Frame) -> None:
    """Order the register accesses of the executing threads before later products."""
    for memory in block.memories.values():
        if isinstance(memory, Registers) and memory.hazards is not None and memory.first == frame.team.first:
            by_thread = memory.hazards.unfenced.reshape(-1, memory.per_thread)
            by_thread[np.flatnonzero(frame.active)] = NOBODY


def _together(block: Block, step: Step, what: str) -> None:
    """Report a statement that only some threads of the warpgroups execute."""
    if not step.frame.active.all():
        text = f"{what} needs all threads of its warpgroups, but only some execute it"
        block.report(step, "convergence", "divergent-collective", text, int(step.frame.threads[0]))


def commit(block: Block, stmt: MmaCommit, frame: Frame) -> None:
    """Close the current group."""
    _together(block, block.step(stmt, frame, None), "a commit of products")
    team = frame.team
    for begun in _of(block, team):
        if begun.group is None:
            begun.group = team.committed
    team.committed += 1


def wait(block: Block, stmt: MmaWait, frame: Frame) -> None:
    """Complete all products of committed groups except the last `pending` groups, in order."""
    _together(block, block.step(stmt, frame, None), "a wait for products")
    team = frame.team
    due = team.committed - stmt.pending
    done = [p for p in _of(block, team) if p.group is not None and p.group < due]
    for finished in done:
        _complete(block, finished, team)
    block.products[:] = [p for p in block.products if p not in done]


def _of(block: Block, team: Team) -> list[Product]:
    """Return the unfinished products of a team."""
    return [p for p in block.products if p.step.frame.team is team]


def _complete(block: Block, done: Product, team: Team) -> None:
    for part, (x, y) in zip(done.parts, done.values or done.operands(), strict=True):
        with np.errstate(all="ignore"):
            after = done.d.load(part.d) + x @ y.T
        done.d.store(part.d, disturbed(round_to(after, done.d.dtype), done.d.dtype))
    if not block.run.checks:
        return
    assert done.d.hazards is not None
    for part in done.parts:
        _release(done.d.hazards.flight, part.d, done.step.event)
    for memory, cells in ((done.a, [p.a for p in done.parts]), (done.b, [p.b for p in done.parts])):
        for cell in cells:
            if isinstance(memory, Registers) and memory.hazards is not None:
                _release(memory.hazards.reading, cell, done.step.event)
            elif memory.order is not None:
                track = memory.order.track(Touch.MULTIPLY, team.number)
                track.finish(memory.grains(cell.reshape(-1)), done.step.event, team.segment)


def finish(block: Block, teams: list[Team]) -> None:
    """Check, at the end of the block, that all products were waited for."""
    for team in teams if block.run.checks else ():
        for left in _of(block, team):
            text = "an asynchronous product may still read shared memory when the block ends"
            block.report(
                left.step, "progress", "unfinished-copy", text, team.first, object=left.b.name,
                expected="a wait for the product's group", missing=f"{team.name} does not wait for the product's group",
            )  # fmt: skip


def _release(flight: Array, cells: Array, event: int) -> None:
    """Release the registers of the product of `event`, unless a later product uses them too."""
    flight[cells[flight[cells] == event]] = NOBODY


def _tags(block: Block, begun: Product) -> None:
    schemas = block.run.schemas
    a, b, d = begun.a, begun.b, begun.d
    if schemas is None or a.tags is None or b.tags is None or d.tags is None:
        return
    for part, (x, y) in zip(begun.parts, begun.operands(), strict=True):
        (m, k), n = part.a.shape, len(part.b)
        tags_a, tags_b = a.tags.take(part.a.reshape(-1)), b.tags.take(part.b.reshape(-1))
        zero_a = (tags_a.status.reshape(m, k) == CONSTANT) & (x == 0)
        zero_b = (tags_b.status.reshape(n, k) == CONSTANT) & (y == 0)
        new = contract(Operand(tags_a, zero_a), Operand(tags_b, zero_b), schemas)
        cells = part.d.reshape(-1)
        old = d.tags.take(cells)
        start = (old.status == CONSTANT) & (d.load(cells) == 0)
        d.tags.put(cells, accumulate(old, start, new))
        last = np.repeat(part.a[:, -1], n), np.tile(part.b[:, -1], m)
        brought = Products(tags_a, tags_b, n, k)
        hop(block, begun.step.event, d.name, cells, ((a.name, last[0]), (b.name, last[1])), brought)
