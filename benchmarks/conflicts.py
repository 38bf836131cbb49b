"""Bank conflicts as the verifier counts them, beside the counters of the hardware (Nsight Compute).

A kernel runs once, on one set of operands. The verifier knows the wavefronts of one execution of each copy from its
layouts alone; how often each copy runs is counted by walking the kernel's blocks, loops and branches. The counters are
`l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{ld,st}.sum`, which count the accesses of mbarriers as well, and of these
the conflicts, `l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{ld,st}.sum`.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path

from argus.backend.launch.evaluate import evaluate
from argus.compile import elaborate, lower
from argus.diagnostic import ArgusError
from argus.frontend import Options
from argus.ir.expr import Const, Elem, Expr, LoopVar, ProgramId, Thread, rewrite, walk
from argus.ir.nodes import Copy, For, If, Kernel, Programs, Roles, Shared, Stmt
from argus.source import SourceFile
from argus.verify.checks.speed import wavefronts
from argus.verify.model.program import sites
from benchmarks.table import Cell, Results

Environment = Mapping[tuple[str, str | int], int]
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"


@dataclass(frozen=True)
class Case:
    """Kernel `name` of `module` on operands of these shapes, all of one dtype, the last one its output."""

    module: str
    name: str
    shapes: tuple[tuple[int, ...], ...]
    sizes: Mapping[str, int]
    dtype: str = "bfloat16"


CASES = (
    Case("examples.gemm", "gemm", ((512, 256), (384, 256), (512, 384)), {"M": 512, "N": 384, "K": 256}),
    Case("examples.gemm_explicit", "gemm_explicit", ((512, 256), (384, 256), (512, 384)),
         {"M": 512, "N": 384, "K": 256}),
    Case("examples.gemm_hopper", "gemm_hopper", ((512, 256), (512, 256), (512, 512)), {"M": 512, "N": 512, "K": 256}),
    Case("examples.transpose", "transpose", ((512, 256), (256, 512)), {"M": 512, "N": 256}, "float32"),
    Case("benchmarks.conflict_kernels", "transpose_rows", ((512, 256), (256, 512)), {"M": 512, "N": 256}, "float32"),
)  # fmt: skip
"""Kernels that go through shared memory by copies of their own."""


def run() -> Results:
    """Rows "kernel", "access", wavefronts and conflicts: of the verifier and of the hardware."""
    tool = shutil.which("ncu")
    rows: list[dict[str, Cell]] = []
    for case in CASES:
        counted = static(case)
        measured = _measured(tool, case) if tool is not None else {}
        for access in ("ld", "st"):
            total, ideal = counted[access]
            row: dict[str, Cell] = {"kernel": case.name, "access": access}
            row |= {"conflicts": total - ideal, "measured conflicts": measured.get(_CONFLICTS.format(access))}
            row |= {"wavefronts": total, "measured wavefronts": measured.get(_WAVEFRONTS.format(access))}
            rows.append(row)
    notes = ["shared memory, one run; measured wavefronts count the accesses of mbarriers as well"]
    notes += [] if tool else ["no ncu on this machine: nothing measured"]
    equal = sum(r["conflicts"] == r["measured conflicts"] for r in rows)
    summary = {"rows of equal conflicts": f"{equal} of {len(rows)}"}
    return Results("bank conflicts: the verifier's count and the hardware's", rows, notes, summary)


# ---------------------------------------------------------------------------- the verifier's count


def static(case: Case) -> dict[str, tuple[int, int]]:
    """(wavefronts, fewest possible) of shared loads and stores in one run, from the kernel alone."""
    file = Path(str(import_module(case.module).__file__))
    source = SourceFile(file.name, file.read_text(encoding="utf-8"))
    kernel = lower(elaborate(source, case.name, Options(target="sm_90a")), "sm_90a")
    times = executions(kernel, case.sizes)
    found = {"ld": (0, 0), "st": (0, 0)}
    for site in sites(kernel):
        stmt = site.stmt
        if not isinstance(stmt, Copy) or stmt.layout is None:
            continue
        for what, access in (("ld", stmt.src), ("st", stmt.dst)):
            tile = kernel.object(access.obj)
            if isinstance(tile, Shared) and stmt.instr != "cp.async":
                counted = wavefronts(kernel, site, stmt, access, tile)
                if counted is None:
                    raise ArgusError()
                found[what] = (
                    found[what][0] + counted[0] * times[id(stmt)],
                    found[what][1] + counted[1] * times[id(stmt)],
                )
    return found


def executions(kernel: Kernel, sizes: Mapping[str, int]) -> Counter[int]:
    """Count how often all blocks together run each statement, by the statement's `id`."""
    grid = [int(evaluate(extent, sizes)) for extent in kernel.grid or ()]
    times: Counter[int] = Counter()
    for block in product(*map(range, grid)):
        ids: dict[tuple[str, str | int], int] = {("program", axis): value for axis, value in enumerate(block)}
        times.update(map(id, _executed(kernel.body, ids, sizes)))
    return times


def _executed(body: tuple[Stmt, ...], at: Environment, sizes: Mapping[str, int]) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        match stmt:
            case For(var=var, start=start, stop=stop, step=step, body=inner):
                for value in range(_value(start, at, sizes), _value(stop, at, sizes), step):
                    yield from _executed(inner, {**at, ("loop", var): value}, sizes)
            case If(cond=cond, then=then, orelse=orelse):
                known = not any(isinstance(e, Thread | Elem) for e in walk(cond))
                yield from _executed(then if not known or _value(cond, at, sizes) else orelse, at, sizes)
            case Programs(body=inner):
                yield from _executed(inner, at, sizes)
            case Roles(roles=roles):
                for role in roles:
                    yield from _executed(role.body, at, sizes)
            case _:
                pass


def _value(expr: Expr, at: Environment, sizes: Mapping[str, int]) -> int:
    def known(e: Expr) -> Expr | None:
        match e:
            case ProgramId(axis=axis):
                return Const(at["program", axis], e.dtype)
            case LoopVar(name=name) if ("loop", name) in at:
                return Const(at["loop", name], e.dtype)
            case LoopVar():  # a running count: which buffer, not how often
                return Const(0, e.dtype)
            case _:
                return None

    return int(evaluate(rewrite(expr, known), sizes))


# ---------------------------------------------------------------------------- the hardware's count


def _measured(tool: str, case: Case) -> dict[str, int]:
    """The counters of one run in a process of its own; empty where they cannot be read."""
    metrics = ",".join(counter.format(access) for counter in (_WAVEFRONTS, _CONFLICTS) for access in ("ld", "st"))
    command = [tool, "--csv", "--clock-control", "none", "--kernel-name", f"argus_{case.name}", "--launch-count", "1",
               "--metrics", metrics, sys.executable, "-m", "benchmarks.conflicts", case.name]  # fmt: skip
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    start = text.find('"ID"')
    if start < 0:
        return {}
    values = {row["Metric Name"]: row["Metric Value"] for row in csv.DictReader(text[start:].splitlines())}
    return {name: int(float(value.replace(",", ""))) for name, value in values.items()}


def _launch(name: str) -> None:
    """Runs one of the cases on the GPU."""
    import torch

    case = next(c for c in CASES if c.name == name)
    kernel = getattr(import_module(case.module), case.name)
    operands = [torch.randn(shape, device="cuda").to(getattr(torch, case.dtype)) for shape in case.shapes]
    kernel(*operands)
    torch.cuda.synchronize()


if __name__ == "__main__":
    _launch(sys.argv[1])
