"""Tag assertions: each condition is compared with the tags that arrive, for every instance of the quantified box."""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.diagnostic import Verdict
from argus.ir.expr import Elem
from argus.ir.nodes import AssertTags, Once, TagEqual, TagField, TagTerm, TagTuple
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.model.formulas import Tuple, equal, points
from argus.verify.model.isl import (
    Set,
    UnionMap,
    UnionSet,
    empty_map,
    isl,
    map_parts,
    set_parts,
    smallest,
    union_of_sets,
)
from argus.verify.model.program import NUMBER, Site, tagged_elements
from argus.verify.model.translator import NonAffine, identifier
from argus.verify.values.tags import TagAnalysis
from argus.verify.values.tagvalue import Tagged, Value, duplicated, restrict


@dataclass(frozen=True, slots=True)
class _Failure:
    """Instances at which a condition fails, with what arrived and what should have, as maps where known."""

    instances: UnionSet
    what: str
    arrived: UnionMap
    expected: UnionMap
    exact: bool = True


def check(analysis: TagAnalysis) -> list[Finding]:
    """Return the findings of every `assert_tags`, at most one per condition."""
    findings: list[Finding] = []
    for site in analysis.model.sites:
        if not isinstance(site.stmt, AssertTags):
            continue
        for condition in site.stmt.conditions:
            try:
                finding = _condition(analysis, site, condition)
            except NonAffine as error:
                finding = unknown(
                    "tags-unknown",
                    "tags",
                    site.stmt.span,
                    f"cannot decide this assertion: {error}",
                    "use affine index arithmetic, or a smaller constexpr",
                )
            if finding is not None:
                findings.append(finding)
    return findings


def _condition(analysis: TagAnalysis, site: Site, condition: TagEqual | TagTuple) -> Finding | None:
    domain = _domain(analysis, site)
    if _nowhere(analysis, domain):
        nothing = _vacuous(analysis, site, "its range is empty for every size")
        return replace(nothing, place=None, help="let `where` hold of some element: there is none that it speaks of")
    failures: list[_Failure] = []
    match condition:
        case TagEqual(left=left, right=right):
            takes_part = _equal(analysis, site, domain, left, right, failures)
        case TagTuple(elem=elem, terms=terms):
            value = restrict(_read(analysis, site, elem), domain)
            takes_part = _says(analysis, value)
            _mixed(value, failures)
            for number, term in enumerate(terms):
                _field(analysis, site, domain, value, number, term, failures, len(terms))
    for failure in failures:
        finding = _finding(analysis, site, failure)
        if finding is not None:
            return finding
    if not takes_part:
        return _vacuous(analysis, site, "no tag takes part in it")
    return None


def _domain(analysis: TagAnalysis, site: Site) -> UnionSet:
    """Return the instances that an assertion quantifies over, limited to those at which its `where` holds."""
    model = analysis.model
    assert isinstance(site.stmt, AssertTags)
    domain, exact, reason = model.domain(site)
    if not exact:
        raise NonAffine(reason)
    if site.stmt.where is None:
        return domain.to_union_set()
    coords = model.coords(len(site.shape))
    text = model.translator.condition(site.stmt.where, coords)
    inside = model.points(model.instance(site, coords), text)
    return domain.intersect(inside).to_union_set()


def _nowhere(analysis: TagAnalysis, points: UnionSet) -> bool:
    """Return True if no launch has these points, in any of the roles that one represents (reductions/alike.py)."""
    names = analysis.model.translator.parameters
    points = points.intersect_params(analysis.model.context.possible)
    if points.is_empty() or not any(name.startswith(identifier(NUMBER)) for name in names):
        return bool(points.is_empty())
    numbers, possible = points.params(), analysis.model.context.set
    for name in names:
        if not name.startswith(identifier(NUMBER)):
            numbers, possible = _any_value(numbers, name), _any_value(possible, name)
    return not possible.is_subset(numbers)


def _any_value(parameters: Set, name: str) -> Set:
    position = parameters.find_dim_by_name(isl.dim_type.param, name)
    return parameters.project_out(isl.dim_type.param, position, 1) if position >= 0 else parameters


def _read(analysis: TagAnalysis, site: Site, elem: Elem) -> Value:
    return analysis.read(site, len(site.accesses) + tagged_elements(site.stmt).index(elem))


def _mixed(value: Value, failures: list[_Failure]) -> None:
    failures += [_Failure(s, reason, empty_map(), empty_map(), value.exact) for s, reason in value.mixed]


def _equal(
    analysis: TagAnalysis, site: Site, domain: UnionSet, left: TagTerm, right: TagTerm, failures: list[_Failure]
) -> bool:
    """Check one equation, and append its failures. Return True if a tag takes part in it."""
    if not isinstance(left, TagField):
        left, right = right, left
    if not isinstance(left, TagField):
        return False
    value = restrict(_read(analysis, site, left.elem), domain)
    _mixed(value, failures)
    if isinstance(right, TagField):
        other = restrict(_read(analysis, site, right.elem), domain)
        _mixed(other, failures)
        a, b = _single(value, left, failures), _single(other, right, failures)
        meet = a.domain().intersect(b.domain())
        a, b = a.intersect_domain(meet), b.intersect_domain(meet)
        failures.append(_Failure(_unequal(a, b), f"'{left.name}' differs", a, b))
        mixed = (replace(each, tagged=()) for each in (value, other))
        return not _nowhere(analysis, meet) or any(_says(analysis, each) for each in mixed)
    _field(analysis, site, domain, value, left.name, right, failures, None)
    return _says(analysis, value)


def _says(analysis: TagAnalysis, value: Value) -> bool:
    """Return True if some launch has tagged or mixed elements in a value."""
    parts = [*(t.domain for t in value.tagged), *(s for s, _ in value.mixed)]
    return any(not part.intersect_params(analysis.model.context.possible).is_empty() for part in parts)


def _single(value: Value, term: TagField, failures: list[_Failure]) -> UnionMap:
    """Return {instance -> the single value of a field}. Append a failure for sets and for missing fields."""
    result = empty_map()
    for tagged in value.tagged:
        key = _key(tagged, term.name)
        if key is None:
            failures.append(_no_field(tagged, term.name))
            continue
        result = result.union(tagged.values[key])
    if not result.is_single_valued():
        several = _several(result)
        failures.append(
            _Failure(several, f"'{term.name}' is a set of contributions, not one value", result, empty_map())
        )
    return result


def _several(values: UnionMap) -> UnionSet:
    twice = values.range_product(values)
    distinct = [part.subtract(_diagonal(part)) for part in map_parts(twice)]
    return union_of_sets([part.domain().to_union_set() for part in distinct])


def _diagonal(part: isl.Map) -> isl.Map:
    """Return the pairs of a range product whose two halves are equal."""
    wrapped = part.range().unwrap()
    if not wrapped.get_space().domain().is_equal(wrapped.get_space().range()):
        return isl.Map.empty(part.get_space())
    identity = isl.Map.identity(wrapped.get_space()).wrap()
    return part.intersect_range(identity)


def _key(tagged: Tagged, name: str | int) -> str | None:
    if isinstance(name, int):
        return tagged.names[name] if name < len(tagged.names) else None
    return name if name in tagged.values else None


def _no_field(tagged: Tagged, name: str | int) -> _Failure:
    fields = ", ".join(tagged.names)
    return _Failure(tagged.domain, f"the tag has the fields ({fields}), none called '{name}'", empty_map(), empty_map())


def _field(
    analysis: TagAnalysis,
    site: Site,
    domain: UnionSet,
    value: Value,
    name: str | int,
    term: TagTerm,
    failures: list[_Failure],
    fields: int | None,
) -> None:
    """Compare one field of a value with a term, and append the failures."""
    for tagged in value.tagged:
        key = _key(tagged, name)
        if key is None or (fields is not None and fields != len(tagged.names)):
            failures.append(_no_field(tagged, name if fields is None else f"of {fields}"))
            return
        arrived = tagged.values[key]
        if isinstance(term, Once):
            expected = analysis.data.members(site, term.lo, term.hi).intersect_domain(tagged.domain)
            twice = duplicated(tagged, key)
            failures.append(
                _Failure(_unequal(arrived, expected), f"the contributions to '{key}' differ", arrived, expected)
            )
            failures.append(_Failure(twice, f"a contribution to '{key}' arrives more than once", arrived, expected))
        else:
            expected = analysis.term(site, term).intersect_domain(tagged.domain)
            failures.append(_Failure(_unequal(arrived, expected), f"'{key}' differs", arrived, expected))
    if isinstance(term, Once):
        # A cell without any contribution holds the empty set, so all the expected integers are missing.
        other = union_of_sets([*(t.domain for t in value.tagged), *(s for s, _ in value.mixed)])
        rest = domain.subtract(other)
        expected = analysis.data.members(site, term.lo, term.hi).intersect_domain(rest)
        failures.append(_Failure(expected.domain(), "no contribution arrived", empty_map(), expected))


def _unequal(a: UnionMap, b: UnionMap) -> UnionSet:
    a, b = a.coalesce(), b.coalesce()  # cheap, while a difference of relations with many pieces is slow
    return a.subtract(b).domain().union(b.subtract(a).domain())


# ---------------------------------------------------------------------------- findings


def _finding(analysis: TagAnalysis, site: Site, failure: _Failure) -> Finding | None:
    parts = set_parts(failure.instances)
    if not parts:
        return None
    help = "follow the element's way in the trace: the first hop whose index is not the one you meant is the mistake"
    if not failure.exact:
        return unknown("tags-unknown", "tags", site.stmt.span, f"cannot decide this assertion: {failure.what}", help)
    point = smallest(parts[0])
    place = place_of(analysis.kernel, point, site)
    at = isl.UnionSet.from_set(_point_set(site, point.values, point.parameters))
    return Finding(
        "tag-mismatch",
        "tags",
        Verdict.REFUTED,
        f"tag assertion fails: {failure.what}",
        site.stmt.span,
        label="asserted here",
        help=help,
        place=place,
        arrived=_values(failure.arrived, at),
        expected=_values(failure.expected, at),
    )


def _point_set(site: Site, values: tuple[int, ...], parameters: dict[str, int]) -> isl.Set:
    fixed = [equal(name, str(value)) for name, value in parameters.items()]
    return points(Tuple(tuple(map(str, values)), site.name), fixed, parameters)


def _values(relation: UnionMap, at: UnionSet) -> str:
    """Return the image of one point as text, with at most eight values."""
    texts: list[str] = []
    for part in set_parts(relation.intersect_domain(at).range()):
        name = part.get_tuple_name()
        rest = part
        while not rest.is_empty() and len(texts) < 8:
            *place, number = smallest(rest).values
            text = f"{name.removeprefix('data_p_')}[{', '.join(map(str, place))}]" if name else str(number)
            texts.append(f"{text} + {number}" if name and number else text)
            pinned = isl.Set.from_point(rest.lexmin().sample_point())
            rest = rest.subtract(pinned)
    return "{" + ", ".join(texts) + "}" if len(texts) != 1 else texts[0]


def _vacuous(analysis: TagAnalysis, site: Site, why: str) -> Finding:
    domain = analysis.model.domain(site)[0]
    place = None if domain.is_empty() else place_of(analysis.kernel, smallest(domain), site)
    return Finding(
        "vacuous-assertion",
        "tags",
        Verdict.REFUTED,
        f"this assertion says nothing: {why}",
        site.stmt.span,
        label="always true",
        help="tag the tensors that the tile is loaded from with al.tag(...)",
        place=place,
        arrived="no tag",
        expected="a tag",
    )
