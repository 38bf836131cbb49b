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
from argus.verify.model.formulas import Tuple, between, numbered
from argus.verify.model.isl import UnionMap, UnionSet, empty_map, empty_set, isl, map_parts
from argus.verify.model.program import PROGRAM, Site, turns
from argus.verify.model.relations import Model
from argus.verify.model.translator import NonAffine
from argus.verify.values.compare import Comparison
from argus.verify.values.products import IDEMPOTENT
from argus.verify.values.scattered import Scatter, inside, scattered, touched
from argus.verify.values.scope import Mismatch, Scope
from argus.verify.values.stated import ROOT, Stated
from argus.verify.values.terms import Constant, Reduce

_HELP = (
    "the specification of a tensor that is accumulated into is one reduction, by the operation of the atomics. At "
    "places that an index tensor holds it is `al.sum(lambda p: al.where(at[p] == t, ..., 0.0))`"
)


def accumulated(comparison: Comparison, stated: Stated, spec: Spec, stores: list[tuple[Site, int]]) -> list[Finding]:
    """Return the findings on an output to which every store adds atomically.

    `stores` holds each site with the number of its access.
    """
    try:
        _match(comparison, stated, spec, stores)
    except (Mismatch, NonAffine) as error:
        reason = error.message if isinstance(error, Mismatch) else str(error)
        text = f"cannot tell whether '{spec.output}' follows its specification: {reason}"
        return [unknown("spec-unknown", "tags", stores[0][0].stmt.span, text, _HELP)]
    return []


def _match(comparison: Comparison, stated: Stated, spec: Spec, stores: list[tuple[Site, int]]) -> None:
    """Raise `Mismatch` unless all blocks together contribute every term, and only once if repeats would matter."""
    value, model = strip(spec.value), comparison.model
    if not isinstance(value, SpecReduce):
        raise Mismatch("what is specified is no reduction")
    if model.kernel.grid is None:
        raise Mismatch("the kernel declares no grid")
    if any(cells.relation.mode is not Mode.ACCUMULATE for cells in model.accesses_of(spec.output)):
        raise Mismatch("it is also read or stored to")
    if any(isinstance(site.stmt, Accumulate) and site.stmt.op != value.op for site, _ in stores):
        raise Mismatch(f"what is specified is a reduction by '{value.op}', and another one is done")
    data, written = comparison.builder.data, comparison.builder.written
    scatter, valid = scattered(value, len(spec.names)), None
    if scatter is None:
        places, rank, specified = _places(comparison, spec), len(spec.names), spec.value
        parts = tuple((_touched(comparison, site, number).reverse(), written(site)) for site, number in stores)
    else:
        places, specified = _places(comparison, spec, scatter), scatter.value
        rank = len(spec.names) - 1 + len(scatter.extents)
        parts = tuple((touched(data, site, number, scatter).reverse(), written(site)) for site, number in stores)
        valid = inside(data, stores, scatter)
    itself = places.identity()
    mine = Reduce(value.op, Constant(float(identity(value))), parts)
    term = stated.of(specified, rank, itself)
    for terms, found in comparison.contributed(value.op, mine, term, Scope(itself, itself)):
        if valid is not None:  # A condition that every valid index meets says nothing.
            found = [each.gist_params(valid).intersect_params(model.context.sizes) for each in found]
        _require_each(model, terms, found, value.op in IDEMPOTENT)


def _require_each(model: Model, terms: UnionSet, found: list[UnionMap], idempotent: bool) -> None:
    """Check that some block contributes every term, and exactly one block if repetition matters. `found` is
    {contribution -> term}."""
    wanted = isl.Set.from_union_set(terms.coalesce()).intersect_params(model.context.sizes)
    everything = empty_set()
    for each in found:
        brought = _simply(each, wanted).range()
        if not (idempotent or everything.intersect(brought).is_empty()):
            raise Mismatch("a term contributes more than once")
        everything = everything.union(brought)
    if everything.is_empty():
        raise Mismatch("no block contributes some of the terms")
    contributed = isl.Set.from_union_set(everything.coalesce())
    by = by_block(contributed, len(model.kernel.program_ids))  # {program ids -> term}
    if model.varying(by):
        raise Mismatch("what a block contributes depends on what it loads")
    if not wanted.is_subset(by.range()):
        raise Mismatch("no block contributes some of the terms")
    if not by.range().is_subset(wanted):
        raise Mismatch("the blocks contribute terms that are not specified")
    if not idempotent and not (all(each.is_injective() for each in found) and by.is_injective()):
        raise Mismatch("a term contributes more than once")


def _touched(comparison: Comparison, site: Site, number: int) -> UnionMap:
    """Return {instance -> place} of one statement in one block."""
    cells = comparison.model.cells(site, number)
    if not cells.exact or not isinstance(site.stmt, Accumulate):
        raise Mismatch(cells.reason or "it is not accumulated into by a plain statement")
    if turns(site.role) > 1:
        raise Mismatch("roles take turns with the programs that contribute")
    touched = cells.map
    if PROGRAM in site.iterators:  # Nothing distinguishes the programs of a block, so the first one stands for all.
        touched = touched.fix_val(isl.dim_type.in_, site.iterators.index(PROGRAM), 0)
    return touched.set_tuple_name(isl.dim_type.out, ROOT).to_union_map()


def _places(comparison: Comparison, spec: Spec, scatter: Scatter | None = None) -> UnionSet:
    """Return all elements of the output; of a scatter, with places in the index tensor instead of one axis."""
    model = comparison.model
    shape = next(t.shape for t in model.kernel.tensors if t.name == spec.output)
    if scatter is not None:
        shape = (*(extent for axis, extent in enumerate(shape) if axis != scatter.axis), *scatter.extents)
    dims = numbered("v", len(shape))
    bounds = [between(d, "0", model.translator.integer(e, ())) for d, e in zip(dims, shape, strict=True)]
    return model.points(Tuple(dims, ROOT), *bounds).to_union_set()


def _simply(brought: UnionMap, wanted: isl.Set) -> UnionMap:
    """Simplify {contribution -> term}. The first parameter is {(what collected it, contribution) -> term}.

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
