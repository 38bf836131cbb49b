"""Targets: what a machine is, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Instruction(Protocol):
    """A row of the instruction table, as far as targets go."""

    @property
    def architectures(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Target:
    """`architectures` lists the instruction-table keys usable here; sizes in bytes, registers of 32 bits.

    `shared_bytes` is the most that one block may use; `registers` the most that one thread may use.
    """

    name: str
    vendor: str
    warp_size: int
    shared_bytes: int
    registers: int
    architectures: tuple[str, ...]
    max_threads: int = 1024

    def has(self, instruction: Instruction) -> bool:
        """Whether the machine has the instruction."""
        return not set(instruction.architectures).isdisjoint(self.architectures)


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        # The CPU runs the lowered form of sm_80, with lanes as fibers and a cluster as one block of roles.
        Target("cpu", "cpu", 32, 166912, 255, ("sm_80", "cpu")),
        Target("sm_80", "nvidia", 32, 166912, 255, ("sm_80",)),  # CUDA C++ guide, table of compute capabilities
        Target("sm_90a", "nvidia", 32, 232448, 255, ("sm_80", "sm_90a")),
        Target("gfx942", "amd", 64, 65536, 512, ("gfx942",)),  # CDNA3 ISA: 64 KiB LDS, 512 VGPRs with AGPRs
    )
}
