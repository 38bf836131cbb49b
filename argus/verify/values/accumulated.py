"""Specifications of tensors that blocks accumulate into atomically: the contributions of all blocks together.

`al.spec(total, lambda n: al.sum(lambda m: x[m, n]))` of such a tensor states what all blocks together add to its former
contents: every term once. Any difference is reported as unknown here; a search by trial looks for a counterexample.
"""

from __future__ import annotations

from argus.ir.access import Mode
from argus.ir.nodes import Accumulate, Spec, SpecReduce
from argus.ir.spec_terms import identity, strip
from argus.verify.checks.races import by_block
from argus.verify.findings import Finding, unknown
from argus.verify.model.isl import UnionMap, empty_map, empty_set, isl, map_parts
from argus.verify.model.program import PROGRAM, Site, turns
from argus.verify.model.translator import NonAffine
from argus.verify.values.matching import IDEMPOTENT, Matcher
from argus.verify.values.scope import Mismatch, Scope
from argus.verify.values.terms import Constant, Reduce, TermBuilder

_HELP = (
    "the specification of a tensor that is accumulated into is one reduction, by the operation of the atomics, at "
    "places that are no data: leave it out of a histogram, of which all else is proved"
)


def accumulated(builder: TermBuilder, matcher: Matcher, spec: Spec, stores: list[tuple[Site, int]]) -> list[Finding]:
    """Return the findings for an output that is only accumulated into.

    `stores`: each site, with the number of its access.
    """
    try:
        _match(builder, matcher, spec, stores)
    except (Mismatch, NonAffine) as error:
        reason = error.message if isinstance(error, Mismatch) else str(error)
        text = f"cannot tell whether '{spec.output}' follows its specification: {reason}"
        return [unknown("spec-unknown", "tags", stores[0][0].stmt.span, text, _HELP)]
    return []


def _match(builder: TermBuilder, matcher: Matcher, spec: Spec, stores: list[tuple[Site, int]]) -> None:
    """Raise `Mismatch` unless all blocks together contribute every term, and only once if repeats would matter."""
    value, model = strip(spec.value), builder.model
    if not isinstance(value, SpecReduce):
        raise Mismatch("what is specified is no reduction")
    if model.kernel.grid is None:
        raise Mismatch("the kernel declares no grid")
    if any(cells.relation.mode is not Mode.ACCUMULATE for cells in model.accesses_of(spec.output)):
        raise Mismatch("it is also read or stored to")
    counts = [_counted(builder, matcher, spec, value, site, number) for site, number in stores]
    places = [_places(counted, variables) for counted, variables in counts]
    wanted = _wanted(matcher, spec, value)
    everything = empty_set()
    for (counted, _), place in zip(counts, places, strict=True):
        everything = everything.union(_simply(counted.reverse().apply_range(place), wanted).range())
    contributed = isl.Set.from_union_set(everything.coalesce())
    by = by_block(contributed, len(model.kernel.program_ids))  # {program ids -> [cell -> k]}
    if model.varying(by):
        raise Mismatch("what a block contributes depends on what it loads")
    if not wanted.is_subset(by.range()):
        raise Mismatch("no block contributes some of the terms")
    if not by.range().is_subset(wanted):
        raise Mismatch("the blocks contribute terms that are not specified")
    together = places[0]
    for place in places[1:]:
        together = together.union(place)
    once = all(counted.is_single_valued() for counted, _ in counts) and together.is_injective() and by.is_injective()
    if value.op not in IDEMPOTENT and not once:
        raise Mismatch("a term contributes more than once")


def _counted(
    builder: TermBuilder, matcher: Matcher, spec: Spec, value: SpecReduce, site: Site, number: int
) -> tuple[UnionMap, UnionMap]:
    """Return {[instance -> k] -> contribution} of one statement in one block, and {instance -> cell}."""
    cells, stmt = builder.model.cells(site, number), site.stmt
    if not cells.exact or not isinstance(stmt, Accumulate):
        raise Mismatch(cells.reason or "it is not accumulated into by a plain statement")
    if turns(site.role) > 1:
        raise Mismatch("roles take turns with the programs that contribute")
    touched = cells.map
    if PROGRAM in site.iterators:  # nothing tells one program of a block from another: the first stands for all
        touched = touched.fix_val(isl.dim_type.in_, site.iterators.index(PROGRAM), 0)
    roots = touched.domain().to_union_set()
    variables = matcher.as_variables(touched)
    scope = Scope(roots.identity(), variables, tuple(range(len(spec.names))), roots.identity())
    own = Reduce(stmt.op, Constant(identity(value)), ((roots.identity(), builder.written(site)),))
    return matcher.counted(own, value, scope).coalesce(), variables.coalesce()


def _places(counted: UnionMap, variables: UnionMap) -> UnionMap:
    """Return {[instance -> k] -> [cell -> k]}."""
    terms = counted.domain().unwrap()
    return terms.domain_map().apply_range(variables).range_product(terms.range_map()).coalesce()


def _simply(brought: UnionMap, wanted: isl.Set) -> UnionMap:
    """Return {contribution -> [cell -> k]} in few pieces, from `brought`, whose domain also names the collectors.

    A sum that is collected in several ways has pieces for each way. If the simple hull of all pieces, restricted to
    `wanted`, equals their union, the hull replaces them.
    """
    result = empty_map()
    for part in map_parts(brought):
        while part.domain_is_wrapping():
            part = part.domain_factor_range()
        part = part.coalesce()
        hull = isl.Map.from_basic_map(part.simple_hull()).intersect_range(wanted)
        same = part.n_basic_map() > 1 and hull.is_subset(part) and part.is_subset(hull)
        result = result.union((hull if same else part).to_union_map())
    return result


def _wanted(matcher: Matcher, spec: Spec, value: SpecReduce) -> isl.Set:
    """Return the set of all [cell -> k], for every element of the output and every term."""
    model = matcher.model
    shape = next(t.shape for t in model.kernel.tensors if t.name == spec.output)
    dims = [f"v{axis}" for axis in range(len(shape))]
    bounds = [f"0 <= {d} < {model.translator.integer(e, ())}" for d, e in zip(dims, shape, strict=True)]
    cells = model.parse_set(f"{{ V[{', '.join(dims)}] : {' and '.join(bounds) or 'true'} }}")
    terms = isl.Set.from_union_set(matcher.values(value))
    return isl.Map.from_domain_and_range(cells, terms).wrap().intersect_params(model.context.sizes)
