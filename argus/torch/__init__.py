"""Kernels and functions as PyTorch operators. PyTorch is imported when one is registered, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argus.torch.gradient import Gradient, attach

if TYPE_CHECKING:
    from argus.torch.library import register_library
    from argus.torch.operator import register

__all__ = ["Gradient", "attach", "register", "register_library"]


def __getattr__(name: str) -> Any:
    if name == "register":
        from argus.torch.operator import register

        return register
    if name == "register_library":
        from argus.torch.library import register_library

        return register_library
    raise AttributeError(name)
