"""What machine code does on every path, whether a run takes it or not."""

from __future__ import annotations

from collections.abc import Iterator

from tests.machine.gfx942.code import Code, Instruction

_LANES_ONLY = ("ds_bpermute", "ds_permute", "ds_swizzle")
"""Instructions that exchange registers through LDS, and touch none of it."""


def unwaited_barriers(code: Code) -> list[Instruction]:
    """Return the barriers that some path reaches with accesses to LDS for which it has not waited.

    Such a barrier orders nothing of these accesses for other waves. Only `lgkmcnt(0)` counts as a wait.
    """
    instructions = code.instructions
    places = {i.address: n for n, i in enumerate(instructions)}
    busy: dict[int, bool] = {}
    reached = [(places[kernel.entry], False) for kernel in code.kernels.values()]
    while reached:
        n, open_ = reached.pop()
        if busy.get(n) in (open_, True):
            continue
        busy[n] = open_
        i = instructions[n]
        if i.name == "s_waitcnt" and "lgkmcnt(0)" in i.operands:
            open_ = False
        elif i.name.startswith("ds_") and not i.name.startswith(_LANES_ONLY):
            open_ = True
        reached += [(m, open_) for m in _following(instructions, places, n)]
    return [instructions[n] for n, open_ in sorted(busy.items()) if open_ and instructions[n].name == "s_barrier"]


def _following(instructions: tuple[Instruction, ...], places: dict[int, int], n: int) -> Iterator[int]:
    i = instructions[n]
    if i.target is not None:
        yield places[i.target]
    if i.name not in ("s_branch", "s_endpgm", "s_setpc_b64"):
        yield n + 1
