"""Batches of tags, and the rules by which they move (docs/tags.md).

A tagged element carries fields, each a multiset of integers: one integer after a `Tag`, a set of contributions
after accumulations. A multiset is kept as its smallest and largest member, its size, and a 64-bit fingerprint,
the sum of the members' hashes. It is a single integer when smallest and largest agree. Two multisets of one size and
fingerprint are taken to be equal, which is wrong once in about 2^64 comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argus.simulate.numeric import Array

BOTTOM, CONSTANT, NEUTRAL, TAGGED, TOP = range(5)
"""Status of an element: never written; a constant that the compiler knows; another untagged value; a value with fields;
unknown, with a reason."""

NAMES = ("uninitialised", "untagged constant", "untagged", "tagged", "mixed")


def hashed(values: Array) -> Array:
    """Return the uint64 hash of int64 values (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: Array = x ^ (x >> np.uint64(31))
        return result


@dataclass(slots=True)
class Field:
    """One field of n elements, each a multiset. The value has no meaning for an element that does not carry the field.
    """

    low: Array
    high: Array
    size: Array
    print: Array

    @staticmethod
    def integers(values: Array) -> Field:
        """Return a field of single integers."""
        values = values.astype(np.int64)
        return Field(values, values, np.ones(len(values), dtype=np.int64), hashed(values))

    @staticmethod
    def blank(n: int) -> Field:
        """Return a field with room for n multisets."""
        zero = np.zeros(n, dtype=np.int64)
        return Field(zero, zero.copy(), zero.copy(), np.zeros(n, dtype=np.uint64))

    def take(self, at: Array) -> Field:
        return Field(self.low[at], self.high[at], self.size[at], self.print[at])

    def put(self, at: Array, new: Field) -> None:
        self.low[at], self.high[at], self.size[at], self.print[at] = new.low, new.high, new.size, new.print

    def single(self) -> Array:
        """Return a mask of the cells whose multiset is one integer (with any multiplicity)."""
        result: Array = (self.low == self.high) & (self.size > 0)
        return result

    def code(self) -> Array:
        """Return a number that is equal for multisets that count as the same value: the same single integer, or the
        same multiset."""
        return np.where(self.single(), self.low.astype(np.uint64), self.exact())

    def exact(self) -> Array:
        """Return equal numbers for equal multisets."""
        result: Array = self.print ^ hashed(~self.size)
        return result

    def same(self, other: Field) -> Array:
        """Return True where both are equal single integers, or equal multisets."""
        result: Array = self.code() == other.code()
        return result


Schema = tuple[str, ...]


@dataclass(slots=True)
class Tags:
    """The tags of n elements.

    Each element has a `status`, the number of its `schema` (field names, in order) or -1, and the number of the
    `reason` or -1 if it is not mixed. `summed` marks tags that an accumulation made. The fields are stored by name.
    """

    status: Array
    schema: Array
    reason: Array
    summed: Array
    fields: dict[str, Field]
    schemas: Schemas

    @staticmethod
    def uniform(n: int, status: int, schemas: Schemas | None = None) -> Tags:
        """Return n elements of one status without fields."""
        return Tags(
            np.full(n, status, dtype=np.uint8),
            np.full(n, -1, dtype=np.int16),
            np.full(n, -1, dtype=np.int32),
            np.zeros(n, dtype=np.bool_),
            {},
            schemas if schemas is not None else Schemas(),
        )

    def __len__(self) -> int:
        return len(self.status)

    def field(self, name: str) -> Field:
        """Return the field's arrays, creating them if they are missing."""
        if name not in self.fields:
            self.fields[name] = Field.blank(len(self))
        return self.fields[name]

    def take(self, at: Array) -> Tags:
        """Return the elements at positions `at`."""
        fields = {name: f.take(at) for name, f in self.fields.items()}
        return Tags(self.status[at], self.schema[at], self.reason[at], self.summed[at], fields, self.schemas)

    def put(self, at: Array, new: Tags) -> None:
        """Replace the elements at positions `at`."""
        self.status[at], self.schema[at] = new.status, new.schema
        self.reason[at], self.summed[at] = new.reason, new.summed
        for name, f in new.fields.items():
            self.field(name).put(at, f)

    def grown(self, n: int) -> Tags:
        """Return the same elements followed by uninitialised ones, n in total."""
        result = Tags.uniform(n, BOTTOM, self.schemas)
        result.put(np.arange(len(self)), self)
        return result

    def mix(self, where: Array, reason: int) -> None:
        """Make the elements `where` (bool) mixed, with `reason`. Elements that are already mixed keep their reason."""
        where = where & (self.status != TOP)
        self.status[where], self.reason[where], self.schema[where] = TOP, reason, -1


class Schemas:
    """The tuples of field names and the reasons that a run has met, by number."""

    __slots__ = ("_names", "_reasons", "names", "reasons")

    def __init__(self) -> None:
        self.names: list[Schema] = []
        self.reasons: list[str] = []
        self._names: dict[Schema, int] = {}
        self._reasons: dict[str, int] = {}

    def number(self, names: Schema) -> int:
        """Return the number assigned to a tuple of names."""
        if names not in self._names:
            self._names[names] = len(self.names)
            self.names.append(names)
        return self._names[names]

    def reason(self, text: str) -> int:
        """Return the number assigned to a reason."""
        if text not in self._reasons:
            self._reasons[text] = len(self.reasons)
            self.reasons.append(text)
        return self._reasons[text]


def join(operands: list[Tags], n: int, schemas: Schemas) -> Tags:
    """Apply rule 2: combine one or more operands elementwise. The result of several operands is not a known constant.
    """
    result = operands[0].take(np.arange(n))
    for other in operands[1:]:
        _join(result, other)
    if len(operands) > 1:
        result.status[result.status == CONSTANT] = NEUTRAL
    result.mix(result.status == BOTTOM, schemas.reason("computed from an uninitialised value"))
    return result


def _join(result: Tags, other: Tags) -> None:
    schemas = result.schemas
    bad = (other.status == TOP) & (result.status != TOP)
    result.reason[bad] = other.reason[bad]
    result.status[bad], result.schema[bad] = TOP, -1
    result.status[(other.status == BOTTOM) & (result.status != TOP)] = BOTTOM
    both = (result.status == TAGGED) & (other.status == TAGGED)
    only = (result.status <= NEUTRAL) & (result.status != BOTTOM) & (other.status == TAGGED)
    if both.any():
        for number in np.unique(result.schema[both]):
            _agree(result, other, both & (result.schema == number), schemas.names[int(number)])
    if only.any():
        at = np.flatnonzero(only)
        result.put(at, other.take(at))


def _agree(result: Tags, other: Tags, where: Array, names: Schema) -> None:
    schemas = result.schemas
    alike = [i for i, known in enumerate(schemas.names) if sorted(known) == sorted(names)]
    result.mix(
        where & ~np.isin(other.schema, alike), schemas.reason("elements with different tag fields were combined")
    )
    where = where & np.isin(other.schema, alike)
    for name in names:
        if where.any():
            differ = where & ~result.field(name).same(other.field(name))
            result.mix(differ, schemas.reason(f"elements whose tags differ in `{name}` were combined"))
    result.summed |= where & other.summed


@dataclass(slots=True)
class Contributions:
    """The contributions of an accumulation to each of m cells.

    `count`: the number of tagged contributions. All of these have the fields `schema`, united in `fields`. `stray`:
    there is an untagged contribution that is not the identity. `mixed`: a reason number, or -1."""

    count: Array
    schema: Array
    fields: dict[str, Field]
    stray: Array
    mixed: Array


def gather(new: Tags, identity: Array, group: Array, m: int) -> Contributions:
    """Group the contributions `new` by cell; `identity` marks those whose value is the operation's identity."""
    schemas = new.schemas
    status = new.status
    harmless = (status == CONSTANT) & identity
    stray = np.zeros(m, dtype=np.bool_)
    stray[group[((status == CONSTANT) | (status == NEUTRAL)) & ~harmless]] = True
    mixed = np.full(m, -1, dtype=np.int32)
    mixed[group[status == BOTTOM]] = schemas.reason("an uninitialised value was accumulated")
    top = status == TOP
    mixed[group[top]] = new.reason[top]
    at = np.flatnonzero(status == TAGGED)
    to = group[at]
    count = np.bincount(to, minlength=m)
    low = np.full(m, np.iinfo(np.int16).max, dtype=np.int16)
    high = np.full(m, -1, dtype=np.int16)
    np.minimum.at(low, to, new.schema[at])
    np.maximum.at(high, to, new.schema[at])
    mixed[(count > 0) & (low != high)] = schemas.reason("contributions with different tag fields were accumulated")
    fields: dict[str, Field] = {}
    for number in np.unique(new.schema[at]):
        for name in schemas.names[int(number)]:
            fields.setdefault(name, unite(new.field(name).take(at), to, m))
    return Contributions(count, high, fields, stray, mixed)


def unite(field: Field, group: Array, m: int) -> Field:
    """Return the multiset unions by group."""
    result = Field.blank(m)
    result.low[:] = np.iinfo(np.int64).max
    result.high[:] = np.iinfo(np.int64).min
    np.minimum.at(result.low, group, field.low)
    np.maximum.at(result.high, group, field.high)
    np.add.at(result.size, group, field.size)
    np.add.at(result.print, group, field.print)
    return result


def accumulate(old: Tags, start: Array, new: Contributions) -> Tags:
    """Apply rule 4: return the tags of the cells after an accumulation. `start`: the cell held a known identity before.
    """
    schemas = old.schemas
    result = old.take(np.arange(len(old)))
    some = new.count > 0
    known = old.status == TAGGED
    fresh = some & ~known
    result.status[~some & new.stray & ~known & (old.status != TOP)] = NEUTRAL
    for name, f in new.fields.items():
        target = result.field(name)
        at = np.flatnonzero(fresh)
        target.put(at, f.take(at))
        at = np.flatnonzero(some & known)
        target.put(at, _union(target.take(at), f.take(at)))
    result.status[fresh] = np.where(old.status[fresh] == TOP, TOP, TAGGED)
    result.schema[fresh] = new.schema[fresh]
    result.summed[some] = True
    blame = [
        (new.mixed >= 0, None),
        (old.status == BOTTOM, "accumulated into a cell that was never written"),
        (fresh & ~start, "accumulated into a cell that did not hold the identity element of the operation"),
        (some & known & ~old.summed, "accumulated into a cell that already carried a tag"),
        (some & known & (old.schema != new.schema), "contributions with different tag fields were accumulated"),
        ((some | known) & new.stray, "an untagged value that is not the identity was accumulated with tagged ones"),
    ]
    for where, text in blame:
        if where.any():
            where = where & (result.status != TOP)
            result.reason[where] = new.mixed[where] if text is None else schemas.reason(text)
            result.status[where], result.schema[where] = TOP, -1
    return result


def _union(a: Field, b: Field) -> Field:
    return Field(np.minimum(a.low, b.low), np.maximum(a.high, b.high), a.size + b.size, a.print + b.print)
