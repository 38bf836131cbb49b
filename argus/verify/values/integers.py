"""Images of index expressions: {instance -> integer}, in one form whatever the spelling.

An integer is a sum of multiples of *atoms* and an affine number. An atom is an element of an index tensor, or a
function of integers that sets do not have, such as the quotient by a size. Atoms are uninterpreted: equal operands give
equal values. An image is a relation to `[number]`, or to `name[operands..., number]`, where the name says which
multiples of which atoms are added up.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from argus.ir.expr import Const, Expr, Op, Param, walk
from argus.verify.model.isl import UnionMap, empty_map, isl, map_parts
from argus.verify.model.translator import NonAffine, identifier
from argus.verify.values.terms import operation

_SUM = "sum"
"""The beginning of the name of a tuple with several atoms, or a multiple of one."""
_HEAD = re.compile(r"_(m?\d+)x(\d+)x(\d+)_")
"""What a tuple's name says of an atom before the atom's name: factor, number of operands, length of the name."""

_LONGEST = 2000
"""The most letters of a tuple. Its name spells an operation as often as it is used. So the names of numbers that are
computed from each other again and again, such as random numbers, would have no end."""

_Atom = tuple[int, str, list[str]]
"""A factor, the name of an atom, and the dimensions of its operands."""


def image_of(expr: Expr, leaf: Callable[[Expr], UnionMap | None]) -> UnionMap:
    """Return the image of an integer expression. `leaf` returns that of an affine expression or an element, and None
    for other expressions.

    Raises `NonAffine` if an operand is no integer, and for an integer of too many operations.
    """
    known = leaf(expr)
    if known is not None:
        return known
    if not isinstance(expr, Op) or not all(e.dtype.is_int for e in (expr, *expr.args)):
        raise NonAffine("an index that is computed from what is no integer")
    if not any(e.dtype.modular for e in (expr, *expr.args)):
        match expr:
            case Op(op="add" | "sub" as op, args=(a, b)):
                return added(image_of(a, leaf), image_of(b, leaf), 1 if op == "add" else -1)
            case Op(op="neg", args=(a,)):
                return scaled(image_of(a, leaf), -1)
            case Op(op="mul", args=(a, Const(value=factor))) | Op(op="mul", args=(Const(value=factor), a)):
                return scaled(image_of(a, leaf), int(factor))
            case Op(op="cast", args=(a,), dtype=dtype) if dtype.bits >= a.dtype.bits:
                return image_of(a, leaf)
            case _:
                pass
    args = expr.args
    if expr.op == "mul" and all(isinstance(e, (Const, Param, Op)) for e in walk(args[0])):
        args = args[::-1]  # what is fixed at launch comes second
    return function(operation(expr.op, args[0].dtype, expr.dtype), [image_of(a, leaf) for a in args])


def added(left: UnionMap, right: UnionMap, factor: int = 1) -> UnionMap:
    """Return the image of `left + factor * right`. Raises `NonAffine` for an integer of too many operations."""

    def both(one: str, here: list[str], other: str, there: list[str]) -> str:
        atoms = [*_atoms(one, here), *((n * factor, atom, dims) for n, atom, dims in _atoms(other, there))]
        return _text(sorted(atoms, key=lambda atom: atom[1]), f"{here[-1]} + {factor} * {there[-1]}")

    return _combined(left, right, both)


def scaled(image: UnionMap, factor: int) -> UnionMap:
    """Return the image of `factor` times an integer."""
    result = empty_map()
    for part in map_parts(image):
        name, dims = _tuple(part.range(), "a")
        atoms = [(n * factor, atom, own) for n, atom, own in _atoms(name, dims)] if factor else []
        text = f"{{ {name}[{', '.join(dims)}] -> {_text(atoms, f'{factor} * {dims[-1]}')} }}"
        result = result.union(part.to_union_map().apply_range(isl.UnionMap(text)))
    return result


def function(op: str, operands: list[UnionMap]) -> UnionMap:
    """Return the image of an uninterpreted function of integers. Raises `NonAffine` for one of too many operations."""
    result = operands[0]
    for number, operand in enumerate(operands[1:], 1):
        last = number == len(operands) - 1

        def both(one: str, here: list[str], other: str, there: list[str], last: bool = last) -> str:
            name = f"{one}, {other}"
            own = _function(op, name) if last else f"tuple_{identifier(name)}"
            return f"{own}[{', '.join((*here, *there, *(('0',) if last else ())))}]"

        result = _combined(result, operand, both)
    return result if len(operands) > 1 else _of_one(op, result)


def element(tensor: str, place: str, operands: list[str]) -> str:
    """Return the text of the image of a tensor's element at the affine `operands`."""
    return f"{{ {place} -> {tensor}[{', '.join((*operands, '0'))}] }}"


def _of_one(op: str, operand: UnionMap) -> UnionMap:
    result = empty_map()
    for part in map_parts(operand):
        name, dims = _tuple(part.range(), "a")
        image = _limited(f"{_function(op, name)}[{', '.join((*dims, '0'))}]")
        text = f"{{ {name}[{', '.join(dims)}] -> {image} }}"
        result = result.union(part.to_union_map().apply_range(isl.UnionMap(text)))
    return result


def _function(op: str, operands: str) -> str:
    return f"function_{identifier(f'{op}({operands})')}"


def _combined(left: UnionMap, right: UnionMap, both: Callable[[str, list[str], str, list[str]], str]) -> UnionMap:
    """Return {instance -> both(images)}, where `both` writes the tuple for the names and dimensions of two tuples."""
    result = empty_map()
    for part in map_parts(left.range_product(right)):
        pair = part.range().unwrap()
        (one, here), (other, there) = _tuple(pair.domain(), "a"), _tuple(pair.range(), "b")
        source = f"[{one}[{', '.join(here)}] -> {other}[{', '.join(there)}]]"
        step = isl.UnionMap(f"{{ {source} -> {_limited(both(one, here, other, there))} }}")
        result = result.union(part.to_union_map().apply_range(step))
    return result


def _limited(text: str) -> str:
    if len(text) > _LONGEST:
        raise NonAffine("an integer of too many operations")
    return text


def _tuple(points: isl.Set, prefix: str) -> tuple[str, list[str]]:
    return points.get_tuple_name() or "", [f"{prefix}{i}" for i in range(points.dim(isl.dim_type.set))]


def _atoms(name: str, dims: list[str]) -> list[_Atom]:
    """Return the atoms of an image, given the name and the dimensions of its tuple."""
    if not name.startswith(_SUM):
        return [(1, name, dims[:-1])] if name else []
    found, at, begin = [], len(_SUM), 0
    while at < len(name):
        head = _HEAD.match(name, at)
        assert head is not None
        factor, rank, length = int(head[1].replace("m", "-")), int(head[2]), int(head[3])
        found.append((factor, name[head.end() : head.end() + length], dims[begin : begin + rank]))
        at, begin = head.end() + length, begin + rank
    return found


def _text(atoms: list[_Atom], number: str) -> str:
    """Return the tuple of a sum of multiples of atoms and a number."""
    dims = ", ".join((*(dim for _, _, own in atoms for dim in own), number))
    if len(atoms) == 1 and atoms[0][0] == 1:
        return f"{atoms[0][1]}[{dims}]"
    heads = (f"_{factor}x{len(own)}x{len(name)}_{name}".replace("-", "m") for factor, name, own in atoms)
    return f"{_SUM if atoms else ''}{''.join(heads)}[{dims}]"
