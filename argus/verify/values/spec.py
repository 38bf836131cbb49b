"""Prove specifications: compare `al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))` with the kernel's terms.

A difference in indices is a refutation. A difference in *form* is unknown, because two forms may be equal.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from argus.diagnostic import Verdict
from argus.ir.access import Mode
from argus.ir.nodes import Copy, Spec
from argus.ir.own_results import own_results
from argus.verify.checks.parts import declared
from argus.verify.checks.parts import variables as variables_of
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.model.isl import UnionSet, empty_map, isl, set_parts, smallest
from argus.verify.model.program import Site
from argus.verify.model.relations import Model
from argus.verify.model.translator import NonAffine
from argus.verify.values.accumulated import accumulated
from argus.verify.values.compare import Comparison
from argus.verify.values.results import without_order
from argus.verify.values.scope import Mismatch, Scope
from argus.verify.values.stated import ROOT, Place, Stated
from argus.verify.values.term_builder import TermBuilder
from argus.verify.values.terms import Term, Via
from argus.verify.values.zero import Emptiness, dividing, where_zero


def check(comparison: Comparison, stated: Stated) -> list[Finding]:
    """Return the findings of every `spec`, at most one per store. What a comparison has found before is not compared
    again."""
    findings: list[Finding] = []
    for site in comparison.model.sites:
        if isinstance(site.stmt, Spec):
            findings += _stores(comparison, stated, site.stmt)
    return findings or _of_itself(comparison.model, stated)


def _of_itself(model: Model, stated: Stated) -> list[Finding]:
    """Return a finding if the specifications of outputs that they name are no recurrence."""
    outputs = own_results(model.kernel)
    specs = [s.stmt for s in model.sites if isinstance(s.stmt, Spec) and s.stmt.output in outputs]
    if not specs:
        return []
    specified = []
    for spec in specs:
        rank = len(spec.names)
        places = model.points(Place(ROOT, tuple(range(rank))).instance).to_union_set()
        specified.append((spec, stated.of(spec.value, rank, places.identity())))
    found = without_order(outputs, specified)
    if found is None:
        return []
    text = f"the specification of an element of '{found}' may need the same element again"
    help = "name only elements that come earlier, such as `u[s]` with `s < t` in the specification of `u[t]`"
    return [unknown("spec-unknown", "tags", specs[0].span, text, help)]


def _stores(comparison: Comparison, stated: Stated, spec: Spec) -> list[Finding]:
    builder, findings = comparison.builder, []
    model = builder.model
    stores = [
        (site, number)
        for site in model.sites
        for number, access in enumerate(site.accesses)
        if access.obj == spec.output and access.mode is not Mode.READ
    ]
    help = "sums and products may be spelled in any way; write other functions as the kernel does"
    if not model.accesses_of(spec.output):
        return []  # `coverage` reports that the output is never written.
    if not stores:
        return [unknown("spec-unknown", "tags", spec.span, f"the kernel never writes '{spec.output}'", help)]
    if all(site.accesses[number].mode is Mode.ACCUMULATE for site, number in stores):
        return accumulated(comparison, stated, spec, stores)
    plain: list[tuple[Site, Term, Scope]] = []
    part = declared(model.kernel, next(t for t in model.kernel.tensors if t.name == spec.output))
    for site, number in stores:
        cells = model.cells(site, number)
        if not (cells.exact or part is not None) or not isinstance(site.stmt, Copy):
            text = f"the store to '{spec.output}' is not a plain affine store: {cells.reason or 'atomic update'}"
            findings.append(unknown("spec-unknown", "tags", site.stmt.span, text, help))
            continue
        try:
            touched = cells.map if part is None else variables_of(model, part, cells)
        except NonAffine as error:
            text = f"cannot match the specification of a part of '{spec.output}': {error}"
            findings.append(unknown("spec-unknown", "tags", site.stmt.span, text, help))
            continue
        touched = touched.intersect_params(model.context.contents)
        roots = touched.domain().to_union_set()
        variables = touched.set_tuple_name(isl.dim_type.out, ROOT).to_union_map()
        scope = Scope(roots.identity(), variables)
        plain.append((site, builder.stored(site, spec.output), scope))
    for index, (site, term, scope) in enumerate(_together(plain)):
        try:
            comparison.match(term, stated.of(spec.value, len(spec.names), scope.other), scope)
        except Mismatch as mismatch:
            if not _also_of_nothing(comparison, plain, index, spec):
                findings.append(_finding(model, site, spec, mismatch, help))
        except NonAffine as error:
            findings.append(
                unknown("spec-unknown", "tags", spec.span, f"cannot match the specification: {error}", help)
            )
    return findings


def _also_of_nothing(comparison: Comparison, plain: list[tuple[Site, Term, Scope]], index: int, spec: Spec) -> bool:
    """Return True if a store follows its specification where the sizes that divide are positive, and where one is 0."""
    model, data, rank = comparison.model, comparison.builder.data, len(spec.names)
    _, term, scope = _together(plain)[index]
    divisors = dividing([term, Stated(comparison.builder).of(spec.value, rank, scope.other)])
    sizes = [name for name in divisors if name in model.kernel.sizes]
    if not sizes:
        return False
    builder = TermBuilder(data, positive=frozenset(sizes))
    again = [(site, builder.stored(site, spec.output), scope) for site, _, scope in plain]
    _, term, scope = _together(again)[index]
    wanted = Stated(builder).of(spec.value, rank, scope.other)
    roots = scope.roots
    try:
        some = reduce(UnionSet.intersect_params, (where_zero(model, size, False) for size in sizes), roots)
        Comparison(builder).match(term, wanted, scope.restricted(some))
    except (Mismatch, NonAffine):
        return False
    none = [(Emptiness(size), roots.intersect_params(where_zero(model, size, True))) for size in sizes]
    return all(here.is_empty() or values.equal(term, wanted, scope.restricted(here)) for values, here in none)


def _together(stores: list[tuple[Site, Term, Scope]]) -> list[tuple[Site, Term, Scope]]:
    """Merge stores that each write a part of one tile, such as a panel, into one over the tile's instances."""
    heads: dict[Term, list[tuple[Site, Term, Scope]]] = {}
    for site, term, scope in stores:
        path = scope.path
        while isinstance(term, Via):
            path, term = path.apply_range(term.along), term.term
        heads.setdefault(term, []).append((site, term, replace(scope, path=path)))
    result: list[tuple[Site, Term, Scope]] = []
    for group in heads.values():
        origin, variables = empty_map(), empty_map()
        for _, _, scope in group:
            back = scope.path.reverse()
            origin, variables = origin.union(back), variables.union(back.apply_range(scope.other))
        variables = variables.coalesce()
        site, term, scope = group[0]
        same = [s for s in stores if any(s[0] is each[0] for each in group)]
        complete = all(s[2].roots.is_subset(each[2].roots) for s, each in zip(same, group, strict=True))
        if len(group) == 1 or not complete or not variables.is_single_valued():
            result += same
            continue
        result.append((site, term, Scope(variables.domain().identity(), variables, (origin,))))
    return result


def _finding(model: Model, site: Site, spec: Spec, mismatch: Mismatch, help: str) -> Finding:
    text = f"'{spec.output}' does not follow its specification: {mismatch.message}"
    parts = set_parts(mismatch.roots) if mismatch.roots is not None else []
    if not parts:
        return unknown("spec-unknown", "tags", site.stmt.span, text, help)
    point = smallest(parts[0])
    return Finding(
        "spec-mismatch",
        "tags",
        Verdict.REFUTED,
        text,
        site.stmt.span,
        label="stored here",
        help="compare the indices of the specification with those of the loads",
        place=place_of(model.kernel, point, site),
        object=spec.output,
    )
