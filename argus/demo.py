"""Run the demo: a matrix product is proved for all sizes, built, and run on real input; then a wrong product is
refuted.

At the end, agents repair a kernel and optimise a kernel.
"""

from __future__ import annotations

import runpy
import time
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from argus import compile, pages
from argus.agents.demo import act
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.target import TARGETS
from argus.render import Outcome, outcome_text
from argus.source import SourceFile
from argus.verify import Report

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ONE = 0x3F80
"""The number 1.0 in bfloat16. NumPy has no such type, so 16-bit integers hold the bits."""


def demo(out: Console, err: Console) -> int:
    """Run the demo on the CPU target, in a minute or two. Return 0 if every result is as expected."""
    right = _kernel("gemm.py")
    out.print("[bold]1. Prove[/bold] examples/gemm.py, for every size, block, thread, iteration and element")
    verdicts = []
    for target in TARGETS:
        with _status(err, f"proving for {target}"):
            report = compile.prove(right, "gemm", Options(target=target))
        verdicts.append(report.verdict)
        slowest = max(report.timings, key=lambda t: t.seconds, default=None)
        most = f", most of it for {slowest.property}" if slowest is not None else ""
        out.print(f"   {report.verdict.value} for {target:<7} in {report.seconds:.1f} s{most}")
    out.print()
    counted = _run(out, err)
    out.print()
    out.print("[bold]3. Refute[/bold] examples/rejected/gemm.py, which always takes the first slice of b")
    wrong = _kernel("rejected/gemm.py")
    with _status(err, "looking for a counterexample"):
        report = compile.prove(wrong, "gemm_rejected", Options(target="cpu"))
    out.print()
    out.print(outcome_text(_outcome("gemm_rejected", report)), end="")
    out.print()
    good = counted and set(verdicts) == {Verdict.PROVED} and report.verdict is Verdict.REFUTED
    return 0 if act(out) and good else 1


def _run(out: Console, err: Console) -> bool:
    """Count the letter pairs of Argus's own error pages by a matrix product, and compare the result with direct
    counting."""
    out.print("[bold]2. Run[/bold] it on this machine's CPU: letter pairs of the error pages, as a matrix product")
    text = "".join(pages.explanation(code) for code in pages.codes()).lower()
    text = text[: len(text) // 8 * 8]  # cut so that rows are multiples of 16 bytes, which the widest copies need
    first, second = _indicators(text), _indicators(text[1:] + " ")
    found = np.zeros((len(_LETTERS), len(_LETTERS)), np.uint16)
    gemm: Any = runpy.run_path(str(pages.example("gemm.py")))["gemm"]
    with _status(err, "building, with the C++ compiler"):
        start = time.perf_counter()
        gemm(first[:, :8].copy(), second[:, :8].copy(), found)
        built = time.perf_counter() - start
    with _status(err, "running"):
        start = time.perf_counter()
        gemm(first, second, found)
        seconds = time.perf_counter() - start
    counts = _float32(found)
    expected = np.zeros_like(counts)
    for a, b in pairwise(text):
        if a in _LETTERS and b in _LETTERS:
            expected[_LETTERS.index(a), _LETTERS.index(b)] += 1
    same = bool((_float32(_bfloat16(expected)) == counts).all())
    common = np.argsort(-counts, axis=None)[:6]
    pairs = ", ".join(f"{_LETTERS[i // 26]}{_LETTERS[i % 26]} {counts.flat[i]:.0f}" for i in common)
    out.print(f"   built in {built:.1f} s; M = N = {len(_LETTERS)}, K = {len(text)} in {seconds:.2f} s: {pairs}")
    verdict = "equal to" if same else "[bold red]different from[/bold red]"
    out.print(f"   {verdict} counting them one by one, rounded to bfloat16")
    return same


def _kernel(name: str) -> SourceFile:
    return SourceFile(f"examples/{name}", pages.example(name).read_text(encoding="utf-8"))


def _outcome(name: str, report: Report) -> Outcome:
    return Outcome(name, report.verdict, report.seconds, report.assumptions, report.diagnostics)


def _status(err: Console, message: str) -> AbstractContextManager[object]:
    return err.status(message) if err.is_terminal else nullcontext()


def _indicators(text: str) -> NDArray[np.uint16]:
    """Return a bfloat16 array `[letters, len(text)]` that is 1 where the text has that letter."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    letters = np.frombuffer(_LETTERS.encode("utf-32-le"), np.uint32)
    return np.where(letters[:, None] == codes[None, :], _ONE, 0).astype(np.uint16)


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round finite values to bfloat16: to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _float32(values: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (values.astype(np.uint32) << 16).view(np.float32)
