"""Values that were rounded to a type with fewer digits. Terms ignore rounding, but a choice may depend on it."""

from __future__ import annotations

from argus.verify.model.isl import UnionMap, isl, map_parts
from argus.verify.values.term_builder import TermBuilder, rounding
from argus.verify.values.terms import Again, Apply, Cases, Choice, Recurrence, Reduce, Term, Via


def rounds(builder: TermBuilder, term: Term) -> bool:
    """Return True if a statement rounds some number that a term reads."""
    return any(rounding(builder.model.sites[number]) for number in _sites(builder, term))


def _sites(builder: TermBuilder, term: Term) -> set[int]:
    """Return the numbers of the statements that a term reads from."""
    found: set[int] = set()
    pending, seen = [term], set[Term]()
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        match each:
            case Via(along=along, term=inner):
                found |= _reached(along)
                pending.append(inner)
            case Recurrence(term=inner):
                pending.append(inner)
            case Again(site=site):
                found.add(site)
                pending.append(builder.written(builder.model.sites[site]))
            case Apply(args=args):
                pending += args
            case Choice(test=test, yes=yes, no=no):
                pending += [test, yes, no]
            case Cases(parts=parts):
                pending += [inner for _, inner in parts]
            case Reduce(start=start, parts=contributions):
                pending.append(start)
                for along, inner in contributions:
                    found |= _reached(along)
                    pending.append(inner)
            case _:
                pass
    return found


def _reached(along: UnionMap) -> set[int]:
    return {int(str(part.get_tuple_name(isl.dim_type.out))[1:]) for part in map_parts(along)}
