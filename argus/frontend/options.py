"""Options that are fixed before a kernel is elaborated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ACCEPTABLE = ("spec-unknown", "tags-unknown")
"""Codes of findings about values that an author may accept while they are unknown. All other findings are about
safety."""


@dataclass(frozen=True)
class Options:
    """Options of one elaboration. `constexprs` overrides defaults of constexpr parameters; `num_warps` overrides the
    decorator's value.

    `alignment` gives tensors, by name, another alignment in bytes than `default_alignment`. `target` determines the
    warp size and the instructions that the explicit style may name.
    """

    target: str = "sm_80"
    num_warps: int | None = None
    constexprs: Mapping[str, object] = field(default_factory=dict)
    alignment: Mapping[str, int] = field(default_factory=dict)
    default_alignment: int = 16


def unacceptable(code: str) -> str:
    """Return the error message for a code that cannot be accepted."""
    listed = " and ".join(f"`{name}`" for name in ACCEPTABLE)
    return f"`{code}` cannot be accepted: safety is always proved; only {listed} are about values alone"
