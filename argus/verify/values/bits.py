"""Shifts and masks of integers in a simpler form, as where two numbers of four bits are packed into a byte."""

from __future__ import annotations

from argus.ir.nodes import Kernel
from argus.verify.model.isl import UnionMap, set_parts
from argus.verify.values.terms import Apply, Constant, Index, Term, Via, starts_at
from argus.verify.values.wrapping import Wrapping

BITS = ("and", "shr", "shl")
"""The operators that have simpler forms."""


def simplified(term: Term, path: UnionMap, kernel: Kernel) -> Term:
    """Return a term that is equal at the instances to which `path` leads.

    There an index that is one number is this number, `x >> 0` and `x << 0` are `x`, and so is `x & (2^n - 1)` if x has
    no further bits. Other terms are returned as they are.
    """
    match term:
        case Via(along=along, term=inner):
            found = simplified(inner, path.apply_range(along), kernel)
            return term if found is inner else found if isinstance(found, Constant) else Via(along, found)
        case Apply(op="and" | "shr" | "shl" as op, args=args):
            a, b = (_number(simplified(each, path, kernel), path) for each in args)
            if op != "and" and starts_at(b, 0.0):
                return a
            if op == "and":
                for masked, mask in ((a, b), (b, a)):
                    if _keeps(masked, mask, kernel):
                        return masked
            return term if a is args[0] and b is args[1] else Apply(op, (a, b))
        case _:
            return term


def _keeps(term: Term, mask: Term, kernel: Kernel) -> bool:
    """Return True if a mask of the lowest bits leaves all bits of an integer."""
    if not (isinstance(mask, Constant) and mask.value.is_integer() and mask.value >= 0):
        return False
    known, most = Wrapping(kernel).interval(term), int(mask.value)
    return known is not None and most & (most + 1) == 0 and 0 <= known[0] and known[1] <= most


def _number(term: Term, path: UnionMap) -> Term:
    """Return an index as a number, if it is the same at all instances to which the path leads."""
    if not isinstance(term, Index):
        return term
    parts = set_parts(path.apply_range(term.values).range())
    ends = [bound for part in parts for bound in (part.dim_min_val(0), part.dim_max_val(0))]
    if len(parts) != 1 or not all(end.is_int() for end in ends) or not ends[0].eq(ends[1]):
        return term
    return Constant(float(ends[0].to_python()))
