"""Rewrites of numbers: the default of a constexpr parameter, or the number of warps. Each is one step of a search."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from argus.frontend.surface import Literal
from argus.knowledge.draft import Draft


def set_constants(draft: Draft, **values: int) -> None:
    """Give constexpr parameters other defaults; `num_warps` is the decorator's option."""
    for name, value in values.items():
        if name == "num_warps":
            if warps(draft) != value:
                draft.option("num_warps", value)
        elif draft.constants().get(name, value) != value:
            draft.parameter(name, value)


def warps(draft: Draft) -> int:
    """Return the number of warps that the decorator names, 4 by default."""
    option = next((k.value for k in draft.function.options if k.name == "num_warps"), None)
    return int(option.value) if isinstance(option, Literal) and isinstance(option.value, int) else 4


def _scaled_warps(draft: Draft, factor: float) -> None:
    wanted = int(warps(draft) * factor)
    if 1 <= wanted <= 32:
        draft.option("num_warps", wanted)


def _scaled(draft: Draft, names: tuple[str, ...], factor: float) -> None:
    """Multiply the default of the first constexpr parameter of the kernel that is one of `names`, if it stays positive.
    """
    for name, value in draft.constants().items():
        if name in names and isinstance(value, int) and int(value * factor) >= 1:
            draft.parameter(name, int(value * factor))
            return


ROWS, COLUMNS = ("BLOCK_M", "ROWS"), ("BLOCK_N", "COLUMNS", "BLOCK")
DEPTH, STAGES = ("BLOCK_K", "DEPTH"), ("STAGES",)
"""Names of a tile's extents in the examples and kernels of the language."""


NAMES = {"rows": ROWS, "columns": COLUMNS, "depth": DEPTH, "stages": STAGES, "tile": ("TILE",), "group": ("GROUP",),
         "warps": ()}  # fmt: skip
"""What rewrites such as `rows=128` set, by the names that parameters of that meaning have. Warps are an option."""


def setter(step: str) -> Callable[[Draft], None]:
    """Return the rewrite that `rows=128` and the like stand for. Raises KeyError if nothing has that name."""
    what, _, value = step.partition("=")
    names = NAMES[what]

    def change(draft: Draft) -> None:
        found = next((n for n in names if n in draft.constants()), "") if names else "num_warps"
        if found:
            set_constants(draft, **{found: int(value)})

    return change


def _more_stages(draft: Draft) -> None:
    value = draft.constants().get("STAGES")
    if isinstance(value, int):
        draft.parameter("STAGES", value + 1)


REWRITES: dict[str, Callable[[Draft], None]] = {
    "more_warps": partial(_scaled_warps, factor=2),
    "fewer_warps": partial(_scaled_warps, factor=0.5),
    "taller_tile": partial(_scaled, names=ROWS, factor=2),
    "lower_tile": partial(_scaled, names=ROWS, factor=0.5),
    "wider_tile": partial(_scaled, names=COLUMNS, factor=2),
    "narrower_tile": partial(_scaled, names=COLUMNS, factor=0.5),
    "deeper_tile": partial(_scaled, names=DEPTH, factor=2),
    "shallower_tile": partial(_scaled, names=DEPTH, factor=0.5),
    "more_stages": _more_stages,
}
