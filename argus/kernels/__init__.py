"""The kernels that ship: PyTorch tensors in, PyTorch tensors out. PyTorch itself is imported by none of them."""

from argus.kernels.rmsnorm import rmsnorm
from argus.kernels.softmax import softmax

__all__ = ["rmsnorm", "softmax"]
