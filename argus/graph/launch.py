"""Run a group's kernel inside a compiled graph: pass the graph's tensors to a launch, and run a fallback if the launch
is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from argus.diagnostic import ArgusError
from argus.graph.capture import Meta
from argus.graph.layout import Layout, Param
from argus.graph.terms import Extent
from argus.runtime.jit_kernel import JitKernel
from argus.runtime.recipe import room

_ALIGNED = 16
"""Alignment in bytes of the addresses of launches that are kept."""

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))

Sizes = Mapping[Any, int]
"""The values of symbolic sizes."""


@dataclass(frozen=True)
class View:
    """The form in which a tensor of the graph is passed: `as_strided` with these sizes and strides."""

    meta: Meta
    sizes: tuple[Extent, ...]
    strides: tuple[Extent, ...]

    @classmethod
    def of(cls, param: Param) -> View:
        """Return the view that a kernel receives for a tensor. A tensor of one element has one dimension."""
        return cls(param.meta, param.shape or (1,), param.strides or (1,))


class Kernel(torch.nn.Module):
    """Launches a proved kernel on the tensors that its group reads, and returns those that it computes.

    If a launch is refused, or if the strides of tensors differ from those of the traced graph, `fallback` computes the
    same by PyTorch, and `told` receives the reason. The first launch on aligned tensors of static shapes is kept, and
    repeated for all similar tensors. `added`: the kernel adds to its results, which are 0 before the launch.
    """

    def __init__(self, kernel: JitKernel, layout: Layout, fallback: Callable[..., Any], told: Callable[[str], None],
                 added: bool = False):  # fmt: skip
        super().__init__()
        self.kernel = kernel
        self.reads = tuple(View.of(p) for p in layout.reads)
        self.writes = tuple(View.of(p) for p in layout.writes)
        self.symbolic = any(v.meta.symbolic for v in (*self.reads, *self.writes))
        self.fallback, self.told, self.added = fallback, told, added
        self.further = _further(fallback, len(self.reads))
        self.expected = tuple((v.meta.shape, v.meta.strides) for v in self.reads)
        self.run: Callable[[tuple[Any, ...]], None] | None = None
        self.rooms: tuple[Callable[[], torch.Tensor], ...] = ()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        try:
            if self.run is not None and (repeated := self.repeated(self.run, tensors)) is not None:
                return repeated
            sizes = bound(self.reads, tensors) if self.symbolic else {}
            passed = [self.passed(view, x, sizes) for view, x in zip(self.reads, tensors, strict=True)]
            device = tensors[0].device
            results = tuple(
                torch.empty_strided(
                    values(view.meta.shape, sizes),
                    values(view.meta.strides, sizes),
                    dtype=getattr(torch, view.meta.dtype),
                    device=device,
                )
                for view in self.writes
            )
            if self.added:
                for result in results:
                    result.zero_()
            written = [self.seen(view, x, sizes) for view, x in zip(self.writes, results, strict=True)]
            self.kernel(*passed, *written)
            self.keep(passed, written)
        except (ArgusError, _Elsewhere) as error:
            self.told(str(error).splitlines()[0])
            further = values(self.further, bound(self.reads, tensors)) if self.further else ()
            return tuple(self.fallback(*tensors, *further))
        return results

    __call__ = forward  # Calls bypass a module's hooks, because they are frequent.

    def repeated(
        self, run: Callable[[tuple[Any, ...]], None], tensors: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...] | None:
        """Repeat the kept launch, or return None for tensors that differ from those of the first launch."""
        for x, (shape, strides) in zip(tensors, self.expected, strict=True):
            if x.__class__ not in _PLAIN or x.shape != shape or x.stride() != strides:
                return None
        places = [x.data_ptr() for x in tensors]
        if any(place % _ALIGNED for place in places):
            return None
        made = tuple([make() for make in self.rooms])
        if self.added:
            for result in made:
                result.zero_()
        run((*places, *[y.data_ptr() for y in made]))
        return made

    def keep(self, passed: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> None:
        """Keep the launch on these tensors if it also suits all similar tensors."""
        tensors = (*passed, *written)
        if self.symbolic or self.run is not None or not all(type(x) in _PLAIN and x.numel() for x in tensors):
            return
        if any(x.data_ptr() % _ALIGNED for x in tensors):
            return
        self.rooms = tuple(
            room(v.meta.shape, getattr(torch, v.meta.dtype), tensors[0].device, v.meta.strides) for v in self.writes
        )
        self.run = self.kernel.prepare(*tensors).run

    def passed(self, view: View, x: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        shape, strides = values(view.meta.shape, sizes), values(view.meta.strides, sizes)
        if x.shape != shape or (x.stride() != strides and not _same_places(x, strides)):
            raise _Elsewhere("a tensor lies in memory differently than when the graph was traced")
        return self.seen(view, x, sizes)

    @staticmethod
    def seen(view: View, x: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        shape, strides = values(view.sizes, sizes), values(view.strides, sizes)
        return x if x.shape == shape and x.stride() == strides else x.as_strided(shape, strides)


def _further(fallback: Any, tensors: int) -> tuple[Extent, ...]:
    """Return the sizes that a fallback takes after its tensors, where views have sizes that are known when they run."""
    graph = getattr(fallback, "graph", None)
    given = [n.meta["val"] for n in graph.nodes if n.op == "placeholder"] if graph is not None else []
    return tuple(size if isinstance(size, int) else size.node.expr for size in given[tensors:])


class _Elsewhere(Exception):
    """A tensor's strides differ from those in the graph."""


def _same_places(x: torch.Tensor, strides: tuple[int, ...]) -> bool:
    """Return True if strides differ only where a dimension has one element."""
    return all(a == b or size == 1 for a, b, size in zip(x.stride(), strides, x.shape, strict=True))


def bound(views: Sequence[View], tensors: Sequence[torch.Tensor]) -> dict[Any, int]:
    """Return the values of the symbolic sizes, read from the tensors. Raises if two tensors contradict one another."""
    found: dict[Any, int] = {}
    for view, x in zip(views, tensors, strict=True):
        for known, actual in zip((*view.meta.shape, *view.meta.strides), (*x.shape, *x.stride()), strict=True):
            if not isinstance(known, int) and known.is_Symbol:
                found.setdefault(known, int(actual))
    return found


def values(extents: Sequence[Extent], sizes: Sizes) -> tuple[int, ...]:
    """Return extents as integers. Raises if a symbolic size is not known."""
    return tuple(e if isinstance(e, int) else value(e, sizes) for e in extents)


def value(extent: Extent, sizes: Sizes) -> int:
    found = extent.subs(dict(sizes))
    if not found.is_Integer:
        raise _Elsewhere("a size that no tensor of this kernel has by itself")
    return int(found)
