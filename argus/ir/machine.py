"""Fixed facts about the processors that kernels run on, shared by the verifier, the performance model and the kernels.

All figures are public, and each machine names its documents. Rates that a kernel reaches under load are not here: they
are measured, and are part of the model that was fitted to them (`argus.tuning.model`).
"""

from __future__ import annotations

from dataclasses import dataclass

TF32_BITS = 19
"""Bits of a tfloat32 number that are multiplied."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor. `multiprocessors` run blocks: NVIDIA's streaming multiprocessors, AMD's compute units.

    Facts about one multiprocessor: it has `shared_bytes` of shared memory (LDS), of which a block may use
    `block_shared_bytes`, and `registers` of 32 bits, of which a thread may use `thread_registers`. At most `threads`
    and `blocks` run on it at a time. Its rates per cycle are `matrix_flops` of matrix products by bits of an operand,
    `scalar_flops` of all other arithmetic, and `shared_rate` bytes of shared memory.

    Facts about the whole machine: `clock_hz` is its peak clock rate, and `memory_bytes_s` its memory bandwidth. It has
    `dies`, each with a part of the multiprocessors and an L2 cache of `cache_bytes`, and behind these a cache of
    `last_cache_bytes` that all dies share. `warpgroup` is the number of warps that execute an asynchronous matrix
    product together and share a register budget, or 1 on machines without such products.
    """

    name: str
    target: str
    multiprocessors: int
    warp_size: int
    warpgroup: int
    shared_bytes: int
    block_shared_bytes: int
    registers: int
    thread_registers: int
    threads: int
    block_threads: int
    blocks: int
    matrix_flops: tuple[tuple[int, float], ...]
    scalar_flops: float
    shared_rate: float
    clock_hz: float
    memory_bytes_s: float
    cache_bytes: int
    dies: int = 1
    last_cache_bytes: int = 0

    def matrix_rate(self, bits: int) -> float:
        """Return the floating-point operations of matrix products per cycle for operands of `bits`, or for the next
        wider operands that the machine has."""
        return next((rate for width, rate in self.matrix_flops if width >= bits), self.scalar_flops)


# NVIDIA H100 Tensor Core GPU architecture white paper and H200 data sheet; CUDA C++ guide, table of compute
# capabilities (9.0); the L2 cache's size as the driver reports it, rounded.
H200 = Machine(
    "H200",
    target="sm_90a",
    multiprocessors=132,
    warp_size=32,
    warpgroup=4,
    shared_bytes=228 * 1024,
    block_shared_bytes=227 * 1024,
    registers=65536,
    thread_registers=255,
    threads=2048,
    block_threads=1024,
    blocks=32,
    matrix_flops=((8, 8192.0), (16, 4096.0), (32, 2048.0)),
    scalar_flops=256.0,
    shared_rate=128.0,
    clock_hz=1.98e9,
    memory_bytes_s=4.8e12,
    cache_bytes=60_000_000,
)

# NVIDIA A100 Tensor Core GPU architecture white paper; CUDA C++ guide, table of compute capabilities (8.0).
A100 = Machine(
    "A100",
    target="sm_80",
    multiprocessors=108,
    warp_size=32,
    warpgroup=1,
    shared_bytes=164 * 1024,
    block_shared_bytes=163 * 1024,
    registers=65536,
    thread_registers=255,
    threads=2048,
    block_threads=1024,
    blocks=32,
    matrix_flops=((8, 4096.0), (16, 2048.0), (32, 1024.0)),
    scalar_flops=128.0,
    shared_rate=128.0,
    clock_hz=1.41e9,
    memory_bytes_s=2.0e12,
    cache_bytes=40 * 1024 * 1024,
)

# NVIDIA L40S data sheet and Ada GPU architecture white paper; CUDA C++ guide, table of compute capabilities (8.9).
L40S = Machine(
    "L40S",
    target="sm_89",
    multiprocessors=142,
    warp_size=32,
    warpgroup=1,
    shared_bytes=100 * 1024,
    block_shared_bytes=99 * 1024,
    registers=65536,
    thread_registers=255,
    threads=1536,
    block_threads=1024,
    blocks=24,
    matrix_flops=((8, 2048.0), (16, 1024.0), (32, 512.0)),
    scalar_flops=256.0,
    shared_rate=128.0,
    clock_hz=2.52e9,
    memory_bytes_s=0.864e12,
    cache_bytes=96 * 1024 * 1024,
)

# AMD CDNA 3 architecture white paper and MI300X data sheet: 8 dies (XCD) of 38 compute units and 4 MiB of L2 cache
# each, 256 MiB of Infinity Cache, 1307 and 2615 TFLOP/s of 16 and 8 bits, 654 of tfloat32, 163 of 32 (vectors and
# matrices alike).
# CDNA3 ISA: 64 KiB of LDS at 128 bytes a cycle; 4 SIMDs, each with 512 registers for every lane of a wave and up to
# 8 waves.
MI300X = Machine(
    "MI300X",
    target="gfx942",
    multiprocessors=304,
    warp_size=64,
    warpgroup=1,
    shared_bytes=64 * 1024,
    block_shared_bytes=64 * 1024,
    registers=4 * 64 * 512,
    thread_registers=512,
    threads=2048,
    block_threads=1024,
    blocks=32,
    matrix_flops=((8, 4096.0), (16, 2048.0), (TF32_BITS, 1024.0), (32, 256.0)),
    scalar_flops=256.0,
    shared_rate=128.0,
    clock_hz=2.1e9,
    memory_bytes_s=5.3e12,
    cache_bytes=4 * 1024 * 1024,
    dies=8,
    last_cache_bytes=256 * 1024 * 1024,
)

WARPGROUP = H200.warpgroup
"""Number of warps in a warpgroup. Roles of other targets use the same number as sm_90a."""
