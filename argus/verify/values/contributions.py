"""What a kernel's reduction adds up: its contributions, for which roots they count, and where they are loaded from."""

from __future__ import annotations

from dataclasses import replace

from argus.ir.expr import Coord
from argus.ir.nodes import SpecTerm
from argus.ir.spec_terms import elements_of
from argus.verify.model.isl import UnionMap, empty_map, isl, map_parts
from argus.verify.values.numbers import Numbers
from argus.verify.values.scope import Mismatch, Scope
from argus.verify.values.terms import Apply, Cases, Choice, Constant, Load, Recurrence, Reduce, Term, Via


def contributions(numbers: Numbers, term: Reduce, scope: Scope, identity: float) -> list[tuple[Scope, UnionMap, Term]]:
    """Contributions that count, as (scope over [root -> instance], {that -> root}, term); partial sums opened."""
    starts = [r for r, v in numbers.regions(term.start, scope.roots, scope.path) if v == identity]
    unstarted = scope.roots
    for region in starts:
        unstarted = unstarted.subtract(region)
    if not unstarted.is_empty():
        raise Mismatch("a reduction that does not start from its identity element")
    result = []
    for along, inner in term.parts:
        reached = scope.path.apply_range(along)
        if reached.is_empty():
            continue
        up, path = reached.domain_map(), reached.range_map()
        counting = path.domain()
        for region, value in numbers.regions(inner, counting, path):
            if value == identity:
                counting = counting.subtract(region).coalesce()
            elif not region.is_empty():
                text = f"the constant {value:g} (padding?) takes part in the reduction by '{term.op}'"
                raise Mismatch(text, region.apply(up).apply(scope.origin))
        up, path = (m.intersect_domain(counting).coalesce() for m in (up, path))
        leaf = Scope(path, empty_map(), (), up.apply_range(scope.origin).coalesce())
        opened = _open(numbers, term.op, inner, leaf, identity)
        result += [(s, u.apply_range(up).coalesce(), t) for s, u, t in opened]
    return result


def _open(numbers: Numbers, op: str, term: Term, scope: Scope, identity: float) -> list[tuple[Scope, UnionMap, Term]]:
    """A contribution that is itself a reduction by the same operator is replaced by its contributions."""
    match term:
        case Via(along=along, term=inner):
            return _open(numbers, op, inner, replace(scope, path=scope.path.apply_range(along)), identity)
        case Cases(parts=parts):
            found = []
            for region, inner in parts:
                here = scope.path.intersect_range(region).coalesce()
                if not here.is_empty():
                    found += _open(numbers, op, inner, replace(scope, path=here), identity)
            return found
        case Recurrence(term=inner):
            return _open(numbers, op, inner, scope, identity)
        case Reduce(op=inner_op) if inner_op == op:
            return contributions(numbers, term, scope, identity)
        case _:
            return [(scope, scope.roots.identity(), term)]


def bound_by(term: Term, body: SpecTerm, axis: int, leaf: Scope) -> UnionMap:
    """{root -> [k]} of what the term contributes to the values of the bound variable `axis`."""
    bound = _bound_variable(term, body, axis, leaf)
    if bound is None:
        raise Mismatch("a reduction whose terms do not load through the bound variable")
    if not leaf.roots.is_subset(bound.domain()):
        raise Mismatch("a reduction has terms that no value of its variable counts: padding that is not known "
                       "to change nothing, such as 0 times a logarithm of 0")  # fmt: skip
    return bound


def _bound_variable(term: Term, body: SpecTerm, axis: int, scope: Scope) -> UnionMap | None:
    """{root -> [k]}, read off a load that the specification indexes by the bound variable itself."""
    for elem in elements_of(body):
        for dim, index in enumerate(elem.index):
            if index == Coord(axis):
                found = coordinate(term, elem.obj, dim, scope)
                if found is not None:
                    return found
    return None


def coordinate(term: Term, tensor: str, dim: int, scope: Scope) -> UnionMap | None:
    """{root -> [coordinate dim]} of the first load of `tensor` in a term."""
    match term:
        case Load(tensor=name, cells=cells) if name == tensor:
            return _project(scope.path.apply_range(cells), dim)
        case Via(along=along, term=inner):
            return coordinate(inner, tensor, dim, replace(scope, path=scope.path.apply_range(along)))
        case Apply(args=args):
            for arg in args:
                found = coordinate(arg, tensor, dim, scope)
                if found is not None:
                    return found
            return None
        case Choice(test=test, yes=yes, no=no):
            every = (coordinate(each, tensor, dim, scope) for each in (test, yes, no))
            return next((found for found in every if found is not None), None)
        case Recurrence(term=inner):
            return coordinate(inner, tensor, dim, scope)
        case Cases(parts=parts):
            total = empty_map()
            for region, inner in parts:
                here = scope.path.intersect_range(region).domain()
                if here.is_empty() or isinstance(inner, Constant):  # padding
                    continue
                found = coordinate(inner, tensor, dim, replace(scope, path=scope.path.intersect_domain(here)))
                if found is None:
                    return None
                total = total.union(found)
            return total
        case _:
            return None


def _project(cells: UnionMap, dim: int) -> UnionMap:
    """{root -> [coordinate dim of the cell]}."""
    result = empty_map()
    for part in map_parts(cells):
        name, rank = part.get_tuple_name(isl.dim_type.out), part.dim(isl.dim_type.out)
        dims = ", ".join(f"x{i}" for i in range(rank))
        result = result.union(part.to_union_map().apply_range(isl.UnionMap(f"{{ {name}[{dims}] -> [x{dim}] }}")))
    return result
