"""Statements for operators that read at computed indices: loads under the conditions in the operator's row."""

from __future__ import annotations

from typing import Any

from argus.graph import capture
from argus.graph.indexed import INSIDE, meaning
from argus.graph.row import integer
from argus.graph.terms import Apply, Extent, Flat, Load, Term, dtype_of, is_float, walk
from argus.graph.text import bare, printed


def indexed(e: Any, node: Any) -> str:
    """Return the text of an operator's result on the tile of an `Emitter`."""
    made = capture.results(node)[0]
    assert made is not None
    term, index = meaning(node, "float32" if is_float(made.dtype) else made.dtype)
    text = _Places(e, node, index).text(term, ())
    return text if dtype_of(term) in ("float32", "bool") else f"{text}.to(al.float32)"


def follows(group: Any, layout: Any) -> dict[str, Any]:
    """Return the axes of results along which computed indices run, by the symbol of the axis that these indices read.
    """
    found = {}
    for (value, use), dims in ((key, group.space[key]) for key in group.reads if key[1].startswith(INSIDE)):
        node = next(n for n in group.nodes if f"{INSIDE}{n.name}" == use)
        term, index = meaning(node)
        for load in (t for t in walk(term) if isinstance(t, Load) and t.source == value):
            for dim, place in zip(dims, load.index, strict=True):
                own, along = layout.axis(dim), {t for t in walk(place) if isinstance(t, Flat) and t in index}
                if own is not None and len(along) == 1:
                    found[own.symbol] = layout.axis(group.space[(node, 0)][index.index(along.pop())])
    return {symbol: axis for symbol, axis in found.items() if axis is not None}


class _Places:
    def __init__(self, e: Any, node: Any, index: tuple[Flat, ...]) -> None:
        self.e, self.node, self.index = e, node, index
        self.dims = e.group.space[(node, 0)]
        self.axes = tuple(a for dim in self.dims if (a := e.layout.axis(dim)) is not None)
        self.loaded: dict[str, str] = {}  # names of tiles by the texts that load them

    def text(self, term: Term, guards: tuple[str, ...]) -> str:
        """Return a term as text on the tile. Loads in the term are masked by all `guards`."""

        def leaf(part: Term) -> str | None:
            match part:
                case Flat():
                    return self.place(part)
                case Load():
                    return self.load(part, guards)
                case Apply(op="where", args=(condition, a, b)):
                    chosen = self.e.out.bind(self.text(condition, guards))
                    first, second = self.text(a, (*guards, chosen)), self.text(b, (*guards, f"(~{chosen})"))
                    return f"al.where({chosen}, {bare(first)}, {bare(second)})"
                case _:
                    return None

        return printed(term, leaf)

    def place(self, index: Flat) -> str:
        if index not in self.index:
            return "0"
        axis = self.e.layout.axis(self.dims[self.index.index(index)])
        return str(self.e.index(axis)) if axis is not None else "0"

    def load(self, load: Load, guards: tuple[str, ...]) -> str:
        key = (load.source, f"{INSIDE}{self.node.name}")
        if key not in self.e.group.reads:
            return str(self.e.operand(load.source))
        dims = self.e.group.space[key]
        param = self.e.params[(load.source, dims)]
        computed = {dim: place for dim, place in zip(dims, load.index, strict=True) if not self.plain(dim)}
        where = []
        for axis in param.axes:
            place = computed.get(axis.atoms)
            where.append(str(self.e.index(axis)) if place is None else bare(self.text(place, guards)))
        elsewhere = any(axis.atoms in computed for axis in param.axes)
        sizes = {axis.atoms: axis.extent for axis in param.axes}
        if not elsewhere or all(_is_remainder(place, sizes.get(dim)) for dim, place in computed.items()):
            guards = ()  # All indices are those of the result, or inside.
        own = (a for a in self.e.layout.axes if a in param.axes or (elsewhere and a.fixed and a in self.axes))
        inside = self.e.mask(tuple(own))
        mask = " & ".join(f"({t})" if "&" in t or "<" in t else t for t in (inside, *guards) if t)
        text = f"al.load({param.name}[{', '.join(where) or '0'}]{f', mask={mask}' if mask else ''})"
        if text not in self.loaded:
            self.loaded[text] = str(self.e.out.bind(text))
        return self.loaded[text]

    def plain(self, dim: tuple[int, ...]) -> bool:
        places = set(self.e.group.space.atoms(self.e.group.places))
        return not dim or dim[0] not in places


def _is_remainder(place: Term, size: Extent | None) -> bool:
    """Return True for a remainder by the size of a dimension, which is an index inside it."""
    if not isinstance(size, int) or not isinstance(place, Apply):
        return False
    return place.op == "mod" and place.args[1] == integer(size)
