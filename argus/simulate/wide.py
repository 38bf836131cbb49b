"""Convert a kernel to numbers that neither round nor overflow like its own types, to distinguish a wrong term from
rounding.

Every float is carried in 64 bits, also in memory, and conversions between float types change nothing. A *disturbed* run
changes each result of arithmetic by a part in 2^40, and equal results equally. The distance between two such runs shows
how much of a difference rounding explains (Chesneaux and Vignes, the CESTAC method).
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from argus.ir.nodes import Kernel
from argus.ir.types import DType
from argus.layout import FragmentLayout
from argus.simulate.memory import Contents, Dense, Sparse
from argus.simulate.numeric import carrier, widened


def wide(kernel: Kernel, disturbed: bool) -> Kernel:
    """Return the kernel in which each float type is replaced by a type of the same memory size that holds 64-bit
    values."""
    return _replaced(kernel, disturbed, {})  # type: ignore[no-any-return]


def _replaced(node: Any, disturbed: bool, known: dict[int, Any]) -> Any:
    match node:
        case DType():
            return widened(node, disturbed) if node.is_float else node
        case tuple():
            parts = tuple(_replaced(part, disturbed, known) for part in node)
            return node if all(a is b for a, b in zip(parts, node, strict=True)) else parts
        case FragmentLayout():
            return node
        case _ if is_dataclass(node) and not isinstance(node, type):
            if id(node) not in known:
                old = {f.name: getattr(node, f.name) for f in fields(node) if f.init}
                new = {name: _replaced(value, disturbed, known) for name, value in old.items()}
                changed = {name: value for name, value in new.items() if value is not old[name]}
                known[id(node)] = replace(node, **changed) if changed else node
            return known[id(node)]
        case _:
            return node


def before(contents: Contents, dtype: DType) -> Contents:
    """Return the contents of a tensor before the kernel, in the carrier of a type."""
    if isinstance(contents, Sparse):
        return Sparse(dtype, contents.fill)
    return Dense(contents.initial(np.arange(len(contents))).astype(carrier(dtype)), keep=True)
