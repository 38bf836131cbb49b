"""Running a kernel: blocks one after the other, the warps of a block in an order that a schedule chooses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from argus.diagnostic import Diagnostic, LaunchError
from argus.ir.expr import Expr
from argus.ir.nodes import Barrier, Kernel, Spec, Tag
from argus.ir.visit import walk
from argus.simulate import launch
from argus.simulate.coverage import check_coverage
from argus.simulate.evaluate import Number
from argus.simulate.launch import Argument
from argus.simulate.log import Log
from argus.simulate.machine import Block, Frame, Run
from argus.simulate.memory import Contents, Dense, GlobalTensor
from argus.simulate.numeric import Array, round_to
from argus.simulate.order import Order, Touch
from argus.simulate.outcome import Outcome, Stopped, Violation
from argus.simulate.specification import check_spec
from argus.simulate.statements import execute
from argus.simulate.tagset import BOTTOM, Schemas, Tags
from argus.simulate.usage import Usage, taggable, usage

MOST_ITERATIONS = 1 << 20
"""Iterations of one loop that a simulation is willing to run."""


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
) -> Outcome:
    """Execute an explicit kernel on NumPy arrays and report every rule that it breaks.

    `arguments`: an array or number for each parameter by name, floats as float32; they are not changed. `blocks`:
    run only these (coverage and specifications are then not checked); default all of the grid. `grid` is needed
    for a kernel that declares none. `checks`: bounds are always checked, the other properties only with this.
    `tags`: carry tags and evaluate tag assertions (docs/tags.md). `schedule` orders the warps of a block between
    barriers: "program" runs each statement for all threads together, "reverse" runs warp by warp from the last,
    "random(SEED)" in an order drawn anew after every barrier. Values are the same under all of them unless
    there is a race.

    Raises `LaunchError` for arguments that break a precondition, `NotReplayable` for a loop of more than
    2^20 iterations.
    """
    params = launch.bind(kernel, arguments)
    launch.check_ranges(kernel, arguments, params)
    keep = bool(_specifications(kernel))
    contents: dict[str, Contents] = {
        t.name: Dense(round_to(np.asarray(arguments[t.name]), t.dtype), keep) for t in kernel.tensors
    }
    run = prepare(kernel, params, contents, checks, tags, stop_at_first, MOST_ITERATIONS)
    return run_blocks(run, blocks, grid_of(run, grid, blocks), schedule)


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
    """The state that all blocks share, before the first one."""
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
    return Run(kernel, params, tensors, log, checks, schemas, declared, taggable(kernel), iterations)


def _order(name: str, used: Usage, cells: int) -> Order | None:
    if name not in used.written:
        return None
    ways = ((Touch.READ, used.read), (Touch.WRITE, used.stored), (Touch.ACCUMULATE, used.accumulated))
    return Order(cells, tuple(touch for touch, names in ways if name in names), name in used.fetched)


def grid_of(run: Run, grid: tuple[int, ...] | None, blocks: Sequence[tuple[int, ...]] | None) -> tuple[int, ...] | None:
    """The grid's extents; None if only `blocks` tell what is to run."""
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


def run_blocks(
    run: Run, blocks: Sequence[tuple[int, ...]] | None, grid: tuple[int, ...] | None, schedule: str
) -> Outcome:
    """Run the blocks in order, then check what only the end shows."""
    chosen = list(blocks) if blocks is not None else list(product(*(range(n) for n in grid or ())))
    order = _schedule(schedule, run.kernel.num_warps)
    complete = blocks is None
    try:
        for number, index in enumerate(chosen):
            run_block(Block.start(run, index, number), order)
        if run.checks:
            check_coverage(run, complete)
            for stmt in _specifications(run.kernel):
                check_spec(run, stmt)
    except Stopped:
        complete = False
    tensors = {name: t.contents.values.reshape(t.shape) for name, t in run.tensors.items() if t.dense}
    return Outcome(tensors, tuple(run.log.violations), len(chosen), complete)


def _schedule(name: str, warps: int) -> tuple[list[tuple[int, ...]], Callable[[], list[int]]]:
    """Groups of warps, and a function that gives the order of the groups for the next stretch of the program."""
    if name == "program":
        return [tuple(range(warps))], lambda: [0]
    single: list[tuple[int, ...]] = [(w,) for w in range(warps)]
    if name == "reverse":
        return single, lambda: list(range(warps))[::-1]
    seed = re.fullmatch(r"random\((\d+)\)", name)
    if seed is None:
        raise ValueError(f'schedule {name!r} is none of "program", "reverse" and "random(SEED)"')
    draw = np.random.default_rng(int(seed.group(1)))
    return single, lambda: [int(w) for w in draw.permutation(warps)]


def run_block(block: Block, schedule: tuple[list[tuple[int, ...]], Callable[[], list[int]]]) -> None:
    """Run one block to its end: every group to its next barrier, in the order of the schedule, again and again."""
    groups, order = schedule
    kernel = block.run.kernel
    warp = np.arange(kernel.num_threads) // kernel.warp_size
    frames = [Frame(np.isin(warp, group), {}) for group in groups]
    walks = [execute(block, kernel.body, frame) for frame in frames]
    while True:
        arrived: list[tuple[Barrier, Frame] | None] = [None] * len(walks)
        for g in order():
            arrived[g] = _advance(walks[g])
        if all(a is None for a in arrived):
            return
        _meet(block, arrived)
        block.run.epoch += 1


def _advance(walk: Iterator[tuple[Barrier, Frame]]) -> tuple[Barrier, Frame] | None:
    return next(walk, None)


def _meet(block: Block, arrived: list[tuple[Barrier, Frame] | None]) -> None:
    """Report a barrier that some threads of the block do not reach."""
    here = [a for a in arrived if a is not None]
    stmt, frame = here[0]
    present: Array = np.zeros(block.run.kernel.num_threads, dtype=np.bool_)
    for other, its in here:
        if other is stmt and its.loops == frame.loops:
            present |= its.active
    if not present.all():
        step = block.step(stmt, frame, None)
        absent = int(np.argmin(present))
        text = f"{int((~present).sum())} threads of the block do not come to this barrier, thread {absent} for one"
        block.report(
            step, "convergence", "divergent-barrier", text, int(np.argmax(present)), count=int((~present).sum())
        )
