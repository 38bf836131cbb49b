"""Measure tiles of matrix products and write the shipped table: `python -m argus.kernels.tune gemm --json FILE`.

For every shape the tiles that the model expects to be fastest are proved and built side by side, then timed in turns,
on operands that rotate through more than twice the L2 cache. Needs an NVIDIA GPU; about three minutes on an H200.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from argus.backend.cache import DiskCache
from argus.diagnostic import ArgusError
from argus.environment import cache_directory
from argus.frontend.options import Options
from argus.kernels import operands
from argus.kernels.gemm import combine, gemm
from argus.kernels.matmul import Matmul, calls
from argus.kernels.product_tile import ProductShape, Tile
from argus.kernels.table import PATH, shape_class, to_json
from argus.kernels.tile_times import ranked
from argus.runtime.executable import CachedSource
from argus.runtime.work import Call
from argus.tuning.build import Build, BuildRequest, build_all, in_a_process
from argus.tuning.progress import progress
from argus.written import write_whole

TRIED = 5
"""Number of tiles that are timed for each shape, and the largest time that the model may expect of one, relative to the
best."""
SLOWER = 1.6
_BATCHES = 5
_LEAST_LAUNCHES = 8
_PAUSE_CYCLES = 1_000_000

LARGE = ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 16384), (4096, 28672, 8192),
         (4096, 8192, 28672), (8192, 8192, 1024), (1000, 3000, 5000), (512, 512, 512), (1024, 1024, 1024),
         (3000, 1000, 8192), (256, 8192, 8192))  # fmt: skip
FEW_ROWS = tuple((m, n, k) for m in (1, 8, 16, 32, 64, 128) for n, k in ((8192, 8192), (28672, 8192), (8192, 28672)))


@dataclass(frozen=True, slots=True)
class Shape:
    """A product to be measured: a `[m, k]` of `dtype` times b, whose columns are contiguous if `b_rows`."""

    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    b_rows: bool = True

    def rate(self, seconds: float) -> str:
        """Return the rates of arithmetic and of the operands' bytes, as text."""
        size = {"float32": 4, "float8_e4m3fn": 1}.get(self.dtype, 2)
        read = size * (self.m + self.n) * self.k
        return f"{2e-12 * self.m * self.n * self.k / seconds:.0f} TFLOP/s, {read / seconds * 1e-9:.0f} GB/s"

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {self.dtype}{'' if self.b_rows else ', b [K, N]'}"


SHAPES = (
    *(Shape(*size) for size in (*LARGE, *FEW_ROWS)),
    *(Shape(*size, b_rows=False) for size in ((4096, 4096, 4096), (8192, 8192, 8192), (16, 8192, 8192))),
    *(Shape(*size, "float8_e4m3fn") for size in ((4096, 4096, 4096), (8192, 8192, 8192), (16, 8192, 8192))),
    *(Shape(*size, "float32") for size in ((4096, 4096, 4096), (8192, 8192, 8192))),
)
"""The shapes of the performance page, shapes near them, and other layouts and dtypes of the largest."""

Time = Callable[[Sequence[Callable[[int], object]], int], list[float]]
"""`time(calls, sets)` returns the seconds of each call; `call(i)` runs on set i of `sets` of operands."""


def tensors(torch: Any, shape: Shape, device: str) -> tuple[Any, Any]:
    """Return random operands a `[m, k]` and b `[k, n]`."""
    wide = "float32" if shape.dtype == "float32" else "bfloat16"
    a = torch.randn(shape.m, shape.k, device=device, dtype=getattr(torch, wide))
    b = torch.randn(shape.n, shape.k, device=device, dtype=getattr(torch, wide))
    a, b = (x.to(getattr(torch, shape.dtype)) for x in (a, b))
    return a, b.t() if shape.b_rows else b.t().contiguous()


def candidates(problem: ProductShape) -> list[Tile]:
    """Return the tiles to be timed. The model's first choice comes first."""
    found = ranked(problem)
    return [tile for tile, expected in found[:TRIED] if expected.seconds <= SLOWER * found[0][1].seconds]


def orders_of(request: operands.Request, problem: ProductShape, tile: Tile, ones: Any) -> tuple[BuildRequest, ...]:
    """Return the builds of the kernels of a call with this tile."""
    return tuple(_order(call) for call in calls(gemm, combine, request, problem, tile, ones))


def _order(call: Call) -> BuildRequest:
    source = call.kernel.source
    assert isinstance(source, CachedSource)
    found = call.kernel.situation(*call.arguments, **call.constants)
    constants = dict(call.constants)
    num_warps: Any = constants.pop("num_warps", None)
    options = Options(found.target, num_warps, constants, found.alignments)
    return BuildRequest(source.text, options, (source.cache or DiskCache(cache_directory())).directory)


def tune(
    shapes: Sequence[Shape], device: str, time: Time, build: Build = in_a_process, workers: int | None = None
) -> tuple[dict[str, Tile], list[str]]:
    """Return the fastest tile for each class of shape, and a line for each tile that was tried."""
    import torch

    plans: list[tuple[Shape, ProductShape, list[Tile]]] = []
    orders: dict[str, BuildRequest] = {}
    names: dict[tuple[Shape, Tile], tuple[str, ...]] = {}
    ones = torch.ones(1, device=device)
    for shape in shapes:
        a, b = tensors(torch, shape, device)
        c = torch.empty(shape.m, shape.n, device=device, dtype=getattr(torch, operands.result_dtype(a, None, None)))
        request = operands.request(a, b, c, None, None, None, None, None)
        problem = operands.problem(request)
        plans.append((shape, problem, candidates(problem)))
        for tile in plans[-1][2]:
            wanted = orders_of(request, problem, tile, ones)
            names[shape, tile] = tuple(repr((one.kernel.name, one.options)) for one in wanted)
            orders |= zip(names[shape, tile], wanted, strict=True)
    failed: dict[str, str] = {}
    with progress("tune gemm", len(orders)) as show:
        show.stage("prove and build", len(orders))
        for place, reason in build_all(tuple(orders.values()), build, workers):
            name = tuple(orders)[place]
            show.step("")
            if reason:
                failed[name] = reason
        table: dict[str, Tile] = {}
        lines = []
        show.stage("time", len(plans))
        for shape, problem, tried in plans:
            show.step(str(shape))
            reasons = {tile: [failed[n] for n in names[shape, tile] if n in failed] for tile in tried}
            good = [tile for tile in tried if not reasons[tile]]
            lines += [f"{shape}: {tile}: {reason}" for tile in tried for reason in reasons[tile]]
            seconds = _timed(torch, shape, device, good, time)
            lines += [f"{shape}: {t}: {s * 1e6:.1f} us, {shape.rate(s)}" for t, s in seconds.items()]
            if seconds:
                table[shape_class(problem)] = min(seconds, key=lambda tile: seconds[tile])
    return table, lines


def _timed(torch: Any, shape: Shape, device: str, tiles: Sequence[Tile], time: Time) -> Mapping[Tile, float]:
    """Return the seconds by tile. Tiles that do not run are left out."""
    size = (shape.m * shape.k + shape.n * shape.k) * (4 if shape.dtype == "float32" else 1)
    cache = torch.cuda.get_device_properties(0).L2_cache_size if device.startswith("cuda") else 0
    sets = [tensors(torch, shape, device) for _ in range(min(64, max(2, 2 * cache // size + 2)))]
    calls: dict[Tile, Callable[[int], object]] = {}
    for tile in tiles:
        call = partial(_product, Matmul(gemm, _always(tile)), sets)
        try:
            call(0)
        except ArgusError as error:
            print(f"{shape}: {tile}: {error.diagnostics[0].message}", file=sys.stderr)
            continue
        calls[tile] = call
    return dict(zip(calls, time(tuple(calls.values()), len(sets)), strict=True))


def _always(tile: Tile) -> Callable[[ProductShape], Tile]:
    return lambda _: tile


def _product(product: Matmul, sets: Sequence[tuple[Any, Any]], place: int) -> Any:
    return product(*sets[place])


def on_the_gpu(calls: Sequence[Callable[[int], object]], sets: int) -> list[float]:
    """Return the median time of batches. The calls take turns, and each batch is one CUDA graph, so that the host's
    time is not measured."""
    import torch

    rounds = -(-_LEAST_LAUNCHES // sets)
    times: list[list[float]] = [[] for _ in calls]
    graphs = [torch.cuda.CUDAGraph() for _ in calls]
    for call, graph in zip(calls, graphs, strict=True):
        with torch.cuda.graph(graph):
            for i in range(sets):
                call(i)
    for _ in range(_BATCHES):
        for graph, found in zip(graphs, times, strict=True):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda._sleep(_PAUSE_CYCLES)  # type: ignore[no-untyped-call]
            start.record()
            for _ in range(rounds):
                graph.replay()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) * 1e-3 / (rounds * sets))
    return [median(found) for found in times]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the command that repeats the measurement."""
    parser = argparse.ArgumentParser("python -m argus.kernels.tune", description="Measure tiles and write their table.")
    parser.add_argument("kernel", choices=["gemm"])
    parser.add_argument("--json", type=Path, default=PATH, help="the table to write (default: the one that ships)")
    parser.add_argument("--workers", type=int, help="kernels built at a time (default: one a core)")
    given = parser.parse_args(arguments)
    table, lines = tune(SHAPES, "cuda", on_the_gpu, workers=given.workers)
    print("\n".join(lines))
    write_whole(given.json, f"{json.dumps(to_json(table), indent=1)}\n".encode(), mode=0o644)
    print(f"{len(table)} classes of shapes in {given.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
