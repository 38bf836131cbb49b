"""The entries of a graph's report, and the request to prove a kernel of the graph."""

from __future__ import annotations

from math import gcd
from typing import Any

import torch

from argus.graph import capture
from argus.graph.assemble import subgraph
from argus.graph.capture import inputs, meta_of
from argus.graph.group import Group
from argus.graph.kernel import KernelText
from argus.graph.launch import View
from argus.graph.prove import ProofRequest, stored
from argus.graph.report import Entry, estimated
from argus.graph.terms import Extent, product
from argus.graph.turned import NAME as TURNED

_LEFT_S = 1e-3  # the assumed time of a graph that is left as a whole
_HINT = 1024  # the assumed value of a symbolic size when an alignment is guessed


def request(text: KernelText, target: str) -> ProofRequest:
    """Return the request to prove a kernel for tensors that are aligned like the traced ones."""
    layout = text.layout
    alignment = {p.name: _alignment(View.of(p)) for p in (*layout.reads, *layout.writes)}
    return ProofRequest(text.name, text.text, target, alignment)


def _alignment(view: View) -> int:
    """Return the alignment in bytes of a tensor with these sizes and strides, if it begins at a multiple of 16 bytes.
    """
    item = getattr(torch, view.meta.dtype).itemsize
    units = [(size if stride == 1 else stride) for size, stride in zip(view.sizes, view.strides, strict=True)]
    return gcd(16, *(item * _whole(u) for u in units))


def _whole(extent: Extent) -> int:
    if isinstance(extent, int):
        return extent
    return int(extent.subs(dict.fromkeys(extent.free_symbols, _HINT)))


def of_kernel(group: Group, text: KernelText, asked: ProofRequest, verdict: str, compared: str) -> Entry:
    """Return the entry of a generated kernel. `compared`: how its specification compares with PyTorch."""
    metas = [p.meta for p in text.layout.reads]
    return Entry(
        kernel=text.name,
        operators=tuple(capture.name(n) for n in group.nodes),
        verdict=verdict,
        specified=True,
        reason="",
        by="argus",
        seconds=estimated(metas, [p.meta for p in text.layout.writes], *_operations(group)),
        path=str(stored(asked) or ""),
        equality="over the real numbers",
        tensors=tuple(metas),
        compared=compared,
    )


def of_graph(name: str, why: str) -> Entry:
    """Return the entry of a graph that PyTorch runs as a whole."""
    return Entry(name, (name,), "left", False, why, "eager", _LEFT_S)


def of_library(node: Any) -> Entry:
    """Return the entry of an operator of the library. Its kernels are proved when they are first launched, with the
    library's own specification, and no kernel runs that is not."""
    read = list(dict.fromkeys(inputs(node)))
    metas = [m for m in map(meta_of, read) if m is not None]
    made = [m for m in capture.results(node) if m is not None]
    call = subgraph([node], read, [(node, place) for place in range(len(made))])
    return Entry(
        kernel=capture.name(node).partition(".")[0],
        operators=(capture.name(node),),
        verdict="proved",
        specified=True,
        reason="",
        by="argus",
        seconds=estimated(metas, made, *_operations_of(node)),
        equality="over the real numbers",
        call=call,
        tensors=tuple(metas),
    )


def of_left(node: Any, verdict: str, reason: str, by: str) -> Entry:
    """Return the entry of an operator that PyTorch runs. `by` is "inductor" or "eager"."""
    metas = [m for v in inputs(node) if (m := meta_of(v)) is not None]
    made = [m for m in capture.results(node) if m is not None]
    return Entry(
        kernel=capture.name(node),
        operators=(capture.name(node),),
        verdict=verdict,
        specified=False,
        reason=reason,
        by=by,
        seconds=estimated(metas, made, *_operations_of(node)),
        tensors=(),
    )


def _operations(group: Group) -> tuple[Extent, str]:
    return _operations_of(group.head) if group.head is not None else (0, "float32")


def _operations_of(node: Any) -> tuple[Extent, str]:
    """Return the number of multiplications and additions of a product or a convolution, and their dtype."""
    name, read = capture.name(node), [meta_of(v) for v in inputs(node)]
    made = [m for m in capture.results(node) if m is not None]
    if name in ("mm.default", "bmm.default", "addmm.default", "baddbmm.default"):
        a = read[-2]
        assert a is not None
        return 2 * product(made[0].shape) * a.shape[-1], a.dtype
    if capture.is_library(node) and name.startswith("attention"):
        q, k = read[1:3] if "backward" in name else read[:2]
        assert q is not None and k is not None
        return (10 if "backward" in name else 4) * product(q.shape) * k.shape[2], q.dtype
    if name in ("convolution.default", TURNED) and read[0] is not None and read[1] is not None:
        ends = read[0] if name != TURNED and capture.given(node)[6] else made[0]
        return 2 * product(ends.shape) * product(read[1].shape[1:]), read[1].dtype
    return 0, "float32"
