"""Attention, forward, beside cuDNN, FlashAttention, FlexAttention and Pallas, in one run.

Times are taken as `benchmarks.measure` says. A rate counts two products of every query with every key that it sees,
and nothing else. The error is the largest difference from the result in float64 on some rows of some heads, in units
of that result's root mean square.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

from benchmarks import measure
from benchmarks.measure import Batch, Row
from benchmarks.table import Results

OURS, CUDNN, FLASH, FLEX, PALLAS = "argus", "cuDNN", "flash", "flex", "pallas"
PEERS = (CUDNN, FLASH, FLEX, PALLAS)

_SAMPLED = 512  # rows of each of two heads that are compared


def _itself(*values: Any) -> Any:
    return values if len(values) != 1 else values[0]


@dataclass(frozen=True)
class Side:
    """One way to the result: `finished(call(*prepared(q, k, v)))`, of which `call` alone is measured, by `batch`."""

    call: Callable[..., Any]
    prepared: Callable[..., Sequence[Any]] = _itself
    finished: Callable[[Any], Any] = _itself
    batch: Batch = measure.batch


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
    for dtype, *numbers, mask in measure.words_of(text):
        batch, heads, shared, rows, keys, size = map(int, numbers)
        if mask not in ("causal", "full"):
            raise ValueError(f"`{mask}` is neither causal nor full")
        found.append(Case(dtype, batch, heads, shared, rows, keys, size, mask == "causal"))
    return tuple(found)


def run(cases: Sequence[Case], batches: int) -> Results:
    """One row a case, and the geometric means. Needs a GPU."""
    measure.needs_gpu("attention")

    def rows_of(case: Case) -> tuple[list[Row], list[str]]:
        row, problems = row_of("cuda", case, sides_of(case), batches)
        return [row], problems

    def told(row: Row) -> str:
        return f"{row['TFLOP/s']} TFLOP/s, {row['speed / cuDNN']} of cuDNN, {row['speed / best']} of the best"

    rows, notes = measure.through(cases, rows_of, told)
    return Results(
        "attention, forward",
        rows,
        (
            measure.manner(batches),
            "TFLOP/s: 4 operations for each element of a head and each pair of a query and a key that it sees",
            "error: largest difference from the result in float64, over that result's root mean square",
            *notes,
        ),
        measure.means(rows, "speed / cuDNN") | measure.means(rows, "speed / best"),
    )


# ---------------------------------------------------------------------------- sides


def sides_of(case: Case) -> dict[str, Callable[[], Side]]:
    """Return a function for each side that makes the side; it raises if the side cannot be made."""
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

    return Side(jax.jit(partial(kernels.attention, config=config)), prepared, finished, measure.batch_by_host(finished))


# ---------------------------------------------------------------------------- measurement


def row_of(device: str, case: Case, makers: Mapping[str, Callable[[], Side]], batches: int) -> tuple[Row, list[str]]:
    """The row of a case, and the reason of each side that cannot be run, whose figures are None."""
    sets = measure.rotating(lambda: _operands(device, case), device)
    runs: dict[str, Callable[[], float]] = {}
    errors, problems = {}, []
    for name, maker in makers.items():
        try:
            side = maker()
            given = [side.prepared(*operands) for operands in sets]
            errors[name] = _error(case, side.finished(side.call(*given[0])), sets[0])
            runs[name] = partial(side.batch, side.call, given)
        except Exception as error:
            problems.append(f"{name} at {case}: {measure.reason(error)}")
    return _row(case, measure.in_turns(runs, batches), errors), problems


def _row(case: Case, seconds: Mapping[str, float], errors: Mapping[str, float]) -> Row:
    peers = [seconds[name] for name in PEERS if name in seconds]

    def rate(name: str) -> float | None:
        return 1e-12 * case.operations / seconds[name] if name in seconds else None

    mine, cudnn = seconds.get(OURS), seconds.get(CUDNN)
    row: Row = {
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


def _operands(device: str, case: Case) -> Sequence[Any]:
    import torch

    shapes = [(case.heads, case.rows), (case.shared, case.keys), (case.shared, case.keys)]
    dtype = getattr(torch, case.dtype)
    return [torch.randn(case.batch, *shape, case.size, device=device).to(dtype) for shape in shapes]


def _error(case: Case, found: Any, operands: Sequence[Any]) -> float:
    """The largest error on `_SAMPLED` rows of two heads, over the root mean square of the result there."""
    import torch

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
        worst = max(worst, measure.relative_error(found[batch, head, rows], exact))
    return worst
