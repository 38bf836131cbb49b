"""Readers: from a call's PyTorch tensors to what a launch writes, and to the key of the plan that knows how.

A reader is generated as Python text, one straight line of attribute reads: a loop over the arguments costs
more than the rest of a launch. The text is made of positions only; nothing of a kernel or a call gets into it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from argus.backend.launch.evaluate import Number
from argus.runtime.executable import CONSTEXPR, SCALAR, TENSOR

Reader = Callable[..., tuple[tuple[Number, ...], tuple[Hashable, ...]]]
"""`reader(grid, *arguments)` gives the tensors' addresses followed by the scalars, and the key.

Where keys are equal, one plan serves. AttributeError for what is no tensor of PyTorch, RuntimeError for one
without an address.
"""

# Of an address only its last four bits matter to a plan: alignment is specialised up to 16 bytes.
_TENSOR_KEY = "a{i}.shape, a{i}.stride(), a{i}.dtype, a{i}.device, a{i}.__class__, p{i} & 15, "


def reader(kinds: tuple[str, ...]) -> Reader:
    """The reader of arguments of these kinds."""
    places = {kind: [i for i, k in enumerate(kinds) if k == kind] for kind in (TENSOR, SCALAR, CONSTEXPR)}
    tensors, scalars, constants = places[TENSOR], places[SCALAR], places[CONSTEXPR]
    lines = [
        f"def read(grid, {''.join(f'a{i}, ' for i in range(len(kinds)))}):",
        *(f"    p{i} = a{i}.data_ptr()" for i in tensors),
        f"    values = ({''.join(f'p{i}, ' for i in tensors)}{''.join(f'a{i}, ' for i in scalars)})",
        f"    key = (grid, {''.join(_TENSOR_KEY.format(i=i) for i in tensors)}"
        f"{''.join(f'repr(a{i}), ' for i in constants)})",
        "    return values, key",
    ]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    result: Reader = scope["read"]
    return result
