"""Kernels of groups without products: elementwise chains, reductions with the operators before and after them, softmax.

Operators are emitted one by one onto a tile. Values that are reduced belong to the block, other values to a *pass* over
the tile. There is one pass if the reduced values fit into registers. Otherwise there is one pass for each reduction and
one for the other operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from argus.graph import capture
from argus.graph.capture import Value, inputs, is_view, meta_of, results, value_of
from argus.graph.grids import GridAxis, blocks, grid
from argus.graph.group import Group
from argus.graph.indexing import indexed
from argus.graph.layout import Axis, Layout, Param
from argus.graph.operators import elements, name_of
from argus.graph.reduced import BACKWARDS, SCANS
from argus.graph.reduction_text import IDENTITY, INTEGERS, ONTO, REDUCTIONS, identity
from argus.graph.row import INDEXED, POINTWISE, REDUCTION, NotExpressible, Operand, Result, Site
from argus.graph.terms import Element, Load, Term, is_float, walk
from argus.graph.text import Lines, bare, dtype, printed
from argus.graph.tiles import Tile
from argus.graph.transposed import store_transposed


class Emitter:
    """Emits a group's operators onto one tile."""

    def __init__(self, group: Group, layout: Layout, tile: Tile) -> None:
        self.group, self.layout, self.tile = group, layout, tile
        self.out = Lines()
        self.params = {(p.value, p.dims): p for p in layout.reads}
        self.block: dict[Any, str] = {}  # values of the block, which do not vary along reduced axes
        self.here: dict[Any, str] | None = None  # values of the current pass
        self.flat = tile.rows is None
        self.across: tuple[Axis, ...] = (tile.columns,)  # the axes along the columns of the tile
        self.masks: dict[str, str] = {}
        self.begin = 0  # the line at which the current pass begins
        scans = {name_of(n.target) in BACKWARDS for n in group.nodes if name_of(n.target) in SCANS}
        if len(scans) > 1:
            raise NotExpressible("scans from both ends")
        self.backwards = scans == {True}  # passes go from the last element to the first
        self.zeroed: set[str] = set()  # tiles that are 0 outside the axes
        self.within: set[Value] = set()  # values that are part of the one text that uses them

    # ------------------------------------------------------------------------ the kernel

    def body(self) -> list[str]:
        """Return the statements after the specifications."""
        self.places()
        if not self.tile.over or self.tile.held:
            self.whole_axis()
            self.here = self.block
            for param in self.layout.writes:
                self.store(param)
            return self.out.lines
        block: list[Param] = []
        passing: list[Param] = []
        for param in self.layout.writes:
            (passing if self.reduces(param.axes) else block).append(param)
        for value in [p.value for p in self.layout.writes]:
            self.prepare(value)
        if passing:
            with_loops = self.enter()
            for param in passing:
                self.store(param)
            self.leave(with_loops)
        for param in block:
            self.store(param)
        return self.out.lines

    def places(self) -> None:
        """Emit the program ids, and the indices along the axes that are not reduced."""
        tile, out = self.tile, self.out
        axes: list[GridAxis] = []
        if tile.over != "columns":
            axes.append(blocks(f"p{tile.columns.index}", tile.columns.size, tile.columns.extent, "WIDTH", tile.width))
        if tile.rows is not None and tile.over != "rows":
            axes.append(blocks(f"p{tile.rows.index}", tile.rows.size, tile.rows.extent, "HEIGHT", tile.height))
        axes += [(axis.index, axis.size, axis.extent) for axis in tile.grid]
        out.add(grid(axes or [("first", "1", 1)]))
        if tile.over != "columns":
            out.add(f"{tile.columns.index} = p{tile.columns.index} * WIDTH + al.arange(WIDTH)")
        if tile.rows is not None and tile.over != "rows":
            out.add(f"{tile.rows.index} = p{tile.rows.index} * HEIGHT + al.arange(HEIGHT)")

    def whole_axis(self) -> None:
        """Emit the index along the reduced axis, if one tile contains the whole axis."""
        if self.tile.over == "rows" and self.tile.rows is not None:
            self.out.add(f"{self.tile.rows.index} = al.arange(HEIGHT)")
        elif self.tile.over:
            self.out.add(f"{self.tile.columns.index} = al.arange(WIDTH)")

    def enter(self) -> int:
        """Begin a pass over the reduced values. Return the number of its loops."""
        tile, out = self.tile, self.out
        self.begin = len(out.lines)
        axis, step = (tile.columns, "WIDTH") if tile.over == "columns" else (tile.rows, "HEIGHT")
        assert axis is not None
        for loop in tile.loops:
            out.add(f"for {loop.index} in range(0, {loop.size}):")
            out.depth += 1
        out.add(f"for {axis.index}0 in range(0, {axis.size}, {step}):")
        out.depth += 1
        first = f"{axis.size} - {step} - {axis.index}0" if self.backwards else f"{axis.index}0"
        out.add(f"{axis.index} = {first} + al.arange({step})")
        self.here = {}
        return len(tile.loops) + 1

    def leave(self, loops: int) -> None:
        self.out.depth -= loops
        self.here = None

    # ------------------------------------------------------------------------ indices and masks

    def reduces(self, axes: tuple[Axis, ...]) -> bool:
        """Return True if one of the axes is reduced."""
        own = {self.tile.columns.symbol} if self.tile.over == "columns" else set()
        if self.tile.over == "rows" and self.tile.rows is not None:
            own.add(self.tile.rows.symbol)
        own |= {a.symbol for a in self.tile.loops}
        return any(a.symbol in own for a in axes)

    def index(self, axis: Axis) -> str:
        """Return the index along an axis, shaped so that the indices broadcast to a tile."""
        if self.tile.rows is not None and axis.symbol == self.tile.rows.symbol:
            return f"{axis.index}[:, None]"
        return axis.index

    def mask(self, axes: tuple[Axis, ...]) -> str:
        """Return the mask of a tile's elements that are inside the axes cut into tiles, or "" if no mask is needed."""
        parts = [text for axis in axes for text in self.conditions(axis)]
        if len(parts) < 2:
            return bare(parts[0]) if parts else ""
        known = self.here if self.here is not None and self.reduces(axes) else self.block
        text = " & ".join(sorted(parts))
        if text not in known:
            known[text] = self.masks.setdefault(text, f"inside{len(self.masks) or ''}")
            self.out.add(f"{known[text]} = {text}")
        return known[text]

    def conditions(self, axis: Axis) -> list[str]:
        """Return the conditions under which a tile's elements are inside an axis."""
        inside = f"({axis.index} < {axis.size})"
        if self.backwards and not self.tile.held and self.reduces((axis,)):
            inside = f"(0 <= {axis.index})"
        if self.tile.rows is not None and axis.symbol == self.tile.rows.symbol:
            return [f"{inside}[:, None]"]
        return [inside] if axis in self.across else []

    def load(self, param: Param) -> str:
        """Return the name of a tensor's part of the tile, which is loaded once."""
        known = self.here if self.here is not None and self.reduces(param.axes) else self.block
        if param.name not in known:
            where = ", ".join(map(self.index, param.axes)) or "0"
            mask = self.mask(param.axes)
            known[param.name] = self.out.bind(f"al.load({param.name}[{where}]{f', mask={mask}' if mask else ''})")
            if all(a is None or a in param.axes for a in (self.tile.rows, self.tile.columns)):
                self.zeroed.add(known[param.name])
        return known[param.name]

    def store(self, param: Param) -> None:
        if self.tile.turned:
            return store_transposed(param, self.value(param.value), self.tile, self.out)
        value = self.value(param.value)
        where = ", ".join(map(self.index, param.axes)) or "0"
        mask = self.mask(param.axes)
        made = dtype(param.meta.dtype)
        text = value if param.meta.dtype == "bool" else f"{value}.to({made})"
        self.out.add(f"al.store({param.name}[{where}], {text}{f', mask={mask}' if mask else ''})")

    # ------------------------------------------------------------------------ values

    def dims_reduced(self, value: Value) -> bool:
        """Return True if a value has the axes that are reduced."""
        over = set(self.group.over())
        return any(a in over for dim in self.group.space[value] for a in dim)

    def value(self, value: Value) -> str:
        """Return the name of the tile that holds a value."""
        passing = self.here is not None and self.dims_reduced(value)
        known = self.here if passing and self.here is not None else self.block
        if value not in known:
            self.compute(value, known)
        return known[value]

    def compute(self, value: Value, known: dict[Any, str]) -> None:
        node = value[0]
        row = capture.row(node)
        assert row is not None
        if is_view(node):
            known[value] = self.value(value_of(node.args[0]))
        elif row.kind == REDUCTION:
            for place, text in enumerate(REDUCTIONS[name_of(node.target)](self, node)):
                if text and value[1] == place:
                    known[value] = self.out.bind(text)
        elif row.kind == INDEXED:
            known[value] = self.out.bind(indexed(self, node))
        else:
            text = self.formula(node)
            known[value] = f"({bare(text)})" if value in self.within else self.out.bind(text)

    def prepare(self, value: Value) -> None:
        """Emit the values of the block that a value needs: tensors that are not reduced, and reductions, each in its
        own pass."""
        if capture.is_constant(value[0]) or meta_of(value) is None:  # A value that is no tensor is a size.
            return
        if value not in self.group.space:
            param = self.param(value)
            if not self.reduces(param.axes):
                self.load(param)
        elif value not in self.block:
            node = value[0]
            row = capture.row(node)
            for source in inputs(node):
                if row is None or row.kind != INDEXED or (source, "") in self.group.reads:
                    self.prepare(source)
            if not is_view(node) and row is not None and row.kind == REDUCTION:
                for text in REDUCTIONS[name_of(node.target)](self, node, dry=True):
                    assert not text
            if not self.dims_reduced(value):
                self.value(value)

    def operand(self, value: Value) -> str:
        """Return an operator's argument in the dtype in which the operator computes."""
        return self.value(value) if value in self.group.space else self.load(self.param(value))

    def param(self, value: Value) -> Param:
        """Return the tensor from which a value of another group is read, seen through views."""
        while (value, "") not in self.group.reads:
            value = value_of(value[0].args[0])
        return self.params[(value, self.group.space[(value, "")])]

    def real(self, node: Any, place: int = 0) -> str:
        """Return tensor argument number `place` as float32."""
        value = inputs(node)[place]
        meta = meta_of(value)
        assert meta is not None
        text = self.operand(value)
        return text if meta.dtype == "float32" or value in self.group.space else f"{text}.to(al.float32)"

    def formula(self, node: Any) -> str:
        """Emit an elementwise operator: the formula of its table row applied to tiles."""
        (made,) = results(node)
        assert made is not None
        term = self.element(node)(tuple(Load(None, (), "int64") for _ in made.shape))
        if self.group.head is not None:
            self.within |= self.used_once(term)
        return printed(term, self.leaf)

    def used_once(self, term: Term) -> set[Value]:
        """Return the values of elementwise operators that only this term uses, and uses once. Their text is inlined
        into the term, because a separate tile behind a product may need more registers than there are."""
        uses = Counter(load.source for load in walk(term) if isinstance(load, Load) and load.source is not None)
        inner = {value for n in self.group.nodes for value in inputs(n) if self.is_inner(value)}
        return {v for v, count in uses.items() if count == 1 and v in inner and self.fills(v)}

    def fills(self, value: Value) -> bool:
        """Return True if a value differs along the tile's rows and along its columns. Other values take few registers,
        fewer than what they are computed from."""
        axes = self.axes_of(value)
        return any(a in axes for a in self.across) and (self.tile.rows is None or self.tile.rows in axes)

    def axes_of(self, value: Value) -> frozenset[Axis]:
        """Return the axes along which a value differs."""
        if value not in self.group.space:
            return frozenset(self.param(value).axes) if meta_of(value) is not None else frozenset()
        row = capture.row(value[0])
        if row is None or not (row.kind == POINTWISE or is_view(value[0])):
            return frozenset(self.layout.axes)
        read = (v for v in inputs(value[0]) if not capture.is_constant(v[0]))
        return frozenset().union(*map(self.axes_of, read))

    def is_inner(self, value: Value) -> bool:
        """Return True for the result of an elementwise operator that has a single reader in the group."""
        node = value[0]
        if node not in self.group.nodes or value in self.group.outputs or is_view(node) or len(results(node)) != 1:
            return False
        row = capture.row(node)
        users = [user for user in node.users if user.op == "call_function"]
        return row is not None and row.kind == POINTWISE and len(users) == 1 and users[0] in self.group.nodes

    def element(self, node: Any) -> Element:
        """Return the formula of an elementwise operator. Floats that the group computes stay float32 until they are
        stored."""
        (made,) = results(node)
        row = capture.row(node)
        assert row is not None and made is not None
        dtype = "float32" if is_float(made.dtype) else made.dtype
        given = tuple(self.argument(a) for a in capture.given(node))
        (element,) = elements(row, Site((Result(made.shape, dtype),)), given)
        assert element is not None
        return element

    def argument(self, argument: Any) -> Any:
        """Return an argument of an operator as text: a tensor as a tile, a constant as a number."""
        import torch

        if isinstance(argument, (list, tuple)):
            return type(argument)(map(self.argument, argument))
        if not isinstance(argument, torch.fx.Node):
            return argument
        value = value_of(argument)
        meta = meta_of(value)
        assert meta is not None
        if capture.is_constant(argument):
            return Operand(meta.shape, meta.dtype, self.element(argument), lambda _: ())
        dtype = "float32" if value in self.group.space and is_float(meta.dtype) else meta.dtype
        return Operand(meta.shape, dtype, lambda _: Load(value, (), dtype), lambda _: ())

    def leaf(self, term: Term) -> str | None:
        return self.operand(term.source) if isinstance(term, Load) else None

    # ------------------------------------------------------------------------ reductions

    def reduce(self, key: Any, op: str, body: Callable[[], str], kind: str = "float32") -> str:
        """Emit a reduction of the block over the tiles that `body` returns in each pass, of dtype `kind`. `key`
        identifies the reduction, so that it is emitted only once."""
        if key in self.block:
            return self.block[key]
        along = "" if self.flat else ", axis=0" if self.tile.over == "rows" else ", axis=1, keep_dims=True"
        if self.tile.held:
            self.block[key] = self.out.bind(f"al.{op}({self.masked(op, body(), kind)}{along})")
            return self.block[key]
        if op == "prod":
            self.block[key] = self.product_of_tiles(body, along)
            return self.block[key]
        name = f"v{next(self.out.names)}"
        shape = "(WIDTH,)" if self.flat else "(HEIGHT, WIDTH)"
        self.out.add(f"{name} = al.full({shape}, {identity(op, kind)}, {dtype(kind)})")
        loops = self.enter()
        self.out.add(f"{name} = {ONTO[op].format(a=name, b=self.masked(op, body(), kind))}")
        self.leave(loops)
        self.block[key] = self.out.bind(f"al.{op}({name}{along})")
        return self.block[key]

    def product_of_tiles(self, body: Callable[[], str], along: str) -> str:
        """Emit a product of the block, to which each pass adds the product of its tile."""
        name = f"v{next(self.out.names)}"
        shape = "(WIDTH,)" if self.tile.over == "rows" else "(HEIGHT, 1)"
        self.out.add(f"{name} = {'1.0' if self.flat else f'al.full({shape}, 1.0, al.float32)'}")
        loops = self.enter()
        self.out.add(f"{name} = {name} * al.prod({self.masked('prod', body())}{along})")
        self.leave(loops)
        return name

    def scan(self, op: str, body: Callable[[], str]) -> str:
        """Emit a scan of the tiles that `body` returns in each pass. The result of earlier tiles is carried into later
        ones."""
        if self.tile.loops:
            raise NotExpressible("a scan over several axes")
        axis = 0 if self.flat or self.tile.over == "rows" else 1
        text, end = self.masked(op, body()), ", reverse=True" if self.backwards else ""
        if self.tile.held:
            return f"al.cum{op}({text}, {axis}{end})"
        x, carry = self.out.bind(text), f"v{next(self.out.names)}"
        shape = "()" if self.flat else "(1, WIDTH)" if axis == 0 else "(HEIGHT, 1)"
        start = IDENTITY[op] if self.flat else f"al.full({shape}, {IDENTITY[op]}, al.float32)"
        self.out.lines.insert(self.begin, f"    {carry} = {start}")
        scanned = self.out.bind(ONTO[op].format(a=carry, b=f"al.cum{op}({x}, {axis}{end})"))
        whole = f"al.{op}({x})" if self.flat else f"al.{op}({x}, axis={axis}, keep_dims=True)"
        self.out.add(f"{carry} = {ONTO[op].format(a=carry, b=whole)}")
        return scanned

    def extremum(self, node: Any, least: bool) -> str:
        """Emit the first index of an extremum: the extremum of the keys, then the smallest index that has it."""
        if self.tile.loops:
            raise NotExpressible("places along several axes")
        own = self.tile.rows if self.tile.over == "rows" else self.tile.columns
        assert own is not None

        def keys() -> str:
            known = self.block if self.here is None else self.here
            if (node, "keys") not in known:
                x = self.real(node)
                known[(node, "keys")] = self.out.bind(f"al.sortable({'-' if least else ''}{x}, al.int32)")
            return known[(node, "keys")]

        top = self.reduce((node, "top"), "max", keys, "int32")
        found = f"{{keys}} == {top}, {self.index(own)}, {INTEGERS['min']}"
        return self.reduce((node, "place"), "min", lambda: f"al.where({found.format(keys=keys())})", "int32")

    def masked(self, op: str, text: str, kind: str = "float32") -> str:
        """Return a tile with the identity of the operation in the elements outside the axes, where loads return 0."""
        if op == "sum" and text in self.zeroed:
            return text
        axes = tuple(a for a in (self.tile.rows, self.tile.columns) if a is not None)
        return f"al.where({self.mask(axes)}, {bare(text)}, {identity(op, kind)})"

    def count(self) -> str:
        """Return the number of reduced elements as an expression."""
        tile = self.tile
        own = tile.columns if tile.over == "columns" else tile.rows
        assert own is not None
        return " * ".join(f"{a.size}.to(al.float32)" for a in (own, *tile.loops))
