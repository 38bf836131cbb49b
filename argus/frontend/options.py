"""What is fixed before a kernel is elaborated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    """`constexprs` overrides defaults of constexpr parameters. `num_warps` overrides the decorator's.

    `alignment` gives tensors (by name) another alignment in bytes than `default_alignment`.
    `target` fixes the warp size, and what instructions explicit style may name.
    """

    target: str = "sm_80"
    num_warps: int | None = None
    constexprs: Mapping[str, object] = field(default_factory=dict)
    alignment: Mapping[str, int] = field(default_factory=dict)
    default_alignment: int = 16
