"""Kernels of language models beside the best open kernels, in one run: attention, decode, experts, quantised weights.

Peers that are not installed are left out, and a note says so: FlashAttention-4 (`flash-attn-4`), quack
(`quack-kernels`), sonic-moe, DeepGEMM, FlashInfer, cuDNN and cuBLAS through PyTorch, a fused mixture in Triton. All
sides of a row are recorded in CUDA graphs, and take turns as `benchmarks.measure` says. Rows are printed as they are
found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import measure
from benchmarks.measure import Row
from benchmarks.table import Results

OURS, READ, READ_ALONE = "argus", "read", "read alone"
_BYTES_READ = 2**30
_LEAST_CALLS = 8  # of a batch
_LARGE = 2**30  # bytes of operands that one set rotates well enough, because the cache holds none of it


def _itself(*values: Any) -> Any:
    return values if len(values) != 1 else values[0]


@dataclass(frozen=True)
class Side:
    """One way to the result: `finished(call(*prepared(*operands)))`, of which `call` alone is measured."""

    call: Callable[..., Any]
    prepared: Callable[..., Sequence[Any]] = _itself
    finished: Callable[[Any], Any] = _itself


@dataclass(frozen=True)
class Case:
    """A row: `operands()` makes a set of operands, `sides` make ours and its peers, `error(found, *operands)` is how
    far a result is from float64. `read` bytes, if any, are those that a call has to read at least."""

    area: str
    name: str
    operands: Callable[[], Sequence[Any]]
    sides: Mapping[str, Callable[[], Side]]
    error: Callable[..., float]
    operations: float = 0.0
    read: int = 0

    def __str__(self) -> str:
        return f"{self.area}: {self.name}"


def cases() -> tuple[Case, ...]:
    """Every row, by area."""
    from benchmarks import language_attention, language_products, language_rows

    return (*language_attention.cases(), *language_products.cases(), *language_rows.cases())


def run(wanted: Sequence[str], batches: int) -> Results:
    """One row for each case whose text has one of the texts `wanted`, in their order, or for all. Needs a GPU."""
    measure.needs_gpu("language")
    chosen = [case for text in wanted or ("",) for case in cases() if text in str(case)]
    rows, notes = measure.through(chosen, lambda case: row_of("cuda", case, batches), _told)
    return Results(
        "kernels of language models",
        rows,
        (
            measure.manner(batches),
            "in CUDA graphs; error: root mean square of the difference from float64, over that of the result",
            "of read: the time for as many bytes at the rate of a sum of 1 GiB in the same run, over the kernel's",
            "of read alone: the time of a sum of as many bytes, launched as the kernel is, over that",
            *notes,
        ),
        measure.means(rows, "speed / best", "area")
        | measure.means(rows, "of read", "area")
        | measure.means(rows, "of read alone", "area"),
    )


def row_of(device: str, case: Case, batches: int) -> tuple[list[Row], list[str]]:
    """The row of a case, and the reason of each side that cannot be run."""
    sets = _sets(case, device)
    runs: dict[str, Callable[[], float]] = {}
    errors: dict[str, float] = {}
    problems = []
    for name, make in case.sides.items():
        try:
            side = make()
            given = [_tuple(side.prepared(*operands)) for operands in sets]
            errors[name] = case.error(side.finished(side.call(*given[0])), *sets[0])
            runs[name] = recorded(side.call, given)
        except Exception as problem:  # a peer that is absent or fails must not stop the others
            problems.append(f"{name} at {case}: {measure.reason(problem)}")
    if case.read:
        runs[READ] = _reading(case.read)
        runs[READ_ALONE] = _reading_alone(case.read)
    return [_row(case, measure.in_turns(runs, batches), errors)] if runs else [], problems


def recorded(call: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> Callable[[], float]:
    """Return what gives the seconds of one call, from replays of a graph of calls over all `sets`."""
    import torch

    call(*sets[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call(*operands) for operands in sets]
    rounds = -(-_LEAST_CALLS // len(kept))
    return lambda: measure.batch(lambda _, __: graph.replay(), [(graph, kept)] * rounds) / len(sets)


def _row(case: Case, seconds: Mapping[str, float], errors: Mapping[str, float]) -> Row:
    mine, read, alone = (seconds.get(name) for name in (OURS, READ, READ_ALONE))
    peers = {name: s for name, s in seconds.items() if name not in (OURS, READ, READ_ALONE)}
    best = min(peers, key=peers.__getitem__) if peers else None
    return {
        "area": case.area,
        "case": case.name,
        "us": None if mine is None else 1e6 * mine,
        "TFLOP/s": 1e-12 * case.operations / mine if mine and case.operations else None,
        "of read": read / mine if mine and read else None,
        "of read alone": alone / mine if mine and alone else None,
        "best peer": best or "",
        "best peer us": None if best is None else 1e6 * peers[best],
        "speed / best": peers[best] / mine if best and mine else None,
        "error": errors.get(OURS),
        "peers: us, error": "; ".join(f"{n} {1e6 * s:.4g}, {errors[n]:.2g}" for n, s in peers.items()),
    }


def _told(row: Row) -> str:
    cells = (f"{k} {c:.4g}" if isinstance(c, float) else f"{k} {c}" for k, c in row.items() if c not in (None, ""))
    return ", ".join(list(cells)[2:])


def _sets(case: Case, device: str) -> list[Sequence[Any]]:
    first = case.operands()
    if _size(first) >= _LARGE:
        return [first]
    made = [first]
    return measure.rotating(lambda: made.pop() if made else case.operands(), device)


def _size(operands: Sequence[Any]) -> int:
    import torch

    return sum(t.numel() * t.element_size() for t in operands if isinstance(t, torch.Tensor))


def _reading(count: int) -> Callable[[], float]:
    """Return what gives the seconds in which a sum reads `count` bytes."""
    import torch

    words = torch.ones(_BYTES_READ // 8, dtype=torch.int64, device="cuda")
    return lambda: measure.batch(lambda x: x.sum(), [(words,)]) * count / _BYTES_READ


def _reading_alone(count: int) -> Callable[[], float]:
    """Return what gives the seconds of one sum of `count` bytes, launched and rotated as the kernels are."""
    import torch

    words = measure.rotating(lambda: (torch.ones(-(-count // 8), dtype=torch.int64, device="cuda"),), "cuda")
    return recorded(lambda x: x.sum(), words)


def _tuple(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def normal(*shape: int) -> Any:
    """Return normal numbers of bfloat16 on the GPU."""
    import torch

    return torch.randn(*shape, device="cuda").bfloat16()


def distance(found: Any, exact: Any) -> float:
    """Return the root mean square of the difference from float64 `exact`, over that of `exact`. Tuples: the largest."""
    if isinstance(exact, (tuple, list)):
        return max(distance(f, e) for f, e in zip(found, exact, strict=True))
    return float((found.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-30))
