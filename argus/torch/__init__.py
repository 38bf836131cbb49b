"""Kernels as PyTorch operators. Imports torch; nothing else of Argus does at import time."""

from argus.torch.operator import register

__all__ = ["register"]
