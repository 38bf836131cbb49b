"""A group's kernel as text that people can read: tensors, specification, and the generator's statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from argus.graph import capture
from argus.graph.generate import Emitter
from argus.graph.layout import Layout, Param, layout
from argus.graph.partition import Group
from argus.graph.products import ProductEmitter
from argus.graph.specification import dtypes, specifications
from argus.graph.tiles import Tile, product_tile, tile

_LONGEST_NAME = 60


@dataclass(frozen=True)
class KernelText:
    """A kernel as written. The same structure gives the same text: sizes are symbolic, and nothing tells of the graph
    that it comes from."""

    name: str
    text: str
    layout: Layout


Generator = Any
"""`generator(group, layout, target)` gives the statements of a kernel's body, its constants and number of warps."""


def generate(group: Group, target: str, generator: Generator | None = None) -> KernelText:
    """The kernel of a group. Raises Mismatch or NotExpressible for what no kernel is made for."""
    found = layout(group)
    specified = specifications(group, found)
    body, constants, warps, requires = (generator or statements)(group, found, target)
    types = dtypes(found)
    name = _name(group)
    params = [f"    {p.name}: {_annotation(p, types[p.name])}," for p in (*found.reads, *found.writes)]
    params += [f"    {key}: al.constexpr = {value}," for key, value in constants.items()]
    lines = [
        f'"""{_operators(group)}"""',
        "",
        "import argus",
        "import argus.language as al",
        "",
        "",
        f"@argus.kernel(num_warps={warps})",
        f"def {name}(",
        *params,
        "):",
        *(f"    al.requires({condition})" for condition in requires),
        *(f"    al.spec({out}, {text})" for out, text in specified.items()),
        *body,
        "",
    ]
    return KernelText(name, "\n".join(lines), found)


def statements(group: Group, found: Layout, target: str) -> tuple[list[str], dict[str, int], int, tuple[str, ...]]:
    """The generator: statements, constants, warps and preconditions of a group's kernel."""
    if group.product is not None:
        product = product_tile(found, target)
        constants = {"HEIGHT": product.m, "WIDTH": product.n} | ({"DEPTH": product.k} if product.mma else {})
        return ProductEmitter(group, found, product).body(), constants, product.warps, ()
    chosen = tile(found)
    constants = {"WIDTH": chosen.width} | ({"HEIGHT": chosen.height} if chosen.rows is not None else {})
    return Emitter(group, found, chosen).body(), constants, chosen.warps, _requires(chosen)


def _requires(chosen: Tile) -> tuple[str, ...]:
    return (f"{chosen.columns.symbol} <= WIDTH",) if chosen.held else ()


def _annotation(param: Param, dtype: str) -> str:
    shape = " ".join(axis.symbol for axis in param.axes) or "1"
    if not param.axes or param.strides[-1] == 1:
        return f'al.Tensor[{dtype}, "{shape}"]'
    strides = " ".join(f"{param.name}_{axis.index}" for axis in param.axes)
    return f'al.Tensor[{dtype}, "{shape}", "{strides}"]'


def _operators(group: Group) -> str:
    return "The operators " + ", ".join(capture.name(n) for n in group.nodes) + "."


def _name(group: Group) -> str:
    short = [capture.name(n).split(".")[0].strip("_") for n in group.nodes]
    name = "_".join(dict.fromkeys(short))
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME].rpartition("_")[0]
