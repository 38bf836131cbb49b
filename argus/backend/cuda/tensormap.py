"""Tensor maps, which describe tensors to the copy engine of sm_90 (CUDA driver API, cuTensorMapEncodeTiled and
cuTensorMapEncodeIm2col)."""

from __future__ import annotations

import ctypes
from typing import Any

from argus.backend.cuda.driver import Driver
from argus.backend.launch.bind import Described
from argus.backend.launch.plan import Encode
from argus.diagnostic import LaunchError

# CUtensorMapDataType: the type that reductions compute in; elements of one byte are unsigned integers. Copies convert
# nothing, except that the float32 numbers of a tfloat32 tensor are rounded. Zero has all bits zero in every type.
ARITHMETIC = {"int32": 3, "int64": 5, "float16": 6, "float32": 7, "bfloat16": 9, "tfloat32": 11}
BYTES = 0
_SWIZZLE = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTE_TO_128_BYTES = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B; 256 bytes take 17% longer for rows of an odd pitch


def encoder(driver: Driver, tensor: Described) -> Encode:
    """Return a function `encode(address, place)` that writes the map of `tensor` at `address` to host memory.

    `address` must be a multiple of 16 and `place` a multiple of 64. Elements outside the tensor read as zero.
    Everything but the address is prepared here, so that `encode` makes one driver call. It copies no data, launches
    nothing and needs no current context. It raises LaunchError "tensor-map-refused" if the driver refuses the tensor.
    """
    rank, library = len(tensor.extents), driver.library
    where, what = ctypes.c_void_p(), ctypes.c_void_p()
    values = (
        where,
        ctypes.c_int(ARITHMETIC.get(tensor.dtype.name, BYTES)),
        ctypes.c_uint32(rank),
        what,
        (ctypes.c_uint64 * rank)(*reversed(tensor.extents)),
        (ctypes.c_uint64 * rank)(*reversed(tensor.strides_bytes[:-1])),
        *_box(tensor),
        ctypes.c_int(0),  # no interleaving
        ctypes.c_int(_SWIZZLE[tensor.swizzle_bytes]),
        ctypes.c_int(_PROMOTE_TO_128_BYTES),
        ctypes.c_int(0),  # zeros outside
    )

    call = library.cuTensorMapEncodeTiled if tensor.pixels is None else library.cuTensorMapEncodeIm2col

    def encode(address: int, place: int) -> None:
        where.value, what.value = place, address
        if status := call(*values):
            raise LaunchError.of(
                "tensor-map-refused",
                f"the CUDA driver describes no tensor `{tensor.name}` to the copy engine, for the extents "
                f"{list(tensor.extents)} and strides of {list(tensor.strides_bytes)} bytes: {driver.describe(status)}",
                "pass a contiguous copy",
            )

    return encode


def _box(tensor: Described) -> tuple[Any, ...]:
    """Return the arguments that describe a box, or a column of pixels, and the strides of its elements."""
    rank, box, pixels = len(tensor.extents), tensor.box, tensor.pixels
    if pixels is None:
        return (ctypes.c_uint32 * rank)(*reversed(box)), (ctypes.c_uint32 * rank)(*(1,) * rank)
    corners = (pixels.lower, pixels.upper(tensor.extents[1:-1]))
    return (
        *((ctypes.c_int * (rank - 2))(*reversed(corner)) for corner in corners),
        ctypes.c_uint32(box[-1]),
        ctypes.c_uint32(box[0]),
        (ctypes.c_uint32 * rank)(1, *reversed(pixels.strides), 1),
    )
