"""The demo's last two acts: a wrong kernel is repaired from its counterexample, and a slow kernel is made faster."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console

from argus import pages
from argus.agents.optimize import Folder, Limits, Run, problem_of
from argus.agents.optimize.place import place_of_timing
from argus.agents.repair import repair
from argus.agents.verifier import Task
from argus.frontend import Options
from argus.knowledge.entry import FOLDER
from argus.source import SourceFile

_SIZES = {"M": 256, "N": 65536}
"""Few long rows, for which one piece at a time and a meeting of all threads for each is slow."""


def act(out: Console, steps: int = 4) -> bool:
    """Print both acts. Return True if the repair is proved and the optimisation finds a proved kernel that is no
    slower."""
    path = pages.example("rejected/transpose.py")
    source = SourceFile("examples/rejected/transpose.py", path.read_text(encoding="utf-8"))
    out.print("[bold]4. Repair[/bold] examples/rejected/transpose.py from its counterexample")
    found = repair(Task(source, "transpose_rejected", Options(target="cpu")))
    if found.answer is None:
        out.print("   no repair was found")
        return False
    out.print(f"   {found.answer.title}: proved, {len(found.steps)} tried")
    return _faster(out, steps)


def _faster(out: Console, steps: int) -> bool:
    """Make a sum of rows faster, timed on a Hopper GPU if this machine has one, else by the model of an H200."""
    target = "sm_90a"
    how = "timed on this machine's GPU" if place_of_timing(target) == "gpu" else "timed by the model of an H200"
    out.print(f"\n[bold]5. Make faster[/bold] a naive sum of rows without a language model, {how}")
    text = (FOLDER / "kernels" / "row_sum.py").read_text(encoding="utf-8")
    problem = problem_of(SourceFile("row_sum.py", text), "row_sum", target, _SIZES)
    with tempfile.TemporaryDirectory(prefix="argus-demo-") as folder:
        run = Run(
            problem, Folder(Path(folder)), Limits(1.0, steps), lambda _, line: out.print(f"   {line}", markup=False)
        )
        state = run.go()
    start, best = state.trials[0].us, state.trials[state.best].us
    if start is None or best is None:
        return False
    out.print(f"   {start / best:.2f} times as fast, and proved to compute the same")
    return best <= start
