"""The report on a model's graphs: `argus.compile_report(model)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any

from argus.graph.capture import Meta
from argus.graph.terms import Extent, product
from argus.ir.machine import H200

_LAUNCH_S = 2e-6
_MATRIX_BITS = {"float32": 32, "bfloat16": 16, "float16": 16}
_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int16": 2}


@dataclass
class Entry:
    """A kernel, or operators that were left to PyTorch. `seconds` is its time in a run of its graph."""

    kernel: str
    operators: tuple[str, ...]
    verdict: str
    specified: bool
    reason: str
    by: str
    seconds: float
    path: str = ""
    equality: str = ""
    call: Any = None  # the call and the tensors on which it runs, for measurements
    tensors: tuple[Meta, ...] = ()
    compared: str = ""  # how the specification was compared with PyTorch
    refused: list[str] = field(default_factory=list)  # launches that PyTorch had to run instead, with reasons


@dataclass(frozen=True)
class Graph:
    """A compiled graph with an entry for each part. `owner` is the module or the code from which it was traced. `note`
    says if the graph does not run as asked."""

    name: str
    entries: tuple[Entry, ...]
    owner: Any
    note: str = ""


class Report:
    """A report on a compiled model. It prints as a table. `rows` has one entry for each kernel or operator left.

    The keys of an entry are: `kernel`, its name; `share`, its share of the time of all graphs of the model, each run
    once; `verdict`, one of "proved", "unknown", "refuted" or "left"; `specified`, True if its specification was proved;
    `reason`, if operators were not taken, or did not run as planned; `equality`, the sense in which values are equal;
    `compared`, "same" if small tensors showed no difference between the specification and PyTorch, else why they were
    not compared; `by`, one of "argus", "inductor" or "eager"; `path`, the file with the kernel's text.

    `measured` says whether times are measured, or estimated for an H200. `notes` say which graphs do not run as asked,
    and why. `proved_share` is the share of the time in kernels that are proved to compute what the graph specifies; a
    kernel does not count if PyTorch had to run one of its launches.
    """

    def __init__(self, graphs: Sequence[Graph], measured: bool) -> None:
        self.measured = measured
        self.notes = tuple(f"{graph.name}: {graph.note}" for graph in graphs if graph.note)
        total = fsum(e.seconds for g in graphs for e in g.entries) or 1.0
        own = (e for g in graphs for e in g.entries if e.verdict == "proved" and e.specified)
        proved = (e.seconds for e in own if not e.refused)
        self.proved_share = fsum(proved) / total
        self.rows: list[dict[str, Any]] = [
            {
                "graph": graph.name,
                "kernel": entry.kernel,
                "operators": entry.operators,
                "share": entry.seconds / total,
                "verdict": entry.verdict,
                "specified": entry.specified,
                "reason": "; ".join(dict.fromkeys(filter(None, (entry.reason, *entry.refused)))),
                "equality": entry.equality,
                "compared": entry.compared,
                "by": entry.by,
                "path": entry.path,
            }
            for graph in graphs
            for entry in graph.entries
        ]

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console
        from rich.table import Table

        how = "measured" if self.measured else "estimated for an H200 by bytes and operations"
        table = Table(title=f"{self.proved_share:.0%} of the time in proved kernels ({how})")
        for column in ("graph", "kernel", "share", "verdict", "by", "operators", "reason"):
            table.add_column(column, overflow="fold")
        for row in self.rows:
            operators = ", ".join(row["operators"])
            table.add_row(row["graph"], row["kernel"], f"{row['share']:.1%}", row["verdict"], row["by"], operators,
                          row["reason"])  # fmt: skip
        text = StringIO()
        console = Console(file=text, width=160)
        console.print(table)
        if unlike := [row for row in self.rows if row["compared"] not in ("", "same")]:
            names = ", ".join(dict.fromkeys(f"{row['kernel']} ({row['compared']})" for row in unlike))
            console.print(f"specifications that were not compared with PyTorch: {names}", highlight=False, markup=False)
        for note in self.notes:
            console.print(note, highlight=False, markup=False)
        return text.getvalue()


def estimated(read: Iterable[Meta], written: Iterable[Meta], operations: Extent = 0, bits: str = "float32") -> float:
    """Return the estimated seconds on an H200: the launch, plus the longer of moving each tensor once and of the
    arithmetic."""
    moved = sum(_distinct(m) * _BYTES.get(m.dtype, 1) for m in (*read, *written))
    rate = H200.matrix_rate(_MATRIX_BITS.get(bits, 32)) * H200.multiprocessors * H200.clock_hz
    return float(_LAUNCH_S + max(moved / H200.memory_bytes_s, _number(operations) / rate))


def _distinct(meta: Meta) -> float:
    """Return the number of distinct elements in memory, because windows may overlap."""
    if meta.symbolic or 0 in meta.shape:
        return _number(product(meta.shape))
    last = sum((size - 1) * stride for size, stride in zip(meta.shape, meta.strides, strict=True))
    return float(min(product(meta.shape), last + 1))


def _number(extent: Extent) -> float:
    """Return a size as a number. A symbolic size counts as 1024."""
    return float(extent) if isinstance(extent, int) else float(extent.subs(dict.fromkeys(extent.free_symbols, 1024)))


def measured(entry: Entry, device: str) -> float:
    """Return the seconds of an entry on tensors of its shapes with random contents, measured by the device's events."""

    from argus.tuning.bench import do_bench

    tensors = [contents(meta) for meta in entry.tensors]
    return do_bench(lambda: entry.call(*tensors), 2.0, 6.0, device=device) * 1e-3


def measure(entries: Iterable[Entry], device: str) -> None:
    """Measure entries. Kernels with the same text, on tensors of the same shapes, are measured once."""
    known: dict[tuple[Any, ...], float] = {}
    for entry in entries:
        key = (entry.path or id(entry), entry.tensors)
        if key not in known:
            known[key] = measured(entry, device)
        entry.seconds = known[key]


def contents(meta: Meta) -> Any:
    """Return a tensor with random floats, or with zeros, whose elements may overlap in memory as the traced ones do."""
    import torch

    size = 1 + sum((n - 1) * stride for n, stride in zip(meta.shape, meta.strides, strict=True))
    x = torch.empty(max(size, 0), dtype=getattr(torch, meta.dtype), device=meta.device)
    return (x.normal_() if x.dtype.is_floating_point else x.zero_()).as_strided(meta.shape, meta.strides)
