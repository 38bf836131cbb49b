"""Run a kernel: blocks one after another, and the programs of a block in an order that a schedule chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import TypeVar

import numpy as np

from argus.diagnostic import Diagnostic, LaunchError
from argus.ir.cluster import unite
from argus.ir.expr import Expr
from argus.ir.nodes import Kernel, Spec, Tag
from argus.ir.places import counting_registers, index_registers
from argus.ir.rescaling import accumulators
from argus.ir.visit import walk
from argus.simulate import launch
from argus.simulate.coverage import check_coverage
from argus.simulate.evaluate import Number
from argus.simulate.launch import Argument
from argus.simulate.log import Log
from argus.simulate.machine import Block, Run
from argus.simulate.memory import Contents, Dense, GlobalTensor
from argus.simulate.numeric import Array, round_to
from argus.simulate.order import MemoryOrder
from argus.simulate.outcome import NotReplayable, Outcome, Stopped, Violation
from argus.simulate.schedule import Path, Schedule, run_block
from argus.simulate.specification import check_spec
from argus.simulate.step import Program
from argus.simulate.tagset import BOTTOM, Schemas, Tags
from argus.simulate.usage import Usage, handed_on, taggable, usage
from argus.simulate.wide import before, wide
from argus.work import Work

T = TypeVar("T")

MOST_ITERATIONS = 1 << 20
"""Largest number of iterations of one loop that a simulation runs."""


def simulate(
    kernel: Kernel,
    arguments: Mapping[str, Argument],
    *,
    blocks: Sequence[tuple[int, ...]] | None = None,
    grid: tuple[int, ...] | None = None,
    checks: bool = True,
    tags: bool = False,
    stop_at_first: bool = False,
    schedule: str = "program",
    resident: int = 2,
    work: Work | None = None,
    watch: bool = True,
) -> Outcome:
    """Execute an explicit kernel on NumPy arrays and report every rule that it breaks.

    - `arguments`: an array or number for each parameter by name, floats as float32. They are not changed.
    - `blocks`: run only these blocks, without checks of coverage and specifications. The default is the whole grid.
    - `grid`: needed for a kernel that declares no grid.
    - `checks`: check all properties. Without it, only bounds are checked.
    - `tags`: carry tags and evaluate tag assertions (docs/tags.md).
    - `schedule`: the order of work that runs side by side in a block (argus/simulate/schedule.py): "program",
      "reverse", "lazy", "eager-ROLE" or "random(SEED)". All schedules give the same values unless there is a race.
    - `resident`: the number of blocks among which a persistent kernel's programs are divided. The programs in `blocks`
      all go to one block, in the given order.
    - `watch`: collect the output of `al.device_print`, and stop at an `al.device_assert` that fails.

    A cluster runs as one block (`argus.ir.cluster`). Raises `LaunchError` for arguments that break a precondition, and
    `NotReplayable` for a loop of more than 2^20 iterations, or a run of more steps than `work` has.
    """
    kernel = unite(kernel)
    params = launch.bind(kernel, arguments)
    launch.check_ranges(kernel, arguments, params)
    run = prepare(kernel, params, _dense(kernel, arguments), checks, tags, stop_at_first, MOST_ITERATIONS)
    run.work, run.printed = work, [] if watch else None
    return run_blocks(run, blocks, grid_of(run, grid, blocks), schedule, resident)


def explore(
    kernel: Kernel, arguments: Mapping[str, Argument], *, most: int = 1000, resident: int = 1
) -> Iterator[Outcome]:
    """Yield the outcome of every schedule of a small kernel: every order of its roles or warps, of arriving bulk
    copies, and of the effects of bulk stores, with operands of products read early and late. Arguments and errors are
    those of `simulate`.

    Raises `NotReplayable` if there are more than `most` schedules.
    """
    kernel, count = unite(kernel), 0
    for early in (False, True):
        path: Path | None = Path()
        while path is not None:
            if count == most:
                raise NotReplayable(f"the kernel has more than {most} schedules")
            count += 1
            params = launch.bind(kernel, arguments)
            run = prepare(kernel, params, _dense(kernel, arguments), True, False, False, MOST_ITERATIONS)
            yield run_blocks(run, None, grid_of(run, None, None), path.schedule(early), resident)
            path = path.following()


def _dense(kernel: Kernel, arguments: Mapping[str, Argument]) -> dict[str, Contents]:
    keep = bool(_specifications(kernel))
    return {t.name: Dense(round_to(np.asarray(arguments[t.name]), t.dtype), keep) for t in kernel.tensors}


def _specifications(kernel: Kernel) -> list[Spec]:
    return [s for s in walk(kernel.body) if isinstance(s, Spec)]


def prepare(
    kernel: Kernel,
    params: Mapping[str, Number],
    contents: Mapping[str, Contents],
    checks: bool,
    tags: bool,
    stop_at_first: bool,
    iterations: int,
) -> Run:
    """Return the state that all blocks share before the first block runs."""
    used = usage(kernel)
    schemas = Schemas() if tags else None
    tensors = {}
    for t in kernel.tensors:
        shape, strides = launch.extents(t, params)
        memory = GlobalTensor(t, shape, strides, contents[t.name], _order(t.name, used, len(contents[t.name])))
        if schemas is not None and t.name in used.written and t.name in used.read | used.asserted:
            memory.tags = Tags.uniform(len(contents[t.name]), BOTTOM, schemas)
        tensors[t.name] = memory
    names = {t.name for t in kernel.tensors}
    declared = {s.obj: s for s in walk(kernel.body) if isinstance(s, Tag) and s.obj in names}
    log = Log(stop_at_first)
    return Run(
        kernel, params, tensors, log, checks, schemas, declared, taggable(kernel), iterations, accumulators(kernel),
        index_registers(walk(kernel.body)),
        counting_registers(walk(kernel.body)),
    )  # fmt: skip


def _wide(run: Run, disturbed: bool) -> Run:
    """Return a new run of the same kernel with 64-bit numbers and without checks."""
    kernel = wide(run.kernel, disturbed)
    contents = {t.name: before(run.tensors[t.name].contents, t.dtype) for t in kernel.tensors}
    result = prepare(kernel, run.params, contents, False, False, False, run.iterations)
    result.work = run.work
    return result


def _order(name: str, used: Usage, cells: int) -> MemoryOrder | None:
    if name not in used.written:
        return None
    return MemoryOrder(cells, name in used.fetched)


def grid_of(run: Run, grid: tuple[int, ...] | None, blocks: Sequence[tuple[int, ...]] | None) -> tuple[int, ...] | None:
    """Return the grid's extents, or None if only `blocks` tells which blocks run."""
    kernel = run.kernel
    if kernel.grid is None:
        if grid is None and blocks is None:
            text = f"kernel `{kernel.name}` declares no grid: pass `grid`"
            raise LaunchError(Diagnostic("missing-grid", text, kernel.span, property="launch"))
        return grid

    def fault(code: str, expr: Expr, bad: Array) -> None:
        text = "the number of blocks cannot be computed in 32 bits"
        run.log.add(Violation("bounds", code, text, None, ()))

    return tuple(max(0, int(launch.scalar(e, run.params, fault))) for e in kernel.grid)


def walk_grid(grid: tuple[int, ...], group: int) -> list[tuple[int, ...]]:
    """Return the program ids of a grid in order: axis 0 first, or `group` rows at a time, column by column."""
    if group == 1 or 0 in grid:
        return [index[::-1] for index in product(*(range(n) for n in reversed(grid)))]
    *leading, columns = grid
    rows = [index[::-1] for index in product(*(range(n) for n in reversed(leading)))]
    starts = range(0, len(rows), group)
    return [(*row, column) for s in starts for column in range(columns) for row in rows[s : s + group]]


def share(programs: Sequence[T], block: int, blocks: int) -> list[T]:
    """Return the programs of one block. Each round gives every block one program, and the order of blocks alternates.
    """
    turns = enumerate(range(0, len(programs), blocks))
    places = (first + (block if turn % 2 == 0 else blocks - 1 - block) for turn, first in turns)
    return [programs[place] for place in places if place < len(programs)]


def run_blocks(
    run: Run,
    blocks: Sequence[tuple[int, ...]] | None,
    grid: tuple[int, ...] | None,
    schedule: str | Schedule,
    resident: int = 2,
) -> Outcome:
    """Run the blocks in order, then check the properties that only show at the end."""
    chosen = list(blocks) if blocks is not None else walk_grid(grid or (), run.kernel.group)
    order = Schedule.parse(schedule, run.kernel) if isinstance(schedule, str) else schedule
    complete = blocks is None
    programs = [Program(index, number) for number, index in enumerate(chosen)]
    step = len(programs) if not run.kernel.persistent else resident if complete else 1

    def carried_out(one: Run, order: Schedule, programs: Sequence[Program]) -> None:
        for first in range(min(step, len(programs))):
            run_block(Block.start(one, tuple(share(programs, first, step)), order.early), order)

    @cache
    def widely(numbers: frozenset[int]) -> tuple[Run, Run] | None:
        plain = Schedule.parse("program", run.kernel)
        some = programs if handed_on(run.kernel) else [p for p in programs if p.number in numbers]
        try:
            with np.errstate(all="ignore"):
                for one in (runs := (_wide(run, False), _wide(run, True))):
                    carried_out(one, plain, some)
        except Stopped:
            return None
        return runs

    try:
        carried_out(run, order, programs)
        if run.checks:
            check_coverage(run, complete)
            for stmt in _specifications(run.kernel) if run.values else ():
                check_spec(run, stmt, complete, widely)
    except Stopped:
        complete = False
    except NotReplayable:
        if not run.log.violations:
            raise
        complete = False
    tensors = {name: t.contents.values.reshape(t.shape) for name, t in run.tensors.items() if t.dense}
    return Outcome(tensors, tuple(run.log.violations), len(chosen), complete, tuple(run.printed or ()))
