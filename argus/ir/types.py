"""Element types, with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `kind` is "float", "int" (two's complement), "uint" or "bool"; `bits` is its storage size.

    Each type has a single object, which is in `DTYPES`. This also holds for types that another process sends.
    """

    name: str
    kind: str
    bits: int

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return _named, (self.name,)

    @property
    def bytes(self) -> int:
        """Storage size in bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def modular(self) -> bool:
        """True for uint32, whose arithmetic is modulo 2^32 by definition, in kernels and specifications."""
        return self.kind == "uint" and self.bits == 32

    @property
    def integers(self) -> tuple[int, int]:
        """The smallest and the largest number of an integer type. Truth values are 0 and 1."""
        if self.kind == "int":
            return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
        return 0, 1 if self.kind == "bool" else 2**self.bits - 1

    def __str__(self) -> str:
        return self.name


float32 = DType("float32", "float", 32)
tfloat32 = DType("tfloat32", "float", 32)
float16 = DType("float16", "float", 16)
bfloat16 = DType("bfloat16", "float", 16)
float8_e4m3fn = DType("float8_e4m3fn", "float", 8)
float8_e5m2 = DType("float8_e5m2", "float", 8)
float8_e4m3fnuz = DType("float8_e4m3fnuz", "float", 8)
float8_e5m2fnuz = DType("float8_e5m2fnuz", "float", 8)
int8 = DType("int8", "int", 8)
uint8 = DType("uint8", "uint", 8)
uint16 = DType("uint16", "uint", 16)
uint32 = DType("uint32", "uint", 32)
int32 = DType("int32", "int", 32)
int64 = DType("int64", "int", 64)
boolean = DType("bool", "bool", 8)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        float32, tfloat32, float16, bfloat16, float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz,
        int8, uint8, uint16, uint32, int32, int64, boolean,
    )
}  # fmt: skip


def _named(name: str) -> DType:
    return DTYPES[name]


def rounds_only(source: DType, target: DType) -> bool:
    """Return True if a conversion changes a value by rounding at most. Specifications look through only these."""
    if target.is_float or source == target:
        return True
    if not target.is_int or source.is_float:
        return False
    spare = target.bits - source.bits
    return source.kind == "bool" or (spare >= 0 if source.kind == target.kind else spare > 0 and target.kind == "int")


MAX_EXTENT = 2**31 - 2**20
"""Largest extent of one tensor dimension, and largest value of an integer size parameter. Checked at launch.

Index arithmetic has 32 bits. The head-room keeps expressions such as `offset + block`, which may exceed the extent, in
range. Addresses are computed in 64 bits, so a whole tensor may have far more elements.
"""

ALIGNMENTS = (16, 8, 4, 2, 1)
"""The alignments, in bytes, for which a kernel may be specialised."""

HARDWARE_AXES = 3
"""Number of axes of a device's grid of blocks."""

MAX_GRID_AXES = 8
"""Largest number of axes of a kernel's grid. With more than `HARDWARE_AXES`, one axis of the device's grid counts all
programs."""
