"""Decoder layers beside their twins, eager and under `torch.compile`: steps of decoding, whole sequences, training.

Inference of all sides is recorded in CUDA graphs. A training step is a forward and a backward pass, with the gradients
of all weights. The error is the root mean square of the difference from the twin in float64, over that of the twin; of
gradients, the largest of all weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from argus.layers import DecoderLayer, PagedCache, Shape, twin, twin_step
from benchmarks.measure import Row, batch, in_turns, means, needs_gpu, through
from benchmarks.table import Results

OURS = "argus"
COMPILED = {"compile": "default", "max-autotune": "max-autotune-no-cudagraphs"}
_ROOM = 4096  # tokens that a cache has room for behind those that are there

SHAPES = {
    "Llama 3 8B": Shape(hidden=4096, inner=14336, heads=32, shared_heads=8),
    "Qwen3 30B-A3B": Shape(2048, 768, heads=32, shared_heads=4, experts=128, chosen=8, head_norm=True),
}


@dataclass(frozen=True)
class Case:
    """A layer of `model`, for `batch` sequences of `tokens` tokens; `form` is decode, prefill or training.

    A step of decoding has one new token of each sequence.
    """

    model: str
    form: str
    batch: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.model} {self.form} {self.batch} x {self.tokens}"


CASES = (
    Case("Llama 3 8B", "decode", 1, 4096),
    Case("Llama 3 8B", "decode", 16, 4096),
    Case("Llama 3 8B", "decode", 64, 2048),
    Case("Llama 3 8B", "prefill", 1, 4096),
    Case("Llama 3 8B", "prefill", 8, 1024),
    Case("Llama 3 8B", "training", 1, 4096),
    Case("Llama 3 8B", "training", 8, 1024),
    Case("Qwen3 30B-A3B", "decode", 1, 4096),
    Case("Qwen3 30B-A3B", "decode", 64, 2048),
    Case("Qwen3 30B-A3B", "prefill", 1, 4096),
)


def run(cases: Sequence[Case], peers: Sequence[str], batches: int) -> Results:
    """Return the table of `cases` beside `peers`: eager, compile, max-autotune."""
    needs_gpu("layers")
    rows, problems = through(cases, lambda case: ([measured(case, peers, batches)], []), _told)
    notes = [f"bfloat16; median of {batches} batches, in turns; weights of a layer are larger than the L2 cache"]
    ratios = {k: v for peer in peers for k, v in means(rows, f"over {peer}", "form").items()}
    return Results("layers", rows, notes + problems, ratios)


def measured(case: Case, peers: Sequence[str], batches: int) -> Row:
    """Measure a case and return its row: microseconds of each side, and the error over eager's."""
    operands = operands_of(case, "cuda")
    sides = sides_of(case, peers)
    errors = {name: error_of(case, side, operands) for name, side in sides.items()}
    runs = {name: _timed(case, side, operands) for name, side in sides.items()}
    times = in_turns(runs, batches)
    return {
        "model": case.model, "form": case.form, "sequences": case.batch, "tokens": case.tokens,
        **{f"{name}_us": time * 1e6 for name, time in times.items()},
        **{f"over {name}": times[name] / times[OURS] for name in peers},
        "error": errors[OURS],
        **{f"{name}'s error": errors[name] for name in peers},
    }


@dataclass(frozen=True)
class Operands:
    """A layer, its tokens and their angles, and of a step the caches of both sides."""

    layer: DecoderLayer
    x: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    cache: PagedCache | None = None
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None


Side = Callable[[Operands], Any]


def operands_of(case: Case, device: str, shape: Shape | None = None) -> Operands:
    """Return random weights and tokens; both caches of a step have the same keys and values."""
    torch.manual_seed(0)
    shape = shape or SHAPES[case.model]
    with torch.device(device):
        layer = DecoderLayer(shape).bfloat16()
        tokens = 1 if case.form == "decode" else case.tokens
        x = torch.randn(case.batch, tokens, shape.hidden).bfloat16()
        places = torch.full((case.batch,), case.tokens - 1) if case.form == "decode" else torch.arange(tokens)
        angle = places[:, None] * 10000.0 ** (-torch.arange(shape.features // 2) * 2 / shape.features)
    found = Operands(layer, x, angle.cos(), angle.sin())
    return found if case.form != "decode" else _with_caches(case, shape, found, device)


def _with_caches(case: Case, shape: Shape, given: Operands, device: str) -> Operands:
    size = (case.batch, shape.shared_heads, case.tokens, shape.features)
    keys, values = (torch.randn(size, device=device).bfloat16() for _ in range(2))
    cache = PagedCache(case.batch, case.tokens + _ROOM, shape.shared_heads, shape.features, device=device)
    cache.append(keys[:, :, :-1].transpose(1, 2), values[:, :, :-1].transpose(1, 2))
    return Operands(given.layer, given.x, given.cos, given.sin, cache, keys, values)


def sides_of(case: Case, peers: Sequence[str]) -> dict[str, Side]:
    """Return ours and the `peers`, by name: what a case runs of its operands."""
    decode = case.form == "decode"
    by_peer = _twin_step if decode else _twin
    sides: dict[str, Side] = {OURS: _step if decode else _whole}
    for name in peers:
        sides[name] = partial(by_peer, _peer(name, decode))
    return sides if case.form != "training" else {name: partial(_gradients, side) for name, side in sides.items()}


def _peer(name: str, decode: bool) -> Callable[..., torch.Tensor]:
    function: Callable[..., torch.Tensor] = twin_step if decode else twin
    return torch.compile(function, mode=COMPILED[name], dynamic=False) if name in COMPILED else function


def _whole(given: Operands) -> torch.Tensor:
    found: torch.Tensor = given.layer(given.x, given.cos, given.sin)
    return found


def _step(given: Operands) -> torch.Tensor:
    assert given.cache is not None
    return given.layer.step(given.x, given.cos, given.sin, given.cache)


def _twin(function: Callable[..., torch.Tensor], given: Operands) -> torch.Tensor:
    return function(given.layer, given.x, given.cos, given.sin)


def _twin_step(function: Callable[..., torch.Tensor], given: Operands) -> torch.Tensor:
    return function(given.layer, given.x, given.cos, given.sin, given.keys, given.values)


def _gradients(side: Side, given: Operands) -> tuple[torch.Tensor, ...]:
    found = side(given)
    return torch.autograd.grad(found, list(given.layer.parameters()), torch.ones_like(found))


def error_of(case: Case, side: Side, given: Operands) -> float:
    """Return how far the result is from the twin's in float64, as a share of that; of gradients, the largest."""
    with torch.set_grad_enabled(case.form == "training"):
        _rewind(case, given)
        found, exact = side(given), _exact(case, given)
    pairs = zip(found, exact, strict=True) if isinstance(found, tuple) else [(found, exact)]
    return max(float((own.double() - right).norm() / right.norm()) for own, right in pairs)


def _exact(case: Case, given: Operands) -> Any:
    wide = given.x.double()
    if given.keys is not None and given.values is not None:
        keys, values = given.keys.double(), given.values.double()
        return twin_step(given.layer, wide, given.cos, given.sin, keys, values)
    function: Side = partial(_twin, twin)
    exact = Operands(given.layer, wide, given.cos, given.sin)
    return _gradients(function, exact) if case.form == "training" else function(exact)


def _timed(case: Case, side: Side, given: Operands) -> Callable[[], float]:
    if case.form == "training":
        return lambda: batch(side, [(given,)])
    with torch.no_grad():
        side(given)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            side(given)

    def once() -> float:
        _rewind(case, given)
        return batch(lambda _: graph.replay(), [(graph,)])

    return once


def _rewind(case: Case, given: Operands) -> None:
    """Forget the tokens that steps appended to our cache."""
    if given.cache is not None:
        given.cache.lens.fill_(case.tokens - 1)


def _told(row: Row) -> str:
    return ", ".join(f"{key} {cell:.3g}" if isinstance(cell, float) else f"{key} {cell}" for key, cell in row.items())
