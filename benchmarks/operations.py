"""A norm, a softmax and a product, each by Argus, PyTorch and Triton: the sides of `ways` and `first`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OPERATIONS = ("rmsnorm", "softmax", "matmul")
KERNEL = "vector_add, a kernel"
"""A kernel that is called itself; its operator writes to a tensor that it is given."""
SIDES = ("argus", "PyTorch", "Triton")

Call = Callable[..., Any]


def tensors(torch: Any, operation: str) -> tuple[Any, ...]:
    """Return small bfloat16 operands: 64 rows of 1024 elements, or a product of 128 x 64 x 256."""
    shapes = {"rmsnorm": ((64, 1024), (1024,)), "softmax": ((64, 1024),), "matmul": ((128, 64), (64, 256))}
    return tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes[operation])


def direct(torch: Any, side: str, operation: str) -> Call:
    """Return the function of its tensors. Raises ImportError if the package of this side is missing."""
    if side == "argus":
        from argus import kernels

        found: Call = getattr(kernels, operation)
        return found
    if side == "Triton":
        return _with_kernel(torch, operation, lambda kernel: kernel)
    calls: dict[str, Call] = {
        "rmsnorm": lambda x, weight: torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6),
        "softmax": lambda x: torch.softmax(x, -1),
        "matmul": torch.matmul,
    }
    return calls[operation]


def operator(torch: Any, side: str, operation: str) -> Call:
    """Return the registered operator as a function of its tensors. Raises ImportError as `direct` does."""
    if side == "Triton":
        wrapped = _with_kernel(torch, operation, torch.library.wrap_triton)
        registered: Call = torch.library.triton_op(f"argus_benchmarks::{operation}", mutates_args=())(wrapped)
        return registered
    if side == "argus":
        from argus.torch import register_library

        register_library()
        found: Call = getattr(torch.ops.argus, operation).default
        return found
    aten = torch.ops.aten
    calls: dict[str, Call] = {
        "rmsnorm": lambda x, weight: aten.rms_norm.default(x, weight.shape, weight, 1e-6),
        "softmax": lambda x: aten._softmax.default(x, -1, False),
        "matmul": aten.mm.default,
    }
    return calls[operation]


def _with_kernel(torch: Any, operation: str, wrap: Callable[[Any], Any]) -> Call:
    """Return the function that launches the Triton kernel, which `wrap` prepares for its way of calling."""
    from benchmarks import triton_kernels

    kernel = wrap(getattr(triton_kernels, operation))

    def rmsnorm(x, weight):  # type: ignore[no-untyped-def]
        out = torch.empty_like(x)
        kernel[(x.shape[0],)](x, weight, out, x.shape[1], 1e-6, BLOCK=1024)
        return out

    def softmax(x):  # type: ignore[no-untyped-def]
        out = torch.empty_like(x)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
        return out

    def matmul(a, b):  # type: ignore[no-untyped-def]
        (m, k), n = a.shape, b.shape[1]
        c = a.new_empty(m, n)
        kernel[(m // 64, n // 64)](a, b, c, m, n, k, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
        return c

    calls: dict[str, Any] = {"rmsnorm": rmsnorm, "softmax": softmax, "matmul": matmul}
    found: Call = calls[operation]
    names = (*found.__code__.co_varnames[: found.__code__.co_argcount], "return")
    # PyTorch derives the operator's schema from these. As text they would name no global of this module.
    found.__annotations__ = dict.fromkeys(names, torch.Tensor)
    return found
