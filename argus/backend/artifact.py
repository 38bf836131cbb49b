"""What a build makes: source, machine code, resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a cached build is launched without loading the IR
    from argus.ir.nodes import Kernel


@dataclass(frozen=True, slots=True)
class Resources:
    """As the target's compiler reports them. None: that compiler does not say.

    `registers` is 32-bit registers a thread (gfx942: VGPRs plus AGPRs), `shared_bytes` a block's,
    `spill_bytes` a thread's spills or scratch; `warnings` what the compiler says of lost performance.
    """

    registers: int | None
    shared_bytes: int
    spill_bytes: int | None
    occupancy_blocks: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel. `binary` is a cubin, a code object, or a host library; None without a compiler.

    `accepted` are findings about its values that were unknown and accepted: it is tested, and not proved.
    """

    kernel: Kernel
    target: str
    entry: str
    source: str
    binary: bytes | None
    resources: Resources | None
    assumptions: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
