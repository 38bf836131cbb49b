"""Host time of one call by the way that it is made, beside PyTorch and Triton.

The ways: a direct call, the registered operator, a function that `torch.compile` has compiled, and the replay of a
CUDA graph. A graph holds `IN_A_GRAPH` calls; its time is that from the start of a replay to the end of its work, by
call. The host's times are batches of calls with a synchronisation between batches, outside of the time, so that the
device's queue never fills up. All sides and ways of an operation take turns.

What an operator costs beside a direct call is mostly PyTorch's dispatcher. Its part is measured by an operator in
Python with the same schema that only allocates the result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks import measure
from benchmarks.operations import KERNEL, OPERATIONS, SIDES, direct, operator, tensors
from benchmarks.table import Cell, Results

IN_A_GRAPH = 100
_BATCHES = 30
_WARM = 10
WAYS = ("direct call", "registered operator", "torch.compile", "CUDA graph")


def run(calls: int, wanted: Sequence[str]) -> Results:
    """Rows "operation", "way", and a column of microseconds for each side. Needs a GPU."""
    import torch

    measure.needs_gpu("ways")
    rows = [row for operation in wanted or (*OPERATIONS, KERNEL) for row in _rows(torch, operation, calls)]
    more = {f"{r['operation']}: operator over direct call, us": _over(r, rows) for r in rows if r["way"] == WAYS[1]}
    notes = (
        f"median of {_BATCHES} batches of {calls} calls each, in turns",
        f"CUDA graph: {IN_A_GRAPH} calls in a graph; the time of a replay with its work, by call",
    )
    return Results("Time of a call by the way that it is made", rows, notes, more)


BARE = "dispatcher us"
"""The column of what a bare operator costs."""


def _over(row: dict[str, Cell], rows: list[dict[str, Cell]]) -> Cell:
    direct = next(r for r in rows if r["operation"] == row["operation"] and r["way"] == WAYS[0])
    mine, less = row["argus us"], direct["argus us"]
    return mine - less if isinstance(mine, float) and isinstance(less, float) else None


def _bare(torch: Any, operation: str, given: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """Return calls of a function that only allocates the operation's result, and of the operator that it implements."""
    namespace = "argus_benchmarks"
    if operation == KERNEL:
        schema, shape = "(Tensor x, Tensor y, Tensor(a!) out) -> ()", None
    else:
        schema = str(operator(torch, "argus", operation)._schema).partition("::")[2]  # type: ignore[attr-defined]
        schema, shape = schema[schema.index("(") :], direct(torch, "argus", operation)(*given).shape

    def made(*_: Any) -> Any:
        return None if shape is None else torch.empty(shape, dtype=given[0].dtype, device=given[0].device)

    name, library = f"bare_{operation.split(',')[0]}", torch.library.Library(namespace, "FRAGMENT")
    _LIBRARIES.append(library)
    library.define(name + schema)
    library.impl(name, made, "Autograd")
    found = getattr(getattr(torch.ops, namespace), name).default
    return {WAYS[0]: partial(made, *given), WAYS[1]: partial(found, *given)}


_LIBRARIES: list[Any] = []
"""An operator is registered as long as its library lives."""


def _rows(torch: Any, operation: str, calls: int) -> list[dict[str, Cell]]:
    runs: dict[tuple[str, str], Callable[[], float]] = {}
    for way, call in _bare(torch, operation, _given(torch, operation)).items():
        runs[BARE, way] = partial(_batch, torch, call, calls)
    for name in SIDES:
        try:
            found = _calls(torch, name, operation)
        except ImportError:
            continue
        for way, call in found.items():
            for _ in range(_WARM):
                call()
            torch.cuda.synchronize()
            runs[name, way] = partial(_batch, torch, call, calls)
        runs[name, WAYS[3]] = partial(_replayed, torch, _graph(torch, found[WAYS[0]]))
    times: dict[tuple[str, str], list[float]] = {key: [] for key in runs}
    for _ in range(_BATCHES):
        for key, one in runs.items():
            times[key].append(one())
    middle = {key: 1e6 * median(found) for key, found in times.items()}
    rows: list[dict[str, Cell]] = [
        {"operation": operation, "way": way, **{f"{name} us": middle.get((name, way)) for name in SIDES}, BARE: None}
        for way in WAYS
    ]
    rows[1][BARE] = middle[BARE, WAYS[1]] - middle[BARE, WAYS[0]]
    for row in rows:
        print(row, file=sys.stderr, flush=True)
    return rows


def _calls(torch: Any, name: str, operation: str) -> dict[str, Callable[[], Any]]:
    """Return a call without arguments for each way but the graph."""
    given = _given(torch, operation)
    if operation == KERNEL:
        plain, registered = _additions(torch, name)
    else:
        plain, registered = (of(torch, name, operation) for of in (direct, operator))
    ways = (plain, registered, torch.compile(plain, fullgraph=True, dynamic=False))
    return {way: partial(call, *given) for way, call in zip(WAYS, ways, strict=False) if call is not None}


def _given(torch: Any, operation: str) -> tuple[Any, ...]:
    if operation == KERNEL:
        return tuple(torch.rand(98304, device="cuda") for _ in range(3))
    return tensors(torch, operation)


def _additions(torch: Any, name: str) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """Return the addition of two vectors into a third, and its operator where there is one."""
    if name == "argus":
        from examples.vector_add import vector_add

        return vector_add, vector_add.as_torch_op("argus_benchmarks::vector_add_")
    if name == "PyTorch":
        return lambda x, y, out: torch.add(x, y, out=out), lambda x, y, out: torch.ops.aten.add.out(x, y, out=out)
    from benchmarks.triton_kernels import vector_add as kernel

    return lambda x, y, out: kernel[(96,)](x, y, out, 98304, BLOCK=1024), None


def _batch(torch: Any, call: Callable[[], object], calls: int) -> float:
    start = perf_counter()
    for _ in range(calls):
        call()
    taken = (perf_counter() - start) / calls
    torch.cuda.synchronize()
    return taken


def _graph(torch: Any, call: Callable[[], object]) -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_A_GRAPH):
            call()
    return graph


def _replayed(torch: Any, graph: Any) -> float:
    torch.cuda.synchronize()
    start = perf_counter()
    graph.replay()
    torch.cuda.synchronize()
    return (perf_counter() - start) / IN_A_GRAPH
