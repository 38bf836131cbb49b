"""Launch the kernels of a norm's gradient: which ones, with which constants and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels.rows import CHUNK, CHUNK_WARPS, columns, dtype_of, matrix, same_shape, shaped, vector
from argus.kernels.shares import added, by_columns, by_rows
from argus.runtime.jit_kernel import JitKernel
from argus.runtime.work import Call

if TYPE_CHECKING:
    import torch

LONGEST = 8192
"""Elements of a row that stays in registers, beside its gradient, the weights and a block's sums."""


@dataclass(frozen=True, slots=True)
class NormGradient:
    """The kernels of a norm's gradient.

    `rows` takes rows of up to `LONGEST` elements. For longer rows, `long` also finds `saved` numbers of each row, with
    which `columns` computes the gradients of the parameters. There are `parameters` of these, each of a row's length.
    """

    rows: JitKernel
    long: JitKernel
    columns: JitKernel
    saved: int
    parameters: int

    def calls(
        self, tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]
    ) -> tuple[tuple[Call, ...], torch.Tensor, torch.Tensor]:
        """Return the launches for dy, x and the weight, the gradient of x, and those of the parameters as rows.

        Raises LaunchError.
        """
        import torch

        dy, x, weight = tensors
        dtype, scale = checked(dy, x, weight)
        rows, given, weight = matrix(x), matrix(dy), weight.contiguous()
        M, N = rows.shape
        dx, parameters = rows.new_empty(rows.shape), weight.new_empty(self.parameters, N)
        types = {"DTYPE": dtype, "WEIGHT": scale}
        short = N <= LONGEST
        shape = by_rows(M, N, dtype.bytes, min(vector(rows), vector(given))) if short else by_columns(M)
        shares = torch.empty(self.parameters, shape["BLOCKS"], N, dtype=torch.float32, device=x.device)
        calls: tuple[Call, ...]
        if short:
            calls = (Call(self.rows, (given, rows, weight, dx, *shares, *numbers), {**types, **shape}),)
        else:
            saved = torch.empty(self.saved, M, dtype=torch.float32, device=x.device)
            pieces = {**types, "BLOCK": CHUNK, "num_warps": CHUNK_WARPS}
            calls = (
                Call(self.long, (given, rows, weight, dx, *saved, *numbers), pieces),
                Call(self.columns, (given, rows, *saved, *shares), {"DTYPE": dtype, **shape}),
            )
        return (*calls, added(shares, parameters)), shaped(dx, x), parameters


def checked(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[DType, DType]:
    """Return the dtypes of x and the weight. Raises LaunchError."""
    dtype, scale = dtype_of("x", x), dtype_of("weight", weight)
    same_shape("weight", weight, (columns(x),))
    same_shape("dy", dy, tuple(x.shape))
    dtype_of("dy", dy, (dtype.name,))
    return dtype, scale
