"""A model of the time that a hot loop takes on a compute unit of the MI300X, with all waves that it holds at once.

Every wave issues its instructions in order; an instruction issues when its unit is free and its sources are there.

| unit | of | busy for |
|---|---|---|
| vector port | SIMD | 4 cycles an instruction, 16 a transcendental one, 4 the start of a matrix instruction |
| matrix unit | SIMD | the cycles of a matrix instruction (`machine_code`) |
| LDS | compute unit | the bytes of an access, 128 a cycle |
| loads and stores | compute unit | the bytes of an access, 64 a cycle |

Waits count accesses as the hardware does, barriers hold the waves of a block, and a result of a matrix instruction may
be accumulated onto at once, but read by another instruction only when it is complete. Not modelled: conflicts of banks,
misses of the instruction cache, and the traffic of other compute units, but for the latency of memory.

Two numbers are not from documents: the latency of memory, which is assumed, and the clock that the card sustains under
matrix products, `CLOCK_HZ`. The clock is fitted to one published speed of a product by Triton (`FITTED`), and frozen;
`PUBLISHED` are speeds that the model was not fitted to.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from argus.ir.machine import MI300X
from benchmarks.machine_code import Instruction

_PORT, _LDS_RATE, _MEMORY_RATE = 4, 128, 64
_LDS_LATENCY, _MEMORY_LATENCY, _SCALAR_LATENCY = 64, 500, 100
_MATRIX_LATENCY = 8  # cycles after the last pass
_SIMDS, _REGISTERS, _WAVES = 4, 512, 8
_FIRST, _LAST = 2, 5  # the iterations that are timed
_AROUND = 4000.0  # cycles of a block outside its loop, as for the choice of tiles
CLOCK_HZ = 1.27e9
_FULL_COUNTERS = {"lds": (("lgkmcnt", 14),), "memory": (("vmcnt", 62),)}
"""What an access waits for, because its counter cannot count more: 4 and 6 bits."""
_COUNT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_FILE = re.compile(r"([va])(?:(\d+)|\[(\d+):(\d+)\])")
_WIDTH = {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "short": 2, "ushort": 2, "byte": 1, "ubyte": 1}


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction as the model sees it: its unit, and for how long it is busy."""

    kind: str
    busy: float
    latency: float = 0.0
    reads: frozenset[int] = frozenset()
    onto: frozenset[int] = frozenset()
    writes: frozenset[int] = frozenset()
    waits: tuple[tuple[str, int], ...] = ()


@dataclass(eq=False, slots=True)
class _Wave:
    simd: int
    block: int
    behind: bool = False
    at: int = 0
    ready: float = 0.0
    priority: int = 0
    flights: dict[str, list[float]] = field(default_factory=lambda: {"vmcnt": [], "lgkmcnt": []})
    matrix: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of `flops` operations in `programs` blocks, and the seconds that were published for a kernel."""

    kernel: str
    name: str
    programs: int
    flops: float
    seconds: float


def _product(kernel: str, side: int, tile: int, tflops: float) -> Problem:
    return Problem(kernel, f"{side}^3", (side // tile) ** 2, 2.0 * side**3, 2e-12 * side**3 / tflops)


def _attention(kernel: str, batch: int, heads: int, rows: int, milliseconds: float) -> Problem:
    """Attention to all keys, with heads of 128, in blocks of 256 rows."""
    flops = 4.0 * 128 * batch * heads * rows**2
    return Problem(kernel, f"{batch}x{heads}x{rows}", batch * heads * rows // 256, flops, milliseconds / 1e3)


FITTED = _product("GEMM 256x256x32, bf16", 4096, 256, 516.7)
"""facebookexperimental/triton pull request 397: float16, of which the products take as long as those of bfloat16."""

_FULL, _SHORT = "attention D128", "attention D128, truncating"
PUBLISHED = (
    _attention(_FULL, 2, 24, 8192, 3.747),
    _attention(_FULL, 2, 24, 16384, 14.499),
    _attention(_FULL, 1, 64, 16384, 18.040),
    _attention(_FULL, 4, 16, 4096, 1.226),
    _attention(_SHORT, 2, 24, 8192, 3.265),
    _attention(_SHORT, 2, 24, 16384, 12.429),
    _attention(_SHORT, 1, 64, 16384, 15.975),
    _attention(_SHORT, 4, 16, 4096, 1.086),
)
"""AITER's kernels as moonmath-ai/amd-kernels measured them (README of commit 26eedf3, medians of five)."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A problem for two kernels: the side, loop, and tile (rows, columns) of each; `groups` products of `sizes`."""

    name: str
    ours: tuple[str, int, int]
    theirs: tuple[str, int, int]
    sizes: tuple[int, int, int]
    groups: int = 1
    itemsize: int = 2

    @property
    def memory_s(self) -> float:
        """The seconds in which memory brings all operands once: no kernel is faster."""
        m, n, k = self.sizes
        return self.groups * (m + n) * k * self.itemsize / MI300X.memory_bytes_s

    def of(self, kernel: tuple[str, int, int]) -> Problem:
        """The problem in the tiles of a kernel, which are whole tiles."""
        loop, rows, columns = kernel
        m, n, k = self.sizes
        programs = self.groups * -(-m // rows) * -(-n // columns)
        return Problem(loop, self.name, programs, 2.0 * programs * rows * columns * k, 0.0)


_TILE, _AITER_TILE = ("GEMM 256x256x32, bf16", 256, 256), ("GEMM 160x64, bf16", 160, 64)
_EXPERTS = "experts, SwiGLU, scales of blocks"
_AITER_GATED = (f"fp8 {_EXPERTS}, 32x256", 32, 512)
_GATED = (f"{_EXPERTS}, 256x128x64, fp8e4b8", 256, 256), _AITER_GATED
_FEW = (f"{_EXPERTS}, 32x128x64, fp8e4b8", 32, 256), _AITER_GATED
WHOLE = (
    Whole("product 4096^3", _TILE, _AITER_TILE, (4096, 4096, 4096)),
    Whole("product 8192^3", _TILE, _AITER_TILE, (8192, 8192, 8192)),
    Whole("8 experts, 4096 rows each, 4096 to 2 x 14336", *_GATED, (4096, 28672, 4096), 8, 1),
    Whole("256 experts, 256 rows each, 7168 to 2 x 2048", *_GATED, (256, 4096, 7168), 256, 1),
    Whole("256 experts, 32 rows each, 7168 to 2 x 2048", *_FEW, (32, 4096, 7168), 256, 1),
)
"""Whole kernels beside AITER's, of which no times were published. Columns of gates and of what passes count both."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A loop in the model: the cycles of an iteration of all waves of a compute unit, and what they compute in it."""

    cycles: float
    blocks: int
    block_flops: float

    @property
    def flops_per_cycle(self) -> float:
        """Floating-point operations of a compute unit in a cycle."""
        return self.blocks * self.block_flops / self.cycles

    def seconds(self, problem: Problem, clock_hz: float = CLOCK_HZ) -> float:
        """Predict the time of a problem: rounds of blocks, each of which takes its iterations and a fixed time."""
        rounds = -(-problem.programs // (MI300X.multiprocessors * self.blocks))
        iterations = problem.flops / problem.programs / self.block_flops
        return rounds * (iterations * self.cycles + _AROUND) / clock_hz

    def clock(self, problem: Problem) -> float:
        """Return the clock with which the prediction is what was published."""
        return self.seconds(problem, 1.0) / problem.seconds


def timed(loop: Sequence[Instruction], waves: int, registers: int, shared_bytes: int, turns: bool = False) -> Timed:
    """Time a loop on a compute unit that holds as many blocks as fit it. `turns`: see `cycles`."""
    blocks = resident(waves, registers, shared_bytes)
    return Timed(cycles(loop, waves, blocks, turns), blocks, float(waves * sum(i.flops for i in loop)))


def resident(waves: int, registers: int, shared_bytes: int) -> int:
    """Return how many blocks of `waves` waves a compute unit holds at once."""
    each = -(-waves // _SIMDS)
    by_registers = min(_WAVES, _REGISTERS // max(registers, 1)) // each
    return max(1, min(by_registers, MI300X.shared_bytes // max(shared_bytes, 1)))


def cycles(loop: Sequence[Instruction], waves: int, blocks: int, turns: bool = False) -> float:
    """Return the cycles from one iteration of all waves to the next, once the loop is under way.

    `turns`: the second half of a block's waves enters the loop a barrier later than the first.
    """
    steps = [s for s in map(_step, loop) if s is not None]
    late = waves // 2 if turns else waves
    return _Unit(steps, [_Wave(n % _SIMDS, b, n >= late) for b in range(blocks) for n in range(waves)]).run()


class _Unit:
    """A compute unit that runs waves."""

    def __init__(self, steps: Sequence[Step], waves: list[_Wave]) -> None:
        self._steps, self._waves = steps, waves
        self._ports, self._matrix = [0.0] * _SIMDS, [0.0] * _SIMDS
        self._lds = self._memory = 0.0
        self._met: dict[int, list[_Wave]] = {}
        self._ends: list[float] = []  # of the iterations of all waves

    def run(self) -> float:
        queue = [(wave.ready, -wave.priority, n) for n, wave in enumerate(self._waves) if not wave.behind]
        heapq.heapify(queue)
        for wave in self._waves:
            if wave.behind:
                self._met.setdefault(wave.block, []).append(wave)
        while len(self._ends) < _LAST * len(self._waves):
            time, _, n = heapq.heappop(queue)
            wave = self._waves[n]
            start = self._start(wave, self._steps[wave.at])
            if start > time:
                heapq.heappush(queue, (start, -wave.priority, n))
                continue
            for other in self._issue(wave, self._steps[wave.at], start):
                heapq.heappush(queue, (other.ready, -other.priority, self._waves.index(other)))
        first, last = (self._ends[r * len(self._waves) - 1] for r in (_FIRST, _LAST))
        return (last - first) / (_LAST - _FIRST)

    def _start(self, wave: _Wave, step: Step) -> float:
        """Return when an instruction may issue at the earliest."""
        start = wave.ready
        if step.kind in ("vector", "matrix"):
            start = max(start, self._ports[wave.simd])
        if step.kind == "matrix":
            start = max(start, self._matrix[wave.simd])
        if wave.matrix:
            start = max([start, *(wave.matrix[r] for r in step.reads if r in wave.matrix)])
        for counter, left in (*step.waits, *_FULL_COUNTERS.get(step.kind, ())):
            flights = wave.flights[counter]
            if len(flights) > left:
                start = max(start, flights[len(flights) - left - 1])
        return start

    def _issue(self, wave: _Wave, step: Step, start: float) -> Iterable[_Wave]:
        """Let an instruction issue; return the waves that go on."""
        wave.ready = start + _PORT
        match step.kind:
            case "vector":
                self._ports[wave.simd] = wave.ready = start + step.busy
                for r in step.writes:
                    wave.matrix.pop(r, None)
            case "matrix":
                self._ports[wave.simd] = start + _PORT
                self._matrix[wave.simd] = start + step.busy
                wave.matrix |= dict.fromkeys(step.writes, start + step.busy + _MATRIX_LATENCY)
            case "lds":
                self._lds = max(self._lds, start) + step.busy
                wave.flights["lgkmcnt"].append(self._lds + step.latency)
            case "memory":
                self._memory = max(self._memory, start) + step.busy
                wave.flights["vmcnt"].append(self._memory + step.latency)
            case "scalar memory":
                wave.flights["lgkmcnt"].append(start + step.latency)
            case "nothing":
                wave.ready = start + step.busy
            case "priority":
                wave.priority = int(step.busy)
        for counter, left in step.waits:
            wave.flights[counter] = wave.flights[counter][-left:] if left else []
        wave.at += 1
        if wave.at == len(self._steps):
            wave.at = 0
            self._ends.append(start)
        return self._meet(wave) if step.kind == "barrier" else (wave,)

    def _meet(self, wave: _Wave) -> Iterable[_Wave]:
        """Hold a wave at a barrier until all waves of its block are there."""
        met = self._met.setdefault(wave.block, [])
        met.append(wave)
        if len(met) < sum(w.block == wave.block for w in self._waves):
            return ()
        self._met[wave.block] = []
        release = max(w.ready for w in met)
        for w in met:
            w.ready = release
        return met


def _step(i: Instruction) -> Step | None:
    """Return what the model makes of an instruction; None for a branch within the path."""
    name = i.name
    if i.flops:
        d, a, b, c = (_registers(text) for text in i.operands.split(" ")[0:4])
        return Step("matrix", i.matrix_cycles, reads=(a | b) if c == d else (a | b | c), writes=d)
    if name.startswith("v_"):
        first, _, rest = i.operands.partition(",")
        return Step("vector", i.vector_cycles or _PORT, reads=_registers(rest), writes=_registers(first))
    if name.startswith("ds_"):
        return Step("lds", max(i.lds_bytes, 256) / _LDS_RATE, _LDS_LATENCY, reads=_registers(i.operands))
    if name.startswith(("buffer_load", "global_load", "flat_load")):
        return Step("memory", _bytes(name) / _MEMORY_RATE, _MEMORY_LATENCY)
    if name.startswith(("buffer_", "global_", "flat_")):
        return Step("memory", _bytes(name) / _MEMORY_RATE, _MEMORY_LATENCY, reads=_registers(i.operands))
    return _scalar(i)


def _scalar(i: Instruction) -> Step:
    match i.name:
        case "s_waitcnt":
            return Step("wait", _PORT, waits=tuple((n, int(c)) for n, c in _COUNT.findall(i.operands)))
        case "s_barrier":
            return Step("barrier", _PORT)
        case "s_nop":
            return Step("nothing", _PORT * (int(i.operands, 0) + 1))
        case "s_setprio":
            return Step("priority", int(i.operands, 0))
        case name if name.startswith("s_load"):
            return Step("scalar memory", _PORT, _SCALAR_LATENCY)
        case _:
            return Step("other", _PORT)


def _bytes(name: str) -> int:
    return 64 * _WIDTH.get(name.rsplit("_", 1)[-1], 4)


def _registers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for file, alone, first, last in _FILE.findall(text):
        low, high = (int(alone), int(alone)) if alone else (int(first), int(last))
        found.update(range(low + 256 * (file == "a"), high + 256 * (file == "a") + 1))
    return frozenset(found)
