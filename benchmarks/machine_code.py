"""Hot loops of gfx942 machine code: the instructions that one wave issues in one iteration.

The input is the text of llvm-objdump, whatever made the code object. A loop lies between a backward branch and its
target. Inside it, forward branches follow the path with the most matrix work; among equals, the one with the most
accesses to memory; among those, the one with the least vector work. So the count is of an iteration in the middle of a
long loop, without work that only some iterations need, such as masks. All sides are counted alike.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VECTOR, TRANSCENDENTAL = 4, 16
"""Cycles of a vector instruction of 64 lanes on a SIMD of 16, and of a transcendental one (CDNA3 ISA, section 3)."""
_LANES = 64
_TRANSCENDENTAL = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")
_MATRIX = re.compile(r"v_s?mfmac?_(?:f32|f64|i32)_(\d+)x(\d+)x(\d+)_(?:(\d+)b_)?(\w+)$")
_RATES = {"bf16": 512, "f16": 512, "bf16_1k": 512, "xf32": 256, "f32": 64, "f64": 64}
"""Floating-point operations of a SIMD per cycle, by operand (CDNA 3 white paper); 1024 for operands of 8 bits."""
_LINE = re.compile(r"^\s+(\w+)(?:\s(.*?))?\s*// ([0-9A-F]{8,}): ([0-9A-F]{8})")
_KERNEL = re.compile(r"^[0-9a-f]{8,} <([^>]+)>:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction at byte `address`; `target` is the address that a branch goes to, None for other instructions."""

    address: int
    name: str
    operands: str
    target: int | None = None

    @property
    def flops(self) -> int:
        """Floating-point operations of a matrix instruction; 0 for any other."""
        found = _MATRIX.match(self.name)
        if found is None:
            return 0
        m, n, k, blocks = (int(text or 1) for text in found.groups()[:4])
        return 2 * m * n * k * blocks

    @property
    def matrix_cycles(self) -> float:
        """Cycles for which it keeps the matrix unit busy."""
        found = _MATRIX.match(self.name)
        return 0.0 if found is None else self.flops / _RATES.get(found[5], 1024)

    @property
    def vector_cycles(self) -> int:
        """Cycles for which it keeps the vector unit busy."""
        if not self.name.startswith("v_") or self.flops:
            return 0
        return TRANSCENDENTAL if self.name.startswith(_TRANSCENDENTAL) else VECTOR

    @property
    def moves(self) -> bool:
        """True if it reads or writes memory or LDS."""
        return self.name.startswith(("buffer_", "global_", "flat_", "ds_"))

    @property
    def lds_bytes(self) -> int:
        """Bytes that its lanes read from LDS or write there, loads from memory into LDS included."""
        if self.name.startswith(("buffer_load", "global_load")):
            return 4 * _LANES if "lds" in (*self.name.split("_"), *self.operands.split()) else 0
        if not self.name.startswith("ds_") or self.name.startswith(("ds_swizzle", "ds_nop")):
            return 0
        size = re.search(r"_[bui](8|16|32|64|96|128)", self.name)
        count = 2 if self.name.startswith(("ds_read2", "ds_write2")) else 1
        return count * _LANES * (int(size[1]) // 8 if size else 4)


@dataclass(frozen=True, slots=True)
class Counts:
    """The costs of one iteration of one wave: cycles of both units, bytes of LDS, and numbers of other instructions."""

    flops: int
    matrix_cycles: float
    vector_cycles: int
    lds_bytes: int
    waits: int
    barriers: int
    scalar: int

    @property
    def vector_share(self) -> float:
        """Cycles of the vector unit over those of the matrix unit."""
        return self.vector_cycles / self.matrix_cycles

    @property
    def bytes_per_flop(self) -> float:
        """Bytes of LDS over floating-point operations."""
        return self.lds_bytes / self.flops


def instructions(text: str) -> list[Instruction]:
    """Return every instruction of a disassembly, by address."""
    return [_instruction(*found.groups()) for found in map(_LINE.match, text.splitlines()) if found is not None]


def _instruction(name: str, operands: str | None, address: str, word: str) -> Instruction:
    here, target = int(address, 16), None
    if name.startswith(("s_cbranch", "s_branch")):
        offset = int(word, 16) & 0xFFFF
        target = here + 4 + 4 * (offset - 0x10000 if offset & 0x8000 else offset)
    return Instruction(here, name, operands or "", target)


def hot_loop(code: Sequence[Instruction]) -> list[Instruction]:
    """Return an iteration of the innermost loop with the most matrix work, the first of equals; [] if none has any."""
    ends: dict[int, int] = {}
    for i in code:
        if i.target is not None and i.target <= i.address:
            ends[i.target] = max(i.address, ends.get(i.target, 0))
    busy = [span for span in ends.items() if _work(_between(code, span))]
    inner = [s for s in busy if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in busy)]
    loops = [_path(_between(code, span)) for span in inner]
    return max(loops, key=_work, default=[])


def turns(found: Sequence[Instruction]) -> bool:
    """Return True if some waves alone come to a barrier: halves of a block then take turns in the loop."""
    after = {i.address: n for n, i in enumerate(found)}
    branches = ((n, after.get(i.target or 0, 0)) for n, i in enumerate(found) if i.name.startswith("s_cbranch"))
    return any("s_barrier" in {i.name for i in found[n + 1 : to]} for n, to in branches if n < to <= n + 3)


def count(path: Sequence[Instruction]) -> Counts:
    """Add up the costs of an iteration."""
    return Counts(
        flops=sum(i.flops for i in path),
        matrix_cycles=_work(path),
        vector_cycles=sum(i.vector_cycles for i in path),
        lds_bytes=sum(i.lds_bytes for i in path),
        waits=sum(i.name == "s_waitcnt" for i in path),
        barriers=sum(i.name == "s_barrier" for i in path),
        scalar=sum(i.name.startswith("s_") for i in path),
    )


def _work(path: Sequence[Instruction]) -> float:
    return sum(i.matrix_cycles for i in path)


def _between(code: Sequence[Instruction], span: tuple[int, int]) -> Sequence[Instruction]:
    first = bisect_left(code, span[0], key=lambda i: i.address)
    return code[first : bisect_left(code, span[1], key=lambda i: i.address) + 1]


def _path(body: Sequence[Instruction]) -> list[Instruction]:
    """Return the instructions from the first to the last on the path that `hot_loop` follows."""
    places = {i.address: n for n, i in enumerate(body)}
    last = len(body) - 1
    worth: dict[int, tuple[float, int, int]] = {last: (0.0, 0, 0)}
    following: dict[int, int] = {}
    for n in reversed(range(last)):
        ways = [way for way in _ways(body, places, n) if way in worth]
        if ways:
            way = following[n] = max(ways, key=worth.__getitem__)
            matrix, moves, vector = worth[way]
            here = body[n]
            worth[n] = matrix + here.matrix_cycles, moves + here.moves, vector - here.vector_cycles
    path, at = [], 0
    while at in following:
        path.append(body[at])
        at = following[at]
    return [*path, body[last]] if at == last else []


def _ways(body: Sequence[Instruction], places: Mapping[int, int], n: int) -> list[int]:
    """Return the positions after instruction `n` to which control may go."""
    here = body[n]
    ways = [] if here.name in ("s_branch", "s_endpgm") else [n + 1]
    if here.target is None or here.name == "s_cbranch_execz":  # assume that some lane is active
        return ways
    target = places.get(here.target)
    return ways if target is None or target <= n else [*ways, target]
