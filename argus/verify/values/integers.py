"""Images of index expressions: {instance -> integer}, in one form whatever the spelling.

An integer is a sum of multiples of *atoms* and an affine number. An atom is an element of an index tensor, or a
function of integers that sets do not have, such as the quotient by a size. Atoms are uninterpreted: equal operands give
equal values. An image is a relation to `[number]`, or to `name[operands..., number]`, where the name says which
atoms are added up, and how often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from argus.ir.expr import Const, Expr, Op, Param, walk
from argus.verify.model.formulas import Pair, Tuple, numbered, relation
from argus.verify.model.isl import UnionMap, empty_map, isl, map_parts
from argus.verify.model.translator import NonAffine, identifier
from argus.verify.values.terms import operation

_SUM = "sum"
"""The beginning of the name of a tuple with several atoms, or a multiple of one. Each atom follows as
`_<factor>x<number of operands>x<length of the name>_<name>`; the factor's sign is `m`."""
_LONGEST = 2000
"""The most letters of a tuple. Its name spells an operation as often as it is used. So the names of numbers that are
computed from each other again and again, such as random numbers, would have no end."""

_Atom = tuple[int, str, Sequence[str]]
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

    def both(one: Tuple, other: Tuple) -> Tuple:
        atoms = [*_atoms(one), *((n * factor, atom, dims) for n, atom, dims in _atoms(other))]
        number = f"{one.terms[-1]} + {factor} * {other.terms[-1]}"
        return _sum_of(sorted(atoms, key=lambda atom: atom[1]), number)

    return _combined(left, right, both)


def scaled(image: UnionMap, factor: int) -> UnionMap:
    """Return the image of `factor` times an integer."""
    result = empty_map()
    for part in map_parts(image):
        source = _tuple(part.range(), "a")
        atoms = [(n * factor, atom, own) for n, atom, own in _atoms(source)] if factor else []
        step = relation(source, _sum_of(atoms, f"{factor} * {source.terms[-1]}"))
        result = result.union(part.to_union_map().apply_range(step.to_union_map()))
    return result


def function(op: str, operands: list[UnionMap]) -> UnionMap:
    """Return the image of an uninterpreted function of integers. Raises `NonAffine` for one of too many operations."""
    result = operands[0]
    for number, operand in enumerate(operands[1:], 1):
        last = number == len(operands) - 1

        def both(one: Tuple, other: Tuple, last: bool = last) -> Tuple:
            name = f"{one.name}, {other.name}"
            own = _function(op, name) if last else f"tuple_{identifier(name)}"
            return Tuple((*one.terms, *other.terms, *(("0",) if last else ())), own)

        result = _combined(result, operand, both)
    return result if len(operands) > 1 else _of_one(op, result)


def element(tensor: str, operands: list[str]) -> Tuple:
    """Return the image of a tensor's element at the affine `operands`."""
    return Tuple((*operands, "0"), tensor)


def _of_one(op: str, operand: UnionMap) -> UnionMap:
    result = empty_map()
    for part in map_parts(operand):
        source = _tuple(part.range(), "a")
        step = relation(source, _limited(Tuple((*source.terms, "0"), _function(op, source.name))))
        result = result.union(part.to_union_map().apply_range(step.to_union_map()))
    return result


def _function(op: str, operands: str) -> str:
    return f"function_{identifier(f'{op}({operands})')}"


def _combined(left: UnionMap, right: UnionMap, both: Callable[[Tuple, Tuple], Tuple]) -> UnionMap:
    """Return {instance -> both(images)}, where `both` makes one tuple of two."""
    result = empty_map()
    for part in map_parts(left.range_product(right)):
        pair = part.range().unwrap()
        one, other = _tuple(pair.domain(), "a"), _tuple(pair.range(), "b")
        step = relation(Pair(one, other), _limited(both(one, other)))
        result = result.union(part.to_union_map().apply_range(step.to_union_map()))
    return result


def _limited(image: Tuple) -> Tuple:
    if len(str(image)) > _LONGEST:
        raise NonAffine("an integer of too many operations")
    return image


def _tuple(points: isl.Set, letter: str) -> Tuple:
    return Tuple(numbered(letter, points.dim(isl.dim_type.set)), points.get_tuple_name() or "")


def _atoms(image: Tuple) -> list[_Atom]:
    """Return the atoms of an image."""
    name, dims = image.name, image.terms
    if not name.startswith(_SUM):
        return [(1, name, dims[:-1])] if name else []
    found, at, begin = [], len(_SUM), 0
    while at < len(name):
        head = name[at + 1 : name.index("_", at + 1)]
        factor, rank, length = (int(number) for number in head.replace("m", "-").split("x"))
        at += len(head) + 2
        found.append((factor, name[at : at + length], dims[begin : begin + rank]))
        at, begin = at + length, begin + rank
    return found


def _sum_of(atoms: list[_Atom], number: str) -> Tuple:
    """Return the image of a sum of multiples of atoms and a number."""
    dims = (*(dim for _, _, own in atoms for dim in own), number)
    if len(atoms) == 1 and atoms[0][0] == 1:
        return Tuple(dims, atoms[0][1])
    heads = (f"_{factor}x{len(own)}x{len(name)}_{name}".replace("-", "m") for factor, name, own in atoms)
    return Tuple(dims, f"{_SUM if atoms else ''}{''.join(heads)}")
