"""Translation of expressions to the text of quasi-affine formulas, which `relations` uses.

An expression that is not quasi-affine raises `NonAffine`. If it is uniform and free of loop counters, it becomes an
*opaque* parameter instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from argus.ir.expr import LEAVING, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, op, rewrite, walk
from argus.layout import FragmentLayout
from argus.verify.model import formulas
from argus.verify.model.formulas import Pair, Tuple
from argus.verify.model.isl import Map, Set
from argus.verify.model.program import is_launch_constant
from argus.verify.model.resolving import differs_by_block

_Relation = TypeVar("_Relation", Set, Map)


class NonAffine(Exception):
    """An expression is outside quasi-affine arithmetic; the message says which."""


_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}


def identifier(name: str) -> str:
    """Return `name` as an isl identifier; different names give different identifiers."""
    return f"p_{_escaped(name)}"


def counter(name: str) -> str:
    """Return a loop counter as an isl identifier; different names give different identifiers."""
    return f"i_{_escaped(name)}"


def _escaped(name: str) -> str:
    """Return `name` in letters, digits and underscores, with other characters as their codes; injective.

    An underscore that could begin such a code is written as its code, too.
    """
    first, *rest = parts = name.split("_")
    found = _letters(first)
    for part, following in zip(rest, (*parts[2:], None), strict=False):
        like_code = following is not None and part != "" and set(part) <= _DIGITS
        found += (_code("_") if like_code else "_") + _letters(part)
    return found


_DIGITS = frozenset("0123456789abcdef")


def _letters(text: str) -> str:
    return "".join(c if c.isalnum() else _code(c) for c in text)


def _code(character: str) -> str:
    return f"_{ord(character):x}_"


THREAD = "thread"
"""The dimension that stands for the thread's index in texts of conditions."""


@dataclass
class Translator:
    """Translate expressions to isl text.

    `opaque` collects the parameters made for non-affine launch constants. `counts` are the running counts, which have
    no text of their own. `trips` are the loops whose dimension is the trip number instead of the variable, with start
    and step; that avoids a congruence. With `lean`, sets have only the parameters on which they depend, in any order.
    """

    opaque: dict[Expr, str] = field(default_factory=dict)
    parameters: dict[str, Expr] = field(default_factory=dict)
    counts: frozenset[str] = frozenset()
    trips: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    lean: bool = False

    def points(self, at: Tuple | Pair, *conditions: str) -> Set:
        """Return the points `at` that satisfy all conditions, over the parameters of all texts translated so far."""
        return self._own(formulas.points(at, conditions, self.parameters))

    def relation(self, source: Tuple | Pair, image: Tuple | Pair, *conditions: str) -> Map:
        """Return {source -> image} where all conditions hold; see `points`."""
        return self._own(formulas.relation(source, image, conditions, self.parameters))

    def facts(self, *conditions: str) -> Set:
        """Return the parameters that satisfy all conditions."""
        return self._own(formulas.facts(conditions, self.parameters))

    def _own(self, found: _Relation) -> _Relation:
        return found.drop_unused_params() if self.lean else found

    def integer(self, expr: Expr, coords: tuple[str, ...]) -> str:
        """Text of an integer expression; `coords[i]` is the text for `Coord(i)`."""
        match expr:
            case Const(value=value):
                return str(int(value))
            case Param(name=name):
                return self._parameter(identifier(name), expr)
            case ProgramId(axis=axis):
                return self._parameter(f"pid{axis}", expr)
            case LoopVar(name=name):
                if name in self.counts:
                    raise NonAffine(f"the running count '{name}' is used as other than a place in a ring of buffers")
                if name in self.trips:
                    start, step = self.trips[name]
                    return f"({start} + {step} * {counter(name)})"
                return counter(name)
            case Coord(axis=axis):
                return coords[axis]
            case Thread():
                return THREAD
            case Elem(obj=obj):
                raise NonAffine(f"the index depends on data held in '{obj}'")
            case Op():
                try:
                    return self._operator(expr, coords)
                except NonAffine:
                    if not is_launch_constant(expr):
                        raise
                    name = self.opaque.setdefault(expr, f"opaque{len(self.opaque)}")
                    return self._parameter(name, expr)

    def plain(self, expr: Expr, coords: tuple[str, ...]) -> bool:
        """Return True if an expression is affine, except for parts that are the same in all blocks."""
        alone = replace(self, opaque={}, parameters={})
        try:
            alone.integer(expr, coords)
        except NonAffine:
            return False
        return not any(map(differs_by_block, alone.opaque))

    def equals(self, name: str, expr: Expr, coords: tuple[str, ...]) -> str:
        """Text of the condition that `name`, text of an integer, equals `expr`, which may contain `where`."""
        choice = next((e for e in walk(expr) if isinstance(e, Op) and e.op == "where"), None)
        if choice is None:
            return f"{name} = {self.integer(expr, coords)}"
        chosen = self.condition(choice.args[0], coords)
        yes, no = (self.equals(name, _with(expr, choice, other), coords) for other in choice.args[1:])
        return f"(({chosen} and {yes}) or (not {chosen} and {no}))"

    def _parameter(self, name: str, expr: Expr) -> str:
        self.parameters[name] = expr
        return name

    def _operator(self, expr: Op, coords: tuple[str, ...]) -> str:
        text = self._unbounded(expr, coords)
        return f"(({text}) mod {2**expr.dtype.bits})" if expr.dtype.modular and expr.op in LEAVING else text

    def _unbounded(self, expr: Op, coords: tuple[str, ...]) -> str:
        args = expr.args
        if expr.op in ("add", "sub"):
            sign = "+" if expr.op == "add" else "-"
            return f"({self.integer(args[0], coords)} {sign} {self.integer(args[1], coords)})"
        if expr.op == "neg":
            return f"(-{self.integer(args[0], coords)})"
        if expr.op == "cast" and expr.dtype.is_int and args[0].dtype.is_int:
            return self.integer(args[0], coords)
        if expr.op in ("minimum", "maximum"):
            name = expr.op[:3]
            return f"{name}({self.integer(args[0], coords)}, {self.integer(args[1], coords)})"
        if len(args) == 2:
            return self._with_constant(expr, coords)
        raise NonAffine(f"'{expr.op}' is not affine")

    def _with_constant(self, expr: Op, coords: tuple[str, ...]) -> str:
        left, right = expr.args
        if expr.op in ("mul", "xor", "and") and isinstance(left, Const):
            left, right = right, left
        if not isinstance(right, Const):
            raise NonAffine(f"'{expr.op}' of two values that are not constant")
        constant, text = int(right.value), self.integer(left, coords)
        match expr.op:
            case "mul":
                return f"({constant} * {text})"
            case "shl":
                return f"({2**constant} * {text})"
            case "floordiv" if constant > 0:
                return f"floor(({text}) / {constant})"
            case "shr":
                return f"floor(({text}) / {2**constant})"
            case "mod" if constant > 0:
                return f"(({text}) mod {constant})"
            case "and" if constant >= 0 and constant & (constant + 1) == 0:
                return f"(({text}) mod {constant + 1})"
            case "xor" if constant >= 0:
                return _xor(text, constant)
            case _:
                raise NonAffine(f"'{expr.op}' by {constant}")

    def condition(self, expr: Expr, coords: tuple[str, ...]) -> str:
        """Text of a boolean expression."""
        match expr:
            case Const(value=value):
                return "true" if value else "false"
            case Op(op="and", args=(a, b)):
                return f"({self.condition(a, coords)} and {self.condition(b, coords)})"
            case Op(op="or", args=(a, b)):
                return f"({self.condition(a, coords)} or {self.condition(b, coords)})"
            case Op(op="not", args=(a,)):
                return f"(not {self.condition(a, coords)})"
            case Op(op="xor" | "ne", args=(a, b)) if a.dtype.kind == "bool":
                x, y = self.condition(a, coords), self.condition(b, coords)
                return f"(({x} and not {y}) or (not {x} and {y}))"
            case Op(op=name, args=(a, b)) if name in _COMPARISONS and a.dtype.is_int:
                both = _both(expr)
                if both is not None:
                    return f"({self.condition(both[0], coords)} and {self.condition(both[1], coords)})"
                choice = next((e for e in walk(expr) if isinstance(e, Op) and e.op == "where"), None)
                if choice is not None:
                    return self._chosen(expr, choice, coords)
                return f"({self.integer(a, coords)} {_COMPARISONS[name]} {self.integer(b, coords)})"
            case _:
                raise NonAffine("the condition depends on data or is not affine")

    def _chosen(self, expr: Op, choice: Op, coords: tuple[str, ...]) -> str:
        """Text of a comparison that contains the `where` expression `choice`: one comparison for each alternative."""
        chosen = self.condition(choice.args[0], coords)
        yes, no = (self.condition(_with(expr, choice, other), coords) for other in choice.args[1:])
        return f"(({chosen} and {yes}) or (not {chosen} and {no}))"


def _with(expr: Expr, part: Expr, other: Expr) -> Expr:
    """Replace `part` by `other` in `expr`."""
    return rewrite(expr, lambda e: other if e == part else None)


def _both(expr: Op) -> tuple[Expr, Expr] | None:
    """Split a comparison with a minimum or maximum into two, if it is equivalent to both of them together.

    isl would split the set into one region for each operand, where one region is enough.
    """
    a, b = expr.args
    match expr.op, a, b:
        case ("lt" | "le", _, Op(op="minimum", args=(x, y))) | ("gt" | "ge", _, Op(op="maximum", args=(x, y))):
            return op(expr.op, a, x), op(expr.op, a, y)
        case ("lt" | "le", Op(op="maximum", args=(x, y)), _) | ("gt" | "ge", Op(op="minimum", args=(x, y)), _):
            return op(expr.op, x, b), op(expr.op, y, b)
        case _:
            return None


def _xor(text: str, mask: int) -> str:
    """x ^ mask for x >= 0: flip each bit of the mask."""
    flips = [
        f"{2**bit} * (1 - 2 * (floor(({text}) / {2**bit}) mod 2))"
        for bit in range(mask.bit_length())
        if mask >> bit & 1
    ]
    return "(" + " + ".join([text, *flips]) + ")"


def holder_condition(layout: FragmentLayout, coords: tuple[str, ...], thread: str, primary: bool = False) -> str:
    """isl text of "`thread` holds the element at `coords`"; with `primary`, only the first replica counts."""
    digits, conditions = [], []
    sums: list[list[str]] = [[] for _ in layout.shape]
    weights, weight = [], 1
    for number, mode in enumerate((*layout.threads, *layout.values)):
        digit = f"d{number}"
        digits.append(digit)
        extent = 1 if primary and mode.dim is None else mode.extent
        conditions.append(f"0 <= {digit} < {extent}")
        if mode.dim is not None:
            sums[mode.dim].append(f"{mode.stride} * {digit}")
        if number < len(layout.threads):
            weights.append(f"{weight} * {digit}")
            weight *= mode.extent
    conditions += [f"{c} = {' + '.join(s) or '0'}" for c, s in zip(coords, sums, strict=True)]
    conditions.append(f"{thread} = {' + '.join(weights) or '0'}")
    inner = " and ".join(conditions)
    return f"(exists {', '.join(digits)}: {inner})" if digits else f"({inner})"
