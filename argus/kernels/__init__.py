"""The kernels that ship: PyTorch tensors in, PyTorch tensors out. PyTorch itself is imported by none of them."""

from argus.kernels.attention import attention
from argus.kernels.cross_entropy import cross_entropy
from argus.kernels.gemm import gemm
from argus.kernels.layernorm import add_layernorm, layernorm
from argus.kernels.matmul import Matmul
from argus.kernels.quantize import quantize
from argus.kernels.reduce import reduce
from argus.kernels.rmsnorm import rmsnorm
from argus.kernels.silu_mul import silu_mul
from argus.kernels.softmax import softmax
from argus.kernels.table import tile_for
from argus.kernels.transpose import transpose

__all__ = [
    "add_layernorm",
    "attention",
    "cross_entropy",
    "layernorm",
    "matmul",
    "quantize",
    "reduce",
    "rmsnorm",
    "silu_mul",
    "softmax",
    "transpose",
]

matmul = Matmul(gemm, tile_for, name="matmul")
