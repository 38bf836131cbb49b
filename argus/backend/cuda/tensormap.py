"""Tensor maps: what the copy engine of sm_90 knows about a tensor (CUDA driver API, cuTensorMapEncodeTiled)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from argus.backend.cuda.driver import Driver
from argus.ir.types import DType

BYTES = 128
"""Size of a tensor map; as an argument it is aligned to `ALIGNMENT` bytes."""

ALIGNMENT = 64

# CUtensorMapDataType by the element's size: nothing is converted, and zero is all bits zero in every type.
_UNSIGNED = {1: 0, 2: 1, 4: 2, 8: 4}
_SWIZZLE = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTE_TO_256_BYTES = 3  # CU_TENSOR_MAP_L2_PROMOTION_L2_256B


def encode(
    driver: Driver,
    dtype: DType,
    address: int,
    extents: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle_bytes: int,
) -> bytes:
    """The 128 bytes of a tensor map. Copies no data and launches nothing; a context need not be current.

    All sequences are in the tensor's own order of dimensions, the last of them contiguous (`strides_bytes[-1]` is the
    item size); rank 1 to 5. `address` and all other strides are multiples of 16; `box` is what one copy brings, in
    elements, each at most 256; its last extent takes at most `swizzle_bytes` bytes if that is 32, 64 or 128 (0: no
    swizzle). Elements outside of the tensor read as zero.

    A tensor without elements has no map: the result is then 128 zero bytes, which a kernel must not copy by.
    Raises `ToolchainError` "driver-failed" for what the driver refuses.
    """
    if 0 in extents:
        return bytes(BYTES)
    rank = len(extents)
    room = ctypes.create_string_buffer(BYTES + ALIGNMENT)
    start = -ctypes.addressof(room) % ALIGNMENT
    status = driver.library.cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(room) + start),
        ctypes.c_int(_UNSIGNED[dtype.bytes]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*reversed(extents)),
        (ctypes.c_uint64 * rank)(*reversed(strides_bytes[:-1])),
        (ctypes.c_uint32 * rank)(*reversed(box)),
        (ctypes.c_uint32 * rank)(*(1,) * rank),
        ctypes.c_int(0),  # no interleaving
        ctypes.c_int(_SWIZZLE[swizzle_bytes]),
        ctypes.c_int(_PROMOTE_TO_256_BYTES),
        ctypes.c_int(0),  # zeros outside
    )
    driver.check(status, "describe a tensor to the copy engine")
    return room.raw[start : start + BYTES]
