"""Stores of tiles that are transposed in shared memory, so that both sides access whole cache lines."""

from __future__ import annotations

from argus.graph.layout import Param
from argus.graph.text import Lines, dtype
from argus.graph.tiles import Tile


def store_transposed(param: Param, value: str, tile: Tile, out: Lines) -> None:
    """Store a tile through a transposed copy of it in shared memory. `value`: the text of the tile."""
    made = dtype(param.meta.dtype)
    assert tile.rows is not None
    text = value if param.meta.dtype == "bool" else f"{value}.to({made})"
    name = f"turned{param.name}"
    out.add(f"{name} = al.shared((HEIGHT, WIDTH), {made}{_layout(tile, param)}")
    out.add(f"al.store({name}, {text})")
    out.add("al.barrier()")
    size = {tile.columns.symbol: "WIDTH", tile.rows.symbol: "HEIGHT"}
    where = [
        f"p{a.index} * {size[a.symbol]} : p{a.index} * {size[a.symbol]} + {size[a.symbol]}"
        if a.symbol in size
        else a.index
        for a in param.axes
    ]
    out.add(f"al.store({param.name}[{', '.join(where)}], al.load(al.trans({name})), boundary_check=(0, 1))")


def _layout(tile: Tile, param: Param) -> str:
    """Return the last part of a shared tile's declaration, which gives it a layout without bank conflicts when columns
    are read."""
    bits = {"float32": 2, "float16": 3, "bfloat16": 3}.get(param.meta.dtype)
    whole = param.meta.dtype == "float32" and tile.width >= 32 and tile.height >= 32
    if bits is None or not whole:
        return ")"
    return f", layout=al.swizzle(3, {bits}, {tile.width.bit_length() - 1}))"
