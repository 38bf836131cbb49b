"""Run clusters on the CPU, which has none: a cluster becomes one block, the same as in the proof (`argus.ir.cluster`).

grid [2 * M] cluster 2 warps 4 { ... } -> grid [M] warps 8 roles { role block.0 ... role block.1 ... }
"""

from __future__ import annotations

from argus.ir.cluster import unite
from argus.ir.instruction import BARRIERS
from argus.ir.nodes import BarrierSync, Kernel
from argus.ir.visit import walk
from argus.passes.moves import target_of
from argus.passes.report import LoweringError, problem


def run_as_one_block(kernel: Kernel) -> Kernel:
    """Return the kernel in which each cluster is one block, as the CPU runs it. Raises `LoweringError` if the cluster
    is too large for one block."""
    target = target_of(kernel)
    if kernel.cluster == 1 or target.vendor != "cpu":
        return kernel
    united = unite(kernel)
    numbers = [s.number for s in walk(united.body) if isinstance(s, BarrierSync)]
    why = ""
    if united.num_threads > target.max_threads:
        why = f"{united.num_threads} threads, and {target.name} has at most {target.max_threads} in one"
    elif max(numbers, default=0) >= BARRIERS["bar.sync"].barriers:
        why = f"{max(numbers)} barriers, and there are {BARRIERS['bar.sync'].barriers}"
    if why:
        what = f"{target.name} runs the {kernel.cluster} blocks of a cluster as one, of {why}"
        raise LoweringError(problem("block-size", what, kernel.span, "use a smaller cluster, or fewer warps"))
    return united
