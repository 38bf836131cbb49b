"""The specification of a group's kernel, made only from the graph's operators and the operator table.

The kernel's tensors are given: each is a view of a tensor of the graph (`argus.graph.layout`). The specification does
not depend on how the kernel computes them, on its tiles, loops or masks.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from argus.graph import capture
from argus.graph.capture import Value, meta_of, results, value_of
from argus.graph.group import Group
from argus.graph.layout import Layout, Param
from argus.graph.operators import elements
from argus.graph.row import NotExpressible, Operand, Result, Site, add, integer, mul
from argus.graph.terms import Count, Element, Flat, Index, Load, Number, Reduce, Softmax, Term, Var, walk
from argus.graph.text import bare, dtype, literal, printed

MOST_TERMS = 4000
"""Largest number of nodes of a specification's term. A larger term is no longer readable, and takes long to prove."""


def specifications(group: Group, layout: Layout) -> dict[str, str]:
    """Return the text of `al.spec` for each output: `lambda a, b: ...`. Raises NotExpressible."""
    builder = _Builder(group, layout)
    return {param.name: builder.of(param) for param in layout.writes}


class _Builder:
    def __init__(self, group: Group, layout: Layout) -> None:
        self.group, self.layout = group, layout
        self.names = count()
        self.params = {(p.value, p.dims): p for p in layout.reads}
        self.extents: dict[tuple[str, ...], str] = {}
        self.meanings: dict[Value, Element] = {}
        self.short: dict[tuple[str, ...], str] = {}

    def of(self, param: Param) -> str:
        """Return the specification of one output."""
        self.extents = {}
        digits: dict[int, Var] = {}
        for axis in param.axes:
            names = [axis.index] if len(axis.atoms) == 1 else [f"{axis.index}{n}" for n in range(len(axis.atoms))]
            digits |= {a: Var(n, self.group.space.size(a)) for a, n in zip(axis.atoms, names, strict=True)}
            self.short[tuple(names)] = axis.index
        index = tuple(Flat(tuple(digits[a] for a in dim)) for dim in param.dims)
        term = self.element(param.value)(index)
        if any(place >= MOST_TERMS for place, _ in enumerate(walk(term))):
            raise NotExpressible("the specification would have too many terms to be read")
        return f"lambda {', '.join(axis.index for axis in param.axes) or 'i'}: {bare(self.text(term))}"

    def element(self, value: Value) -> Element:
        """Return the term for one element of a value that the group computes."""
        if value not in self.meanings:
            node = value[0]
            metas = results(node)
            site = Site(tuple(Result(m.shape, m.dtype) if m is not None else Result((), "") for m in metas), self.names)
            row = capture.row(node)
            assert row is not None
            given = tuple(self.argument(node, a) for a in capture.given(node))
            for place, found in enumerate(elements(row, site, given)):
                if found is not None:
                    self.meanings[(node, place)] = found
        return self.meanings[value]

    def argument(self, node: Any, argument: Any) -> Any:
        import torch

        if isinstance(argument, (list, tuple)):
            return type(argument)(self.argument(node, a) for a in argument)
        if not isinstance(argument, torch.fx.Node):
            return argument
        value = value_of(argument)
        if meta_of(value) is None:  # a size of the result, which its row does not read
            return argument
        return self.operand(value, self.group.use(node, value))

    def operand(self, value: Value, use: str) -> Operand:
        """Return a value as an operator's argument: a computed value, a view, or a tensor that is read."""
        meta = meta_of(value)
        assert meta is not None
        space = self.group.space
        if capture.is_constant(value[0]):
            return Operand(meta.shape, meta.dtype, self.element(value), lambda _: ())
        if value in space:
            dims, element = space[value], self.element(value)
        elif (value, use) in self.group.reads:
            dims = space[(value, use)]
            element = self.loaded(self.params[(value, dims)])
        else:
            node, dims = value[0], space[(value, use)]
            row = capture.row(node)
            assert row is not None and capture.passes(node)
            source = self.operand(value_of(node.args[0]), use)
            site = Site((Result(meta.shape, meta.dtype),), self.names)
            (found,) = elements(row, site, (source, *capture.given(node)[1:]))
            assert found is not None
            element = found
        return Operand(meta.shape, meta.dtype, element, lambda d: tuple(space.size(a) for a in dims[d]))

    def loaded(self, param: Param) -> Element:
        def element(index: Index) -> Term:
            return Load(param, index, param.dtype)

        return element

    # ------------------------------------------------------------------------ text

    def text(self, term: Term) -> str:
        return printed(term, self.leaf)

    def leaf(self, term: Term) -> str | None:
        match term:
            case Load(source=param, index=index):
                return self.load(param, index)
            case Reduce(op=op, vars=variables, body=body):
                inner = bare(self.text(body))
                for name in reversed(self.bound(variables)):
                    inner = f"al.{op}(lambda {name}: {inner})"
                return inner
            case Softmax(vars=variables, at=at, score=score):
                inner = bare(self.text(score))
                names = self.bound(variables)
                if len(names) != 1:
                    raise NotExpressible("a softmax over several axes")
                return f"al.softmax(lambda {names[0]}: {inner})[{self.name(tuple(v.name for v in at))}]"
            case Count(vars=variables):
                extents = [self.extents[key] for key in self.keys(variables)]
                text = " * ".join(f"{e}.to(al.float32)" for e in extents)
                return f"({text})" if len(extents) > 1 else text
            case Number(value=value, dtype=name) if isinstance(value, float):
                return f"({literal(value)})" if value < 0 and name else literal(value)
            case Flat(digits=digits):
                return self.place(digits)
            case _:
                return None

    def load(self, param: Param, index: Index) -> str:
        """Return an element of a tensor. Each axis of the view that is passed is indexed by its digits."""
        digits: dict[int, Var] = {}
        computed: dict[int, Term] = {}
        places = set() if self.group.window is not None else set(self.group.space.atoms(self.group.places))
        for dim, place in zip(param.dims, index, strict=True):
            if not dim:
                continue
            if len(dim) == 1 and (dim[0] in places or not isinstance(place, Flat)):
                computed[dim[0]] = place
                continue
            if not isinstance(place, Flat) or len(place.digits) != len(dim):
                raise NotExpressible("a tensor read at a computed place")
            if any(v.size != self.group.space.size(a) for a, v in zip(dim, place.digits, strict=True)):
                raise NotExpressible("a tensor whose index is cut into other sizes")
            digits |= dict(zip(dim, place.digits, strict=True))
        names = []
        for axis in param.axes:
            if axis.atoms[0] in computed:
                names.append(bare(self.text(self.joined(axis.atoms, computed))))
                continue
            key = tuple(digits[a].name for a in axis.atoms)
            self.extents[key] = axis.size
            names.append(self.name(key))
        return f"{param.name}[{', '.join(names) or '0'}]"

    def joined(self, atoms: tuple[int, ...], computed: dict[int, Term]) -> Term:
        """Return the place along an axis of these atoms."""
        if not all(a in computed for a in atoms):
            raise NotExpressible("a tensor read at a computed place")
        found = computed[atoms[0]]
        for atom in atoms[1:]:
            found = add(mul(found, integer(self.group.space.size(atom))), computed[atom])
        return found

    def place(self, digits: tuple[Var, ...]) -> str:
        """Return an index as a value. The index must run over one axis, or over a dimension of one element."""
        if len(digits) > 1:
            raise NotExpressible("an index over several axes as a value")
        return self.name((digits[0].name,)) if digits else "0"

    def name(self, digits: tuple[str, ...]) -> str:
        """Return the name of an index with these digits: an axis of the result, or a bound variable."""
        return self.short.get(digits, digits[0])

    def keys(self, variables: tuple[Var, ...]) -> list[tuple[str, ...]]:
        """Return the axes along which bound variables run. Raises NotExpressible if tensors group the variables
        differently."""
        names = {v.name for v in variables}
        found = [key for key in self.extents if names.intersection(key)]
        if sorted(name for key in found for name in key) != sorted(names):
            raise NotExpressible("nothing says how far a reduction goes, or tensors say it differently")
        return found

    def bound(self, variables: tuple[Var, ...]) -> list[str]:
        return [self.name(key) for key in self.keys(variables)]


def dtypes(layout: Layout) -> dict[str, str]:
    """Return the dtype of each tensor in the language."""
    return {p.name: dtype(p.dtype) for p in (*layout.reads, *layout.writes)}
