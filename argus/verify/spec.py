"""Specifications: `al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))` against the kernel's terms.

A difference in indices is a refutation; a difference in *form* is unknown, since two forms may be equal.
"""

from __future__ import annotations

from argus.diagnostic import Verdict
from argus.ir.access import Mode
from argus.ir.nodes import Copy, Spec
from argus.verify.accumulated import accumulated
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.matching import Matcher, Mismatch, Scope
from argus.verify.program import Site
from argus.verify.relations import Model, NonAffine, set_parts, smallest
from argus.verify.tags import TagAnalysis
from argus.verify.terms import TermBuilder


def check(analysis: TagAnalysis) -> list[Finding]:
    """Findings of every `spec`, at most one a store."""
    builder, findings = TermBuilder(analysis), []
    for site in analysis.model.sites:
        if isinstance(site.stmt, Spec):
            matcher = Matcher(analysis.model)
            findings += _stores(builder, matcher, site.stmt)
    return findings


def _stores(builder: TermBuilder, matcher: Matcher, spec: Spec) -> list[Finding]:
    model, findings = builder.model, []
    stores = [
        (site, number)
        for site in model.sites
        for number, access in enumerate(site.accesses)
        if access.obj == spec.output and access.mode is not Mode.READ
    ]
    help = "the specification is matched term by term: write it with the operations that the kernel uses"
    if not model.accesses_of(spec.output):
        return []  # coverage says that it is never written
    if not stores:
        return [unknown("spec-unknown", "tags", spec.span, f"the kernel never writes '{spec.output}'", help)]
    if all(site.accesses[number].mode is Mode.ACCUMULATE for site, number in stores):
        return accumulated(builder, matcher, spec, stores)
    for site, number in stores:
        cells = model.cells(site, number)
        if not cells.exact or not isinstance(site.stmt, Copy):
            text = f"the store to '{spec.output}' is not a plain affine store: {cells.reason or 'atomic update'}"
            findings.append(unknown("spec-unknown", "tags", site.stmt.span, text, help))
            continue
        roots = cells.map.domain().to_union_set()
        rank = len(spec.names)
        variables = matcher.as_variables(cells.map)
        scope = Scope(roots.identity(), variables, tuple(range(rank)), roots.identity())
        try:
            matcher.match(builder.written(site), spec.value, scope)
        except Mismatch as mismatch:
            findings.append(_finding(model, site, spec, mismatch, help))
        except NonAffine as error:
            findings.append(
                unknown("spec-unknown", "tags", spec.span, f"cannot match the specification: {error}", help)
            )
    return findings


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
    )
