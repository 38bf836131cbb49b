"""`python -m benchmarks COMMAND [--json FILE]`, from the root: a table of figures, or `plot`, which draws them."""

from __future__ import annotations

import argparse
from pathlib import Path

from argus.diagnostic import ArgusError
from benchmarks import gemm, measure
from benchmarks.table import Results, show


def main() -> int:
    """Runs one benchmark and prints its table. Returns the exit status."""
    arguments = _parser().parse_args()
    if arguments.command == "plot":
        from benchmarks import page, plot

        page.write()
        for file in plot.draw():
            print(file)
        return 0
    try:
        match arguments.command:
            case "launch":
                from benchmarks import launch

                results = launch.run(arguments.size, arguments.calls)
            case "cold":
                from benchmarks import cold

                results = cold.run(arguments.target)
            case "gemm" | "attention" | "memory":
                results = _beside_peers(arguments)
            case "attention-forms":
                from benchmarks import attention_forms

                results = attention_forms.run(attention_forms.CASES, arguments.batches)
            case "attention-added":
                from benchmarks import attention_added

                results = attention_added.run(attention_added.CASES, arguments.batches)
            case "layers":
                from benchmarks import layers

                cases = [c for c in layers.CASES if all(word in str(c) for word in arguments.only or ())]
                results = layers.run(cases, arguments.peers.split(","), arguments.batches)
            case "amd":
                from benchmarks import amd

                results = amd.run(arguments.aiter, arguments.triton, arguments.loop or ())
            case "amd-built":
                from benchmarks import amd_built

                results = amd_built.run()
            case "nvidia-built":
                from benchmarks import nvidia_built

                results = nvidia_built.run(arguments.only or ())
            case "conflicts":
                from benchmarks import conflicts

                results = conflicts.run()
            case "mutants":
                from benchmarks import mutants

                sample = mutants.Sample(arguments.seed, arguments.count, arguments.limit, arguments.folder)
                results = mutants.run(sample, arguments.jobs, arguments.seconds)
            case "kernelbench":
                results = _kernelbench(arguments)
            case "models":
                from benchmarks import models

                modes = {"inference": (False,), "training": (True,), "both": (False, True)}[arguments.mode]
                chosen = models.Plan(
                    tuple(arguments.only or ()), modes, arguments.small, arguments.survey, arguments.batches,
                    tuple(arguments.sides.split(",")), arguments.folder, arguments.seconds, arguments.workers,
                )  # fmt: skip
                results = models.run(chosen)
            case "trust":
                from benchmarks import trust

                results = trust.run(arguments.jobs, arguments.seconds, arguments.limit)
            case "agents":
                from benchmarks import optimized

                results = optimized.run(arguments.kernel or (), arguments.minutes, arguments.folder, arguments.audit)
            case "repairs":
                from benchmarks import repairs

                repaired = repairs.Sample(
                    arguments.count, arguments.seed, arguments.steps, arguments.limit, arguments.folder
                )
                results = repairs.run(repaired, arguments.jobs, arguments.seconds)
            case "stitched":
                from benchmarks import stitched

                levels = tuple(map(int, arguments.levels.split(",")))
                results = stitched.run(arguments.root, arguments.folder, levels, arguments.only or (), arguments.every,
                                       arguments.attempts, arguments.seconds)  # fmt: skip
            case "invariants":
                from benchmarks import invariants

                drawn_ = invariants.Sample(arguments.count, arguments.seed, arguments.limit, arguments.folder)
                results = invariants.run(drawn_, arguments.jobs, arguments.seconds)
            case _:
                from benchmarks import verify

                results = verify.run(arguments.target, arguments.kernels)
    except ArgusError as error:
        print(error)
        return 1
    show(results, arguments.json)
    return 1 if any(row.get("disagreed") or row.get("missed") for row in results.rows) else 0


def _beside_peers(arguments: argparse.Namespace) -> Results:
    """The table of a command whose shapes are drawn, given, or the table's own."""
    from benchmarks import attention, drawn, memory  # with PyTorch

    count, seed, shapes, batches = arguments.drawn, arguments.seed, arguments.shapes, arguments.batches
    match arguments.command:
        case "gemm":
            products = shapes or (gemm.QUICK if arguments.quick else gemm.CASES)
            return gemm.run(drawn.products(count, seed) if count else products, arguments.kernel or (), batches)
        case "attention":
            given = attention.cases_of(measure.text_of(shapes)) if shapes else attention.CASES
            return attention.run(drawn.attentions(count, seed) if count else given, batches)
        case _:
            listed = memory.cases_of(measure.text_of(shapes)) if shapes else memory.default_cases()
            wanted = drawn.memories(count, seed) if count else listed
            return memory.run([c for c in wanted if not arguments.kernel or c.kernel in arguments.kernel], batches)


def _kernelbench(arguments: argparse.Namespace) -> Results:
    from benchmarks import kernelbench

    return kernelbench.run(
        kernelbench.Plan(
            arguments.root,
            tuple(map(int, arguments.levels.split(","))),
            arguments.folder,
            arguments.floors,
            arguments.seconds,
            arguments.batches,
            tuple(range(arguments.devices)),
            arguments.survey,
            tuple(arguments.only or ()),
            arguments.workers,
            not arguments.without_compile,
        )
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Figures of Argus, one table a command.")
    commands = parser.add_subparsers(dest="command", required=True)
    launch = commands.add_parser("launch", help="host time of one launch, beside Triton and PyTorch")
    launch.add_argument("--size", type=int, default=1024, help="elements of each of the three tensors")
    launch.add_argument("--calls", type=int, default=200, help="launches in one measurement")
    cold = commands.add_parser("cold", help="from the start of Python to a launchable matrix product, nothing cached")
    cold.add_argument("--target", default="sm_90a")
    product = commands.add_parser("gemm", help="matrix products beside cuBLAS and cuBLASLt, with errors")
    products = product.add_mutually_exclusive_group()
    products.add_argument(
        "--shapes", type=gemm.cases_of, metavar="MxNxK[:DTYPE[:LAYOUT]],...", help="instead of those of the table"
    )
    products.add_argument("--quick", action="store_true", help="fewer shapes: under two minutes")
    product.add_argument(
        "--kernel",
        type=gemm.config_of,
        action="append",
        metavar="NAME[:CONSTANTS]",
        help='of the examples as well, as "gemm_hopper:STAGES=4"; repeat for several rows a shape',
    )
    product.add_argument("--batches", type=int, default=20, help="measurements of each product")
    attend = commands.add_parser("attention", help="attention, forward, beside cuDNN and others, with errors")
    attentions = attend.add_mutually_exclusive_group()
    attentions.add_argument("--shapes", metavar="FILE", help='lines like "bfloat16 2 32 8 4096 4096 128 causal"')
    attend.add_argument("--batches", type=int, default=20, help="measurements of each row's sides")
    forms = commands.add_parser("attention-forms", help="windows, soft caps, packed sequences and decode, with errors")
    forms.add_argument("--batches", type=int, default=20, help="measurements of each row's sides")
    added = commands.add_parser("attention-added", help="sinks, biases, caches of 8 bits and latent heads, with errors")
    added.add_argument("--batches", type=int, default=20, help="measurements of each row's sides")
    layer = commands.add_parser("layers", help="decoder layers beside eager PyTorch and torch.compile, with errors")
    layer.add_argument("--only", action="append", metavar="TEXT", help="cases that have this in their names; repeat")
    layer.add_argument("--peers", default="eager,compile,max-autotune", help="some of these")
    layer.add_argument("--batches", type=int, default=7, help="measurements of each side")
    memory = commands.add_parser("memory", help="kernels whose limit is the memory beside PyTorch, with errors")
    memories = memory.add_mutually_exclusive_group()
    memories.add_argument("--shapes", metavar="FILE", help='lines like "softmax bfloat16 16384 4096"')
    memory.add_argument("--kernel", action="append", metavar="NAME", help="measure this one only; can be repeated")
    memory.add_argument("--batches", type=int, default=30, help="measurements of each row's sides")
    for shapes in (products, attentions, memories):
        shapes.add_argument("--drawn", type=int, metavar="COUNT", help="so many shapes drawn at random instead")
    for command in (product, attend, memory):
        command.add_argument("--seed", type=int, default=1, help="which shapes are drawn")
    conflicts = commands.add_parser("conflicts", help="bank conflicts: the verifier's count beside Nsight Compute's")
    commands.add_parser("plot", help="tables and pictures of docs/performance.md, from benchmarks/results")
    hot = commands.add_parser("amd", help="hot loops on gfx942, from machine code; no such GPU is needed")
    hot.add_argument("--aiter", type=Path, metavar="DIR", help="ROCm/aiter's folder hsa/gfx942: its code objects too")
    hot.add_argument("--triton", metavar="PYTHON", help="an interpreter that has Triton 3.6: its code objects too")
    hot.add_argument("--loop", action="append", metavar="NAME", help="of ours, this one only; can be repeated")
    built = commands.add_parser("amd-built", help="everything that ships, proved and built for gfx942")
    remarked = commands.add_parser("nvidia-built", help="everything that ships, built for sm_90a: ptxas's remarks")
    remarked.add_argument("--only", action="append", metavar="WORD", help="kernels with this word; can be repeated")
    verify = commands.add_parser("verify", help="verification time by property and engine")
    verify.add_argument("--target", default="sm_90a")
    verify.add_argument(
        "--kernels",
        type=Path,
        nargs="+",
        default=[Path("argus/kernels"), Path("examples")],
        help="files of kernels, and folders of files",
    )
    mutants = commands.add_parser("mutants", help="mutants of everything that ships: which the proofs catch")
    mutants.add_argument("--seed", type=int, default=1, help="which mutants are drawn")
    mutants.add_argument("--count", type=int, default=25, help="how many of each kernel")
    mutants.add_argument("--jobs", type=int, default=1, help="processes")
    mutants.add_argument("--limit", type=float, default=120.0, metavar="S", help="seconds that a proof may take")
    mutants.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="stop after so long")
    mutants.add_argument("--folder", type=Path, default=Path("build/mutants"), help="results by mutant are kept there")
    trust = commands.add_parser("trust", help="second opinions and exact proofs of everything that ships")
    trust.add_argument("--jobs", type=int, default=1, help="processes")
    trust.add_argument("--limit", type=float, default=60.0, metavar="S", help="seconds that a proof may take")
    trust.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="stop after so long")
    agents = commands.add_parser("agents", help="naive kernels made faster by `argus optimize`, beside those that ship")
    agents.add_argument("--kernel", action="append", metavar="NAME", help="this one only; can be repeated")
    agents.add_argument("--minutes", type=float, default=5.0, metavar="M", help="of each kernel")
    agents.add_argument("--folder", type=Path, metavar="DIR", help="the runs are kept there, and go on from there")
    agents.add_argument("--audit", type=int, default=0, metavar="N", help="time N texts that the model rejected")
    repairs = commands.add_parser("repairs", help="mutants that are repaired from their counterexamples")
    repairs.add_argument("--seed", type=int, default=1, help="which mutants are drawn")
    repairs.add_argument("--count", type=int, default=8, help="how many of each kernel")
    repairs.add_argument("--steps", type=int, default=24, help="candidates that may be tried for a mutant")
    repairs.add_argument("--limit", type=float, default=5.0, metavar="S", help="seconds that a proof may take")
    repairs.add_argument("--jobs", type=int, default=1, help="processes")
    repairs.add_argument("--seconds", type=float, default=3600.0, metavar="S", help="begin no mutant after so long")
    repairs.add_argument("--folder", type=Path, default=Path("build/repairs"), help="results by mutant are kept there")
    stitching = commands.add_parser("stitched", help="KernelBench through `argus optimize reference.py`")
    stitching.add_argument(
        "--root", type=Path, required=True, metavar="DIR", help="the folder with level1, level2, level3"
    )
    stitching.add_argument("--levels", default="1,2,3", help="which levels")
    stitching.add_argument("--only", action="append", metavar="TEXT", help='problems that begin so, as "1/23_"; repeat')
    stitching.add_argument("--every", type=int, default=10, metavar="N", help="one of so many problems")
    stitching.add_argument("--attempts", type=int, default=3, help="other numbers that are tried for a kernel")
    stitching.add_argument("--seconds", type=float, default=3600.0, metavar="S", help="begin no problem after so long")
    stitching.add_argument("--folder", type=Path, default=Path("build/stitched"), help="the runs are kept there")
    annotated = commands.add_parser("invariants", help="mutants that synthesised invariants catch, beside the authors'")
    annotated.add_argument("--seed", type=int, default=1, help="which mutants are drawn")
    annotated.add_argument("--count", type=int, default=24, help="how many of each kernel")
    annotated.add_argument("--limit", type=float, default=60.0, metavar="S", help="seconds that a proof may take")
    annotated.add_argument("--jobs", type=int, default=1, help="processes")
    annotated.add_argument("--seconds", type=float, default=3600.0, metavar="S", help="begin no mutant after so long")
    annotated.add_argument("--folder", type=Path, default=Path("build/invariants"), help="results are kept there")
    bench = commands.add_parser("kernelbench", help="models of KernelBench beside eager and torch.compile")
    bench.add_argument("--root", type=Path, required=True, metavar="DIR", help="the folder with level1, level2, level3")
    bench.add_argument("--levels", default="1,2,3", help="which levels")
    bench.add_argument("--only", action="append", metavar="TEXT", help='problems that begin so, as "1/23_"; repeat')
    bench.add_argument("--floors", type=Path, metavar="FILE", help="JSON rows with problem and floor_us")
    bench.add_argument("--folder", type=Path, default=Path("build/kernelbench"), help="rows are kept there")
    bench.add_argument("--seconds", type=float, default=900.0, metavar="S", help="what one problem may take")
    bench.add_argument("--batches", type=int, default=10, help="measurements of each side")
    bench.add_argument("--devices", type=int, default=1, help="how many GPUs share the problems")
    bench.add_argument("--workers", type=int, default=1, help="processes a GPU: one is timed, the others compile")
    bench.add_argument(
        "--without-compile", action="store_true", help="take torch.compile's times from the file of floors"
    )
    bench.add_argument(
        "--survey", choices=("generate", "prove"), default="", help="run nothing: what would be taken, on any machine"
    )
    whole = commands.add_parser("models", help="whole models of transformers beside eager and torch.compile")
    whole.add_argument("--only", action="append", metavar="NAME", help="only this model; repeat")
    whole.add_argument("--mode", choices=("inference", "training", "both"), default="both")
    whole.add_argument("--small", action="store_true", help="small widths")
    whole.add_argument("--batches", type=int, default=5, help="measurements of each side")
    whole.add_argument("--survey", choices=("generate", "prove"), default="", help="run nothing: what would be taken")
    whole.add_argument(
        "--sides",
        default="eager,compile,argus",
        help="eager, argus, and any of compile, reduced (reduce-overhead), autotune, graphs (argus)",
    )
    whole.add_argument("--folder", type=Path, default=Path("build/models"), help="rows are kept there")
    whole.add_argument("--seconds", type=float, default=600.0, metavar="S", help="what one case may take")
    whole.add_argument("--workers", type=int, default=1, help="processes: one is timed, the others compile")
    for command in (
        launch,
        cold,
        product,
        attend,
        forms,
        added,
        layer,
        memory,
        conflicts,
        hot,
        verify,
        mutants,
        trust,
        agents,
        repairs,
        annotated,
        stitching,
        bench,
        whole,
        built,
    ):
        command.add_argument("--json", type=Path, metavar="FILE", help="write the rows and the machine there too")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
