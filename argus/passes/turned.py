"""Operands that memory holds across: on the way to LDS they are turned, so that mfma reads them in vectors.

A lane of an mfma takes 8 bytes of consecutive k. Where k is not the contiguous dimension in memory, as of the values of
attention, a thread loads vectors of several k, moves its registers into the other order, and stores runs of k:

    stage vt[k, n] <- v[...]            ->  next = v[...]              values of a thread: n first, then 4 k
                                            turned = next              k first
                                            vt[k, n] = turned          8 bytes at a time

Lanes stand side by side along k, so that their stores fall into different banks.
"""

from __future__ import annotations

from math import prod

from argus.ir.expr import Coord, Elem, coords
from argus.ir.nodes import Access, Kernel, Map, Mma, Stage, Stmt, Tensor, ThreadCopy
from argus.ir.visit import walk
from argus.layout import FragmentLayout, Mode
from argus.passes.fresh import Fresh
from argus.passes.moves import contiguous_axis, target_of

_RUN, _VECTOR = 8, 16  # bytes: of k that a lane takes at once, and the widest access to memory


def turned_axis(kernel: Kernel, stage: Stage) -> int | None:
    """The dimension of the tile that is k of a product of waves and not contiguous in memory; None if there is none."""
    source = kernel.object(stage.src.obj)
    if target_of(kernel).vendor != "amd" or len(stage.shape) != 2 or not isinstance(source, Tensor):
        return None
    contiguous = contiguous_axis(source, stage.src.index)
    for stmt in walk(kernel.body):
        for access in (stmt.a, stmt.b) if isinstance(stmt, Mma) else ():
            places = [dim for dim, e in enumerate(access.index[-2:]) if e == Coord(2)]
            if access.obj == stage.dst and places and contiguous not in (None, *places):
                return places[0] if _fits(kernel, stage, places[0]) else None
    return None


def _fits(kernel: Kernel, stage: Stage, k: int) -> bool:
    run, width = _sizes(kernel, stage)
    return width > 0 and stage.shape[k] % run == 0 and stage.shape[1 - k] % width == 0


def _sizes(kernel: Kernel, stage: Stage) -> tuple[int, int]:
    """Consecutive k, and consecutive elements along the other dimension, that a thread moves at a time."""
    itemsize = kernel.object(stage.dst).dtype.bytes
    run = _RUN // itemsize
    each, rest = divmod(prod(stage.shape), run * kernel.num_threads)
    return run, 0 if rest else min(each, _VECTOR // itemsize)


def turned_layouts(kernel: Kernel, stage: Stage, k: int) -> tuple[FragmentLayout, FragmentLayout]:
    """The layouts of a thread's registers when they are loaded and when they are stored."""
    run, width = _sizes(kernel, stage)
    n, high = 1 - k, stage.shape[k] // run
    threads = kernel.num_threads
    beside = min(high, threads)
    across = threads // beside
    many = stage.shape[n] // width
    lanes = (Mode(beside, k, run), Mode(min(across, many), n, width))
    left = prod(stage.shape) // (run * width * threads)
    values = (Mode(width, n, 1), Mode(run, k, 1))
    more = (Mode(left, n, width * across),) if left > 1 else ()
    load = FragmentLayout(stage.shape, lanes, (*values, *more))
    return load, FragmentLayout(stage.shape, lanes, (*reversed(values), *more))


def on_the_way(kernel: Kernel, fresh: Fresh, stage: Stage) -> tuple[str, str | None]:
    """New register tiles for what `stage` moves: the one that is loaded, and the one that is stored, if another."""
    dtype, k = kernel.object(stage.dst).dtype, turned_axis(kernel, stage)
    if k is None:
        return fresh.fragment(f"{stage.dst}_next", dtype, stage.shape), None
    load, store = turned_layouts(kernel, stage, k)
    return (
        fresh.fragment(f"{stage.dst}_next", dtype, stage.shape, load),
        fresh.fragment(f"{stage.dst}_turned", dtype, stage.shape, store),
    )


def deposit(kernel: Kernel, stage: Stage, place: Access, register: str, turned: str | None) -> tuple[Stmt, ...]:
    """The statements that store what was loaded to `place`."""
    here = coords(len(stage.shape))
    move: tuple[Stmt, ...] = ()
    if turned is not None:
        value = Elem(register, here, kernel.object(stage.dst).dtype)
        move = (Map(Access(turned, here), value, stage.shape, span=stage.span),)
    return (*move, ThreadCopy(place, Access(turned or register, here), stage.shape, span=stage.span))
