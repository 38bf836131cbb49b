"""Operators that PyTorch lacks, defined in a namespace of our own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

NAMESPACE = "argus_graph"


@cache
def _library() -> Any:
    return torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]


@cache
def operator(schema: str, computed: Callable[..., Any], traced: Callable[..., Any]) -> Any:
    """Return the operator of a schema, and make it known to PyTorch the first time.

    `computed` gives its results, and `traced` gives tensors of the same shapes while a graph is traced.
    """
    name = schema.partition("(")[0]
    _library().define(schema)
    _library().impl(name, computed, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", traced, lib=_library())
    return getattr(torch.ops.argus_graph, name).default
