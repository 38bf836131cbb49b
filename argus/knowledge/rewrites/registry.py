"""The table of all rewrites. A rewrite takes a draft and adds edits; a rewrite that adds none does not apply.

`rows=128` is a rewrite, too: it sets the default of the parameter that counts rows of a tile, whatever its name.
"""

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
    "load_before_the_loop": loops.load_before,
    "persistent_grid": grids.persistent,
    "exchange_axes": grids.exchange_axes,
    "last_programs_first": grids.last_first,
    "group_programs": grids.group,
    "rows_apart": grids.rows_apart,
    "take_turns": grids.turns,
    "pingpong": grids.pingpong,
    "cluster_of_two": grids.cluster,
    "rotate_loop": attention.rotate,
    "scale_early": attention.scale_early,
    "fuse_multiply_add": arithmetic.fuse,
    "exponential_of_base_2": arithmetic.base_2,
    "divide_once": arithmetic.divide_once,
    "inverse_root": arithmetic.inverse_root,
    "reduce_at_the_end": arithmetic.reduce_at_the_end,
    "several_rows": rows.several,
    "swap_operands": tiles.swap_operands,
    "stage_transpose": tiles.stage_transpose,
    "swizzle_shared": tiles.swizzle,
    "read_once": loops.read_once,
    **constants.REWRITES,
}


def known(step: str) -> bool:
    """Return True if there is such a rewrite."""
    name, _, value = step.partition("=")
    return step in REWRITES or (name in constants.NAMES and value.isdecimal())


def rewrite(text: str, name: str, *steps: str) -> str | None:
    """Apply the rewrites `steps` to kernel `name` in order and return the text; None if one of them does not apply.

    A number that the kernel has already is no reason to stop. Raises KeyError for an unknown rewrite.
    """
    for step in steps:
        sets = "=" in step
        change = constants.setter(step) if sets else REWRITES[step]
        try:
            draft = Draft.of(text, name)
        except SourceError:
            return None
        change(draft)
        try:
            new = draft.result()
        except OverlapError:
            return None
        if new == text and not sets:
            return None
        text = new
    return text
