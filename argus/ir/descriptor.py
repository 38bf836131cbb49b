"""Descriptors of statements, from which printer, parser, visitor and checks are derived.

A statement declares its fields, as a dataclass, and its text form, as `FORM`. The types of the fields determine their
kinds: expressions, accesses, layouts, blocks of statements, options. A new statement is therefore one class, and a new
option of a statement is one field and its place in the form.

In a form, `{field}` stands for the text of a field. All other characters stand for themselves, spaces included:

    copy {dst} <- {src} shape {shape}(? if {mask})(? vector {vector})(?once: once)

`(? ... )` is printed only if one of its fields differs from its absent value, which is its default, or None if there is
no default. `(?field: text)` is the text of a field that is True.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from types import MappingProxyType, NoneType
from typing import Any, Union, get_args, get_origin, get_type_hints

from argus.ir.expr import Const, Expr
from argus.ir.nodes import COPIES, Access, Copy, Hint, SpecTerm, Stmt, TagCondition, TagTerm, Watch
from argus.ir.ordering import HINTS
from argus.ir.statement import Statement
from argus.ir.watch import WATCHES, Quoted
from argus.layout import FragmentLayout


class Kind(Enum):
    """The kind of value that a field holds, derived from its type."""

    ACCESS = auto()  # cells of a memory object
    EXPRESSION = auto()  # over the coordinates and names that the statement can see
    CONSTANT = auto()
    NUMBER = auto()
    FLAG = auto()
    NAME = auto()  # the name of an object, an instruction, or a choice
    NAMES = auto()
    QUOTED = auto()  # text for a reader
    SHAPE = auto()  # numbers, as in 128x64
    EXTENTS = auto()  # expressions of the launch, as in [M, N]
    LAYOUT = auto()
    FIELDS = auto()  # terms of a tag, by name
    CONDITIONS = auto()  # conditions on tags
    MEANING = auto()  # a term of a specification
    BLOCK = auto()  # a list of statements
    PART = auto()  # a node that is not a statement, with its own form
    PARTS = auto()  # any number of such nodes, one after another
    BLOCKS = auto()  # any number of such nodes, each on its own lines


_KINDS: tuple[tuple[Any, Kind], ...] = (
    (Access, Kind.ACCESS),
    (Const, Kind.CONSTANT),
    (Expr, Kind.EXPRESSION),
    (bool, Kind.FLAG),
    (int, Kind.NUMBER),
    (str, Kind.NAME),
    (Quoted, Kind.QUOTED),
    (FragmentLayout, Kind.LAYOUT),
    (tuple[str, ...], Kind.NAMES),
    (tuple[Expr, ...], Kind.EXTENTS),
    (tuple[tuple[str, TagTerm], ...], Kind.FIELDS),
    (tuple[TagCondition, ...], Kind.CONDITIONS),
    (SpecTerm, Kind.MEANING),
    (tuple[Stmt, ...], Kind.BLOCK),
)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a node. `absent` is its value if the text leaves the field out; `part` is the class of the nodes in
    it.

    `spaces` are the kinds of objects that an access may name, or empty for any kind. A `condition` is an expression
    that is a truth value.
    """

    name: str
    kind: Kind
    absent: object
    part: type | None = None
    spaces: tuple[type, ...] = ()
    condition: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A literal piece of text."""

    text: str


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of a field in a form."""

    field: Field


@dataclass(frozen=True, slots=True)
class Flag:
    """A text that is printed if the field is True."""

    field: Field
    text: str


@dataclass(frozen=True, slots=True)
class Option:
    """An optional piece of a form. It is left out if all of its fields have their absent values."""

    pieces: tuple[Text | Hole, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the piece, in order."""
        return tuple(p.field for p in self.pieces if isinstance(p, Hole))


Piece = Union[Text, Hole, Flag, Option]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The derived description of a class of nodes: its fields by name, in order, and the pieces of its text form.

    `accesses`, `expressions` and `blocks` are the fields that contain such values, directly or in their parts.
    """

    node: type
    name: str
    fields: Mapping[str, Field]
    form: tuple[Piece, ...]
    accesses: tuple[Field, ...]
    expressions: tuple[Field, ...]
    blocks: tuple[Field, ...]


STATEMENTS: tuple[type, ...] = (*COPIES, *(s for s in get_args(Stmt) if s not in (Copy, Hint, Watch)), *HINTS, *WATCHES)
"""The classes of all statements."""


_OVER = frozenset({Kind.ACCESS, Kind.EXPRESSION, Kind.FIELDS, Kind.CONDITIONS})
"""Kinds of fields that use the coordinates of a statement, and are rewritten with it."""


_PARTS = frozenset({Kind.PART, Kind.PARTS})


def describe(node: type) -> Descriptor:
    """Return the descriptor of a class of nodes that has a `FORM`. Raises `TypeError` for a field that the form lacks.
    """
    key: Any = node
    return _describe(key)


@cache
def _describe(node: Any) -> Descriptor:
    hints = get_type_hints(node)
    shared = {"span", *(f.name for f in dataclasses.fields(Statement))}
    fields = {f.name: _field(f, hints[f.name]) for f in dataclasses.fields(node) if f.name not in shared}
    form = tuple(_pieces(node.FORM, fields))
    missing = fields.keys() - {f.name for p in form for f in _named(p)}
    if missing:
        raise TypeError(f"the text form of {node.__name__} leaves out {', '.join(sorted(missing))}")
    words = re.findall(r"[A-Z][a-z]*", node.__name__)
    every = fields.values()
    return Descriptor(
        node,
        "_".join(words).lower() + "_node",
        MappingProxyType(fields),
        form,
        accesses=tuple(f for f in every if f.kind is Kind.ACCESS or (f.kind is Kind.PARTS and _part(f).accesses)),
        expressions=tuple(f for f in every if f.kind in _OVER or (f.kind in _PARTS and _part(f).expressions)),
        blocks=tuple(f for f in every if f.kind in (Kind.BLOCK, Kind.BLOCKS)),
    )


def _part(field: Field) -> Descriptor:
    assert field.part is not None
    return describe(field.part)


def parts(node: type) -> Iterator[type]:
    """Yield the classes of nodes, other than statements, that occur in nodes of this class at any depth."""
    for field in describe(node).fields.values():
        if field.part is not None:
            yield field.part
            yield from parts(field.part)


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    absent = None if field.default is dataclasses.MISSING else field.default
    some = [option for option in get_args(hint) if option is not NoneType]
    if NoneType in get_args(hint):
        hint = Union[tuple(some)]
    for known, kind in _KINDS:
        if hint == known:
            spaces, condition = field.metadata.get("spaces", ()), field.metadata.get("condition", False)
            return Field(field.name, kind, absent, spaces=spaces, condition=condition)
    if get_origin(hint) is tuple:
        member = get_args(hint)[0]
        if member is int:
            return Field(field.name, Kind.SHAPE, absent)
        # Fields with a default follow the statement's text; fields without one are part of it.
        return Field(field.name, Kind.BLOCKS if absent is None else Kind.PARTS, absent, member)
    return Field(field.name, Kind.PART, absent, hint)


_FORM = re.compile(r"\(\?(?P<flag>\w+):(?P<text>[^)]*)\)|\(\?(?P<option>[^)]*)\)|\{(?P<hole>\w+)\}|(?P<own>[^{(]+|\()")


def _pieces(form: str, fields: Mapping[str, Field]) -> Iterator[Piece]:
    for found in _FORM.finditer(form):
        if found["flag"] is not None:
            yield Flag(fields[found["flag"]], found["text"])
        elif found["option"] is not None:
            yield Option(tuple(p for p in _pieces(found["option"], fields) if isinstance(p, Text | Hole)))
        elif found["hole"] is not None:
            yield Hole(fields[found["hole"]])
        else:
            yield Text(found["own"])


def _named(piece: Piece) -> tuple[Field, ...]:
    match piece:
        case Text():
            return ()
        case Hole(field=field) | Flag(field=field):
            return (field,)
        case Option():
            return piece.fields
