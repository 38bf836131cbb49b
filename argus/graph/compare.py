"""Compare the specification of a group's kernel with PyTorch, on small tensors.

Proofs show that a kernel computes its specification. The specification itself is made by trusted code: the operator
table, its composition and its printing. Here its text is evaluated as the verifier understands it, and compared with
what PyTorch's operators compute on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from argus.backend.cache import DiskCache, Entry, cache_key
from argus.backend.fingerprint import FORMAT, compiler
from argus.environment import cache_directory
from argus.graph import capture
from argus.graph.capture import meta_of
from argus.graph.group import Group
from argus.graph.kernel import KernelText, specified_text
from argus.graph.launch import View
from argus.graph.layout import Param
from argus.graph.small import NotSmall, Small

SAME, DIFFERENT, NOT_COMPARED = "same", "different", "not compared"

_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
"""Differences that rounding to float64 explains, relative to an element and to the largest element."""

_OF_ROUNDING = frozenset(("split.default",))
"""Operators whose results consist of digits that rounding drops."""


class Different(Exception):
    """A specification says other than PyTorch computes. Raised instead of a report on request."""


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison, and where the difference is, or why nothing was compared."""

    verdict: str
    reason: str = ""


def compare_all(kernels: Sequence[tuple[Group, KernelText, str]]) -> list[Comparison]:
    """Compare the specifications of groups, each with its kernel and target, with PyTorch. Results are kept in the
    cache, by structure."""
    known: dict[str, Comparison] = {}
    found = []
    for group, text, target in kernels:
        key = _key(group, text, target)
        if key not in known:
            known[key] = _kept(key) or _keep(key, compare(group, target))
        found.append(known[key])
    return found


def compare(group: Group, target: str) -> Comparison:
    """Compare a group's specification with PyTorch's operators, at small sizes, or else at the group's own."""
    from torch.utils._python_dispatch import _disable_current_modes

    why = ""
    with _disable_current_modes():
        for whole in (False, True):
            try:
                return _compared(Small(group, whole), group, target)
            except NotSmall as error:
                why = why or str(error)
            except Exception as error:  # what cannot be evaluated stays trusted, and the report says so
                why = why or f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return Comparison(NOT_COMPARED, why)


def _compared(small: Small, group: Group, target: str) -> Comparison:
    if any(capture.name(node) in _OF_ROUNDING for node in group.nodes):
        raise NotSmall("its results are what rounding leaves, and specifications are compared without rounding")
    text = specified_text(small.group, group, target)
    exact = any((row := capture.row(node)) is not None and row.places for node in small.group.nodes)
    wanted = small.own() if exact else small.wide()
    found = _specified(text, small, target, not exact)
    for param in text.layout.writes:
        reference, value = _seen(param, wanted[param.value]), found[param.name]
        why = _difference(value, reference)
        if why:
            return Comparison(DIFFERENT, f"the specification differs from PyTorch: {param.name}{why}")
    return Comparison(SAME)


def _specified(text: KernelText, small: Small, target: str, wide: bool) -> dict[str, Any]:
    """Return the specified value of each output, at every index of the kernel's tensor."""
    from argus.compile import elaborate
    from argus.frontend import Options
    from argus.ir.nodes import Spec
    from argus.ir.visit import walk
    from argus.simulate.memory import Dense, GlobalTensor
    from argus.simulate.reference import Reference
    from argus.simulate.wide import wide as widened
    from argus.source import SourceFile

    alignment = {p.name: 1 for p in (*text.layout.reads, *text.layout.writes)}
    kernel: Any = elaborate(SourceFile("<graph>", text.text + "\n"), text.name, Options(target, None, {}, alignment))
    kernel = widened(kernel, False) if wide else kernel
    declared = {t.name: t for t in kernel.tensors}
    tensors, params = {}, dict[str, Any]()
    for param in (*text.layout.reads, *text.layout.writes):
        shape = tuple(param.shape) or (1,)
        params |= {axis.symbol: axis.extent for axis in param.axes}
        if param in text.layout.reads:
            values = _seen(param, small.tensors[param.value]).numpy()
            tensors[param.name] = GlobalTensor(declared[param.name], shape, (), Dense(_plain(values)), None)
    reference = Reference(tensors, params)
    shapes = {p.name: tuple(p.shape) or (1,) for p in text.layout.writes}
    found = {}
    for spec in (s for s in walk(kernel.body) if isinstance(s, Spec)):
        shape = shapes[spec.output]
        axes = dict(enumerate(np.ix_(*(np.arange(n) for n in shape))))
        found[spec.output] = np.broadcast_to(reference.term(spec.value, axes), shape)
    return found


def _plain(values: Any) -> Any:
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def _seen(param: Param, x: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the form in which it is passed to the kernel, in a dtype that NumPy has."""
    view = View.of(param)
    strides = x.stride()
    if tuple(strides) != tuple(param.meta.strides):
        x = torch.empty_strided(param.meta.shape, param.meta.strides, dtype=x.dtype).copy_(x)
    x = x.as_strided(view.sizes, view.strides)
    return x.double() if x.is_floating_point() else x


def _difference(found: Any, reference: torch.Tensor) -> str:
    """Return where and how far a specified value is from PyTorch's, or "" if rounding explains all differences."""
    wanted = reference.numpy()
    with np.errstate(all="ignore"):
        values, sizes = found.astype(np.float64), wanted.astype(np.float64)
        finite = np.abs(sizes[np.isfinite(sizes)])
        allowed = _RELATIVE * np.abs(sizes) + _ABSOLUTE * finite.max(initial=0.0)
        same = (values == sizes) | (np.isnan(values) & np.isnan(sizes))
        wrong = ~same & ~(np.abs(values - sizes) <= np.where(np.isfinite(allowed), allowed, 0.0))
    if not wrong.any():
        return ""
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    index = ", ".join(str(int(i)) for i in at)
    return f"[{index}] of {list(wrong.shape)} is {values[at]:.6g} instead of {sizes[at]:.6g}"


# ---------------------------------------------------------------------------- the cache


def _key(group: Group, text: KernelText, target: str) -> str:
    """Return the key of a group: its kernel's text, and its operators with their arguments."""
    places: dict[Any, str] = {}

    def told(node: Any) -> str:
        return places.setdefault(node, f"n{len(places)}")

    nodes = []
    for node in group.nodes:
        args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), told)
        nodes.append([told(node), capture.name(node), repr(args), repr(sorted(kwargs.items()))])
    reads = [[told(value[0]), value[1], repr(meta_of(value))] for value in group.reads.values()]
    views = [[p.name, repr(p.shape), repr(p.strides)] for p in (*text.layout.reads, *text.layout.writes)]
    what = {"text": text.text, "target": target, "nodes": nodes, "reads": reads, "views": views}
    return cache_key({"format": FORMAT, "compiler": compiler(), "torch": torch.__version__, "kind": "compare", **what})


def _kept(key: str) -> Comparison | None:
    entry = DiskCache(cache_directory()).get(key)
    return None if entry is None else Comparison(entry.data["verdict"], entry.data["reason"])


def _keep(key: str, found: Comparison) -> Comparison:
    DiskCache(cache_directory()).put(key, Entry({"verdict": found.verdict, "reason": found.reason}))
    return found
