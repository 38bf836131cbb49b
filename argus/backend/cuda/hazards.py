"""Check in machine code (SASS) that no instruction overwrites a register that an asynchronous product still reads.

ptxas has reused registers of a warpgroup product's left operand before the product read them
(triton-lang/triton#11781, fixed in CUDA 13.3). An asynchronous product may read its left operand until a wait says
that its group is complete. Between the product and that wait, no instruction on any path may write these registers.
`overwritten` returns the instructions that do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from argus.backend.cuda import toolchain
from argus.diagnostic import Diagnostic, Note, ToolchainError

MOST_STATES = 200_000
"""Largest number of states that are examined. A state is an instruction together with the products in flight there.
Beyond this number there is no result."""
_LEFT = 4
"""Registers of a left operand, for every type: 64 rows of 32 bytes over 128 threads."""
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
_LABEL = re.compile(r"^\s*\.?(L_\w+):")
_PRODUCT = re.compile(r"HGMMA\.64x(\d+)x\d+\.(F32|F16|S32)|[IQ]GMMA\.64x(\d+)x\d+\.(F32|F16|S32)")
_ENDS = ("EXIT", "BRA", "RET", "BRX", "JMP", "KILL")

Registers = frozenset[int]
Groups = tuple[Registers, ...]
"""The registers that products in flight read: for each committed group, oldest first, and last for the open group."""


@dataclass(frozen=True, slots=True)
class Overwritten:
    """An instruction that writes registers which an unfinished product may still read."""

    address: int
    instruction: str
    registers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    address: int
    predicated: bool
    opcode: str
    operands: tuple[str, ...]
    target: str | None

    @property
    def text(self) -> str:
        return f"{self.opcode} {', '.join(self.operands)}"


def insist(cubin: bytes) -> None:
    """Raise `ToolchainError` "register-overwritten" if the machine code has the fault.

    Without a disassembler nothing is checked.
    """
    if toolchain.find_disassembler() is None:
        return
    found = overwritten(toolchain.disassemble(cubin))
    if found:
        text = (
            f"the assembler overwrites the left operand of a product that may still read it: `{found[0].instruction}`"
        )
        help = "use the assembler of CUDA 13.3 or newer: ARGUS_NVRTC or ARGUS_NVCC names one"
        where = f"at {found[0].address:#x}, and at {len(found) - 1} other places" if len(found) > 1 else ""
        notes = (Note(where),) if where else ()
        raise ToolchainError(Diagnostic("register-overwritten", text, property="toolchain", notes=notes, help=help))


def overwritten(sass: str) -> tuple[Overwritten, ...] | None:
    """Return the instructions in nvdisasm's text that overwrite registers which a product may still read.

    Return None if the code has more than `MOST_STATES` states.
    """
    found: dict[int, Overwritten] = {}
    for lines, labels in _functions(sass):
        if not any(_left(line) for line in lines):
            continue
        waiting: list[tuple[int, Groups]] = [(0, (frozenset(),))]
        seen = set(waiting)
        while waiting:
            at, groups = waiting.pop()
            line = lines[at]
            lost = _written(line) & frozenset().union(*groups)
            if lost:
                found[line.address] = Overwritten(line.address, line.text, tuple(sorted(lost)))
            after = _after(line, groups)
            for place in _next(lines, labels, at):
                if (place, after) not in seen:
                    seen.add((place, after))
                    waiting.append((place, after))
            if len(seen) > MOST_STATES:
                return None
    return tuple(found.values())


def _functions(sass: str) -> Iterator[tuple[list[_Line], dict[str, int]]]:
    """Yield the instructions of each function, and the positions of its labels."""
    lines: list[_Line] = []
    labels: dict[str, int] = {}
    for text in sass.splitlines():
        if text.lstrip().startswith(".section"):
            if lines:
                yield lines, labels
            lines, labels = [], {}
        label = _LABEL.match(text)
        if label:
            labels[label[1]] = len(lines)
        found = _INSTRUCTION.search(text)
        if found:
            operands = tuple(part.strip() for part in found[4].split(",") if part.strip())
            target = re.search(r"`\(\.?(L_\w+)\)", found[4])
            lines.append(_Line(int(found[1], 16), found[2] is not None, found[3], operands, target and target[1]))
    if lines:
        yield lines, labels


def _next(lines: list[_Line], labels: dict[str, int], at: int) -> Iterator[int]:
    line = lines[at]
    if line.target in labels and line.opcode.split(".")[0] in ("BRA", "CALL"):
        yield labels[str(line.target)]
    ends = line.opcode.split(".")[0] in _ENDS and not line.predicated and not _conditional(line)
    if not ends and at + 1 < len(lines):
        yield at + 1


def _conditional(line: _Line) -> bool:
    """Return True if a branch has a condition among its operands, as `BRA.U UP0, ...` has."""
    return any(re.match(r"!?U?P\w", operand) for operand in line.operands)


def _left(line: _Line) -> Registers:
    """Return the registers of a product's left operand; none if the operand is in shared memory."""
    if "GMMA" not in line.opcode or len(line.operands) < 3:
        return frozenset()
    register = _number(line.operands[1])
    return frozenset() if register is None else frozenset(range(register, register + _LEFT))


def _after(line: _Line, groups: Groups) -> Groups:
    """Return the registers that unfinished products may read after an instruction."""
    if "GMMA" in line.opcode:
        # Such a product computes nothing. It is not documented whether it counts as a group.
        if line.operands[0] == "RZ":
            return groups
        groups = (*groups[:-1], groups[-1] | _left(line))
        return (*groups, frozenset()) if "gsb0" in line.operands else groups
    if line.opcode.startswith("WARPGROUP.DEPBAR"):
        left = int(line.operands[-1], 16)
        done = groups[:-1]
        return (*done[len(done) - min(left, len(done)) :], groups[-1])
    return groups


def _written(line: _Line) -> Registers:
    """Return the registers that an instruction writes."""
    base = line.opcode.split(".")[0]
    operands = list(line.operands)
    if not operands or base.endswith("SETP") or base in ("PLOP3", "R2P", "R2UR", "WARPGROUP", "SYNCS", "BAR"):
        return frozenset()
    while operands and re.fullmatch(r"!?U?P(\d|T)", operands[0]):
        operands.pop(0)
    register = _number(operands[0]) if operands else None
    return frozenset() if register is None else frozenset(range(register, register + _width(line.opcode)))


def _number(operand: str) -> int | None:
    found = re.fullmatch(r"R(\d+)(\.reuse|\.64)?", operand)
    return int(found[1]) if found else None


def _width(opcode: str) -> int:
    """Return the number of registers that an instruction writes."""
    product = _PRODUCT.match(opcode)
    if product:
        columns, kind = int(product[1] or product[3]), product[2] or product[4]
        return columns // (4 if kind == "F16" else 2)
    parts = opcode.split(".")
    if parts[0] == "LDSM":
        return int(parts[-1]) if parts[-1].isdecimal() else 1
    if "128" in parts:
        return 4
    wide = "64" in parts or "WIDE" in parts or (parts[0] == "CS2R" and "32" not in parts)
    return 2 if wide or parts[0] in ("DADD", "DMUL", "DFMA") else 1
