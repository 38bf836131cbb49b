"""The result of a build: source, machine code, resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # A cached build is launched without loading the IR.
    from argus.ir.nodes import Kernel


@dataclass(frozen=True, slots=True)
class Resources:
    """A kernel's use of resources as the target's compiler reports it; None for what it does not report.

    `registers` counts 32-bit registers per thread (gfx942: VGPRs plus AGPRs). `shared_bytes` is shared memory per
    block. `spill_bytes` is spills or scratch per thread. `warnings` are the compiler's remarks on lost performance.
    """

    registers: int | None
    shared_bytes: int
    spill_bytes: int | None
    occupancy_blocks: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel. `binary` is a cubin, a code object, or a host library; None without a compiler.

    `accepted` lists the unknown findings about its values that were accepted; such a kernel is tested, not proved.
    """

    kernel: Kernel
    target: str
    entry: str
    source: str
    binary: bytes | None
    resources: Resources | None
    assumptions: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
