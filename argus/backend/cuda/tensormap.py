"""Tensor maps: what the copy engine of sm_90 knows about a tensor (CUDA driver API, cuTensorMapEncodeTiled)."""

from __future__ import annotations

import ctypes

from argus.backend.cuda.driver import Driver
from argus.backend.launch.bind import Described
from argus.backend.launch.plan import Encode
from argus.diagnostic import LaunchError

# CUtensorMapDataType: what reductions compute in; elements of one byte are unsigned integers. Otherwise nothing is
# converted, and zero is all bits zero in every type: only the float32 numbers of a tensor of tf32 are rounded.
_ARITHMETIC = {"int32": 3, "int64": 5, "float16": 6, "float32": 7, "bfloat16": 9, "tfloat32": 11}
_BYTES = 0
_SWIZZLE = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTE_TO_128_BYTES = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B; 256 bytes take 17% longer for rows of an odd pitch


def encoder(driver: Driver, tensor: Described) -> Encode:
    """A call that writes the map of `tensor` at an address to a place in host memory, both known by then.

    The address is a multiple of 16, the place of 64; elements outside of the tensor read as zero. All but the
    address is made ready here: one call of the driver is left. Copies no data and launches nothing; a context need
    not be current. The call raises LaunchError "tensor-map-refused" for what the driver does not take.
    """
    rank, library = len(tensor.extents), driver.library
    where, what = ctypes.c_void_p(), ctypes.c_void_p()
    values = (
        where,
        ctypes.c_int(_ARITHMETIC.get(tensor.dtype.name, _BYTES)),
        ctypes.c_uint32(rank),
        what,
        (ctypes.c_uint64 * rank)(*reversed(tensor.extents)),
        (ctypes.c_uint64 * rank)(*reversed(tensor.strides_bytes[:-1])),
        (ctypes.c_uint32 * rank)(*reversed(tensor.box)),
        (ctypes.c_uint32 * rank)(*(1,) * rank),
        ctypes.c_int(0),  # no interleaving
        ctypes.c_int(_SWIZZLE[tensor.swizzle_bytes]),
        ctypes.c_int(_PROMOTE_TO_128_BYTES),
        ctypes.c_int(0),  # zeros outside
    )

    def encode(address: int, place: int) -> None:
        where.value, what.value = place, address
        if status := library.cuTensorMapEncodeTiled(*values):
            raise LaunchError.of(
                "tensor-map-refused",
                f"the CUDA driver describes no tensor `{tensor.name}` to the copy engine, for the extents "
                f"{list(tensor.extents)} and strides of {list(tensor.strides_bytes)} bytes: {driver.describe(status)}",
                "pass a contiguous copy",
            )

    return encode
