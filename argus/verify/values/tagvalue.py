"""Tag values as relations: the abstract domain of tag propagation, and its rules (docs/tags.md).

A `Value` describes the elements of an instance space by parts: neutral, tagged or mixed. Fields are relations from
instances to integers `[v]` or to uninterpreted index data `data_t[c...]`. A contribution set is kept as the relation
to the *instances* that contributed (`ids`) and their field values, so multiplicity is never lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.ir.expr import Const
from argus.verify.model.isl import Map, UnionMap, UnionSet, empty_map, empty_set, map_parts, union_of_sets


@dataclass(frozen=True)
class Tagged:
    """Instances that carry fields. If `ids` is None, each field has one value. Otherwise `ids` relates an instance to
    its contributions, and `id_values` gives the fields of each contribution."""

    domain: UnionSet
    names: tuple[str, ...]
    values: dict[str, UnionMap]
    ids: UnionMap | None = None
    id_values: dict[str, UnionMap] | None = None


@dataclass(frozen=True)
class Value:
    """The elements of an instance space. Elements that no part mentions are neutral, with an unknown value."""

    neutral: tuple[tuple[UnionSet, Const | None], ...] = ()
    tagged: tuple[Tagged, ...] = ()
    mixed: tuple[tuple[UnionSet, str], ...] = ()
    exact: bool = True


NEUTRAL = Value()


def restrict(value: Value, domain: UnionSet) -> Value:
    """Return the part of a value over `domain`."""
    return prune(
        Value(
            tuple((s.intersect(domain), c) for s, c in value.neutral),
            tuple(_restrict_tagged(t, domain) for t in value.tagged),
            tuple((s.intersect(domain), r) for s, r in value.mixed),
            value.exact,
        )
    )


def _restrict_tagged(tagged: Tagged, domain: UnionSet) -> Tagged:
    return replace(
        tagged,
        domain=tagged.domain.intersect(domain),
        values={n: m.intersect_domain(domain) for n, m in tagged.values.items()},
        ids=None if tagged.ids is None else tagged.ids.intersect_domain(domain),
    )


def pull(value: Value, along: UnionMap) -> Value:
    """Return the value that readers see through `along`: {reader instance -> source instance}, single-valued."""
    back = along.reverse()
    return prune(
        Value(
            tuple((s.apply(back), c) for s, c in value.neutral),
            tuple(
                Tagged(
                    t.domain.apply(back),
                    t.names,
                    {n: along.apply_range(m) for n, m in t.values.items()},
                    None if t.ids is None else along.apply_range(t.ids),
                    t.id_values,
                )
                for t in value.tagged
            ),
            tuple((s.apply(back), r) for s, r in value.mixed),
            value.exact,
        )
    )


def prune(value: Value) -> Value:
    """Return the value without its empty parts."""
    return Value(
        tuple((s, c) for s, c in value.neutral if not s.is_empty()),
        tuple(t for t in value.tagged if not t.domain.is_empty()),
        tuple((s, r) for s, r in value.mixed if not s.is_empty()),
        value.exact,
    )


def merge(values: list[Value]) -> Value:
    """Merge values over disjoint instance sets; single-valued tags with the same fields become one part."""
    plain: dict[tuple[str, ...], list[Tagged]] = {}
    rest = []
    for tagged in (t for v in values for t in v.tagged):
        if tagged.ids is None:
            plain.setdefault(tagged.names, []).append(tagged)
        else:
            rest.append(tagged)
    return Value(
        tuple(p for v in values for p in v.neutral),
        (*(_together(parts) for parts in plain.values()), *rest),
        tuple(p for v in values for p in v.mixed),
        all(v.exact for v in values),
    )


def _together(parts: list[Tagged]) -> Tagged:
    """Merge parts into one. Coalescing finds one formula for the several paths that a pipelined value takes."""
    if len(parts) == 1:
        return parts[0]
    values = {}
    for name in parts[0].names:
        image = empty_map()
        for part in parts:
            image = image.union(part.values[name])
        values[name] = image.coalesce()
    return Tagged(union_of_sets([p.domain for p in parts]).coalesce(), parts[0].names, values)


# ---------------------------------------------------------------------------- rule 2: elementwise


def join(a: Value, b: Value) -> Value:
    """Join elementwise: a tag replaces neutral, equal tags stay, different tags become mixed. Constants are dropped."""
    if not a.tagged and not a.mixed:
        return _forget_constants(b)
    if not b.tagged and not b.mixed:
        return _forget_constants(a)
    mixed = [*a.mixed, *b.mixed]
    bad = union_of_sets([s for s, _ in mixed])
    tagged: list[Tagged] = []
    a_all, b_all = union_of_sets([t.domain for t in a.tagged]), union_of_sets([t.domain for t in b.tagged])
    tagged += [_restrict_tagged(t, t.domain.subtract(b_all).subtract(bad)) for t in a.tagged]
    tagged += [_restrict_tagged(t, t.domain.subtract(a_all).subtract(bad)) for t in b.tagged]
    for x in a.tagged:
        for y in b.tagged:
            both = x.domain.intersect(y.domain).subtract(bad)
            if both.is_empty():
                continue
            differ = difference(x, y, both)
            if not differ.is_empty():
                mixed.append((differ, f"the operands carry different tags ({_names(x)} and {_names(y)})"))
            tagged.append(_restrict_tagged(x, both.subtract(differ)))
    return prune(Value((), tuple(tagged), tuple(mixed), a.exact and b.exact))


def _names(t: Tagged) -> str:
    return "(" + ", ".join(t.names) + ")"


def _forget_constants(value: Value) -> Value:
    return Value((), value.tagged, value.mixed, value.exact)


def difference(x: Tagged, y: Tagged, domain: UnionSet) -> UnionSet:
    """Return the instances of `domain` at which two tags are not known to be equal."""
    if x.names != y.names:
        return domain
    if (x.ids is None) != (y.ids is None):
        return domain
    if x.ids is not None and y.ids is not None:
        same = x.ids.intersect_domain(domain).is_equal(y.ids.intersect_domain(domain))
        if not same or x.id_values is None or y.id_values is None:
            return domain
    parts = []
    for name in x.names:
        p, q = x.values[name].intersect_domain(domain), y.values[name].intersect_domain(domain)
        parts += [p.subtract(q).domain(), q.subtract(p).domain()]
    return union_of_sets(parts)


# ---------------------------------------------------------------------------- rule 4: contraction


def contract(a: Value, b: Value) -> Value:
    """Return what one multiplication contributes: fields of a only, of b only, then of both, which must agree."""
    zeros = union_of_sets([s for s, c in (*a.neutral, *b.neutral) if c is not None and c.value == 0])
    mixed = [(s.subtract(zeros), r) for s, r in (*a.mixed, *b.mixed)]
    tagged: list[Tagged] = []
    for x in a.tagged:
        for y in b.tagged:
            both = x.domain.intersect(y.domain)
            if both.is_empty():
                continue
            if x.ids is not None or y.ids is not None:
                mixed.append((both, "a contraction of values that are contribution sets already"))
                continue
            part, disagree, name = _pair(x, y, both)
            if not disagree.is_empty():
                mixed.append((disagree, f"the two operands of a multiply disagree on '{name}'"))
            tagged.append(part)
    return prune(Value(((zeros, Const(0)),), tuple(tagged), tuple(mixed), a.exact and b.exact))


def _pair(x: Tagged, y: Tagged, both: UnionSet) -> tuple[Tagged, UnionSet, str]:
    shared = [n for n in x.names if n in y.names]
    disagree, culprit = empty_set(), ""
    for name in shared:
        p, q = x.values[name].intersect_domain(both), y.values[name].intersect_domain(both)
        differ = p.subtract(q).domain().union(q.subtract(p).domain())
        if not differ.is_empty() and not culprit:
            culprit = name
        disagree = disagree.union(differ)
    names = (*(n for n in x.names if n not in shared), *(n for n in y.names if n not in shared), *shared)
    good = both.subtract(disagree)
    values = {n: (x.values if n in x.values else y.values)[n].intersect_domain(good) for n in names}
    return Tagged(good, tuple(names), values), disagree, culprit


# ---------------------------------------------------------------------------- rules 4-6: accumulation


@dataclass(frozen=True)
class Contributions:
    """The contributions of one accumulating statement. `along`: {reader -> contributing instance}, with its `value`."""

    along: UnionMap
    value: Value
    identity: float


def accumulate(base: Value, parts: list[Contributions], readers: UnionSet) -> Value:
    """Return the value of cells that start as `base` and collect `parts`."""
    mixed = list(base.mixed)
    collected: list[Tagged] = []
    foreign: list[UnionSet] = []  # readers that met a neutral contribution other than the identity
    touched: list[UnionSet] = []  # readers with any contribution that counts
    for part in parts:
        everything = part.along.domain()
        tagged_all, harmless = [], []
        for tagged in part.value.tagged:
            collected.append(_collect(part.along, tagged))
            tagged_all.append(tagged.domain)
        for instances, constant in part.value.neutral:
            if constant is not None and constant.value == part.identity:
                harmless.append(instances)
        for instances, reason in part.value.mixed:
            mixed.append((part.along.intersect_range(instances).domain(), reason))
        bad = union_of_sets([s for s, _ in part.value.mixed])
        rest = part.along.range().subtract(union_of_sets([*tagged_all, *harmless, bad]))
        foreign.append(part.along.intersect_range(rest).domain())
        touched.append(everything)
    tagged_readers = union_of_sets([t.domain for t in collected])
    exact = base.exact and all(p.value.exact for p in parts)
    bad_base = _bad_base(base, parts).intersect(tagged_readers)
    if not bad_base.is_empty():
        mixed.append((bad_base, "the accumulator did not start from the operation's identity element"))
    met = union_of_sets(foreign)
    if not met.intersect(tagged_readers).is_empty():
        mixed.append((met.intersect(tagged_readers), "tagged and untagged contributions meet in one cell"))
    on_tagged = union_of_sets([t.domain for t in base.tagged]).intersect(union_of_sets(touched))
    if not on_tagged.is_empty():
        mixed.append((on_tagged, "an accumulation onto a value that carries a tag"))
    broken = union_of_sets([s for s, _ in mixed])
    names = {t.names for t in collected}
    if len(names) > 1:
        mixed.append((tagged_readers, "contributions with different fields meet in one cell"))
        collected = []
    gathered = (_merge_tagged(collected, tagged_readers.subtract(broken)),) if collected else ()
    untouched = readers.subtract(tagged_readers).subtract(met)
    neutral = tuple((s.intersect(untouched), c) for s, c in base.neutral)
    alone = tuple(_restrict_tagged(t, untouched.subtract(union_of_sets(touched))) for t in base.tagged)
    return prune(Value(neutral, (*gathered, *alone), tuple(mixed), exact))


def _bad_base(base: Value, parts: list[Contributions]) -> UnionSet:
    """Return the readers whose start value is not known to be the identity of every accumulation."""
    good = union_of_sets([s for s, c in base.neutral if c is not None and all(c.value == p.identity for p in parts)])
    return union_of_sets([p.along.domain() for p in parts]).subtract(good)


def _collect(along: UnionMap, tagged: Tagged) -> Tagged:
    """Return the readers' contribution sets from one statement's tagged instances."""
    reached = along.intersect_range(tagged.domain)
    values = {n: reached.apply_range(m) for n, m in tagged.values.items()}
    if tagged.ids is None:
        return Tagged(reached.domain(), tagged.names, values, reached, tagged.values)
    # {reader -> [instance -> leaf]}: a contribution is known by the whole chain, so multiplicity is kept.
    pairs = tagged.ids.domain_map().reverse()
    ids = reached.apply_range(pairs)
    project = tagged.ids.range_map()
    assert tagged.id_values is not None
    lifted = {n: project.apply_range(m) for n, m in tagged.id_values.items()}
    return Tagged(reached.domain(), tagged.names, values, ids, lifted)


def _merge_tagged(parts: list[Tagged], domain: UnionSet) -> Tagged:
    names = parts[0].names
    empty = empty_map()
    values = dict.fromkeys(names, empty)
    id_values = dict.fromkeys(names, empty)
    ids = empty
    for part in parts:
        assert part.ids is not None and part.id_values is not None
        ids = ids.union(part.ids)
        for name in names:
            values[name] = values[name].union(part.values[name])
            id_values[name] = id_values[name].union(part.id_values[name])
    return Tagged(
        domain,
        names,
        {n: m.intersect_domain(domain) for n, m in values.items()},
        ids.intersect_domain(domain),
        id_values,
    )


def duplicated(tagged: Tagged, name: str) -> UnionSet:
    """Return the instances whose contribution set holds some value of a field more than once."""
    if tagged.ids is None or tagged.id_values is None:
        return empty_set()
    # {[instance -> value] -> contribution}: two images are two contributions with one value.
    field = tagged.ids.range_map().apply_range(tagged.id_values[name])  # [instance -> contribution] -> value
    keyed = tagged.ids.domain_map().range_product(field).reverse()  # [instance -> value] -> [instance -> contribution]
    parts = [part.coalesce() for part in map_parts(keyed)]
    twice = [_ambiguous(part) for part in parts if not part.is_single_valued()]
    for number, first in enumerate(parts):
        domain = first.domain().to_union_set()
        twice += [domain.intersect(second.domain().to_union_set()) for second in parts[number + 1 :]]
    return union_of_sets([keys.unwrap().domain() for keys in twice if not keys.is_empty()])


def _ambiguous(keyed: Map) -> UnionSet:
    """Return the points with more than one image."""
    pairs = keyed.reverse().apply_range(keyed)
    distinct = pairs.subtract(pairs.identity(pairs.get_space()))
    return distinct.domain().apply(keyed.reverse()).to_union_set()
