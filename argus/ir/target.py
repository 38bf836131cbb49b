"""Targets: which instructions there are, and the machine that they are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from argus.ir.machine import A100, H200, L40S, MI300X, Machine


class Instruction(Protocol):
    """A row of the instruction table, as far as targets go."""

    @property
    def architectures(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Target:
    """`architectures` lists the instruction-table keys usable here.

    `devices` are the GPUs that the target's code is for: compute capabilities of NVIDIA's, architectures of AMD's, or
    what these begin with.
    """

    name: str
    vendor: str
    machine: Machine
    architectures: tuple[str, ...]
    devices: tuple[str, ...] = ()

    @property
    def clusters(self) -> bool:
        """Return True if blocks form clusters that reach each other's shared memory, and have a copy engine."""
        return "sm_90a" in self.architectures

    @property
    def prints(self) -> bool:
        """Return True if running kernels can print. On AMD's GPUs that would need a library of ROCm."""
        return self.vendor != "amd"

    @property
    def warp_size(self) -> int:
        """Threads of a warp."""
        return self.machine.warp_size

    @property
    def shared_bytes(self) -> int:
        """The most bytes of shared memory that one block may use."""
        return self.machine.block_shared_bytes

    @property
    def registers(self) -> int:
        """The most registers of 32 bits that one thread may use."""
        return self.machine.thread_registers

    @property
    def max_threads(self) -> int:
        """The most threads of a block."""
        return self.machine.block_threads

    def has(self, instruction: Instruction) -> bool:
        """Return True if the machine has the instruction."""
        return not set(instruction.architectures).isdisjoint(self.architectures)


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        # The CPU runs the lowered form of sm_80, with lanes as fibers and a cluster as one block of roles.
        Target("cpu", "cpu", A100, ("sm_80", "cpu")),
        Target("sm_80", "nvidia", A100, ("sm_80",), ("8.",)),
        Target("sm_89", "nvidia", L40S, ("sm_80", "sm_89"), ("8.9",)),
        Target("sm_90a", "nvidia", H200, ("sm_80", "sm_89", "sm_90a"), ("9.0",)),
        Target("gfx942", "amd", MI300X, ("gfx942",), ("gfx942",)),
    )
}


def target_of(vendor: str, device: str) -> Target | None:
    """Return the target of a vendor's GPU, chosen by the longest matching prefix of its name, or None."""
    found = [(len(d), t) for t in TARGETS.values() for d in t.devices if t.vendor == vendor and device.startswith(d)]
    return max(found, key=lambda match: match[0])[1] if found else None
