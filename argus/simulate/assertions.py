"""Execute `Tag` and `AssertTags`: give tags to tiles, and compare tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from argus.ir.expr import Coord, Elem, walk
from argus.ir.nodes import AssertTags, DataValue, Once, Tag, TagCondition, TagEqual, TagField, TagTerm, TagTuple
from argus.simulate import checked
from argus.simulate.machine import Block
from argus.simulate.memory import GlobalTensor, Memory, Registers, SharedTile
from argus.simulate.numeric import Array
from argus.simulate.provenance import members, way
from argus.simulate.step import AccessCells, Frame, Step
from argus.simulate.tagset import BOTTOM, CONSTANT, NEUTRAL, TAGGED, TOP, Field, Tags, hashed
from argus.simulate.terms import MISSING, Term, field_text, ghost, of_place, select, tag_text, term

_RUNS = 8
"""Largest number of runs of contributions that a message lists."""
_CHUNK = 1 << 19
"""Number of elements of an assertion's box that are checked together."""


# ---------------------------------------------------------------------------- Tag


def tag(block: Block, stmt: Tag, frame: Frame) -> None:
    """Give a tile's elements new tags. Tags of tensors hold for the whole kernel and are evaluated when they are read.
    """
    memory = block.memories[stmt.obj]
    if block.run.schemas is None or isinstance(memory, GlobalTensor) or memory.tags is None:
        return
    if isinstance(memory, Registers):
        step = block.step(stmt, frame, memory.layout)
        cell = np.arange(step.domain.size)
        at = np.flatnonzero(step.on)
    else:
        assert isinstance(memory, SharedTile)
        coords = tuple(c.reshape(-1) for c in np.indices(memory.shape))
        step = block.box(stmt, coords, len(memory.cells), frame)
        cell = memory.cells
        at = np.arange(len(cell))
    old = memory.tags.take(cell)
    new = Tags.uniform(len(cell), TAGGED, block.run.schemas)
    new.schema[:] = block.run.schemas.number(tuple(name for name, _ in stmt.fields))
    for name, value in stmt.fields:
        side = term(block, value, step)
        new.fields[name] = side.field
        _lacking(side, new, step, name)
    new.status[old.status == BOTTOM] = BOTTOM
    memory.tags.put(cell[at], new.take(at))


def _lacking(side: Term, new: Tags, step: Step, name: str) -> None:
    """Mark the new tag as mixed where it copies a field from an element that has no such field."""
    bad = (side.kind != TAGGED) & step.on
    if bad.any() and side.place is not None:
        schemas = new.schemas
        new.mix(bad, schemas.reason(f"field `{name}` was taken from an element that does not carry it"))


# ---------------------------------------------------------------------------- AssertTags


@dataclass(frozen=True, slots=True)
class _Box:
    """The coordinates at which an assertion is checked. `extents` is set if they form a whole box, with the last axis
    fastest."""

    stmt: AssertTags
    frame: Frame
    coords: tuple[Array, ...]
    extents: tuple[int, ...] | None

    @property
    def size(self) -> int:
        return len(self.coords[0]) if self.coords else 1

    def step(self, block: Block) -> Step:
        """Return the domain of these coordinates."""
        return block.box(self.stmt, self.coords, self.size, self.frame)

    def along(self, axes: frozenset[int]) -> tuple[_Box, Array | None]:
        """Return the box of the given axes alone, and the position in it of every coordinate of this box (None for its
        own)."""
        if self.extents is None or len(axes) == len(self.extents):
            return self, None
        kept = tuple(n if axis in axes else 1 for axis, n in enumerate(self.extents))
        position = np.arange(int(np.prod(kept))).reshape(kept)
        first = np.zeros((), dtype=np.int64)
        for axis, n in enumerate(self.extents):
            stride = int(np.prod(self.extents[axis + 1 :], dtype=np.int64))
            steps = np.arange(n if axis in axes else 1) * stride
            first = np.add.outer(first, steps)
        coords = tuple(c[first.reshape(-1)] for c in self.coords)
        return _Box(self.stmt, self.frame, coords, None), np.broadcast_to(position, self.extents).reshape(-1)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a comparison, at the coordinates on which it depends. `at` maps the coordinates of the whole box to
    them."""

    term: Term
    at: Array | None = None

    def spread(self, values: Array) -> Array:
        """Return the values of the term's elements at all coordinates of the box."""
        return values if self.at is None else values[self.at]

    def index(self, at: int) -> int:
        """Return the term's element at a coordinate of the box."""
        return at if self.at is None else int(self.at[at])


def check(block: Block, stmt: AssertTags, frame: Frame) -> None:
    """Compare at every coordinate of the box under `where`, for every replica of every element."""
    if block.run.schemas is None:
        return
    for box in _boxes(stmt, frame):
        if stmt.where is not None:
            step = box.step(block)
            keep = checked.value(block, stmt.where, step, step.on)
            box = _Box(stmt, frame, tuple(c[keep] for c in box.coords), None)
            if not keep.any():
                continue
        if not frame.active.all() and (held := _held(block, stmt, box)) is not None:
            box = _Box(stmt, frame, tuple(c[held] for c in box.coords), None)
            if not held.any():
                continue
        for condition in stmt.conditions:
            for replica in range(_most_replicas(block, condition)):
                if isinstance(condition, TagEqual):
                    _equal(block, condition, box, replica)
                else:
                    _tuple(block, condition, box.step(block), replica)


def _held(block: Block, stmt: AssertTags, box: _Box) -> Array | None:
    """Return the coordinates whose registers the executing threads hold, or None if the assertion reads none."""
    step, result = box.step(block), None
    for elem in (elem for condition in stmt.conditions for elem in _elements(condition)):
        memory = block.memories[elem.obj]
        if isinstance(memory, Registers):
            place = ghost(block, elem, step, 0)
            mine = box.frame.active[place.cell // memory.per_thread] & place.ok
            result = mine if result is None else result & mine
    return result


def _boxes(stmt: AssertTags, frame: Frame) -> Iterator[_Box]:
    """Yield the coordinates of the statement's box in pieces along the first axis."""
    shape = stmt.shape
    if not shape:
        yield _Box(stmt, frame, (), None)
        return
    rest = int(np.prod(shape[1:], dtype=np.int64))
    rows = max(1, _CHUNK // max(1, rest))
    for start in range(0, shape[0], rows):
        extents = (min(rows, shape[0] - start), *shape[1:])
        piece = np.indices(extents).reshape(len(shape), -1)
        yield _Box(stmt, frame, (piece[0] + start, *piece[1:]), extents)


def _most_replicas(block: Block, condition: TagCondition) -> int:
    """Return the largest number of registers that hold one element of a fragment in the condition."""
    most = 1
    for elem in _elements(condition):
        memory = block.memories[elem.obj]
        if isinstance(memory, Registers):
            most = max(most, int(memory.layout.counts().max()))
    return most


def _elements(condition: TagCondition) -> list[Elem]:
    """Return the elements whose tags a condition reads."""
    whole: list[Elem] = [condition.elem] if isinstance(condition, TagTuple) else []
    sides = condition.terms if isinstance(condition, TagTuple) else (condition.left, condition.right)
    return [*whole, *(s.elem for s in sides if isinstance(s, TagField))]


def _axes(value: TagTerm) -> frozenset[int]:
    """Return the quantified coordinates on which a side of the condition depends."""
    match value:
        case TagField(elem=elem):
            exprs = elem.index
        case Once(lo=lo, hi=hi):
            exprs = (lo, hi)
        case DataValue(index=index):
            exprs = index
        case _:
            exprs = (value,)
    return frozenset(e.axis for expr in exprs for e in walk(expr) if isinstance(e, Coord))


def _equal(block: Block, condition: TagEqual, box: _Box, replica: int) -> None:
    sides, usable = [], []
    for value in (condition.left, condition.right):
        part, at = box.along(_axes(value))
        step = part.step(block)
        side = _Side(term(block, value, step, replica), at)
        sides.append(side)
        usable.append(side.spread(_usable(block, side.term, step)))
    left, right = sides
    shown = left if left.term.place is not None else right
    if shown.term.place is None:
        return
    name = next(s.name for s in (condition.left, condition.right) if isinstance(s, TagField))
    _compare(block, box.step(block), left, right, usable[0] & usable[1], shown, name)


def _tuple(block: Block, condition: TagTuple, step: Step, replica: int) -> None:
    place = ghost(block, condition.elem, step, replica)
    tags = of_place(block, place, step)
    tags.status[~place.ok] = NEUTRAL
    whole = Term(Field.blank(step.domain.size), tags.status, place, tags)
    judged = _usable(block, whole, step)
    count = len(condition.terms)
    lengths = np.array([len(names) for names in tags.schemas.names] or [0])
    wrong = judged & (tags.status == TAGGED) & (lengths[tags.schema] != count)
    if wrong.any():
        at = int(np.argmax(wrong))
        _mismatch(block, step, whole, at, int(wrong.sum()), tag_text(tags, at), f"{count} fields")
    judged &= ~wrong
    for position, value in enumerate(condition.terms):
        right = term(block, value, step, replica)
        left = select(tags, position, place)
        both = judged & _usable(block, right, step)
        _compare(block, step, _Side(left), _Side(right), both, _Side(whole), position)


def _usable(block: Block, side: Term, step: Step) -> Array:
    """Return a mask of the positions at which `side` can be compared; report the others."""
    if side.place is None or side.tags is None:
        return np.ones(step.domain.size, dtype=np.bool_)
    name, kind, ok = side.place.memory.name, side.kind, side.place.ok
    never = ok & (kind <= NEUTRAL) & (name not in block.run.taggable)
    unwritten = f"the tag of an element of {name} is used that nothing has written"
    reports = (
        (ok & (kind == BOTTOM), "tag-mismatch", unwritten),
        (kind == TOP, "tag-mismatch", f"an element of {name} carries no definite tag"),
        (kind == MISSING, "tag-mismatch", f"an element of {name} has no field of that name"),
        (never & (kind != BOTTOM), "vacuous-assertion", f"no element of {name} ever carries a tag"),
    )
    for bad, code, text in reports:
        if bad.any():
            at = int(np.argmax(bad))
            arrived = tag_text(side.tags, at)
            _report(block, step, code, text, side.place, at, int(bad.sum()), arrived, "a tag")
    return np.asarray(ok & np.isin(kind, (TAGGED, CONSTANT, NEUTRAL)) & ~never)


def _compare(block: Block, step: Step, left: _Side, right: _Side, judged: Array, shown: _Side, name: str | int) -> None:
    """Report where two sides differ. An untagged element stands for the empty set, and for any single integer."""
    one, two = left.term.field, right.term.field
    if left.term.once or right.term.once:
        same = left.spread(one.exact()) == right.spread(two.exact())
    else:
        same = left.spread(one.code()) == right.spread(two.code())
        same |= left.spread(left.term.kind != TAGGED) | right.spread(right.term.kind != TAGGED)
    bad = judged & ~same
    if not bad.any():
        return
    at = int(np.argmax(bad))
    first, second = (left, right) if left.term.place is not None else (right, left)
    arrived, i, expected, j = first.term, first.index(at), second.term, second.index(at)
    came, wanted = field_text(arrived.field, i), field_text(expected.field, j)
    key = _key(arrived, i, name)
    if expected.once:
        low, high = int(expected.field.low[j]), int(expected.field.high[j])
        wanted = f"each of {low} to {high} once" if high >= low else "no contribution"
        came = (_members_text(block, arrived, i, key) if key else "") or came
    _mismatch(block, step, shown.term, shown.index(at), int(bad.sum()), f"{key or name} = {came}", wanted)


def _key(side: Term, at: int, name: str | int) -> str:
    """Return the name of a field that is given by name or by position; empty for an element without fields."""
    if isinstance(name, str):
        return name
    if side.tags is None or side.tags.status[at] != TAGGED:
        return ""
    return side.tags.schemas.names[int(side.tags.schema[at])][name]


def _members_text(block: Block, side: Term, at: int, name: str) -> str:
    """Return the contributions one by one if they were recorded, as runs of integers with equal multiplicity."""
    if side.place is None or side.tags is None or side.kind[at] != TAGGED:
        return ""
    found = members(block, side.place.memory.name, int(side.place.cell[at]), name)
    if not found or not side.field.take(np.array([at])).same(_multiset(found))[0]:
        return ""
    runs: list[list[int]] = []
    for value, times in sorted(found.items()):
        if runs and runs[-1][1] == value - 1 and runs[-1][2] == times:
            runs[-1][1] = value
        else:
            runs.append([value, value, times])
    texts = [
        (str(low) if low == high else f"{low} to {high}") + ("" if times == 1 else f" {times} times")
        for low, high, times in runs[:_RUNS]
    ]
    return ", ".join(texts) + (", ..." if len(runs) > _RUNS else "")


def _multiset(found: Counter[int]) -> Field:
    values, times = np.array(list(found)), np.array(list(found.values()))
    with np.errstate(over="ignore"):
        print_ = np.sum(hashed(values) * times.astype(np.uint64), dtype=np.uint64)
    return Field(values.min(keepdims=True), values.max(keepdims=True), times.sum(keepdims=True), np.array([print_]))


def _mismatch(block: Block, step: Step, shown: Term, at: int, count: int, arrived: str, expected: str) -> None:
    assert shown.place is not None
    name = shown.place.memory.name
    text = f"an element of {name} carries another tag than asserted"
    _report(block, step, "tag-mismatch", text, shown.place, at, count, arrived, expected)


def _report(
    block: Block,
    step: Step,
    code: str,
    text: str,
    place: AccessCells,
    at: int,
    count: int,
    arrived: str,
    expected: str,
) -> None:
    cell = int(place.cell[at])
    memory = place.memory
    if not block.run.log.wants(step.stmt, code, memory.name):
        return
    thread = memory.first + cell // memory.per_thread if isinstance(memory, Registers) else _writer(memory, cell)
    block.report(
        step,
        "tags",
        code,
        text,
        thread,
        memory,
        cell,
        arrived=arrived,
        expected=expected,
        count=count,
        provenance=way(block, memory.name, cell),
    )


def _writer(memory: Memory, cell: int) -> int | None:
    """Return the thread of the block that last wrote a cell of shared or global memory."""
    return None if memory.order is None else memory.order.writer(cell)
