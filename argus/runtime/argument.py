"""The values that a call of a kernel or program takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, Union

from argus.frontend.decorator import FuncSource
from argus.ir.types import DType

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

Argument: TypeAlias = "Union[torch.Tensor, NDArray[np.generic], int, float, bool, str, DType, FuncSource, None]"
"""A tensor or array, a number, or the value of a constant: a number, a text, an element type or a helper. None stands
for an optional tensor that is left out."""
