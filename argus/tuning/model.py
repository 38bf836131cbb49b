"""How long a kernel should take: occupancy, and the slowest of the machine's parts. Decides what is tried, not what is
right: figures are rounded, and only their order matters.

A multiprocessor runs its share of the blocks one round after the other, `resident` at a time. A block needs the tensor
cores, shared memory and the way from the L2 cache at the same time, so the slowest of them counts, and a little more
where others are nearly as busy: they get into each other's way. The cache serves all multiprocessors together: where a
round does not fill the machine, each of its blocks gets more of it. A block's beginning and its end, when nothing is
multiplied, are hidden only by other blocks on the same multiprocessor, and what is on its way only by the steps ahead.
Meanwhile memory brings every byte once; the fewer are in flight, the longer it takes (Little's law). The kernel takes
the longer of the two, and a little more where they are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from argus.ir.machine import A100, H200, Machine

_BESIDE, _MEANWHILE = 4.0, 3.0
"""Orders of the norms that parts of the machine are added up in: those that a block needs, and all these and memory."""
_LAUNCH_S = 1.35e-6


@dataclass(frozen=True, slots=True)
class Modelled:
    """A machine, and what it does under load: its clock, and the rates of its memories.

    `cache_rate` is the bytes that a multiprocessor gets from the L2 cache in a cycle when all of them read.
    """

    machine: Machine
    clock_hz: float
    cache_rate: float
    memory_bytes_s: float
    memory_latency_s: float


# Of the H200, the cache's and memory's rates, the norms' orders, and cycles of `argus.kernels.tiling` were fitted to
# 1342 measured tiles of 125 shapes; of the A100 these are rounded from its white paper.
MODELS = {m.machine.target: m for m in (Modelled(H200, 1.9e9, 82.0, 5.2e12, 3.5e-7),
                                        Modelled(A100, 1.3e9, 48.0, 1.7e12, 0.8e-6))}  # fmt: skip
"""By target. Other machines are not modelled: nothing was measured on them."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch does. Bytes and operations are those of one block, unless they say otherwise.

    `matrix_flops` at the rate of operands of `matrix_bits`; `shared_traffic` through shared memory, `global_traffic`
    from and to the L2 cache; `all_bytes` of the whole launch, each counted once; `in_flight` asked of memory at one
    time; `idle_cycles` at its beginning and end in which nothing is multiplied, `start_cycles` of the whole launch.
    A block goes through `steps`, in a ring of `stages` whose copies take `arrival_cycles`.
    """

    blocks: int
    threads: int
    registers: int
    shared_bytes: int
    matrix_flops: float
    matrix_bits: int
    scalar_flops: float
    shared_traffic: float
    global_traffic: float
    all_bytes: float
    in_flight: float
    idle_cycles: float
    start_cycles: float = 0.0
    steps: int = 1
    stages: int = 1
    arrival_cycles: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What bounds a launch, and how long it takes. `reason` is empty for what can run, else why it cannot."""

    seconds: float
    bound: str
    resident: int
    reason: str = ""


def occupancy(work: Work, machine: Machine) -> tuple[int, str]:
    """Blocks that a multiprocessor runs at a time, and what allows no more (CUDA programming guide, "Occupancy")."""
    if work.shared_bytes > machine.block_shared_bytes:
        return 0, f"{work.shared_bytes} bytes of shared memory, and a block has {machine.block_shared_bytes}"
    if work.registers > machine.thread_registers:
        return 0, f"{work.registers} registers a thread, and there are {machine.thread_registers}"
    if work.registers * work.threads > machine.registers:
        return 0, f"{work.registers * work.threads} registers, and a block has {machine.registers}"
    limits = {
        "blocks": machine.blocks,
        "threads": machine.threads // work.threads,
        "registers": machine.registers // max(work.registers * work.threads, 1),
        "shared memory": machine.shared_bytes // (work.shared_bytes + 1024),
    }
    limit = min(limits, key=lambda name: limits[name])
    return limits[limit], limit if limits[limit] else f"no room for a block: {limit}"


def estimate(work: Work, model: Modelled) -> Estimate:
    """The time of a launch, and of what it is; infinite with the reason for what the machine cannot run."""
    machine = model.machine
    resident, limit = occupancy(work, machine)
    if not resident:
        return Estimate(float("inf"), "", 0, limit)
    if not work.blocks:
        return Estimate(_LAUNCH_S, "launch", resident)
    rounds = ceil(work.blocks / machine.multiprocessors)
    filled = work.blocks / (rounds * machine.multiprocessors)
    cycles = {
        "tensor cores": work.matrix_flops / machine.matrix_rate(work.matrix_bits),
        "arithmetic": work.scalar_flops / machine.scalar_flops,
        "shared memory": work.shared_traffic / machine.shared_rate,
        "L2 cache": filled * work.global_traffic / model.cache_rate,
    }
    slowest = max(cycles, key=lambda name: cycles[name])
    cycles["tensor cores"] += work.steps * _waiting(work, _norm(_BESIDE, *cycles.values()) / work.steps)
    each = _norm(_BESIDE, *cycles.values())
    busy_s = (work.start_cycles + rounds * each + ceil(rounds / resident) * work.idle_cycles) / model.clock_hz
    in_flight = min(work.blocks, resident * machine.multiprocessors) * work.in_flight
    memory_s = work.all_bytes * (1 / model.memory_bytes_s + model.memory_latency_s / in_flight)
    bound = slowest if busy_s >= memory_s else "memory"
    return Estimate(_LAUNCH_S + _norm(_MEANWHILE, busy_s, memory_s), bound, resident)


def _waiting(work: Work, step: float) -> float:
    """Cycles of a step of `step` cycles in which its tile is still on the way. A copy is ordered when a stage is free:
    one is multiplied meanwhile, and one is being handed back."""
    return max(0.0, work.arrival_cycles - max(work.stages - 2, 0) * step) / work.stages


def _norm(order: float, *parts: float) -> float:
    return float(sum(part**order for part in parts) ** (1 / order))
