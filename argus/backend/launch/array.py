"""A common view of tensor arguments, which may be PyTorch tensors or NumPy arrays.

This module never imports PyTorch: its tensors are recognised only if the caller has imported it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from argus.diagnostic import LaunchError

if TYPE_CHECKING:
    import torch

_STAND_INS = {"uint16": "bfloat16", "float32": "tfloat32"}
"""Dtypes of arrays that may be passed for another dtype with the same bits: for bfloat16 without ml_dtypes, and for
tfloat32."""


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor argument.

    `strides` are in elements. `pointer` is the address of element (0, ..., 0). `device` is spelled as in PyTorch
    ("cpu", "cuda:0"). `dtype` is the array's own name for its element type.
    """

    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: int
    device: str
    writable: bool
    source: Any

    def holds(self, dtype: str) -> bool:
        """Return True if the elements may be read as Argus's `dtype`."""
        if self.dtype == dtype:
            return True
        return _STAND_INS.get(self.dtype) == dtype and not (self.dtype == "uint16" and is_torch(self.source))

    def extent(self) -> tuple[int, int]:
        """Return the half-open range of bytes that the elements occupy, relative to `pointer`; (0, 0) if empty."""
        if 0 in self.shape:
            return 0, 0
        spans = [(n - 1) * s * self.itemsize for n, s in zip(self.shape, self.strides, strict=True)]
        return sum(min(s, 0) for s in spans), sum(max(s, 0) for s in spans) + self.itemsize

    def injective(self) -> bool:
        """Return True if distinct coordinates have distinct addresses, by a sufficient rule.

        The rule: with dimensions sorted by stride, each stride exceeds the span of all smaller dimensions.
        """
        if 0 in self.shape:
            return True
        dims = sorted((abs(s), n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1)
        reach = 0
        for stride, extent in dims:
            if stride <= reach:
                return False
            reach += (extent - 1) * stride
        return True


def is_torch(value: object) -> TypeGuard[torch.Tensor]:
    """Return True if `value` is a PyTorch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    """Return True if `value` is a PyTorch tensor or a NumPy array."""
    numpy = sys.modules.get("numpy")
    return is_torch(value) or (numpy is not None and isinstance(value, numpy.ndarray))


def array(name: str, value: Any) -> Array:
    """Return the view of `value`, which was passed for the tensor parameter `name`.

    Raises LaunchError "argument-type" if `value` is not an array with elements in memory.
    """
    if is_torch(value):
        return _torch(name, value)
    if is_array(value):
        return _numpy(name, value)
    raise _unusable(name, f"a {type(value).__name__}", "pass a PyTorch tensor or a NumPy array")


def _torch(name: str, tensor: Any) -> Array:
    torch = sys.modules["torch"]
    if type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        raise _unusable(name, f"a {type(tensor).__name__}, whose elements are not its own", "pass a plain tensor")
    if tensor.device.type == "meta":
        raise _unusable(name, "a meta tensor, which has a shape and no elements", "pass a tensor on the CPU or a GPU")
    if tensor.layout is not torch.strided:
        raise _unusable(name, "a tensor without elements in memory", "pass a dense tensor (`to_dense()`)")
    if tensor.is_neg() or tensor.is_conj():
        raise _unusable(name, "a lazily negated or conjugated tensor", "call `resolve_neg()` first")
    needed, held = _reach(tensor), tensor.untyped_storage().nbytes()
    if needed > held:
        what = f"a tensor whose last element ends at byte {needed} of a storage of {held}"
        raise _unusable(name, what, "its storage was made smaller: pass a tensor that has all its elements")
    try:
        pointer = tensor.data_ptr()
    except RuntimeError:  # The call is inside a function transform such as vmap or functionalize.
        raise _unusable(name, "a tensor without an address", "register the kernel by `as_torch_op`") from None
    return Array(
        str(tensor.dtype).removeprefix("torch."),
        tensor.element_size(),
        tuple(tensor.shape),
        tensor.stride(),
        pointer,
        str(tensor.device),
        True,
        tensor,
    )


def _reach(tensor: Any) -> int:
    """Return the byte of a tensor's storage at which its last element ends."""
    if not tensor.numel():
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) * int(tensor.element_size())


def _numpy(name: str, value: Any) -> Array:
    itemsize = value.dtype.itemsize
    if not value.dtype.isnative or value.dtype.hasobject:
        raise _unusable(name, f"an array of {value.dtype!r}", "pass an array of plain numbers in native byte order")
    if any(s % itemsize for s, n in zip(value.strides, value.shape, strict=True) if n > 1):
        raise _unusable(
            name,
            "an array whose strides are no multiples of its item size",
            "pass a copy (`numpy.ascontiguousarray`)",
        )
    return Array(
        value.dtype.name,
        itemsize,
        value.shape,
        tuple(s // itemsize for s in value.strides),
        value.ctypes.data,
        "cpu",
        value.flags.writeable,
        value,
    )


def _unusable(name: str, what: str, help: str) -> LaunchError:
    return LaunchError.of("argument-type", f"argument `{name}` is {what}", help)
