"""Layers of language models as `torch.nn.Module`s that call `argus.kernels`, each with an equivalent in plain
PyTorch."""

from argus.layers.cache import PagedCache
from argus.layers.decoder import Attention, DecoderLayer, GatedMLP, Mixture, Shape
from argus.layers.parallel import parallel_mixture
from argus.layers.twin import twin, twin_step

__all__ = [
    "Attention",
    "DecoderLayer",
    "GatedMLP",
    "Mixture",
    "PagedCache",
    "Shape",
    "parallel_mixture",
    "twin",
    "twin_step",
]
