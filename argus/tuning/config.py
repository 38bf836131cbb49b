"""A configuration: constants of a kernel that may be chosen freely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Config:
    """Constants for a kernel's constexpr parameters, and the number of warps (None: the decorator's)."""

    constants: Mapping[str, object] = field(default_factory=dict)
    num_warps: int | None = None

    @property
    def keywords(self) -> dict[str, object]:
        """The configuration as keyword arguments of a call."""
        warps = {} if self.num_warps is None else {"num_warps": self.num_warps}
        return {**self.constants, **warps}

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.keywords.items()) or "defaults"
