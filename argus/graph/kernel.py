"""The readable text of a group's kernel: tensors, specification, and the generator's statements."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import torch

from argus.graph import capture, columns, direct, flat, rows, taps
from argus.graph.capture import inputs, meta_of
from argus.graph.columns import PixelEmitter, is_by_pixels
from argus.graph.convolutions import ConvolutionEmitter, tile_of
from argus.graph.depthwise import DepthwiseEmitter, is_depthwise
from argus.graph.direct import DirectEmitter, is_direct
from argus.graph.flat import FlatEmitter, is_flat
from argus.graph.generate import Emitter
from argus.graph.group import Group
from argus.graph.indexing import follows
from argus.graph.layout import Layout, Param, layout
from argus.graph.operators import name_of
from argus.graph.pooling import PoolEmitter
from argus.graph.products import ProductEmitter
from argus.graph.reduced import SCANS
from argus.graph.rows import RowEmitter, is_by_rows
from argus.graph.scattered import scattered
from argus.graph.space import Mismatch, Space
from argus.graph.spatial import by_matrices
from argus.graph.specification import dtypes, specifications
from argus.graph.tiles import Tile, product_tile, tile
from argus.graph.window import most_filter_axes, window_of

FEW_TERMS = 16
"""Number of terms below which a product of float32 does not round its factors to TF32."""

_LONGEST_NAME = 60


@dataclass(frozen=True)
class KernelText:
    """The text of a kernel. Equal structures give equal texts: sizes are symbolic, and no name comes from the graph."""

    name: str
    text: str
    layout: Layout


def specified_text(group: Group, like: Group, target: str) -> KernelText:
    """Return the tensors and specifications of a group's kernel, without statements. Axes are those of the kernel of
    the group `like`, which has the same operators at other sizes."""
    found = layout(group, *_multiplied(like, target))
    return KernelText(_name(group), "\n".join(_head(group, found, specifications(group, found), {}, 1, ())), found)


Generator = Any
"""`generator(group, layout, target)` returns the statements of a kernel's body, its constants and its number of
warps."""


def generate(group: Group, target: str, generator: Generator | None = None) -> KernelText:
    """Return the kernel of a group. Raises Mismatch or NotExpressible for a group without a kernel."""
    found = layout(group, *_multiplied(group, target))
    specified = specifications(group, found)
    body, constants, warps, requires = (generator or statements)(group, found, target)
    lines = [*_head(group, found, specified, constants, warps, requires), *body, ""]
    return KernelText(_name(group), "\n".join(lines), found)


def _head(
    group: Group,
    found: Layout,
    specified: dict[str, str],
    constants: dict[str, int],
    warps: int,
    requires: tuple[str, ...],
) -> list[str]:
    """Return the lines of a kernel before its statements: tensors, preconditions and specifications."""
    types = dtypes(found)
    params = [f"    {p.name}: {_annotation(p, types[p.name])}," for p in (*found.reads, *found.writes)]
    params += [f"    {key}: al.constexpr = {value}," for key, value in constants.items()]
    return [
        f'"""{_operators(group)}"""',
        "",
        "import argus",
        "import argus.language as al",
        "",
        "",
        f"@argus.kernel(num_warps={warps})",
        f"def {_name(group)}(",
        *params,
        "):",
        *(f"    al.requires({condition})" for condition in requires),
        *(f"    al.spec({out}, {text})" for out, text in specified.items()),
    ]


def statements(group: Group, found: Layout, target: str) -> tuple[list[str], dict[str, int], int, tuple[str, ...]]:
    """Return the generator of a group's kernel: its statements, constants, warps and preconditions."""
    if group.scatter is not None:
        lines, width, warps = scattered(found)
        return lines, {"WIDTH": width}, warps, ()
    if group.product is not None:
        product = product_tile(found, target, matrix_bits(found))
        constants = {"HEIGHT": product.m, "WIDTH": product.n} | ({"DEPTH": product.k} if product.mma else {})
        return ProductEmitter(group, found, product).body(), constants, product.warps, ()
    if group.window is not None and not most_filter_axes(group.window):
        chosen = taps.tile_of(group, found)
        emitter = DepthwiseEmitter if is_depthwise(group) else PoolEmitter
        return emitter(group, found, chosen).body(), _sides(chosen), chosen.warps, ()
    if group.window is not None:
        convolution = _convolution(group, found, target, matrix_bits(found))
        conv = convolution.conv
        constants = {"HEIGHT": conv.filters} if conv.rows is not None else {}
        constants |= {"WIDTH": conv.width} | ({"DEPTH": conv.k} if conv.mma else {})
        return convolution.body(), constants, conv.warps, convolution.requires()
    scans = any(name_of(n.target) in SCANS for n in group.nodes)
    chosen = tile(found, scans, follows(group, found))
    return Emitter(group, found, chosen).body(), _sides(chosen), chosen.warps, _requires(chosen)


def _sides(chosen: Tile) -> dict[str, int]:
    return {"WIDTH": chosen.width} | ({"HEIGHT": chosen.height} if chosen.rows is not None else {})


def _convolution(group: Group, found: Layout, target: str, bits: int) -> ConvolutionEmitter:
    """Return the method by which a convolution is computed."""
    if is_flat(group, bits):
        return FlatEmitter(group, found, flat.tile_of(group, found, target, bits))
    if is_by_pixels(group, bits):
        return PixelEmitter(group, found, columns.tile_of(group, found, target, bits))
    if is_by_rows(group, bits):
        return RowEmitter(group, found, rows.tile_of(group, found, target, bits))
    if window_of(group.window).turns:
        raise Mismatch("phases in turns, of an image that boxes do not read")
    if is_direct(group):
        return DirectEmitter(group, found, direct.tile_of(group, found))
    return ConvolutionEmitter(group, found, tile_of(group, found, target, bits))


def is_read_by_boxes(node: Any, target: str) -> bool:
    """Return True for a convolution whose kernel reads its image by boxes."""
    group, x = Group([], Space(), window=node), meta_of(inputs(node)[0])
    if x is None or x.symbolic:
        return False
    wide = x.dtype == "float32" and target.startswith("sm_") and torch.backends.cudnn.allow_tf32
    bits = _BITS.get("tfloat32" if wide else x.dtype, 0)
    return is_flat(group, bits) or is_by_rows(group, bits)


def multiplied(group: Group, target: str) -> str:
    """Return the dtype to which factors are converted before they are multiplied, or "" if they keep their own.

    Factors of float32 are multiplied as TF32 if PyTorch's flags allow that and the target can. Products of few terms
    stay in float32: memory limits them, and rounding would cost accuracy alone."""
    if group.head is None or not target.startswith("sm_") or not (group.product or by_matrices(group)):
        return ""
    if group.product is not None and _terms(group) < FEW_TERMS:
        return ""
    flags = torch.backends.cuda.matmul if group.product is not None else torch.backends.cudnn
    return "tfloat32" if group.multiplied() == "float32" and flags.allow_tf32 else ""


def _terms(group: Group) -> float:
    """Return the number of terms of each element of a group's product; infinity if it is known only at run time."""
    meta = meta_of(inputs(group.product)[-1])
    assert meta is not None
    return meta.shape[-2] if isinstance(meta.shape[-2], int) else inf


_BITS = {"tfloat32": 32, "float16": 16, "bfloat16": 16}


def matrix_bits(layout: Layout) -> int:
    """Return the width in bits of a factor's element for the matrix instruction, or 0 if there is no instruction for
    these factors."""
    factors = [p.dtype for p in layout.reads if p.use]
    return _BITS.get(factors[0], 0) if len(set(factors)) == 1 else 0


def _multiplied(group: Group, target: str) -> tuple[str, bool]:
    """Return the dtype in which factors are multiplied ("" for their own dtype), and whether an image is read by boxes.
    """
    dtype = multiplied(group, target)
    own = meta_of(inputs(group.window)[0]) if group.window is not None else None
    return dtype, own is not None and is_flat(group, _BITS.get(dtype or own.dtype, 0))


def _requires(chosen: Tile) -> tuple[str, ...]:
    if not chosen.held:
        return ()
    if chosen.over == "rows" and chosen.rows is not None:
        return (f"{chosen.rows.symbol} <= HEIGHT",)
    return (f"{chosen.columns.symbol} <= WIDTH",)


def _annotation(param: Param, dtype: str) -> str:
    shape = " ".join(axis.size for axis in param.axes) or "1"
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
