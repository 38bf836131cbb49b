"""Quality of hot loops on gfx942, read from machine code: ours, and others' where code objects are available.

No GPU is needed. A row is one iteration of one wave, counted in the same way for all sides (`machine_code`).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from argus.backend import process
from argus.backend.artifact import Artifact
from argus.backend.build import build
from argus.backend.hip import toolchain
from argus.compile import elaborate
from argus.diagnostic import ToolchainError
from argus.environment import find_tool, llvm_directories
from argus.frontend import Options
from argus.ir.machine import MI300X
from argus.ir.types import DType, bfloat16, float8_e4m3fn, float8_e4m3fnuz, float16, float32, tfloat32
from argus.kernels.attention_tiles import AttentionShape, wave_tiles
from argus.kernels.experts import swiglu
from argus.kernels.operands import NEAR, NEAR_TILES
from argus.passes import lower
from argus.source import SourceFile
from benchmarks.amd_cycles import CLOCK_HZ, FITTED, PUBLISHED, WHOLE, Timed, timed
from benchmarks.machine_code import Instruction, count, hot_loop, instructions, turns
from benchmarks.table import Cell, Results

_KERNELS = Path("argus/kernels")
_TARGET = "gfx942"
_ITERATIONS, _SECONDS = 16, 10.0  # the iterations that llvm-mca simulates, and its time limit
_RELEASES = (19, 20, 21, 22, 18, 17)


@dataclass(frozen=True)
class Case:
    """A kernel of the library, with the constants of one use."""

    name: str
    file: str
    kernel: str
    constants: dict[str, object]
    num_warps: int = 8
    folder: Path = _KERNELS


def _gemm(rows: int, columns: int, num_warps: int, dtype: DType = bfloat16) -> Case:
    depth = 512 // dtype.bits
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "STAGES": 2, "PRODUCERS": 0, "GROUP": 8}
    near = {"NEAR": NEAR} if (rows, columns, dtype.bits) in NEAR_TILES else {}
    name = f"GEMM {rows}x{columns}x{depth}, {_named(dtype)}"
    multiplied = float8_e4m3fnuz if dtype == float8_e4m3fn else dtype
    return Case(name, "gemm.py", "gemm", {**sizes, **near, "IN": dtype, "MULTIPLY": multiplied}, num_warps)


def _attention(name: str, size: int, dtype: DType = bfloat16, heads: int = 64, **more: object) -> Case:
    tiles = dict(wave_tiles(AttentionShape(size, 4096, 4096, heads, heads, bool(more)), dtype))
    waves = int(tiles.pop("num_warps"))
    constants = {**tiles, "D": size, "DTYPE": dtype, "OUT": dtype, **more}
    return Case(f"attention {name}", "attention.py", "attention_forward", constants, waves)


def _experts(rows: int, num_warps: int, dtype: DType = bfloat16) -> Case:
    """Products with gathered rows and SwiGLU."""
    depth = 512 // dtype.bits
    sizes = {"ROWS": rows, "COLUMNS": 128, "DEPTH": depth, "STAGES": 2, "PRODUCERS": 0}
    name = f"experts, SwiGLU, {rows}x128x{depth}, {_named(dtype)}"
    return Case(name, "experts.py", "expert_rows", {**sizes, "DTYPE": dtype, "ACTIVATION": swiglu}, num_warps)


def _scaled_experts(rows: int, num_warps: int) -> Case:
    """Return products of experts in 8 bits, with scales of blocks of 128, as AITER's kernel has them."""
    name = f"experts, SwiGLU, scales of blocks, {rows}x128x64, fp8e4b8"
    return Case(name, "gated_blocks.py", "gated_block_rows", {"ACTIVATION": swiglu, "ROWS": rows}, num_warps)


_NAMES = {bfloat16: "bf16", float8_e4m3fnuz: "fp8e4b8", float8_e4m3fn: "fp8e4", float32: "f32", tfloat32: "xf32"}


def _named(dtype: DType) -> str:
    return _NAMES[dtype]


CASES = (
    _gemm(256, 256, 8),
    _gemm(256, 128, 8),
    _gemm(128, 128, 4),
    _gemm(256, 256, 8, float8_e4m3fnuz),
    _gemm(256, 256, 8, float8_e4m3fn),
    _gemm(256, 256, 8, tfloat32),
    _gemm(256, 256, 8, float32),
    Case("GEMM in turns, 256x256x32, bf16", "gemm_turns.py", "gemm_turns", {}, folder=Path("examples")),
    _experts(256, 8),
    _experts(128, 4),
    _experts(256, 8, float8_e4m3fnuz),
    _scaled_experts(256, 8),
    _scaled_experts(32, 4),
    _attention("D128", 128),
    _attention("D128, causal", 128, CAUSAL=True),
    _attention("D128, few programs", 128, heads=4),
    _attention("D128, float16", 128, float16),
    _attention("D64", 64),
    _attention("D64, causal", 64, CAUSAL=True),
)

AITER = {
    "attention D128": "fmha_v3_fwd/MI300/fwd_hd128_bf16_rtne.co",
    "attention D128, truncating": "fmha_v3_fwd/MI300/fwd_hd128_bf16_rtz.co",
    "attention D128, causal": "fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtne.co",
    "GEMM 160x64, bf16": "bf16gemm/bf16gemm_fp32bf16_tn_160x64_bshuffle_splitk.co",
    "GEMM 96x64, bf16": "bf16gemm/bf16gemm_fp32bf16_tn_96x64_pf3_splitk.co",
    "fp8 experts, SwiGLU, scales of blocks, 32x256": "fmoe/silu/fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_32x256.co",
}
"""Files of ROCm/aiter, below hsa/gfx942."""


def run(aiter: Path | None, triton: str | None, chosen: Sequence[str] = ()) -> Results:
    """Make the table: ours, Triton's from the interpreter `triton`, AITER's from the folder hsa/gfx942, if given."""
    measured = [_measure("Argus", case.name, ours(case)) for case in CASES if not chosen or case.name in chosen]
    if triton is not None:
        measured += [_measure("Triton", name, code, shared) for name, code, shared in _triton(triton)]
    if aiter is not None:
        measured += [_measure("AITER", name, (aiter / file).read_bytes()) for name, file in AITER.items()]
    loops = {(m.side, m.name): m.timed for m in measured}
    return Results("Hot loops on gfx942: one wave, one iteration", [m.row for m in measured], (*_NOTES, *_said(loops)))


def _said(loops: Mapping[tuple[str, str], Timed]) -> Iterator[str]:
    """Yield what the model of time says of speeds that were published."""
    fitted = loops.get(("Triton", FITTED.kernel))
    if fitted is not None:
        yield f"clock fitted to Triton's product: {fitted.clock(FITTED) / 1e9:.3f} GHz; frozen: {CLOCK_HZ / 1e9:.3f}"
    for problem in PUBLISHED:
        loop, own = loops.get(("AITER", problem.kernel)), loops.get(("Argus", "attention D128"))
        if loop is not None:
            found = loop.seconds(problem)
            error = f"{problem.seconds * 1e3:.2f} ms published, {found / problem.seconds - 1:+.1%}"
            beside = "" if own is None else f"; Argus predicted {own.seconds(problem) * 1e3:.2f} ms"
            yield f"AITER {problem.kernel}, {problem.name}: predicted {found * 1e3:.2f} ms, {error}{beside}"
    for whole in WHOLE:
        mine, other = loops.get(("Argus", whole.ours[0])), loops.get(("AITER", whole.theirs[0]))
        if mine is not None and other is not None:
            computed = mine.seconds(whole.of(whole.ours)), other.seconds(whole.of(whole.theirs))
            times = [max(t, whole.memory_s) for t in computed]
            text = " and ".join(f"{t * 1e3:.3f} ms" for t in times)
            yield f"{whole.name}: predicted {text}, AITER's over Argus's {times[1] / times[0]:.3f}"


_NOTES = (
    "vector / matrix: cycles of vector instructions (4, transcendental 16) over those of matrix instructions",
    "LDS bytes / flop: those that lanes read and write, and those that loads put there; 0.0625 is the hardware's limit",
    "share in MFMA: of the cycles that llvm-mca counts for a wave that is alone, those of matrix instructions",
    "share of a unit: the same in a model of a compute unit with all waves that it holds (amd_cycles.py)",
    "TFLOP/s: predicted by that model for a problem without end, at the clock that it was fitted to",
    "an iteration follows the branches with the most matrix work, then the most accesses, then the least vector work",
)


def ours(case: Case) -> bytes:
    """Return the code object of a case."""
    file = case.folder / case.file
    source = SourceFile(str(file), file.read_text(encoding="utf-8"))
    kernel = elaborate(source, case.kernel, Options(_TARGET, case.num_warps, case.constants))
    built: Artifact = build(lower(kernel, _TARGET), _TARGET)
    assert built.binary is not None
    return built.binary


def _triton(interpreter: str) -> Iterator[tuple[str, bytes, int]]:
    """Yield Triton's code objects by name, with the bytes of LDS that a launch asks for."""
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        program = Path(__file__).parent / "triton_amd.py"
        process.run("triton", [interpreter, str(program), folder])
        for file in sorted(Path(folder).glob("*.co")):
            yield file.stem, file.read_bytes(), int(file.with_suffix(".lds").read_text())


@dataclass(frozen=True)
class Measured:
    """A row of the table, and what the model of time makes of its loop."""

    side: str
    name: str
    row: dict[str, Cell]
    timed: Timed


def _measure(side: str, name: str, code: bytes, shared_bytes: int = 0) -> Measured:
    """Count the costs of a code object's hot loop and the resources that its kernel holds."""
    found = instructions(toolchain.disassemble(code))
    loop = hot_loop(found)
    counts, held = count(loop), notes(code)
    shared_bytes = max(shared_bytes, held.get("group_segment_fixed_size", 0))
    waves = held.get("max_flat_workgroup_size", 256) // 64
    model = timed(loop, waves, held.get("vgpr_count", 256), shared_bytes, turns(found))
    row: dict[str, Cell] = {
        "loop": name,
        "side": side,
        "vector / matrix": round(counts.vector_share, 3),
        "LDS bytes / flop": round(counts.bytes_per_flop, 4),
        "share in MFMA": share(loop),
        "share of a unit": round(model.blocks * waves / 4 * counts.matrix_cycles / model.cycles, 3),
        "TFLOP/s": round(model.flops_per_cycle * CLOCK_HZ * MI300X.multiprocessors / 1e12),
        "MFMA cycles": round(counts.matrix_cycles),
        "vector cycles": counts.vector_cycles,
        "scalar": counts.scalar,
        "waits": counts.waits,
        "barriers": counts.barriers,
        "registers": held.get("vgpr_count"),
        "LDS bytes": shared_bytes,
        "spilled bytes": held.get("private_segment_fixed_size"),
    }
    return Measured(side, name, row, model)


def share(loop: Sequence[Instruction]) -> float | None:
    """Return the share of a wave's cycles in which the matrix unit is busy, by llvm-mca; None if it gives no answer."""
    tool = find_tool([*(f"llvm-mca-{n}" for n in _RELEASES), "llvm-mca"], directories=llvm_directories())
    if tool is None:
        return None
    command = [tool, "-mtriple=amdgcn", f"-mcpu={_TARGET}", f"-iterations={_ITERATIONS}", "-"]
    for typed in (True, False):
        try:
            done = process.start("llvm-mca", command).finish(_readable(loop, typed), timeout_s=_SECONDS)
        except ToolchainError:  # it fails at some loops
            continue
        found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
        assert found is not None, done.stdout
        return round(count(loop).matrix_cycles * _ITERATIONS / (4 * int(found[1])), 3)
    return None


_LOAD = re.compile(r"(?:global|buffer)_load_(?:dword|u?short|[us]?byte)(?:x(?P<dwords>\d))?$")
_LOADED = re.compile(r"(?P<data>[av]\S+), (?P<address>v\d+|v\[\d+:\d+\]|off)(?:, s\[(?P<base>\d+):\d+\])?")
_BUFFER = re.compile(r"(?:(?P<data>[av]\S+), )?(?P<offset>v\d+|off), s\[(?P<base>\d+):\d+\]")


def _readable(loop: Sequence[Instruction], typed: bool) -> str:
    """Write a loop for llvm-mca, which rejects buffer instructions: others of their size replace them.

    llvm-mca lets a wait for LDS also wait for global loads. So `typed` replaces loads by typed ones, which take as
    long, and for which only waits for vmcnt wait. Loads to LDS have no such form. Beside them, llvm-mca fails at some
    loops with typed loads.
    """
    return "".join(f"{(_typed(i) if typed else None) or _as_global(i)}\n" for i in loop if i.target is None)


def _typed(i: Instruction) -> str | None:
    """Write a load as a typed one with the same registers; None for other instructions."""
    load, found = _LOAD.match(i.name), _LOADED.match(i.operands)
    if load is None or found is None:
        return None
    lane, base = found["address"], 4 * (int(found["base"] or 0) // 4)
    way = "" if lane == "off" else " idxen offen" if "[" in lane else " offen"
    form = f"format:[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_FLOAT]{way}"
    size = "xyzw"[: int(load["dwords"] or 1)]
    return f"tbuffer_load_format_{size} {found['data']}, {lane}, s[{base}:{base + 3}], 0 {form}"


def _as_global(i: Instruction) -> str:
    if not i.name.startswith("buffer_") or (found := _BUFFER.match(i.operands)) is None:
        return f"{i.name} {i.operands.split('<')[0]}"
    offset = "v0" if found["offset"] == "off" else found["offset"]
    base = f"s[{found['base']}:{int(found['base']) + 1}]"
    kind = i.name.removeprefix("buffer_").replace("load_", "load_lds_") if found["data"] is None else i.name[7:]
    operands = (offset, found["data"]) if kind.startswith("store") else (found["data"], offset)
    return f"global_{kind} {', '.join((*filter(None, operands), base))}"


def notes(code: bytes) -> dict[str, int]:
    """Return the figures in a code object's notes: registers of both files, LDS, and private memory of a lane."""
    tool = find_tool([*(f"llvm-readelf-{n}" for n in _RELEASES), "llvm-readelf"], directories=llvm_directories())
    if tool is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="argus-") as folder:
        path = Path(folder) / "kernel.co"
        path.write_bytes(code)
        text = process.run("llvm-readelf", [tool, "--notes", str(path)]).stdout
    return {name: int(number) for name, number in re.findall(r"\.(\w+):\s+(\d+)\s*$", text, re.MULTILINE)}
