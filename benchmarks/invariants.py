"""Invariants that are synthesised for kernels without tags and assertions, beside those that their authors wrote.

Of each kernel that has tags and assertions, the same mutants are proved with the author's annotations, with those that
are synthesised, and with none. Specifications are left out on all sides, or they would catch nearly everything alone.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from argus import compile
from argus.agents.invariants import stripped, synthesised
from argus.diagnostic import ArgusError, Verdict
from argus.frontend import Options
from argus.frontend.linking import linked
from argus.ir.nodes import AssertTags, Kernel
from argus.ir.text import print_kernel
from argus.ir.visit import walk
from argus.mutate import drawn, mutations
from argus.source import SourceFile
from benchmarks.mutants import SUBJECTS, Subject
from benchmarks.table import Cell, Results

_MOST = 4
_NO_WORD = re.compile(r"\W+")
SIDES = ("author", "synthesised", "none")


@dataclass(frozen=True, slots=True)
class Sample:
    """The number of mutants of each kernel, their seed, the seconds of a proof, and the folder of the results."""

    count: int
    seed: int
    limit_s: float
    folder: Path


def tile_of(subject: Subject) -> compile.TileKernel:
    """Return a subject's kernel before it is lowered."""
    source = linked(SourceFile(subject.file, Path(subject.file).read_text(encoding="utf-8")))
    options = Options(target=subject.target, num_warps=subject.num_warps, constexprs=subject.constants,
                      default_alignment=subject.alignment)  # fmt: skip
    return compile.elaborate(source, subject.kernel, options)


def annotated_subjects() -> list[Subject]:
    """Return the kernels that ship, and the examples, with an assertion of their author."""
    files = {s.file: "assert_tags" in Path(s.file).read_text(encoding="utf-8") for s in SUBJECTS}
    return [s for s in SUBJECTS if files[s.file]
            and any(isinstance(x, AssertTags) for x in walk(tile_of(s).body))]  # fmt: skip


def run(sample: Sample, jobs: int, seconds: float) -> Results:
    """Judge the mutants of every annotated kernel on all sides, in processes, until some seconds are over.

    Results are lines of files in a folder, written when they are known. The same command goes on where it ended.
    """
    end = time.monotonic() + seconds
    sample.folder.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        shares = [(s, share) for s in reversed(annotated_subjects()) for share in range(_shares(s))]
        for told in pool.imap_unordered(partial(judged, sample, end), shares):
            print(told, flush=True)
    return counted(sample)


def _shares(subject: Subject) -> int:
    """Return how many processes share the mutants of a kernel; each synthesises its invariants anew."""
    return min(_MOST, max(2, subject.shares))


def judged(sample: Sample, end: float, which: tuple[Subject, int]) -> str:
    """Judge one share of a kernel's mutants. Returns what was done, in words."""
    subject, share = which
    began = time.monotonic()
    of = _shares(subject)
    path = sample.folder / f"{_NO_WORD.sub('-', subject.title)}-{share}-of-{of}.jsonl"
    known = _known(path)
    if known and len(known) >= len(_chosen(sample, known[0]["possible"], share, of)):
        return f"{subject.title}: {len(known)} mutants, all known"
    if time.monotonic() > end:
        return f"{subject.title}: no time left"
    try:
        tiles = sides(subject, sample.limit_s)
    except ArgusError as error:
        return f"{subject.title}: {error}"
    if tiles["synthesised"] is None:
        return f"{subject.title}: nothing was synthesised"
    ready = time.monotonic() - began
    every = {side: _by_text(compile.lower(tile, subject.target)) for side, tile in tiles.items() if tile is not None}
    shared = [text for text in every["none"] if all(text in found for found in every.values())]
    done = 0
    with path.open("a", encoding="utf-8") as file:
        for place in _chosen(sample, len(shared), share, of)[len(known) :]:
            if time.monotonic() > end:
                break
            line = {"kernel": subject.title, "possible": len(shared), **_judged(every, shared[place], sample.limit_s)}
            file.write(json.dumps(line) + "\n")
            file.flush()
            done += 1
    return f"{subject.title}: {done} mutants; synthesised in {ready:.1f} s"


def _judged(every: Mapping[str, Mapping[str, Kernel]], text: str, limit_s: float) -> dict[str, bool]:
    """Return the sides that catch a mutant. Annotations only add rules: what is caught without them is caught."""
    if _caught(every["none"][text], limit_s):
        return dict.fromkeys(SIDES, True)
    return {side: side != "none" and _caught(every[side][text], limit_s) for side in SIDES}


def _chosen(sample: Sample, possible: int, share: int, of: int) -> list[int]:
    """Return the mutants of one share, by their places among the possible ones."""
    return list(drawn(possible, sample.seed, sample.count))[share::of]


def _known(path: Path) -> list[Mapping[str, Any]]:
    """Return the results that an earlier run wrote. A last line that was not written whole is cut off."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def sides(subject: Subject, limit_s: float) -> dict[str, compile.TileKernel | None]:
    """Return a kernel with its author's annotations, with synthesised ones (None if there are none), and without."""
    tile = tile_of(subject)
    found = synthesised(tile, subject.target, limit_s)
    return {
        "author": _unspecified(tile),
        "synthesised": _unspecified(found.kernel) if found.assertions else None,
        "none": compile.TileKernel(stripped(tile, specifications=True)),
    }


def _unspecified(tile: Kernel) -> compile.TileKernel:
    return compile.TileKernel(stripped(tile, tags=False, specifications=True))


def _by_text(kernel: compile.ExplicitKernel) -> dict[str, Kernel]:
    """Return the mutants by what they do: their text without annotations."""
    bare = print_kernel(stripped(kernel, specifications=True))
    found = {print_kernel(stripped(m.kernel, specifications=True)): m.kernel for m in mutations(kernel)}
    found.pop(bare, None)
    return found


def _caught(kernel: Kernel, limit_s: float) -> bool:
    try:
        return compile.verify(compile.ExplicitKernel(kernel), limit_s).verdict is Verdict.REFUTED
    except ArgusError:
        return True  # ill-formed, or more than the machine has


# ---------------------------------------------------------------------------- counting


def counted(sample: Sample) -> Results:
    """Return a row for each kernel, and one for all."""
    lines = [line for file in sorted(sample.folder.glob("*.jsonl")) for line in _known(file)]
    kernels = dict.fromkeys(line["kernel"] for line in lines)
    rows = [_row(k, [line for line in lines if line["kernel"] == k]) for k in kernels]
    rows.append(_row("all", lines))
    note = f"seed {sample.seed}; no side has specifications; caught: refuted, or refused as ill-formed"
    return Results("Mutants caught by annotations", rows, (note,))


def _row(kernel: str, lines: Sequence[Mapping[str, Any]]) -> dict[str, Cell]:
    author = [line for line in lines if line["author"]]
    only = [line for line in author if not line["none"]]
    return {"kernel": kernel, "mutants": len(lines), **{side: sum(line[side] for line in lines) for side in SIDES},
            "of the author's": _share(author), "of those that only annotations catch": _share(only),
            "only annotations": len(only)}  # fmt: skip


def _share(lines: Sequence[Mapping[str, Any]]) -> float | None:
    return sum(line["synthesised"] for line in lines) / len(lines) if lines else None
