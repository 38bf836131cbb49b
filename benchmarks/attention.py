"""Attention, forward, beside cuDNN, FlashAttention, FlexAttention and Pallas, in one run.

All take turns, batch by batch. A batch runs over several sets of operands, together larger than twice the L2 cache,
behind a device-side pause that lets the host get ahead; CUDA events bracket it. A rate counts two products of every
query with every key that it sees, and nothing else. The error is the largest difference from the result in float64 on
some rows of some heads, in units of that result's root mean square.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median
from time import perf_counter
from typing import Any

from benchmarks.table import Cell, Results

OURS, CUDNN, FLASH, FLEX, PALLAS = "argus", "cuDNN", "flash", "flex", "pallas"
PEERS = (CUDNN, FLASH, FLEX, PALLAS)

_PAUSE_CYCLES = 2_000_000
_LEAST_LAUNCHES = 8
_SAMPLED = 512  # rows of each of two heads that are compared


def _itself(*values: Any) -> Any:
    return values if len(values) != 1 else values[0]


@dataclass(frozen=True)
class Side:
    """One way to the result: `finished(call(*prepared(q, k, v)))`, of which `call` alone is measured.

    `batch(torch, side, sets)` gives the seconds that one call takes.
    """

    call: Callable[..., Any]
    prepared: Callable[..., Sequence[Any]] = _itself
    finished: Callable[[Any], Any] = _itself
    batch: Callable[[Any, Side, Sequence[Sequence[Any]]], float] = field(default_factory=lambda: _batch)


@dataclass(frozen=True)
class Case:
    """`heads` heads of `rows` queries; `shared` heads of `keys` keys and values; of `size` elements of `dtype`."""

    dtype: str
    batch: int
    heads: int
    shared: int
    rows: int
    keys: int
    size: int
    causal: bool

    def __str__(self) -> str:
        numbers = (self.batch, self.heads, self.shared, self.rows, self.keys, self.size)
        return " ".join((self.dtype, *map(str, numbers), "causal" if self.causal else "full"))

    @property
    def operations(self) -> int:
        """Multiplications and additions of both products, over the pairs of a query and a key that it sees."""
        pairs = self.rows * self.keys
        if self.causal:  # the last query sees all keys, each one before it one key less, down to none
            pairs = sum(max(0, self.keys - missing) for missing in range(self.rows))
        return 4 * self.batch * self.heads * pairs * self.size


_SHAPES = (
    (2, 32, 32, 4096, 4096, 128),
    (1, 32, 32, 16384, 16384, 128),
    (8, 32, 32, 1024, 1024, 128),
    (2, 32, 8, 4096, 4096, 128),
    (2, 32, 32, 4096, 4096, 64),
    (1, 32, 32, 16384, 16384, 64),
)
CASES = (
    *(Case("bfloat16", *shape, causal) for shape, causal in product(_SHAPES, (False, True))),
    Case("float16", *_SHAPES[0], False),
    Case("bfloat16", 2, 16, 16, 1000, 3000, 128, False),
)
"""Training and prefill lengths, shared heads, both head sizes; one that divides by no tile."""


def cases_of(text: str) -> tuple[Case, ...]:
    """One case a line: `bfloat16 2 32 8 4096 4096 128 causal` (batch, heads, heads of keys, queries, keys, head size;
    `full` without the mask); empty lines, and what follows a #, do not count. ValueError for what is none."""
    found = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            dtype, *numbers, mask = words
            batch, heads, shared, rows, keys, size = map(int, numbers)
            if mask not in ("causal", "full"):
                raise ValueError(f"`{mask}` is neither causal nor full")
            found.append(Case(dtype, batch, heads, shared, rows, keys, size, mask == "causal"))
    return tuple(found)


def cases_in(file: str) -> tuple[Case, ...]:
    """The cases of a file. ValueError for a file that cannot be read, and for what is no case."""
    try:
        return cases_of(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(str(error)) from None


def run(cases: Sequence[Case], batches: int) -> Results:
    """One row a case, and the geometric means. Needs a GPU."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("benchmarks attention: needs an NVIDIA GPU")
    rows, notes = [], []
    for case in cases:
        try:
            torch._dynamo.reset()  # or the shapes of earlier cases would count against a limit
            row, problems = row_of(torch, "cuda", case, sides_of(case), batches)
        except Exception as error:  # what cannot be run must not stop the others
            notes.append(f"{case}: {type(error).__name__}: {_first_line(error)}")
            print(notes[-1], file=sys.stderr, flush=True)
            continue
        rows.append(row)
        notes += problems
        line = f"{case}: {row['TFLOP/s']} TFLOP/s, {row['speed / cuDNN']} of cuDNN, {row['speed / best']} of the best"
        print("\n".join((line, *problems)), file=sys.stderr, flush=True)  # a long run shows what it does
        torch.cuda.empty_cache()
    return Results(
        "attention, forward",
        rows,
        (
            f"median of {batches} batches, in turns; operands rotate through more than twice the L2 cache",
            "TFLOP/s: 4 operations for each element of a head and each pair of a query and a key that it sees",
            "error: largest difference from the result in float64, over that result's root mean square",
            *notes,
        ),
        means(rows),
    )


def means(rows: Sequence[Mapping[str, Cell]]) -> dict[str, Cell]:
    """The geometric means of our speed, relative to cuDNN and to the best of the peers."""
    found: dict[str, Cell] = {}
    for column in ("speed / cuDNN", "speed / best"):
        speeds = [speed for row in rows if isinstance(speed := row[column], float)]
        if speeds:
            found[f"{column}, {len(speeds)} cases, geometric mean"] = geometric_mean(speeds)
    return found


# ---------------------------------------------------------------------------- sides


def sides_of(case: Case) -> dict[str, Callable[[], Side]]:
    """How each side is made; one that cannot be made raises."""
    return {
        OURS: partial(_ours, case),
        CUDNN: partial(_sdpa, case, "CUDNN_ATTENTION"),
        FLASH: partial(_sdpa, case, "FLASH_ATTENTION"),
        FLEX: partial(_flex, case),
        PALLAS: partial(_pallas, case),
    }


def _ours(case: Case) -> Side:
    from argus.kernels import attention

    return Side(partial(attention, causal=case.causal))


def _sdpa(case: Case, backend: str) -> Side:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if case.causal and case.rows != case.keys:
        raise ValueError("its causal mask begins with the first key")
    chosen, attend = getattr(SDPBackend, backend), torch.nn.functional.scaled_dot_product_attention
    grouped = case.shared != case.heads

    def call(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(chosen):
            return attend(q, k, v, is_causal=case.causal, enable_gqa=grouped)

    return Side(call)


def _flex(case: Case) -> Side:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    offset, mask = case.keys - case.rows, None
    if case.causal:
        mask = create_block_mask(lambda b, h, i, j: j <= i + offset, None, None, case.rows, case.keys, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)
    return Side(partial(compiled, block_mask=mask, enable_gqa=case.shared != case.heads))


def _pallas(case: Case) -> Side:
    """JAX's kernel for this GPU, where it is installed: without a mask, heads next to rows, scores not scaled.

    It runs on a stream of its own, so the host's clock measures it, over many calls and one wait.
    """
    jax = import_module("jax")
    kernels = import_module("jax.experimental.pallas.ops.gpu.attention_mgpu")
    if case.causal:
        raise ValueError("it is measured without a mask only")
    config = kernels.TuningConfig(block_q=64, block_kv=128, max_concurrent_steps=2)

    def prepared(q: Any, k: Any, v: Any) -> tuple[Any, ...]:
        given = (x.transpose(1, 2).contiguous() for x in (q * case.size**-0.5, k, v))
        return tuple(jax.dlpack.from_dlpack(x) for x in given)

    def finished(result: Any) -> Any:
        import torch

        return torch.utils.dlpack.from_dlpack(jax.block_until_ready(result)).transpose(1, 2)

    return Side(jax.jit(partial(kernels.attention, config=config)), prepared, finished, _batch_by_host)


# ---------------------------------------------------------------------------- measurement


def row_of(
    torch: Any, device: str, case: Case, makers: Mapping[str, Callable[[], Side]], batches: int
) -> tuple[dict[str, Cell], list[str]]:
    """The row of a case, and the reason of each side that cannot be run, whose figures are None."""
    sets = _operands(torch, device, case)
    sides: dict[str, Side] = {}
    given: dict[str, list[Sequence[Any]]] = {}
    errors, problems = {}, []
    for name, maker in makers.items():
        try:
            side = maker()
            given[name] = [side.prepared(*operands) for operands in sets]
            errors[name] = _error(torch, case, side.finished(side.call(*given[name][0])), sets[0])
            sides[name] = side
        except Exception as error:
            problems.append(f"{name} at {case}: {type(error).__name__}: {_first_line(error)}")
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(batches):
        for name, seconds in times.items():
            seconds.append(sides[name].batch(torch, sides[name], given[name]))
    return _row(case, {name: median(seconds) for name, seconds in times.items()}, errors), problems


def _row(case: Case, seconds: Mapping[str, float], errors: Mapping[str, float]) -> dict[str, Cell]:
    peers = [seconds[name] for name in PEERS if name in seconds]

    def rate(name: str) -> float | None:
        return 1e-12 * case.operations / seconds[name] if name in seconds else None

    mine, cudnn = seconds.get(OURS), seconds.get(CUDNN)
    row: dict[str, Cell] = {
        "dtype": case.dtype,
        "B": case.batch,
        "H": case.heads,
        "H of k": case.shared,
        "M": case.rows,
        "N": case.keys,
        "D": case.size,
        "mask": "causal" if case.causal else "full",
        "us": None if mine is None else 1e6 * mine,
        "TFLOP/s": rate(OURS),
    }
    row |= {f"{name} TFLOP/s": rate(name) for name in PEERS}
    row["speed / cuDNN"] = None if mine is None or cudnn is None else cudnn / mine
    row["speed / best"] = None if mine is None or not peers else min(peers) / mine
    row |= {"error" if name == OURS else f"{name} error": errors.get(name) for name in (OURS, *PEERS)}
    return row


def _operands(torch: Any, device: str, case: Case) -> list[Sequence[Any]]:
    def one() -> Sequence[Any]:
        shapes = [(case.heads, case.rows), (case.shared, case.keys), (case.shared, case.keys)]
        dtype = getattr(torch, case.dtype)
        return [torch.randn(case.batch, *shape, case.size, device=device).to(dtype) for shape in shapes]

    first = one()
    size = sum(t.numel() * t.element_size() for t in first)
    cache = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 0
    return [first, *(one() for _ in range(min(16, max(1, -(-2 * cache // size)))))]


def _batch(torch: Any, side: Side, sets: Sequence[Sequence[Any]]) -> float:
    """Seconds of one call, from a run over all sets of operands."""
    rounds = -(-_LEAST_LAUNCHES // len(sets))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_PAUSE_CYCLES)
    start.record()
    for _ in range(rounds):
        for operands in sets:
            side.call(*operands)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / (rounds * len(sets))


def _batch_by_host(torch: Any, side: Side, sets: Sequence[Sequence[Any]]) -> float:
    """The same by the host's clock, for work that PyTorch's stream does not order."""
    rounds = -(-_LEAST_LAUNCHES // len(sets))
    torch.cuda.synchronize()
    start = perf_counter()
    results = [side.call(*operands) for _ in range(rounds) for operands in sets]
    side.finished(results[-1])
    return (perf_counter() - start) / len(results)


def _error(torch: Any, case: Case, found: Any, operands: Sequence[Any]) -> float:
    """The largest error on `_SAMPLED` rows of two heads, over the root mean square of the result there."""
    worst = 0.0
    rows = torch.randperm(case.rows, device=found.device)[:_SAMPLED]
    for batch, head in {(0, 0), (case.batch - 1, case.heads - 1)}:
        q, k, v = operands
        shared = head * case.shared // case.heads
        scores = q[batch, head, rows].double() @ k[batch, shared].double().T * case.size**-0.5
        if case.causal:
            seen = torch.arange(case.keys, device=found.device) <= rows[:, None] + case.keys - case.rows
            scores = scores.masked_fill(~seen, -float("inf"))
        exact = torch.softmax(scores, -1).nan_to_num(0.0) @ v[batch, shared].double()
        size = exact.square().mean().sqrt().clamp_min(1e-30)
        worst = max(worst, float((found[batch, head, rows].double() - exact).abs().max() / size))
    return worst


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")
