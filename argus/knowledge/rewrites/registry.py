"""The table of all rewrites. A rewrite takes a draft and adds edits; a rewrite that adds none does not apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from argus.diagnostic import SourceError
from argus.knowledge.draft import Draft, OverlapError
from argus.knowledge.rewrites import arithmetic, attention, constants, grids, loops, rows, tiles

Rewrite = Callable[[Draft], None]

REWRITES: Mapping[str, Rewrite] = {
    "stage_operands": loops.stage_operands,
    "pipeline_loop": loops.pipeline_loop,
    "producer_warps": loops.producer_warps,
    "gathering_producers": loops.gathering_producers,
    "mask_last_block": loops.mask_last_block,
    "persistent_grid": grids.persistent,
    "group_programs": grids.group,
    "rows_apart": grids.rows_apart,
    "take_turns": grids.turns,
    "pingpong": grids.pingpong,
    "cluster_of_two": grids.cluster,
    "rotate_loop": attention.rotate,
    "fuse_multiply_add": arithmetic.fuse,
    "exponential_of_base_2": arithmetic.base_2,
    "divide_once": arithmetic.divide_once,
    "reduce_at_the_end": arithmetic.reduce_at_the_end,
    "several_rows": rows.several,
    "swap_operands": tiles.swap_operands,
    "stage_transpose": tiles.stage_transpose,
    "swizzle_shared": tiles.swizzle,
    "read_once": loops.read_once,
    **constants.REWRITES,
}


def rewrite(text: str, name: str, *steps: str) -> str | None:
    """Apply the rewrites `steps` to kernel `name` in order and return the text; None if one of them does not apply.

    Raises KeyError for an unknown rewrite.
    """
    for step in steps:
        change = REWRITES[step]
        try:
            draft = Draft.of(text, name)
        except SourceError:
            return None
        change(draft)
        try:
            new = draft.result()
        except OverlapError:
            return None
        if new == text:
            return None
        text = new
    return text
