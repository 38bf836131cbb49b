"""The performance model: estimate a kernel's time from occupancy and the slowest part of the machine.

The model decides which configurations are tried, not what is correct. Its figures are rounded; only their order
matters.

A multiprocessor runs its share of the blocks in rounds, `resident` at a time. A block uses the tensor cores, shared
memory and the path from the L2 cache at the same time. So its time is that of the slowest of them, and a little more
if others are nearly as busy, because they interfere. All multiprocessors share the cache: if a round does not fill the
machine, each of its blocks gets more of the cache's bandwidth. Nothing is multiplied at the beginning and the end of a
block. Only other blocks on the same multiprocessor hide that time, and only the stages ahead hide the latency of
copies. Meanwhile memory delivers every byte once; with fewer bytes in flight it takes longer (Little's law). The kernel
takes the longer of the two times, and a little more if they are similar.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from argus.ir.machine import A100, H200, Machine

_BESIDE, _MEANWHILE = 4.0, 3.0
"""Orders of the norms by which the times of parts of the machine are combined: the parts that a block needs, and the
result with memory."""
_LAUNCH_S = 1.35e-6


@dataclass(frozen=True, slots=True)
class Modelled:
    """A machine with its behaviour under load: its clock, and the rates of its memories.

    `cache_rate` is the bytes per cycle that a multiprocessor gets from the L2 cache when all multiprocessors read.
    """

    machine: Machine
    clock_hz: float
    cache_rate: float
    memory_bytes_s: float
    memory_latency_s: float


# For the H200, the rates of cache and memory, the orders of the norms, and the cycles in `argus.kernels.tile_times`
# were fitted to 1342 measured tiles of 125 shapes. For the A100, the rates are rounded from its white paper.
MODELS = {m.machine.target: m for m in (Modelled(H200, 1.9e9, 82.0, 5.2e12, 3.5e-7),
                                        Modelled(A100, 1.3e9, 48.0, 1.7e12, 0.8e-6))}  # fmt: skip
"""The models by target. Other machines are not modelled, because nothing was measured on them."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a launch. Bytes and operations are per block unless stated otherwise.

    `matrix_flops` run at the rate of operands of `matrix_bits`. `shared_traffic` is bytes through shared memory,
    `global_traffic` bytes from and to the L2 cache. `requests` counts the cache lines that threads ask for, one a
    cycle. `serial_flops` are those of `scalar_flops` during which the block's only group of warps multiplies nothing.
    `all_bytes` counts each byte of the whole launch once. `in_flight` is the bytes requested from memory at one time.
    `idle_cycles` are those at a block's beginning and end in which nothing is multiplied; `start_cycles` are those of
    the whole launch. A block runs `steps` in a ring of `stages`, whose copies take `arrival_cycles`. With several
    `rings`, each product has stages of its own. `reason` says why a block cannot run, if it cannot.
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
    rings: int = 1
    arrival_cycles: float = 0.0
    requests: float = 0.0
    serial_flops: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated time of a launch and the part of the machine that bounds it.

    `reason` is empty if the launch can run, else it says why it cannot.
    """

    seconds: float
    bound: str
    resident: int
    reason: str = ""


def occupancy(work: Work, machine: Machine) -> tuple[int, str]:
    """Return the number of blocks that a multiprocessor runs at a time, and the resource that limits it.

    Source: CUDA programming guide, "Occupancy".
    """
    if work.reason:
        return 0, work.reason
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
    """Return the time of a launch and what bounds it; infinite, with the reason, if the machine cannot run it."""
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
        "L1 cache": work.requests,
    }
    slowest = max(cycles, key=lambda name: cycles[name])
    cycles["tensor cores"] += work.steps * _waiting(work, _norm(_BESIDE, *cycles.values()) / work.steps)
    alone = work.serial_flops / machine.scalar_flops if resident < 2 else 0.0
    each = _norm(_BESIDE, *cycles.values()) + alone
    busy_s = (work.start_cycles + rounds * each + ceil(rounds / resident) * work.idle_cycles) / model.clock_hz
    in_flight = min(work.blocks, resident * machine.multiprocessors) * work.in_flight
    memory_s = work.all_bytes * (1 / model.memory_bytes_s + model.memory_latency_s / in_flight)
    bound = slowest if busy_s >= memory_s else "memory"
    return Estimate(_LAUNCH_S + _norm(_MEANWHILE, busy_s, memory_s), bound, resident)


def _waiting(work: Work, step: float) -> float:
    """Return the cycles per step of `step` cycles that are spent waiting for a tile.

    A copy is requested when a stage is free. Meanwhile one stage is being multiplied, and one is being released. The
    stages of one of several rings are multiplied for a part of the step only.
    """
    held = 2 / max(1, work.rings)
    return max(0.0, work.arrival_cycles - max(work.stages - held, 0) * step) / work.stages


def _norm(order: float, *parts: float) -> float:
    return float(sum(part**order for part in parts) ** (1 / order))
