"""Build an artifact from explicit IR: emit the source, then compile it with the target's toolchain."""

from __future__ import annotations

from dataclasses import replace

from argus.backend import abi
from argus.backend.artifact import Artifact, Resources
from argus.backend.cpu import toolchain as cpu
from argus.backend.cuda import hazards
from argus.backend.cuda import toolchain as cuda
from argus.backend.emit import emit
from argus.backend.hip import toolchain as hip
from argus.backend.process import TIMEOUT_S
from argus.backend.remarks import remarks
from argus.ir.instruction import WGMMA
from argus.ir.nodes import Assume, Kernel, Mma
from argus.ir.target import TARGETS
from argus.ir.visit import walk


def build(
    kernel: Kernel,
    target: str,
    source: str | None = None,
    *,
    compile: bool = True,
    arch: str | None = None,
    compiler: cuda.Compiler | None = None,
) -> Artifact:
    """Emit the explicit `kernel` (or take `source`, its emitted text) and compile it for `target`, a key of `TARGETS`.

    `compile=False` stops after emitting. `arch` is the architecture to compile for if it differs from the target's
    name (code of sm_80 for a later GPU). `compiler` is a compiler on standby for `arch`. The emitter raises
    `ArgusError`, the compiler `ToolchainError`.
    """
    text = emit(kernel) if source is None else source
    binary, resources = _compile(kernel, target, text, arch or target, compiler) if compile else (None, None)
    assumptions = tuple(p.reason for p in kernel.preconditions if isinstance(p, Assume))
    found = remarks(kernel, resources) if resources is not None else ()
    return Artifact(kernel, target, abi.entry(kernel), text, binary, resources, assumptions, remarks=found)


def _compile(
    kernel: Kernel, target: str, text: str, arch: str, compiler: cuda.Compiler | None
) -> tuple[bytes, Resources]:
    match TARGETS[target].vendor:
        case "cpu":
            binary, resources = cpu.compile(text, abi.entry(kernel), kernel.warp_size)
        case "nvidia":
            compiled = compiler(text, TIMEOUT_S) if compiler is not None else cuda.compile(text, arch)
            binary, resources = _unserialised(text, arch, compiled)
            if _left_in_registers(kernel):
                hazards.insist(binary)
        case _:
            binary, resources = hip.compile(text, arch)
    # Some targets allocate shared memory dynamically, so their compilers do not count it.
    return binary, replace(resources, shared_bytes=max(resources.shared_bytes, abi.shared_bytes(kernel)))


def _unserialised(text: str, arch: str, compiled: tuple[bytes, Resources]) -> tuple[bytes, Resources]:
    """Compile again with waits that ptxas moves nothing across, if it made products wait for one another.

    ptxas moves conversions of sums in front of the wait for them, and then takes them for reads of unfinished sums.
    """
    if not compiled[1].serialised:
        return compiled
    again = cuda.compile(cuda.WAITS_APART + text, arch)
    return compiled if again[1].serialised else again


def _left_in_registers(kernel: Kernel) -> bool:
    """Return True if an asynchronous product reads its left operand from registers."""
    fragments = {f.name for f in kernel.fragments}
    return any(isinstance(s, Mma) and s.instr in WGMMA and s.a.obj in fragments for s in walk(kernel.body))


def disassemble(artifact: Artifact) -> str:
    """Return the machine code as text; "" for the host or without machine code.

    Raises `ToolchainError` "compiler-missing" without a disassembler.
    """
    vendor = TARGETS[artifact.target].vendor
    if artifact.binary is None or vendor == "cpu":
        return ""
    return cuda.disassemble(artifact.binary) if vendor == "nvidia" else hip.disassemble(artifact.binary)
