"""The commands of `python -m benchmarks`: the options of each, and the table that it makes.

Modules of benchmarks are imported when their command runs, because many of them import PyTorch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import gemm, measure, operations
from benchmarks.table import Results

Arguments = argparse.Namespace
Option = tuple[str, Mapping[str, Any]]
"""The flag of an option, and its arguments for `argparse`."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: `run` makes its table."""

    name: str
    help: str
    run: Callable[[Arguments], Results]
    options: tuple[Option, ...] = ()
    either: tuple[Option, ...] = ()
    """Options of which at most one may be given."""

    def add_to(self, commands: Any) -> None:
        """Add the command to a parser's commands."""
        parser = commands.add_parser(self.name, help=self.help)
        for flag, how in (*self.options, _option("--json", "write the rows and the machine there too", Path, "FILE")):
            parser.add_argument(flag, **how)
        if self.either:
            group = parser.add_mutually_exclusive_group()
            for flag, how in self.either:
                group.add_argument(flag, **how)


def _option(flag: str, help: str, type: Callable[[str], Any] = str, metavar: str | None = None, **more: Any) -> Option:
    return flag, {"type": type, "metavar": metavar, "help": help, **more}


def _flag(name: str, help: str) -> Option:
    return name, {"action": "store_true", "help": help}


def _repeated(flag: str, help: str, metavar: str, **more: Any) -> Option:
    return flag, {"action": "append", "metavar": metavar, "help": help, **more}


def _batches(default: int, of: str = "each row's sides") -> Option:
    return _option("--batches", f"measurements of {of}", int, default=default)


def _folder(default: str | None, help: str) -> Option:
    return _option("--folder", help, Path, "DIR", default=default and Path(default))


def _seconds(default: float, help: str) -> Option:
    return _option("--seconds", help, float, "S", default=default)


def _sample(count: int, limit: float, seconds: float, folder: str) -> tuple[Option, ...]:
    """Return the options of a command that draws mutants of each kernel."""
    return (
        _option("--seed", "which mutants are drawn", int, default=1),
        _option("--count", "how many of each kernel", int, default=count),
        _option("--limit", "seconds that a proof may take", float, "S", default=limit),
        _option("--jobs", "processes", int, default=1),
        _seconds(seconds, "begin no mutant after so long"),
        _folder(folder, "results by mutant are kept there"),
    )


def _launch(a: Arguments) -> Results:
    from benchmarks import launch

    return launch.run(a.size, a.calls)


def _cold(a: Arguments) -> Results:
    from benchmarks import cold

    return cold.run(a.target)


def _ways(a: Arguments) -> Results:
    from benchmarks import ways

    return ways.run(a.calls, a.only or ())


def _first(a: Arguments) -> Results:
    from benchmarks import first

    return first.run(a.only or (), a.runs)


def _tiles(a: Arguments) -> Results:
    from benchmarks import drawn, tiles

    given = a.shapes or gemm.CASES
    return tiles.run(drawn.products(a.drawn, a.seed) if a.drawn else given, a.batches)


def _gemm(a: Arguments) -> Results:
    from benchmarks import drawn

    products = a.shapes or (gemm.QUICK if a.quick else gemm.CASES)
    return gemm.run(drawn.products(a.drawn, a.seed) if a.drawn else products, a.kernel or (), a.batches)


def _attention(a: Arguments) -> Results:
    from benchmarks import attention, drawn

    given = attention.cases_of(measure.text_of(a.shapes)) if a.shapes else attention.CASES
    return attention.run(drawn.attentions(a.drawn, a.seed) if a.drawn else given, a.batches)


def _memory(a: Arguments) -> Results:
    from benchmarks import drawn, memory

    listed = memory.cases_of(measure.text_of(a.shapes)) if a.shapes else memory.default_cases()
    wanted = drawn.memories(a.drawn, a.seed) if a.drawn else listed
    return memory.run([c for c in wanted if not a.kernel or c.kernel in a.kernel], a.batches)


def _attention_forms(a: Arguments) -> Results:
    from benchmarks import attention_forms

    return attention_forms.run(attention_forms.CASES, a.batches)


def _attention_added(a: Arguments) -> Results:
    from benchmarks import attention_added

    return attention_added.run(attention_added.CASES, a.batches)


def _language(a: Arguments) -> Results:
    from benchmarks import language

    return language.run(a.only or (), a.batches)


def _layers(a: Arguments) -> Results:
    from benchmarks import layers

    cases = [c for c in layers.CASES if all(word in str(c) for word in a.only or ())]
    return layers.run(cases, a.peers.split(","), a.batches)


def _amd(a: Arguments) -> Results:
    from benchmarks import amd

    return amd.run(a.aiter, a.triton, a.loop or ())


def _amd_built(_: Arguments) -> Results:
    from benchmarks import amd_built

    return amd_built.run()


def _nvidia_built(a: Arguments) -> Results:
    from benchmarks import nvidia_built

    return nvidia_built.run(a.only or ())


def _conflicts(_: Arguments) -> Results:
    from benchmarks import conflicts

    return conflicts.run()


def _mutants(a: Arguments) -> Results:
    from benchmarks import mutants

    return mutants.run(mutants.Sample(a.seed, a.count, a.limit, a.folder), a.jobs, a.seconds)


def _kernelbench(a: Arguments) -> Results:
    from benchmarks import kernelbench

    levels = tuple(map(int, a.levels.split(",")))
    return kernelbench.run(kernelbench.Plan(
        a.root, levels, a.folder, a.floors, a.seconds, a.batches, tuple(range(a.devices)), a.survey,
        tuple(a.only or ()), a.workers, not a.without_compile, a.part,
    ))  # fmt: skip


def _models(a: Arguments) -> Results:
    from benchmarks import models

    modes = {"inference": (False,), "training": (True,), "both": (False, True)}[a.mode]
    return models.run(models.Plan(
        tuple(a.only or ()), modes, a.small, a.survey, a.batches, tuple(a.sides.split(",")), a.folder, a.seconds,
        a.workers,
    ))  # fmt: skip


def _trust(a: Arguments) -> Results:
    from benchmarks import trust

    return trust.run(a.jobs, a.seconds, a.limit, a.folder)


def _agents(a: Arguments) -> Results:
    from benchmarks import optimized

    return optimized.run(a.kernel or (), a.minutes, a.folder, a.audit, a.prepare)


def _repairs(a: Arguments) -> Results:
    from benchmarks import repairs

    return repairs.run(repairs.Sample(a.count, a.seed, a.steps, a.limit, a.folder), a.jobs, a.seconds)


def _stitched(a: Arguments) -> Results:
    from benchmarks import stitched

    levels = tuple(map(int, a.levels.split(",")))
    how = stitched.How(a.folder, a.attempts, a.jobs, time.monotonic() + a.seconds, a.prepare)
    return stitched.run(how, a.root, levels, a.only or (), a.every)


def _invariants(a: Arguments) -> Results:
    from benchmarks import invariants

    return invariants.run(invariants.Sample(a.count, a.seed, a.limit, a.folder), a.jobs, a.seconds)


def _verify(a: Arguments) -> Results:
    from benchmarks import verify

    return verify.run(a.target, a.kernels)


_DRAWN = (
    _option("--drawn", "so many shapes drawn at random instead", int, "COUNT"),
    _option("--seed", "which shapes are drawn", int, default=1),
)
_LINES = "lines like "
_PROBLEMS = (
    ("--root", {"type": Path, "required": True, "metavar": "DIR", "help": "the folder with level1, level2, level3"}),
    _option("--levels", "which levels", default="1,2,3"),
    _repeated("--only", 'problems that begin so, as "1/23_"; repeat', "TEXT"),
)
_SURVEY = ("--survey", {
    "choices": ("generate", "prove"), "default": "", "help": "run nothing: what would be taken, on any machine",
})  # fmt: skip
_TARGET = _option("--target", "the machine", default="sm_90a")

# fmt: off
COMMANDS = (
    Command("launch", "host time of one launch, beside Triton and PyTorch", _launch, (
        _option("--size", "elements of each of the three tensors", int, default=1024),
        _option("--calls", "launches in one measurement", int, default=200))),
    Command("ways", "a call made directly, by its operator, compiled and in a CUDA graph, beside peers", _ways, (
        _option("--calls", "calls in one measurement", int, default=100),
        _repeated("--only", "this operation only; can be repeated", "NAME",
                  choices=(*operations.OPERATIONS, operations.KERNEL)))),
    Command("first", "from the start of Python to a first result, with warm and cold caches, beside peers", _first, (
        _repeated("--only", "this operation only; can be repeated", "NAME", choices=operations.OPERATIONS),
        _option("--runs", "processes of each kind", int, default=3))),
    Command("cold", "from the start of Python to a launchable matrix product, nothing cached", _cold, (_TARGET,)),
    Command("gemm", "matrix products beside cuBLAS and cuBLASLt, with errors", _gemm, (
        *_DRAWN[1:], _batches(20, "each product"),
        _repeated("--kernel", 'of the examples as well, as "gemm_hopper:STAGES=4"; repeat for several rows a shape',
                  "NAME[:CONSTANTS]", type=gemm.config_of)), (
        _option("--shapes", "instead of those of the table", gemm.cases_of, "MxNxK[:DTYPE[:LAYOUT]],..."),
        _flag("--quick", "fewer shapes: under two minutes"), _DRAWN[0])),
    Command("tiles", "matrix products with the measured table of tiles, and without it", _tiles, (
        *_DRAWN[1:], _batches(10, "each product")), (
        _option("--shapes", "instead of those of `gemm`", gemm.cases_of, "MxNxK[:DTYPE[:LAYOUT]],..."), _DRAWN[0])),
    Command("attention", "attention, forward, beside cuDNN and others, with errors", _attention,
            (*_DRAWN[1:], _batches(20)),
            (_option("--shapes", f'{_LINES}"bfloat16 2 32 8 4096 4096 128 causal"', metavar="FILE"), _DRAWN[0])),
    Command("attention-forms", "windows, soft caps, packed sequences and decode, with errors", _attention_forms,
            (_batches(20),)),
    Command("attention-added", "sinks, biases, caches of 8 bits and latent heads, with errors", _attention_added,
            (_batches(20),)),
    Command("language", "attention, decode, experts, quantised weights beside the best open kernels, with errors",
            _language, (_repeated("--only", "cases that have this in their names; repeat", "TEXT"), _batches(7))),
    Command("layers", "decoder layers beside eager PyTorch and torch.compile, with errors", _layers, (
        _repeated("--only", "cases that have this in their names; repeat", "TEXT"),
        _option("--peers", "some of these", default="eager,compile,max-autotune"), _batches(7, "each side"))),
    Command("memory", "kernels whose limit is the memory beside PyTorch, with errors", _memory,
            (*_DRAWN[1:], _repeated("--kernel", "measure this one only; can be repeated", "NAME"), _batches(30)),
            (_option("--shapes", f'{_LINES}"softmax bfloat16 16384 4096"', metavar="FILE"), _DRAWN[0])),
    Command("conflicts", "bank conflicts: the verifier's count beside Nsight Compute's", _conflicts),
    Command("amd", "hot loops on gfx942, from machine code; no such GPU is needed", _amd, (
        _option("--aiter", "ROCm/aiter's folder hsa/gfx942: its code objects too", Path, "DIR"),
        _option("--triton", "an interpreter that has Triton 3.6: its code objects too", metavar="PYTHON"),
        _repeated("--loop", "of ours, this one only; can be repeated", "NAME"))),
    Command("amd-built", "everything that ships, proved and built for gfx942", _amd_built),
    Command("nvidia-built", "everything that ships, built for sm_90a: ptxas's remarks", _nvidia_built,
            (_repeated("--only", "kernels with this word; can be repeated", "WORD"),)),
    Command("verify", "verification time by property and engine", _verify, (_TARGET, _option(
        "--kernels", "files of kernels, and folders of files", Path, nargs="+",
        default=[Path("argus/kernels"), Path("examples")]))),
    Command("mutants", "mutants of everything that ships: which the proofs catch", _mutants,
            _sample(25, 120.0, float("inf"), "build/mutants")),
    Command("trust", "second opinions and exact proofs of everything that ships", _trust, (
        _option("--jobs", "processes", int, default=1), _seconds(float("inf"), "stop after so long"),
        _option("--limit", "seconds that a proof may take", float, "S", default=60.0),
        _folder("build/trust", "rows are kept there, and a run goes on from there"))),
    Command("agents", "naive kernels made faster by `argus optimize`, beside those that ship", _agents, (
        _repeated("--kernel", "this one only; can be repeated", "NAME"),
        _option("--minutes", "of each kernel", float, "M", default=5.0),
        _folder(None, "the runs are kept there, and go on from there"),
        _option("--audit", "time N texts that the model rejected", int, "N", default=0),
        _flag("--prepare", "without a GPU, prove and build what is tried first, for the cache"))),
    Command("repairs", "mutants that are repaired from their counterexamples", _repairs, (
        *_sample(8, 5.0, 3600.0, "build/repairs"),
        _option("--steps", "candidates that may be tried for a mutant", int, default=24))),
    Command("stitched", "KernelBench through `argus optimize reference.py`", _stitched, (
        *_PROBLEMS, _option("--every", "one of so many problems", int, "N", default=10),
        _option("--attempts", "other numbers that are tried for a kernel", int, default=3),
        _option("--jobs", "problems at a time; one of them is timed", int, default=1),
        _option("--prepare", "only prove and build for this target, without a GPU", default=""),
        _seconds(3600.0, "begin no problem after so long"), _folder("build/stitched", "the runs are kept there"))),
    Command("invariants", "mutants that synthesised invariants catch, beside the authors'", _invariants,
            _sample(24, 60.0, 3600.0, "build/invariants")),
    Command("kernelbench", "models of KernelBench beside eager and torch.compile", _kernelbench, (
        *_PROBLEMS, _option("--floors", "JSON rows with problem and floor_us", Path, "FILE"),
        _folder("build/kernelbench", "rows are kept there"), _seconds(900.0, "what one problem may take"),
        _batches(10, "each side"), _option("--devices", "how many GPUs share the problems", int, default=1),
        _option("--workers", "processes a GPU: one is timed, the others compile", int, default=1),
        _flag("--without-compile", "take torch.compile's times from the file of floors"),
        ("--part", {"choices": ("all", "check", "time"), "default": "all",
                    "help": "check results or measure times; both add to the same rows"}), _SURVEY)),
    Command("models", "whole models of transformers beside eager and torch.compile", _models, (
        _repeated("--only", "only this model; repeat", "NAME"),
        ("--mode", {"choices": ("inference", "training", "both"), "default": "both"}),
        _flag("--small", "small widths"), _batches(5, "each side"), _SURVEY,
        _option("--sides", "eager, argus, and any of compile, reduced (reduce-overhead), autotune, graphs (argus)",
                default="eager,compile,argus"),
        _folder("build/models", "rows are kept there"), _seconds(600.0, "what one case may take"),
        _option("--workers", "processes: one is timed, the others compile", int, default=1))),
)
# fmt: on
