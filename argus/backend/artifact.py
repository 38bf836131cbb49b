"""The result of a build: source, machine code, resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # A cached build is launched without loading the IR.
    from argus.diagnostic import Diagnostic
    from argus.ir.nodes import Kernel


SERIALISED = "products-serialised"
"""The code of the remark that asynchronous products wait for one another."""
SPILLED = "registers-spilled"
"""The code of the remark that numbers of a thread are in memory."""


def is_serialised(remark: str) -> bool:
    """Return True if the compiler's remark says that asynchronous products wait for one another."""
    return "wgmma.mma_async instructions are serialized" in remark


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

    @property
    def serialised(self) -> bool:
        """True if the compiler made asynchronous products wait for one another."""
        return any(map(is_serialised, self.warnings))


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel. `binary` is a cubin, a code object, or a host library; None without a compiler.

    `accepted` lists the unknown findings about its values that were accepted; such a kernel is tested, not proved.
    `remarks` are warnings about the speed of the machine code.
    """

    kernel: Kernel
    target: str
    entry: str
    source: str
    binary: bytes | None
    resources: Resources | None
    assumptions: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()
