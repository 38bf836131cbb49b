"""Tags, assertions on tags, and specifications. They cost nothing at run time, because nothing is emitted for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Union

from argus.ir.expr import Elem, Expr
from argus.ir.statement import CONDITION, Statement
from argus.ir.types import DType


@dataclass(frozen=True, slots=True)
class TagField:
    """A field of the tag that `elem` carries, by name, or by position if `name` is an int."""

    elem: Elem
    name: str | int


@dataclass(frozen=True, slots=True)
class Once:
    """A set of contributions: every integer of [lo, hi) exactly once."""

    lo: Expr
    hi: Expr


@dataclass(frozen=True, slots=True)
class DataValue:
    """The integer that an index tensor holds at a coordinate, as an uninterpreted value."""

    tensor: str
    index: tuple[Expr, ...]


TagTerm = Union[TagField, Once, DataValue, Expr]


@dataclass(frozen=True, slots=True)
class TagEqual:
    """The condition `left == right`. Both sides are scalar, or one is a contribution set and the other a `Once`."""

    left: TagTerm
    right: TagTerm


@dataclass(frozen=True, slots=True)
class TagTuple:
    """The condition `tag(elem) == (terms...)`: the same number of fields, pairwise equal."""

    elem: Elem
    terms: tuple[TagTerm, ...]


TagCondition = Union[TagEqual, TagTuple]


@dataclass(frozen=True, slots=True)
class Tag(Statement):
    """States that the elements `obj[c0, c1, ...]` carry the tag `fields` from this point on, over the `Coord`s of
    `obj`.

    A tag on a tensor belongs to the elements in memory, for the whole kernel. A tag on a fragment or shared tile
    belongs to the tile's contents at this point; a field may use the tag that an element carried before (`TagField`).
    """

    FORM: ClassVar[str] = "tag {obj}{shape} = {fields}"
    obj: str
    shape: tuple[Expr, ...]
    fields: tuple[tuple[str, TagTerm], ...]


@dataclass(frozen=True, slots=True)
class AssertTags(Statement):
    """States that all `conditions` hold here for every value of the quantified `Coord`s in the box `shape` under
    `where`."""

    FORM: ClassVar[str] = "assert ({names}) in {shape} {conditions}(? where {where})"
    shape: tuple[int, ...]
    names: tuple[str, ...]
    conditions: tuple[TagCondition, ...]
    where: Expr | None = field(default=None, metadata=CONDITION)


@dataclass(frozen=True, slots=True)
class SpecReduce:
    """The reduction by `op` of `body` over `Coord(axis)` in [0, extent), a bound variable of a specification.

    `op` is a key of `REDUCTIONS`, or "logaddexp": the logarithm of the sum of the exponentials.
    """

    op: str
    axis: int
    extent: Expr
    body: SpecTerm
    dtype: DType


@dataclass(frozen=True, slots=True)
class SpecOp:
    """An operator over specification terms."""

    op: str
    args: tuple[SpecTerm, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class SpecSoftmax:
    """The weight of `Coord(axis)` = `at` in the softmax of `score` over `Coord(axis)` in [0, extent).

    The weight is exp(score) at `at` divided by the sum of exp(score). A score of -inf has weight 0, even if all scores
    are -inf.
    """

    axis: int
    extent: Expr
    at: Expr
    score: SpecTerm
    dtype: DType


SpecTerm = Union[SpecReduce, SpecSoftmax, SpecOp, Expr]


@dataclass(frozen=True, slots=True)
class Spec(Statement):
    """States that `output[c0, ...] = value` at the end of the kernel, for every element. Casts that only round are
    ignored."""

    FORM: ClassVar[str] = "spec {output}({names}) = {value}"
    output: str
    names: tuple[str, ...]
    value: SpecTerm
