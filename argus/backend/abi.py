"""The calling convention of an emitted kernel, said once for the emitter and for every launcher."""

from __future__ import annotations

import re
from dataclasses import dataclass

from argus.ir.expr import Param
from argus.ir.nodes import Kernel, Scalar, Tensor
from argus.ir.types import DType, int32, int64


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the entry point. `kind` "pointer" (device address of tensor `name`), "size" (int32),
    "stride" (int64, elements) or "scalar"."""

    name: str
    kind: str
    dtype: DType


def arguments(kernel: Kernel) -> tuple[Argument, ...]:
    """Tensors, sizes, symbolic strides, scalars; each in order of declaration, each name once."""
    pointers = [Argument(t.name, "pointer", t.dtype) for t in kernel.tensors]
    sizes = [Argument(name, "size", int32) for name in kernel.sizes]
    symbolic = (s for t in kernel.tensors for s in _symbolic(t) if s.name not in kernel.sizes)
    strides = {s.name: Argument(s.name, "stride", int64) for s in symbolic}
    scalars = [Argument(p.name, "scalar", p.dtype) for p in kernel.params if isinstance(p, Scalar)]
    return (*pointers, *sizes, *strides.values(), *scalars)


def _symbolic(tensor: Tensor) -> list[Param]:
    return [s for s in tensor.strides if isinstance(s, Param)]


def shared_bytes(kernel: Kernel) -> int:
    """Bytes of shared memory that a block of the explicit kernel needs: what a launcher asks for."""
    ends = [
        s.offset + s.layout.cosize() * s.dtype.bytes
        for s in kernel.shared
        if s.offset is not None and s.layout is not None
    ]
    return max(ends, default=0)


def entry(kernel: Kernel) -> str:
    """The symbol of the kernel's entry point. The prefix keeps it apart from what C libraries declare."""
    return "argus_" + re.sub(r"\W", "_", kernel.name)
