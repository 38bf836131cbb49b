"""Targets: the instructions that each has, and the machine that it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from argus.ir.machine import A100, H200, L40S, MI300X, Machine


class Instruction(Protocol):
    """The part of an instruction table's row that targets use."""

    @property
    def architectures(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Target:
    """A target. `architectures` lists the keys of the instruction table that are usable.

    `devices` are the GPUs for which the target's code is made: compute capabilities for NVIDIA, architectures or their
    beginnings for AMD.
    """

    name: str
    vendor: str
    machine: Machine
    architectures: tuple[str, ...]
    devices: tuple[str, ...] = ()

    @property
    def clusters(self) -> bool:
        """True if blocks form clusters that reach each other's shared memory, and have a copy engine."""
        return "sm_90a" in self.architectures

    @property
    def prints(self) -> bool:
        """True if running kernels can print. On AMD GPUs, printing would need a library of ROCm."""
        return self.vendor != "amd"

    @property
    def warp_size(self) -> int:
        """The number of threads in a warp."""
        return self.machine.warp_size

    @property
    def shared_bytes(self) -> int:
        """The largest number of bytes of shared memory that one block may use."""
        return self.machine.block_shared_bytes

    @property
    def registers(self) -> int:
        """The largest number of 32-bit registers that one thread may use."""
        return self.machine.thread_registers

    @property
    def max_threads(self) -> int:
        """The largest number of threads in a block."""
        return self.machine.block_threads

    def has(self, instruction: Instruction) -> bool:
        """Return True if the machine has the instruction."""
        return not set(instruction.architectures).isdisjoint(self.architectures)


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        # The CPU runs the lowered form of sm_80. Lanes are fibers, and a cluster is one block of roles.
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
