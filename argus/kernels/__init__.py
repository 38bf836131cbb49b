"""The shipped kernels as functions from PyTorch tensors to PyTorch tensors. Importing them does not import PyTorch."""

from argus.kernels.attention import attention
from argus.kernels.attention_backward import attention_backward
from argus.kernels.attention_decode import attention_decode
from argus.kernels.attention_float8 import attention_float8
from argus.kernels.attention_latent import attention_decode_latent
from argus.kernels.attention_varlen import attention_varlen
from argus.kernels.attention_varlen_backward import attention_varlen_backward
from argus.kernels.attention_with import attention_with
from argus.kernels.cache_append import cache_append
from argus.kernels.conv1d import causal_conv1d
from argus.kernels.cross_entropy import cross_entropy
from argus.kernels.cross_entropy_backward import cross_entropy_backward
from argus.kernels.delta_rule import gated_delta_rule, gated_delta_step
from argus.kernels.gemm import gemm
from argus.kernels.layernorm import add_layernorm, layernorm
from argus.kernels.layernorm_backward import layernorm_backward
from argus.kernels.linear_attention import linear_attention
from argus.kernels.matmul import Matmul
from argus.kernels.matmul_blocks import matmul_blocks, quantize_blocks, rmsnorm_quantize
from argus.kernels.matmul_packed import matmul_int4, matmul_int8
from argus.kernels.mixture import mixture
from argus.kernels.mixture_blocks import mixture_blocks
from argus.kernels.moe import moe
from argus.kernels.quantize import quantize
from argus.kernels.reduce import reduce
from argus.kernels.rmsnorm import rmsnorm
from argus.kernels.rmsnorm_backward import rmsnorm_backward
from argus.kernels.rotary import rotary
from argus.kernels.routing import router
from argus.kernels.silu_mul import silu_mul
from argus.kernels.softmax import softmax
from argus.kernels.softmax_backward import log_softmax_backward, softmax_backward
from argus.kernels.table import tile_for
from argus.kernels.topk import topk
from argus.kernels.transpose import transpose

__all__ = [
    "add_layernorm",
    "attention",
    "attention_backward",
    "attention_decode",
    "attention_decode_latent",
    "attention_float8",
    "attention_varlen",
    "attention_varlen_backward",
    "attention_with",
    "cache_append",
    "causal_conv1d",
    "cross_entropy",
    "cross_entropy_backward",
    "gated_delta_rule",
    "gated_delta_step",
    "layernorm",
    "layernorm_backward",
    "linear_attention",
    "log_softmax_backward",
    "matmul",
    "matmul_blocks",
    "matmul_int4",
    "matmul_int8",
    "mixture",
    "mixture_blocks",
    "moe",
    "quantize",
    "quantize_blocks",
    "reduce",
    "rmsnorm",
    "rmsnorm_backward",
    "rmsnorm_quantize",
    "rotary",
    "router",
    "silu_mul",
    "softmax",
    "softmax_backward",
    "topk",
    "transpose",
]

matmul = Matmul(gemm, tile_for, name="matmul")
