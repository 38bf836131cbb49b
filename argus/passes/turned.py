"""Transpose operands that are not contiguous along k in memory, in registers on the way to LDS, for mfma.

A lane of an mfma takes 8 bytes of consecutive k. If k is not the contiguous dimension in memory, as in the values of
attention, a thread loads vectors for several k, reorders its registers, and stores runs of k:

    stage vt[k, n] <- v[...]            ->  next = v[...]              values of a thread: n first, then 4 k
                                            turned = next              k first
                                            vt[k, n] = turned          8 bytes at a time

Adjacent lanes take adjacent runs of k, so that their stores fall into different banks.
"""

from __future__ import annotations

from math import prod

from argus.ir.expr import Coord, Elem, coords
from argus.ir.nodes import Access, Kernel, Map, Mma, Stage, Stmt, Tensor, ThreadCopy
from argus.ir.visit import walk
from argus.layout import FragmentLayout, Mode
from argus.passes.fresh import Fresh
from argus.passes.moves import contiguous_axis, target_of

_RUN, _VECTOR = 8, 16  # bytes of k that a lane takes at once, and bytes of the widest memory access


def turned_axis(kernel: Kernel, stage: Stage) -> int | None:
    """Return the tile's dimension that is k of a product on gfx942 but not contiguous in memory, or None."""
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
    run, width = _sizes(kernel, stage, k)
    return width > 0 and stage.shape[k] % run == 0


def _sizes(kernel: Kernel, stage: Stage, k: int) -> tuple[int, int]:
    """Return the number of consecutive k, and of elements along the other dimension, that a thread moves at a time.

    The latter is 0 if no number of them, moved by all threads side by side, divides the tile. Each load costs its mask
    and its address: where threads would load less than 8 bytes at a time, runs are half as long.
    """
    itemsize = kernel.object(stage.dst).dtype.bytes
    wide, narrow = (_of_run(kernel, stage, k, size // itemsize) for size in (_RUN, _RUN // 2))
    return narrow if wide[1] * itemsize < _RUN <= narrow[1] * itemsize else wide


def _of_run(kernel: Kernel, stage: Stage, k: int, run: int) -> tuple[int, int]:
    """Return `run`, and the number of elements along the other dimension that a thread moves at a time, as `_sizes`."""
    itemsize = kernel.object(stage.dst).dtype.bytes
    each, rest = divmod(prod(stage.shape), run * kernel.num_threads)
    beside = max(1, min(stage.shape[k] // run, kernel.num_threads))
    widths = (_VECTOR // itemsize >> shift for shift in range(_VECTOR.bit_length()))
    fitting = (w for w in widths if 0 < w <= each and stage.shape[1 - k] % (w * (kernel.num_threads // beside)) == 0)
    return run, 0 if rest else next(fitting, 0)


def turned_layouts(kernel: Kernel, stage: Stage, k: int) -> tuple[FragmentLayout, FragmentLayout]:
    """Return the layouts of the registers for the load and for the store."""
    run, width = _sizes(kernel, stage, k)
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
    """Make the register tiles through which `stage` moves data: one to load, and one to store if it differs."""
    dtype, k = kernel.object(stage.dst).dtype, turned_axis(kernel, stage)
    if k is None:
        return fresh.fragment(f"{stage.dst}_next", dtype, stage.shape), None
    load, store = turned_layouts(kernel, stage, k)
    return (
        fresh.fragment(f"{stage.dst}_next", dtype, stage.shape, load),
        fresh.fragment(f"{stage.dst}_turned", dtype, stage.shape, store),
    )


def deposit(kernel: Kernel, stage: Stage, place: Access, register: str, turned: str | None) -> tuple[Stmt, ...]:
    """Return the statements that store the loaded data to `place`."""
    here = coords(len(stage.shape))
    move: tuple[Stmt, ...] = ()
    if turned is not None:
        value = Elem(register, here, kernel.object(stage.dst).dtype)
        move = (Map(Access(turned, here), value, stage.shape, span=stage.span),)
    return (*move, ThreadCopy(place, Access(turned or register, here), stage.shape, span=stage.span))
